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
  /** Their numbers; a view. */
  readonly own: Uint32Array
  /** Samples of all ranks. */
  readonly globalCount: number
  /** Number of the first row in the global batch. */
  readonly firstRow: number
  /** Rows of the share in a full batch. */
  readonly rows: number
  /** Written over by the next batch. */
  readonly inputs: BatchArrays
}

/** Which samples this rank takes: a pure function of the settings, the ranks and the step. */
export interface Draws {
  readonly perEpoch: number
  /** Of a full step of all ranks. */
  readonly rows: number
  /** Samples that it draws from. */
  readonly slice: Slice
  /** The samples of step `inEpoch` of an epoch, in the rows of this rank's share of a full batch, and how many all ranks take. */
  take(
    epoch: number,
    inEpoch: number,
  ): { readonly own: Uint32Array; readonly share: BatchShare; readonly globalCount: number }
  /** The samples of the same step that other ranks take, where this rank takes the rows `share`. */
  others(epoch: number, inEpoch: number, share: BatchShare): Uint32Array<ArrayBuffer>
  /** Frees the order of the epoch that was drawn from last; it is made again when it is asked for. */
  forget(): void
}

/** Returns the samples of a batch that are outside the rows of a share. */
export function outsideShare(
  batch: Uint32Array,
  { offset, rows }: BatchShare,
): Uint32Array<ArrayBuffer> {
  const before = batch.subarray(0, offset)
  const behind = batch.subarray(offset + rows)
  const others = new Uint32Array(before.length + behind.length)
  others.set(before)
  others.set(behind, before.length)
  return others
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
  /** By number of samples: slices differ by one at most. */
  const orders = new Map<number, Uint32Array<ArrayBuffer>>()
  /** Within a slice. */
  const ordered = (epoch: number, { start, end } = slice) => {
    if (epoch !== orderOf) orders.clear()
    orderOf = epoch
    const order = orders.get(end - start) ?? epochOrder(seed, epoch, end - start)
    orders.set(end - start, order)
    return order
  }
  /** With slices. */
  const drawnBy = (other: number, epoch: number, inEpoch: number) => {
    const { rows } = shares[other]
    const from = slices[other]
    const drawn = shareIndices(ordered(epoch, from), rows, inEpoch, { offset: 0, rows })
    return drawn.map((index) => index + from.start)
  }
  return {
    shares,
    perEpoch: stepsPerEpoch(samples, batchSize),
    rows: batchSize,
    slice,
    take(epoch, inEpoch) {
      if (!isOwn) {
        return {
          own: shareIndices(ordered(epoch), batchSize, inEpoch, share),
          share,
          globalCount: batchSamples(samples, batchSize, inEpoch),
        }
      }
      const counts = slices.map((one, i) => sliceSamples(one, shares[i].rows, inEpoch))
      return {
        own: drawnBy(rank, epoch, inEpoch),
        share,
        globalCount: counts.reduce((sum, count) => sum + count, 0),
      }
    },
    others(epoch, inEpoch, of) {
      if (isOwn)
        return Uint32Array.from(
          slices.flatMap((_, i) => (i === rank ? [] : [...drawnBy(i, epoch, inEpoch)])),
        )
      const whole: BatchShare = { offset: 0, rows: batchSize }
      return outsideShare(shareIndices(ordered(epoch), batchSize, inEpoch, whole), of)
    },
    forget: () => orders.clear(),
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
    return { count: own.length, own, globalCount, firstRow: offset, rows, inputs }
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
