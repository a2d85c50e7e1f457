import { epochOrder, stepsPerEpoch, virtualRows, virtualShares } from '../../data/shares.ts'
import type { Draws } from '../evaluate/share-batches.ts'
import type { TrainConfig } from '../settings/config.ts'

/**
 * The parts of a global batch of which each is computed by one replay of one program, whichever rank does it.
 *
 *     batch of 60, V = 8, 2 ranks     | v0 8 | v1 8 | v2 8 | v3 8 | v4 8 | v5 8 | v6 8 | v7 4 + 4 that do not count |
 *                                     |           rank 0          |                     rank 1                      |
 *
 * Their number is fixed for a run, so what each computes does not depend on how many ranks there are.
 */
export interface VirtualWorkers {
  /** Of each one. */
  readonly rows: number
  /** Those of this rank. */
  readonly first: number
  readonly count: number
  readonly draws: Draws
  /** The rank that computes a virtual worker. */
  rankOf(worker: number): number
}

/** Deals the virtual workers that have rows to ranks, in order, as evenly as they can be. */
export function planVirtualWorkers(
  { seed, batchSize, virtualWorkers }: Pick<TrainConfig, 'seed' | 'batchSize' | 'virtualWorkers'>,
  samples: number,
  rank: number,
  worldSize: number,
): VirtualWorkers {
  const batch = Math.min(batchSize, samples)
  const rows = virtualRows(batch, virtualWorkers)
  const shares = virtualShares(batch, virtualWorkers, worldSize)
  let orderOf = -1
  let order = new Uint32Array(0)
  return {
    rows,
    first: shares[rank].offset / rows,
    count: shares[rank].rows / rows,
    rankOf: (worker) =>
      shares.findLastIndex(({ offset, rows: own }) => own > 0 && offset <= worker * rows),
    draws: {
      shares,
      perEpoch: stepsPerEpoch(samples, batch),
      slice: { start: 0, end: samples },
      take(epoch, inEpoch) {
        if (epoch !== orderOf) order = epochOrder(seed, epoch, samples)
        orderOf = epoch
        const all = order.subarray(inEpoch * batch, Math.min(samples, (inEpoch + 1) * batch))
        const { offset, rows: own } = shares[rank]
        return { own: all.subarray(offset, offset + own), globalCount: all.length }
      },
    },
  }
}
