import { permutation } from '../util/random.ts'

/**
 * A rank's part of a global batch; how the built-in trainer cuts batches: step s of an epoch is permutation[s*B, (s+1)*B), and each of the
 * N ranks takes one contiguous share of it.
 *
 * Shares depend on B and N alone, so they, and every compiled program, stay the same for the whole run. A batch
 * that is short (the epoch's last one) leaves the last shares short or empty; the missing rows have weight zero.
 * With this cut N ranks see the same global batches as one rank does, which `DistributedSampler` does not give.
 */
export interface Share {
  /** First row of the share within the global batch. */
  offset: number
  /** Rows of the share in a full batch: the size of the rank's compiled program. */
  rows: number
}

/**
 * Returns the share of each rank of a global batch, contiguous, in rank order, sizes differing by at most one, larger ones first: where
 * scripts for PyTorch have `batch_size // world_size`, which loses the remainder.
 *
 * A mean over classes weighs by its rows by itself; another loss needs the weight rows / batchSize, as the step scalar `gradientWeight`.
 * shape: [worldSize]; the rows add up to `batchSize`; shares are empty where ranks outnumber rows.
 */
export function planShares(batchSize: number, worldSize: number): Share[] {
  const base = Math.floor(batchSize / worldSize)
  const larger = batchSize % worldSize
  return Array.from({ length: worldSize }, (_, rank) => ({
    offset: rank * base + Math.min(rank, larger),
    rows: base + (rank < larger ? 1 : 0),
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
  share: Share,
): Uint32Array<ArrayBuffer> {
  const begin = Math.min(order.length, step * batchSize + share.offset)
  const end = Math.min(order.length, step * batchSize + share.offset + share.rows)
  return order.subarray(begin, end)
}
