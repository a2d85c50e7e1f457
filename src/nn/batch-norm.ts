import { batchNorm, type RunningStatistics } from '../graph/functions/batch-norm.ts'
import { sampleCount } from '../graph/functions/linear.ts'
import { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import { Parameter } from '../graph/trace/parameter.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import { ShapeError } from '../util/errors.ts'
import { checkEps, checkFlags, checkNumber, checkOptions, isShare } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { formatShape } from '../util/shape.ts'
import { checkSizes } from './check-sizes.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

export interface BatchNormLayerOptions {
  /** Added to the variance; default 1e-5. */
  eps?: number
  /** Weight of a batch in the running statistics; null: cumulative mean over all batches. Default 0.1. */
  momentum?: number | null
  /** True if there are a trainable weight and bias; default true. */
  affine?: boolean
  /** True if to keep running statistics; without them, evaluation also normalizes by the batch. Default true. */
  trackRunningStats?: boolean
}

const filled = (count: number, value: number) => new Float32Array(count).fill(value)

/**
 * Normalizes each channel: by the batch's mean and variance in training, by running statistics in evaluation.
 *
 * Running statistics live on the device and are updated inside the compiled step. Each rank normalizes by its own batch. In a model wrapped
 * for data parallel training, all ranks adopt rank 0's running statistics after each step, unless `broadcastBuffers` is false. Rows from
 * the step scalar `count` on are padding and excluded from the statistics; without `count` all rows are used. The first dimension is the
 * sample dimension.
 */
export abstract class BatchNorm extends Module {
  declare readonly numFeatures: number
  declare readonly eps: number
  declare readonly momentum: number | null
  readonly weight: Parameter | undefined
  readonly bias: Parameter | undefined
  readonly runningMean: ModuleBuffer | undefined
  readonly runningVar: ModuleBuffer | undefined
  readonly numBatchesTracked: ModuleBuffer | undefined
  /** Fixed ones and zeros in the place of what is not learned. */
  readonly #ones: ModuleBuffer | undefined
  readonly #zeros: ModuleBuffer | undefined

  constructor(numFeatures: number, options: BatchNormLayerOptions = {}) {
    super()
    const known = { eps: true, momentum: true, affine: true, trackRunningStats: true } as const
    checkOptions(this.constructor.name, options, known)
    checkEps(this.constructor.name, options.eps)
    checkSizes(this.constructor.name, { numFeatures })
    checkFlags(this.constructor.name, options, 'affine', 'trackRunningStats')
    if (options.momentum !== null)
      checkNumber(this.constructor.name, 'momentum', options.momentum, isShare, 'from 0 to 1')
    const { eps = 1e-5, momentum = 0.1, affine = true, trackRunningStats = true } = options
    if (affine) {
      this.weight = new Parameter([numFeatures], filled(numFeatures, 1))
      this.bias = new Parameter([numFeatures], filled(numFeatures, 0))
    } else {
      this.#ones = new ModuleBuffer([numFeatures], filled(numFeatures, 1))
      this.#zeros = new ModuleBuffer([numFeatures], filled(numFeatures, 0))
    }
    if (trackRunningStats) {
      const buffer = (name: string, data: Float32Array<ArrayBuffer>) =>
        this.registerBuffer(name, new ModuleBuffer([numFeatures], data))
      this.runningMean = buffer('runningMean', filled(numFeatures, 0))
      this.runningVar = buffer('runningVar', filled(numFeatures, 1))
      this.numBatchesTracked = this.registerBuffer(
        'numBatchesTracked',
        new ModuleBuffer([], Int32Array.of(0)),
      )
      this.numBatchesTracked.absent = Int32Array.of(0)
    }
    showSettings(this, { numFeatures, eps, momentum })
  }

  forward(x: Tensor): Tensor {
    mustBeTensor(this.constructor.name, { x })
    if (!this.ranks.includes(x.shape.length)) {
      throw new ShapeError(
        'shape.mismatch',
        `${this.constructor.name}: x must have ${this.ranks.join(' or ')} dimensions, got ${formatShape(x.shape)}. Reshape it.`,
      )
    }
    this.noteParts()
    const { running, eps, momentum } = this
    const training = this.training || !running
    return batchNorm(x, this.scale, this.shift, {
      running,
      training,
      momentum,
      eps,
      count: training ? sampleCount() : undefined,
    })
  }

  /** Running statistics, if they are kept. */
  protected get running(): RunningStatistics | undefined {
    const { runningMean, runningVar, numBatchesTracked } = this
    return runningMean && runningVar && numBatchesTracked
      ? { mean: runningMean, variance: runningVar, batches: numBatchesTracked }
      : undefined
  }

  /** The weight, or ones. */
  protected get scale(): Tensor {
    return (this.weight ?? this.#ones)!
  }

  /** The bias, or zeros. */
  protected get shift(): Tensor {
    return (this.bias ?? this.#zeros)!
  }

  /** Allowed numbers of dimensions of x. */
  protected abstract get ranks(): readonly number[]
}

/** Batch normalization. shape: [N, C] or [N, C, L] -> the same */
export class BatchNorm1d extends BatchNorm {
  protected get ranks() {
    return [2, 3]
  }
}

/** Batch normalization of images. shape: [N, C, H, W] -> the same */
export class BatchNorm2d extends BatchNorm {
  protected get ranks() {
    return [4]
  }
}

countArguments(BatchNorm)
