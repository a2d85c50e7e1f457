import type { GradBucket } from './grad-bucket.ts'
import type { WireNumber } from './wire-numbers.ts'

/**
 * Returns a bucket's gradients as all ranks make them together, or a promise of it: what is to be their mean, as in PyTorch.
 *
 * Of what it returns, the elements of `bucket.ownRange()` count.
 */
export type CommHook<State> = (
  state: State,
  bucket: GradBucket,
) => Float32Array | Promise<Float32Array>

/**
 * The mean, in float32: what happens without a hook, as torch's allreduce_hook. The state is not looked at.
 *
 * Of what it returns, this rank's range is the mean; the rest is its own share.
 */
export const allreduceHook: CommHook<unknown> = (_, bucket) => meanOf(bucket)

/** The mean over the ranks: the sum of what is divided by their number already, as PyTorch's own hooks do it. */
function meanOf(bucket: GradBucket): Promise<Float32Array> {
  bucket.weighed()
  return bucket.reduceScatter()
}

/** The mean of gradients that travel as float16: half the bytes; beyond 65504 they are infinite. As torch's fp16_compress_hook. */
export const fp16CompressHook: CommHook<unknown> = (_, bucket) => meanOf(bucket.in16Bits('f16'))

/** The mean of gradients that travel as bfloat16: half the bytes, float32's range, 8 bits of precision. As torch's bf16_compress_hook. */
export const bf16CompressHook: CommHook<unknown> = (_, bucket) => meanOf(bucket.in16Bits('bf16'))

const wrapped =
  <State>(hook: CommHook<State>, number: WireNumber): CommHook<State> =>
  (state, bucket) =>
    hook(state, bucket.in16Bits(number))

/** The hook with what it sums over the ranks in float16, such as PowerSGD's factors. As torch's fp16_compress_wrapper. */
export const fp16CompressWrapper = <State>(hook: CommHook<State>): CommHook<State> =>
  wrapped(hook, 'f16')

/** The hook with what it sums over the ranks in bfloat16. As torch's bf16_compress_wrapper. */
export const bf16CompressWrapper = <State>(hook: CommHook<State>): CommHook<State> =>
  wrapped(hook, 'bf16')
