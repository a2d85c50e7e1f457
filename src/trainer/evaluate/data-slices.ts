import { batchShares } from '../../data/shares.ts'

/** A contiguous part of the data: samples from `start` up to `end`. */
export interface Slice {
  readonly start: number
  readonly end: number
}

/**
 * Returns each rank's own part of `samples` training samples, in the order of the data and of the ranks, in proportion to its share of a
 * batch.
 *
 * So a rank is through with its part after at most as many steps as an epoch of shuffled data takes, and at least one rank still has
 * samples in each of them.
 */
export function planSlices(samples: number, batchSize: number, worldSize: number): Slice[] {
  const at = (offset: number) => Math.floor((samples * offset) / batchSize)
  return batchShares(batchSize, worldSize).map(({ offset, rows }) => ({
    start: at(offset),
    end: at(offset + rows),
  }))
}

/** Samples that a rank with `share` rows of each batch takes from its part in step `step` of an epoch. */
export const sliceSamples = ({ start, end }: Slice, rows: number, step: number): number =>
  Math.max(0, Math.min(rows, end - start - step * rows))
