/**
 * Which chunk a rank sends and receives at each step of a ring collective: pure functions of rank and size.
 *
 * Data flows one way, from rank r to rank r + 1 (modulo size). At every step a rank passes on the chunk that it received
 * at the step before. After reduce-scatter rank r owns chunk r: chunk c starts at rank c + 1 and collects
 *
 *     x[c+1] + x[c+2] + ... + x[size-1] + x[0] + ... + x[c]      (indices modulo size)
 *
 * from left to right, once around the ring, so its bits depend on c and size alone.
 */

/** What happens to a received chunk: it is added to what the buffer holds, or takes its place. */
export type Combine = 'add' | 'copy'

export interface RingStep {
  /** Chunk sent to rank + 1 at this step; -1 for none. */
  sendChunk: number
  /** Chunk received from rank - 1 at this step; -1 for none. */
  receiveChunk: number
  combine: Combine
}

export type RingPattern = 'reduceScatter' | 'allGather' | 'allReduce' | 'broadcast'

/**
 * Returns the steps of `rank`, in order; the index is the step number on the wire. Empty for a group of one.
 *
 * cost: steps, and bytes sent per rank for a buffer of S bytes on N ranks:
 * reduceScatter and allGather N-1 steps, (N-1)/N * S; allReduce 2(N-1) steps, 2(N-1)/N * S;
 * broadcast N-1 steps, S (the last rank of the line sends nothing).
 * order: see the top of the file. source: the ring of Baidu's and gloo's all-reduce, shifted so that rank r owns chunk r.
 */
export function ringSchedule(
  pattern: RingPattern,
  rank: number,
  size: number,
  root = 0,
): RingStep[] {
  const hops = Array.from({ length: size - 1 }, (_, hop) => hop)
  const chunk = (index: number) => (((rank + index) % size) + size) % size
  switch (pattern) {
    case 'reduceScatter':
      return hops.map((hop) => ({
        sendChunk: chunk(-1 - hop),
        receiveChunk: chunk(-2 - hop),
        combine: 'add',
      }))
    case 'allGather':
      return hops.map((hop) => ({
        sendChunk: chunk(-hop),
        receiveChunk: chunk(-1 - hop),
        combine: 'copy',
      }))
    case 'allReduce':
      return [
        ...ringSchedule('reduceScatter', rank, size),
        ...ringSchedule('allGather', rank, size),
      ]
    case 'broadcast': {
      // The whole buffer is chunk 0 and walks down the line root, root + 1, ..., root - 1.
      const distance = chunk(-root)
      return hops.map((hop) => ({
        sendChunk: hop === distance ? 0 : -1,
        receiveChunk: hop === distance - 1 ? 0 : -1,
        combine: 'copy',
      }))
    }
  }
}

/** A half-open range of elements. */
export interface ChunkRange {
  start: number
  end: number
}

/**
 * Returns the elements of chunk `index` when `length` elements are cut into `size` chunks.
 *
 * units: elements. Chunks are contiguous, in order, cover everything, and differ by at most one `alignment` unit; every
 * start is a multiple of `alignment` (or equals `length`). With few units some chunks are empty. Use an alignment of 64
 * where a chunk of float32 is bound on the GPU (256 bytes).
 */
export function chunkRange(length: number, size: number, index: number, alignment = 1): ChunkRange {
  const units = Math.ceil(length / alignment)
  const base = Math.floor(units / size)
  const longer = units % size
  const firstUnit = (chunk: number) => chunk * base + Math.min(chunk, longer)
  return {
    start: Math.min(length, firstUnit(index) * alignment),
    end: Math.min(length, firstUnit(index + 1) * alignment),
  }
}
