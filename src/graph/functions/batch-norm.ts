import {
  batchNormEval,
  batchNorm as batchNormOp,
  batchNormTracked,
} from '../../kernels/batch-norm/batch-norm.ts'
import type { ScalarSlot } from '../../kernels/op.ts'
import { TabringError } from '../../util/errors.ts'
import { checkEps, checkNumber, checkOptions, isShare } from '../../util/options.ts'
import { emit, mustBeTensor, type Tensor, toFloat } from '../trace/tensor.ts'
import { activeTrace } from '../trace/trace.ts'
import { mustCount } from './sample-count.ts'

/** Running statistics of a batch normalization; the op updates them on the device. */
export interface RunningStatistics {
  /** shape: [C] */
  readonly mean: Tensor
  /** shape: [C]; unbiased. */
  readonly variance: Tensor
  /** i32 scalar. */
  readonly batches: Tensor
}

export interface BatchNormOptions {
  /** Required for evaluation; moved towards the batch's statistics in training. */
  running?: RunningStatistics
  /** Normalizes by the batch's own statistics; default false, as in PyTorch. */
  training?: boolean
  /** Weight of a batch in the running statistics; null: cumulative mean over all batches. Default 0.1. */
  momentum?: number | null
  /** Added to the variance; default 1e-5. */
  eps?: number
  /** Number of leading rows that count in the batch's statistics, a step scalar; default all. */
  count?: ScalarSlot
}

/**
 * Returns x normalized by the mean and variance of each channel, times weight, plus bias; like torch.nn.functional.batch_norm.
 *
 * Rows from `count` on are normalized by the statistics of the others. If fewer than two values count, running statistics do not change.
 * shape: x[N, C, ...], weight[C], bias[C] -> the shape of x
 * numerics: an f16 x gives an f16 result; statistics, weight and bias are float32.
 * errors: `graph.misuse` without statistics to normalize by; `shape.unsupported` for one value per channel in training.
 */
export function batchNorm(
  x: Tensor,
  weight: Tensor,
  bias: Tensor,
  options: BatchNormOptions = {},
): Tensor {
  const known = {
    running: 'object',
    training: 'flag',
    momentum: true,
    eps: true,
    count: true,
  } as const
  mustBeTensor('batchNorm', { x, weight, bias })
  checkOptions('batchNorm', options, known)
  const { running, training = false, momentum = 0.1, eps = 1e-5, count } = options
  mustCount('batchNorm', count)
  if (running) {
    const { mean, variance, batches } = running
    mustBeTensor('batchNorm: running', { mean, variance, batches })
  }
  checkEps('batchNorm', eps)
  if (momentum !== null)
    checkNumber('batchNorm', 'momentum', momentum, isShare, 'from 0 to 1, or null')
  const attrs = { eps, epilogue: [], ...(x.dtype === 'f16' && { half: true }) }
  const parameters = [toFloat(weight), toFloat(bias)]
  const own = { ...attrs, count: count ?? null }
  // A replica's statistics are lost, so it moves none.
  const tracks = running && !activeTrace('batchNorm').losesChanges(running.mean.value)
  if (training && tracks) {
    const inputs = [x, ...parameters, running.mean, running.variance, running.batches]
    return emit(batchNormTracked, inputs, { ...own, momentum }, 'batchNorm')
  }
  if (training) return emit(batchNormOp, [x, ...parameters], own)
  if (!running) {
    throw new TabringError(
      'graph.misuse',
      'batchNorm: evaluation needs running statistics, but there are none. Pass `running`, or `training: true`.',
    )
  }
  const inputs = [x, running.mean, running.variance, ...parameters]
  return emit(batchNormEval, inputs, attrs, 'batchNorm')
}
