import { checkNumber, isCount } from '../util/options.ts'
import { permutation } from '../util/random.ts'

/**
 * A rank's part of a global batch. The built-in trainer cuts batches this way: step s of an epoch is permutation[s*B, (s+1)*B), and each of
 * the N ranks gets one contiguous share of it.
 *
 * Shares depend only on B and N, so they, and every compiled program, stay the same for the whole run. A short last batch of an epoch
 * leaves the last shares short or empty; the missing rows have weight zero. N ranks see the same global batches as one rank, unlike with
 * `DistributedSampler`.
 */
export interface BatchShare {
  /** First row of the share within the global batch. */
  offset: number
  /** Rows of the share in a full batch: the batch size of the rank's compiled program. */
  rows: number
}

/** More than any group has. */
const maxRanks = 2 ** 20

/**
 * Returns each rank's share of a global batch: contiguous, in rank order, sizes differing by at most one, larger ones first. PyTorch
 * scripts use `batch_size // world_size` here, which loses the remainder.
 *
 * A mean over classes is weighted by its rows automatically; another loss needs the weight rows / batchSize, as the step scalar
 * `gradientWeight`.
 * shape: [worldSize]; the rows add up to `batchSize`; shares are empty if there are more ranks than rows.
 */
export function batchShares(batchSize: number, worldSize: number): BatchShare[] {
  const isRows = (rows: number) => Number.isInteger(rows) && rows >= 0
  checkNumber('batchShares', 'batchSize', batchSize, isRows, 'a whole number of at least 0', true)
  const isSize = (size: number) => isCount(size) && size <= maxRanks
  checkNumber(
    'batchShares',
    'worldSize',
    worldSize,
    isSize,
    `a whole number from 1 to ${maxRanks}`,
    true,
  )
  const base = Math.floor(batchSize / worldSize)
  const larger = batchSize % worldSize
  return Array.from({ length: worldSize }, (_, rank) => ({
    offset: rank * base + Math.min(rank, larger),
    rows: base + (rank < larger ? 1 : 0),
  }))
}

/** The rows of each virtual worker of a run with `exact`; the last ones of a batch may have rows that do not count. */
export const virtualRows = (batchSize: number, virtualWorkers: number): number =>
  Math.ceil(batchSize / virtualWorkers)

/**
 * Each rank's share of a global batch in a run with `exact`: whole virtual workers that have rows, in order, as evenly as they can be assigned.
 *
 * shape: [worldSize]; the last shares may reach beyond the batch.
 */
export function virtualShares(
  batchSize: number,
  virtualWorkers: number,
  worldSize: number,
): BatchShare[] {
  const rows = virtualRows(batchSize, virtualWorkers)
  const used = Math.ceil(batchSize / rows)
  const firstOf = (rank: number) => Math.floor((rank * used) / worldSize)
  return Array.from({ length: worldSize }, (_, rank) => ({
    offset: firstOf(rank) * rows,
    rows: (firstOf(rank + 1) - firstOf(rank)) * rows,
  }))
}

/**
 * Rows of a full step, over all ranks: the batch size, or all samples where there are fewer, so that each rank has its share of those; at
 * least one for each rank.
 */
export const stepRows = (batchSize: number, samples: number, worldSize: number): number =>
  Math.max(worldSize, Math.min(batchSize, samples))

/** Steps that one epoch takes; the last batch may be short. */
export function stepsPerEpoch(samples: number, batchSize: number): number {
  return Math.ceil(samples / batchSize)
}

/** Samples in step `step` of an epoch. */
export function batchSamples(samples: number, batchSize: number, step: number): number {
  return Math.max(0, Math.min(batchSize, samples - step * batchSize))
}

/**
 * The order of the training samples in one epoch: the same on every rank, for any number of ranks.
 *
 * shape: [samples].
 */
export function epochOrder(seed: number, epoch: number, samples: number): Uint32Array<ArrayBuffer> {
  return permutation(seed, epoch, samples)
}

/**
 * Returns the sample indices that one rank takes in step `step` of an epoch: a view of `order`.
 *
 * shape: [0 to share.rows]; shorter than `share.rows` only in a short batch.
 */
export function shareIndices(
  order: Uint32Array<ArrayBuffer>,
  batchSize: number,
  step: number,
  share: BatchShare,
): Uint32Array<ArrayBuffer> {
  const begin = Math.min(order.length, step * batchSize + share.offset)
  const end = Math.min(order.length, step * batchSize + share.offset + share.rows)
  return order.subarray(begin, end)
}
