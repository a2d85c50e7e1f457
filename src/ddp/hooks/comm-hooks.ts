import { checkArgument } from '../../util/options.ts'
import type { GradBucket } from './grad-bucket.ts'
import { checkHook } from './hook-state.ts'
import type { WireType } from './wire-numbers.ts'

/**
 * Communication hook: returns a bucket's gradients reduced over the ranks, in place of their mean, or a promise of them. As in PyTorch.
 *
 * Only the elements of `bucket.ownRange()` in its result are used.
 */
export type CommHook<State> = (
  state: State,
  bucket: GradBucket,
) => Float32Array | Promise<Float32Array>

/**
 * Averages gradients in float32, as without a hook: torch's allreduce_hook. Ignores the state.
 *
 * In its result, this rank's range holds the mean; the rest holds only this rank's share of it.
 */
export const allreduceHook: CommHook<unknown> = (_, bucket) => meanOf('allreduceHook', bucket)

/** The mean over the ranks: the sum of what is divided by their number already, as PyTorch's own hooks do it. */
function meanOf(hook: string, bucket: GradBucket, number?: WireType): Promise<Float32Array> {
  checkHook(hook, bucket)
  const sent = number ? bucket.withWireType(number) : bucket
  sent.weighed()
  return sent.reduceScatter()
}

/** Averages gradients sent as float16: half the bytes; values beyond 65504 become infinite. As torch's fp16_compress_hook. */
export const fp16CompressHook: CommHook<unknown> = (_, bucket) =>
  meanOf('fp16CompressHook', bucket, 'f16')

/** Averages gradients sent as bfloat16: half the bytes, float32's range, 8 bits of precision. As torch's bf16_compress_hook. */
export const bf16CompressHook: CommHook<unknown> = (_, bucket) =>
  meanOf('bf16CompressHook', bucket, 'bf16')

function wrapped<State>(where: string, hook: CommHook<State>, number: WireType): CommHook<State> {
  checkArgument(where, 'hook', hook, typeof hook === 'function', 'a communication hook')
  return (state, bucket) => {
    checkHook(where, bucket)
    return hook(state, bucket.withWireType(number))
  }
}

/** Returns the hook, changed so that its sums over the ranks, such as PowerSGD's factors, travel as float16. As torch's fp16_compress_wrapper. */
export const fp16CompressWrapper = <State>(hook: CommHook<State>): CommHook<State> =>
  wrapped('fp16CompressWrapper', hook, 'f16')

/** Returns the hook, changed so that its sums over the ranks travel as bfloat16. As torch's bf16_compress_wrapper. */
export const bf16CompressWrapper = <State>(hook: CommHook<State>): CommHook<State> =>
  wrapped('bf16CompressWrapper', hook, 'bf16')
