/**
 * One rank's part in a collective, as data: what goes to whom, what comes from whom, and what is done with it.
 *
 * A plan knows elements and ranks, no links, bytes or buffers. The algorithms that make plans are in algorithms/; exchange.ts carries one out.
 */

/** A half-open range of elements. */
export interface ChunkRange {
  start: number
  end: number
}

/** Elements that go to, or come from, another rank. `step` is their number on the wire: with the rank it names them on both sides. */
export interface Transfer {
  readonly peer: number
  readonly step: number
  /** Which chunk errors speak of. */
  readonly chunk: number
  readonly range: ChunkRange
}

/** Condition under which a range may be sent: a receive, or a fold, by its place in the plan. */
export type After = { readonly receive: number } | { readonly fold: number }

export interface Send extends Transfer {
  /** Of the same range; without it the elements are there from the start. */
  readonly after?: After
}

export interface Receive extends Transfer {
  /** copy: takes the place of what is there. reduce: is combined with it. aside: is kept for a fold. */
  readonly into: 'copy' | 'reduce' | 'aside'
  /** A reduction's result is complete with it. */
  readonly isTotal?: boolean
}

/** Combines, from left to right, what was received aside and the own elements, into the own buffer. */
export interface Fold {
  readonly range: ChunkRange
  /** Receives by their place in the plan. */
  readonly sources: readonly (number | 'own')[]
  /** More is combined with it on another rank. */
  readonly isPartial?: boolean
}

export interface Plan {
  readonly sends: readonly Send[]
  readonly receives: readonly Receive[]
  readonly folds: readonly Fold[]
}

export const emptyPlan: Plan = { sends: [], receives: [], folds: [] }

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

/** All chunks of a buffer, in order. */
export const chunksOf = (length: number, size: number, alignment = 1): ChunkRange[] =>
  Array.from({ length: size }, (_, index) => chunkRange(length, size, index, alignment))

/** `index` modulo `size`, never negative. */
export const modulo = (index: number, size: number): number => ((index % size) + size) % size
