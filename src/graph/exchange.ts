/**
 * How a step program and a group of ranks meet: the program knows buckets, the exchange knows the ring.
 *
 * Implemented over a process group by train/data-parallel.ts; the graph layer sees no peers.
 */
export interface GradientExchange {
  readonly rank: number
  readonly size: number
  /** Buckets close at this many bytes. */
  readonly bucketCapBytes: number
  /** False inside `noSync`: runs that begin now add up gradients and exchange nothing. */
  readonly isSynchronizing: boolean
  /** Elements [start, end) of a bucket of `length` elements that `rank` reduces and updates. */
  chunk(length: number, rank: number): { start: number; end: number }
  /** Sums over ranks in place; afterwards this rank's chunk holds the sum, the rest is undefined. `onMet`: all ranks have begun it. */
  reduceScatter(bucket: number, data: Float32Array<ArrayBuffer>, onMet?: () => void): Promise<void>
  /** Spreads every rank's chunk to all ranks, in place. */
  allGather(bucket: number, data: Float32Array<ArrayBuffer>, onMet?: () => void): Promise<void>
  /** As `allGather`, outside of steps: for what all ranks ask for alike, in the same order. */
  gather(data: Float32Array<ArrayBuffer>): Promise<void>
  /** Every rank's text, in rank order; outside of steps, as `gather`. */
  gatherTexts(own: string): Promise<readonly string[]>
  /** Every rank's `values`, in rank order; `index` counts such calls within the step. All ranks give equally many. */
  gatherScalars(
    index: number,
    values: Float32Array<ArrayBuffer>,
    onMet?: () => void,
  ): Promise<Float32Array<ArrayBuffer>>
  /** Resolves when all ranks hold rank 0's parameters; programs wait for it before they are made. */
  readonly ready: Promise<void>
  /** By which `sequence` the ring will report the collectives of the step that begins next. */
  readonly nextSequence: number
  /** Called once at the start of each step, before its first bucket. */
  beginStep(): void
}
