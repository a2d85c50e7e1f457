import {
  type BatchShare,
  batchSamples,
  batchShares,
  epochOrder,
  shareIndices,
  stepRows,
  stepsPerEpoch,
} from '../../data/shares.ts'
import type { InputTypes } from '../../graph/plan/prepare.ts'
import { hostArrays } from '../../graph/plan/step-program.ts'
import { countElements, type HostDType } from '../../util/shape.ts'
import type { TrainConfig } from '../settings/config.ts'
import type { BatchArrays, Task, TaskData } from '../settings/task.ts'

/** The part of a step's global batch that a rank takes. */
export interface ShareBatch {
  /** How many of the first rows are samples; those behind them do not count. */
  readonly count: number
  /** Samples of all ranks. */
  readonly globalCount: number
  /** Number of the first row in the global batch. */
  readonly firstRow: number
  /** Written over by the next batch. */
  readonly inputs: BatchArrays
}

/** Which samples this rank takes: a pure function of the settings, the ranks and the step. */
export interface Draws {
  readonly perEpoch: number
  /** Samples that it draws from. */
  readonly slice: Slice
  /** The samples of step `inEpoch` of an epoch, in the rows of this rank's share of a full batch, and how many all ranks take. */
  take(
    epoch: number,
    inEpoch: number,
  ): { readonly own: Uint32Array; readonly share: BatchShare; readonly globalCount: number }
}

/** How a rank draws samples. With shuffled data, N ranks take together what one rank does. `shares`: by rank, of a full step. */
export function planDraws(
  config: Pick<TrainConfig, 'seed' | 'batchSize' | 'partition'>,
  samples: number,
  rank: number,
  worldSize: number,
): Draws & { readonly shares: readonly BatchShare[] } {
  const { seed, partition } = config
  const batchSize = stepRows(config.batchSize, samples, worldSize)
  const shares = batchShares(batchSize, worldSize)
  const share = shares[rank]
  const slices = planSlices(samples, batchSize, worldSize)
  const isOwn = partition === 'own-slice'
  const slice = isOwn ? slices[rank] : { start: 0, end: samples }
  let orderOf = -1
  let order = new Uint32Array(0)
  /** Within the slice. */
  const ordered = (epoch: number) => {
    if (epoch !== orderOf) order = epochOrder(seed, epoch, slice.end - slice.start)
    orderOf = epoch
    return order
  }
  const ofSlice: BatchShare = { offset: 0, rows: share.rows }
  return {
    shares,
    perEpoch: stepsPerEpoch(samples, batchSize),
    slice,
    take(epoch, inEpoch) {
      if (!isOwn) {
        return {
          own: shareIndices(ordered(epoch), batchSize, inEpoch, share),
          share,
          globalCount: batchSamples(samples, batchSize, inEpoch),
        }
      }
      const drawn = shareIndices(ordered(epoch), share.rows, inEpoch, ofSlice)
      const counts = slices.map((one, i) => sliceSamples(one, shares[i].rows, inEpoch))
      return {
        own: drawn.map((index) => index + slice.start),
        share,
        globalCount: counts.reduce((sum, count) => sum + count, 0),
      }
    },
  }
}

/** A rank's share of the batches of a task, by number of step, in arrays that are used again. */
export class ShareBatches {
  readonly #task: Task
  readonly #data: TaskData
  readonly #draws: Draws
  readonly #typesOf: (rows: number) => InputTypes
  /** By rows. */
  readonly #inputs = new Map<number, BatchArrays>()

  /** `typesOf`: the input types for a share of that number of rows. */
  constructor(task: Task, data: TaskData, draws: Draws, typesOf: (rows: number) => InputTypes) {
    this.#task = task
    this.#data = data
    this.#draws = draws
    this.#typesOf = typesOf
  }

  get perEpoch(): number {
    return this.#draws.perEpoch
  }

  /** Training samples of all ranks. */
  get samples(): number {
    return this.#data.train.count
  }

  /** The batch of the step behind the first `stepsDone`. */
  after(stepsDone: number): ShareBatch {
    const { perEpoch } = this
    const { own, share, globalCount } = this.#draws.take(
      Math.floor(stepsDone / perEpoch),
      stepsDone % perEpoch,
    )
    const { rows, offset } = share
    const inputs = this.#inputs.get(rows) ?? batchArrays(this.#typesOf(rows))
    this.#inputs.set(rows, inputs)
    this.#task.fill(this.#data, 'train', own, inputs)
    return { count: own.length, globalCount, firstRow: offset, inputs }
  }
}

/** Arrays for the inputs of a program. */
export const batchArrays = (types: InputTypes): BatchArrays =>
  Object.fromEntries(
    Object.entries(types).map(([name, { shape, dtype }]) => [
      name,
      new hostArrays[dtype as HostDType](countElements(shape)),
    ]),
  )

/** A contiguous part of the data: samples from `start` up to `end`. */
interface Slice {
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
function planSlices(samples: number, batchSize: number, worldSize: number): Slice[] {
  const at = (offset: number) => Math.floor((samples * offset) / batchSize)
  return batchShares(batchSize, worldSize).map(({ offset, rows }) => ({
    start: at(offset),
    end: at(offset + rows),
  }))
}

/** Samples that a rank with `share` rows of each batch takes from its part in step `step` of an epoch. */
const sliceSamples = ({ start, end }: Slice, rows: number, step: number): number =>
  Math.max(0, Math.min(rows, end - start - step * rows))
