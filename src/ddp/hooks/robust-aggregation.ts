import { type Aggregation, aggregate } from './aggregate.ts'
import { keys } from './collective-keys.ts'
import type { GradBucket } from './grad-bucket.ts'
import { type BucketNorms, type LeftOut, LeftOutRanks, type RobustOptions } from './left-out.ts'
import { hookReducer, type SumBeside } from './reducer.ts'

/**
 * Reduces gradients so that a rank that sends wrong ones does not decide the result.
 *
 * Each rank gets all ranks' gradients of the range that it updates and measures them there, and all learn these norms, and the one that each
 * rank reports for its whole gradient. Some are left out (`LeftOutRanks`); the rest is aggregated, each rank counting the same.
 * It does not protect the range that a lying rank updates itself, nor from ranks that work together and are half of all or more.
 * cost: the bytes of a plain reduce-scatter, and 4 (N + 1) for each bucket; N gradients of a range on the host.
 */
export class RobustAggregation {
  /** Called on all ranks, once for each bucket of which ranks were left out. */
  onLeftOut: ((found: LeftOut) => void) | undefined
  /** All that a step hands to the next. */
  readonly leftOut: LeftOutRanks
  readonly #aggregation: Aggregation

  constructor({ aggregation, trust }: RobustOptions) {
    this.#aggregation = aggregation
    this.leftOut = new LeftOutRanks(trust)
  }

  readonly reduce = async (bucket: GradBucket): Promise<Float32Array> => {
    const values = bucket.buffer()
    const parts = await bucket.allToAllRanges(({ start, end }) => bytesOf(values.slice(start, end)))
    const ranks = parts.map(floatsOf)
    const norms = await this.#share(bucket, [...ranks.map(normOf), normOf(values)])
    const found = this.leftOut.judge(bucket.index(), values.length, norms)
    if (found.ranks.length > 0) this.onLeftOut?.(found)
    if (this.#aggregation === 'mean')
      for (const [rank, scale] of this.leftOut.scales(norms).entries())
        if (scale < 1) for (let i = 0; i < ranks[rank].length; i++) ranks[rank][i] *= scale
    const kept = ranks.filter((_, rank) => !found.ranks.includes(rank))
    const result = Float32Array.from(values)
    const { start, end } = bucket.ownRange()
    if (kept.length > 0) result.set(aggregate(this.#aggregation, kept), start)
    else result.fill(0, start, end)
    return result
  }

  /** `own`: what this rank has measured, by rank, and its whole gradient's norm. */
  async #share(bucket: GradBucket, own: readonly number[]): Promise<BucketNorms> {
    const { size } = bucket
    const table = await bucket.gatherNumbers(Float32Array.from(own))
    const rows = Array.from({ length: size }, (_, rank) => [
      ...table.subarray(rank * (size + 1), (rank + 1) * (size + 1)),
    ])
    const measured = rows.filter((_, owner) => {
      const { start, end } = bucket.ownRange(owner)
      // Who has nothing to measure has nothing to say.
      return end > start
    })
    return {
      claimed: rows.map((row) => row[size]),
      measured: measured.map((row) => row.slice(0, size)),
    }
  }

  /**
   * The sums of what ranks send beside the first bucket. A rank with an output that is not finite counts as the mean of the others. errors: those of
   * `StepNotes.check`.
   */
  readonly sumBeside: SumBeside = async (own, { group, notes, step }) => {
    const { size } = group
    const { length } = own
    const outputs = length - notes.words.length
    const all = await group.allGatherConcat(own, { ...step, bucket: keys.tail })
    const ranks = Array.from({ length: size }, (_, rank) =>
      all.subarray(rank * length, (rank + 1) * length),
    )
    notes.check(
      ranks.map((received) => received.subarray(outputs)),
      group.ranks,
    )
    /** By rank: whether all its outputs are finite. */
    const isSound = ranks.map((received) => received.subarray(0, outputs).every(Number.isFinite))
    const { length: count } = isSound.filter(Boolean)
    const isMended = 2 * count > size
    const sums = new Float32Array(length)
    for (const [rank, received] of ranks.entries())
      for (let i = isMended && !isSound[rank] ? outputs : 0; i < length; i++) sums[i] += received[i]
    if (isMended) for (let i = 0; i < outputs; i++) sums[i] *= size / count
    return sums
  }

  readonly reducer = hookReducer(this.reduce, this.sumBeside)
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array<ArrayBuffer>) =>
  new Uint8Array(buffer, byteOffset, byteLength)

/** A copy, which begins at a whole number of elements. */
const floatsOf = (bytes: Uint8Array): Float32Array<ArrayBuffer> =>
  new Float32Array(bytes.slice().buffer)

function normOf(values: Float32Array): number {
  let sum = 0
  for (let i = 0; i < values.length; i++) sum += values[i] * values[i]
  return Math.sqrt(sum)
}
