import { type DataSplits, fillBatch } from '../data/dataset.ts'
import {
  batchSamples,
  epochOrder,
  type Share,
  shareIndices,
  stepsPerEpoch,
} from '../data/shares.ts'
import type { TrainConfig } from './config.ts'

/** What a rank takes of a step's global batch. */
export interface ShareBatch {
  /** How many of the first rows are samples; those behind are left from earlier steps. */
  readonly count: number
  /** Samples of all ranks. */
  readonly globalCount: number
  /** Written over by the next batch. shape: x[rows, height, width], y[rows] */
  readonly inputs: { readonly x: Float32Array<ArrayBuffer>; readonly y: Int32Array<ArrayBuffer> }
}

/** A rank's share of the batches of the built-in training, by number of step, in arrays that are used again. */
export class ShareBatches {
  readonly perEpoch: number
  readonly #data: DataSplits['train']
  readonly #config: TrainConfig
  readonly #share: Share
  readonly #inputs: ShareBatch['inputs']
  #epoch = -1
  #order: ReturnType<typeof epochOrder> | undefined

  constructor(data: DataSplits['train'], config: TrainConfig, share: Share) {
    this.#data = data
    this.#config = config
    this.#share = share
    this.perEpoch = stepsPerEpoch(data.count, config.batchSize)
    const rows = Math.max(1, share.rows)
    this.#inputs = {
      x: new Float32Array(rows * data.height * data.width),
      y: new Int32Array(rows),
    }
  }

  /** The batch of the step behind the first `stepsDone`. */
  after(stepsDone: number): ShareBatch {
    const { batchSize, seed } = this.#config
    const epoch = Math.floor(stepsDone / this.perEpoch)
    const inEpoch = stepsDone % this.perEpoch
    if (epoch !== this.#epoch) this.#order = epochOrder(seed, epoch, this.#data.count)
    this.#epoch = epoch
    const own = shareIndices(this.#order!, batchSize, inEpoch, this.#share)
    fillBatch(this.#data, own, this.#inputs.x, this.#inputs.y)
    return {
      count: own.length,
      globalCount: batchSamples(this.#data.count, batchSize, inEpoch),
      inputs: this.#inputs,
    }
  }
}
