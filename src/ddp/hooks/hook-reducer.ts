import { TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { keys } from './collective-keys.ts'
import { GradBucket } from './grad-bucket.ts'
import { compareSettings, type RankGradients, type Reducer, scale } from './reducer.ts'

/** A communication hook with its state. */
export type BoundHook = (bucket: GradBucket) => Float32Array | Promise<Float32Array>

/** The sums over ranks of `own`: scalar outputs, then the words of the step's notes. */
export type SumBeside = (
  own: Float32Array<ArrayBuffer>,
  gradients: RankGradients,
) => Promise<Float32Array<ArrayBuffer>>

const sum: SumBeside = async (own, { group, step }) => {
  await group.allReduce(own, { ...step, bucket: keys.tail })
  return own
}

/** What a hook makes of gradients that count for what they are to count for. */
export const hookReducer =
  (hook: BoundHook, sumBeside = sum): Reducer =>
  async (gradients) => {
    const { group, bucket, place, data, notes, step, onstarted } = gradients
    const { elements } = bucket
    const tail = data.slice(elements)
    let factor: number
    if (place.index > 0) factor = await notes.settled
    else {
      const own = Float32Array.of(...tail, ...notes.words)
      const sums = await sumBeside(own, gradients)
      tail.set(sums.subarray(0, tail.length))
      const words = sums.subarray(tail.length)
      await compareSettings(gradients, words)
      // The first bucket's hook is called before the others', which wait for this.
      factor = notes.settle(words)
    }
    scale(data.subarray(0, elements), factor)
    const own = new GradBucket(group, bucket, place, data.slice(0, elements), {
      ...step,
      onstarted,
    })
    const reduced = await hook(own)
    if (!(reduced instanceof Float32Array) || reduced.length !== elements) {
      const got =
        reduced instanceof Float32Array ? `${reduced.length} elements` : kindOf(reduced as unknown)
      throw new TabringError(
        'graph.misuse',
        `registerCommHook: the hook must return a Float32Array of the bucket's ${elements} elements, got ${got}. Return an array of the length of bucket.buffer().`,
      )
    }
    data.set(reduced)
    data.set(tail, elements)
  }
