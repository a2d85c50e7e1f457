import { epochOrder, stepsPerEpoch, virtualRows, virtualShares } from '../../data/shares.ts'
import { Assignment } from '../../ddp/exact/assignment.ts'
import type { TrainConfig } from '../settings/config.ts'
import { type Draws, outsideShare } from './share-batches.ts'

/**
 * The parts of a global batch of which each is computed by one replay of one program, whichever rank does it.
 *
 *     batch of 60, V = 8, 2 ranks     | v0 8 | v1 8 | v2 8 | v3 8 | v4 8 | v5 8 | v6 8 | v7 4 + 4 that do not count |
 *                                     |           rank 0          |                     rank 1                      |
 *
 * Their number is fixed for a run, so what each computes does not depend on how many ranks there are. Which rank computes which may change from
 * step to step (`assignment`).
 */
export class VirtualWorkers {
  /** Of each one. */
  readonly rows: number
  /** How many each rank computes, of those that have rows in a full batch. */
  readonly assignment: Assignment
  /** Of this rank's virtual workers. */
  readonly draws: Draws
  /** Of the virtual workers `first` to `first + count`, as they are when samples are drawn. */
  readonly drawsOf: (workers: { readonly first: number; readonly count: number }) => Draws
  /** Those of the first virtual worker in the run's first step. */
  readonly firstSamples: Uint32Array
  readonly #rank: number
  readonly #batch: number

  constructor(
    { seed, batchSize, virtualWorkers }: Pick<TrainConfig, 'seed' | 'batchSize' | 'virtualWorkers'>,
    samples: number,
    rank: number,
    worldSize: number,
  ) {
    const batch = Math.min(batchSize, samples)
    const rows = virtualRows(batch, virtualWorkers)
    this.rows = rows
    this.#rank = rank
    this.#batch = batch
    const shares = virtualShares(batch, virtualWorkers, worldSize)
    this.assignment = new Assignment(shares.map((share) => share.rows / rows))
    this.firstSamples = epochOrder(seed, 0, samples).subarray(0, rows)
    let orderOf = -1
    let order = new Uint32Array(0)
    const perEpoch = stepsPerEpoch(samples, batch)
    const slice = { start: 0, end: samples }
    const batchOf = (epoch: number, inEpoch: number) => {
      if (epoch !== orderOf) order = epochOrder(seed, epoch, samples)
      orderOf = epoch
      return order.subarray(inEpoch * batch, Math.min(samples, (inEpoch + 1) * batch))
    }
    this.drawsOf = (workers) => ({
      perEpoch,
      rows: batch,
      slice,
      take: (epoch, inEpoch) => {
        const all = batchOf(epoch, inEpoch)
        const share = { offset: workers.first * rows, rows: workers.count * rows }
        const own = all.subarray(share.offset, share.offset + share.rows)
        return { own, share, globalCount: all.length }
      },
      others: (epoch, inEpoch, share) => outsideShare(batchOf(epoch, inEpoch), share),
      forget() {
        orderOf = -1
        order = new Uint32Array(0)
      },
    })
    this.draws = this.drawsOf(this)
  }

  /** Samples of a full batch, by rank. */
  get samples(): number[] {
    const { rows, assignment } = this
    return assignment.counts.map((count, rank) =>
      Math.max(0, Math.min(count * rows, this.#batch - assignment.firstOf(rank) * rows)),
    )
  }

  /** Those of this rank. */
  get first(): number {
    return this.assignment.firstOf(this.#rank)
  }
  get count(): number {
    return this.assignment.counts[this.#rank]
  }
  /** This rank's time for one in the steps so far; undefined where it has been measured in none. units: µs. */
  get ownUs(): number | undefined {
    return this.assignment.usOf(this.#rank)
  }
}
