import { trackStatistics } from '../../kernels/batch-norm/track-statistics.ts'
import { fromScalar } from '../../kernels/from-scalar/from-scalar.ts'
import type { ScalarSlot } from '../../kernels/op.ts'
import { syncRanks } from '../../kernels/sync-ranks/sync-ranks.ts'
import { ShapeError } from '../../util/errors.ts'
import { formatShape } from '../../util/shape.ts'
import { emit, type Tensor, toFloat } from '../trace/tensor.ts'
import { activeTrace } from '../trace/trace.ts'
import type { RunningStatistics } from './batch-norm.ts'
import { arange, cat } from './shape.ts'

/** Whose statistics: this rank's place among them, and the number that the program's exchange has for them. */
export interface SyncPointRanks {
  readonly rank: number
  readonly size: number
  readonly group: number
}

export interface SyncBatchNormOptions {
  /** Moved towards the statistics of all ranks' samples. */
  readonly running?: RunningStatistics
  readonly momentum: number | null
  readonly eps: number
  /** How many of this rank's first rows count. */
  readonly count: ScalarSlot
}

/**
 * x normalized by mean and variance of each channel over the rows that count on all of some ranks, times weight, plus bias.
 *
 * Each rank takes the statistics of the rows that it has; they are summed over ranks once in forward, and their gradients once in backward. Rows that do not count are
 * normalized by the others' statistics. What the ranks' losses weigh is in their gradients already.
 * shape: x[N, C, ...], weight[C], bias[C] -> the shape of x
 * source: means and variances of parts as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm" (1979).
 * cost: 2C + 1 numbers a rank in forward, N times as many summed in backward, and a wait for all ranks each time.
 */
export function syncBatchNorm(
  x: Tensor,
  weight: Tensor,
  bias: Tensor,
  { rank, size, group }: SyncPointRanks,
  { running, momentum, eps, count }: SyncBatchNormOptions,
): Tensor {
  if (x.shape.length < 2) {
    throw new ShapeError(
      'shape.mismatch',
      `SyncBatchNorm: x must have at least 2 dimensions [N, C, ...], got ${formatShape(x.shape)}. Reshape it.`,
    )
  }
  const [N, C, ...rest] = x.shape
  const L = rest.reduce((product, d) => product * d, 1)
  const flat = toFloat(x).reshape([N, C, L])
  const perChannel = (values: Tensor) => values.reshape([1, C, 1])
  activeTrace('SyncBatchNorm').scalars.countsAmong(count, N)
  const rows = emit(fromScalar, [], { slot: count }).clamp(0, N)
  const counts = arange(N).lt(rows).reshape([N, 1, 1])
  const own = rows.mul(L)
  const mean = flat.mul(counts).sum([0, 2]).div(own.clamp(1))
  const apart = flat.sub(perChannel(mean))
  const variance = apart.square().mul(counts).sum([0, 2]).div(own.clamp(1))

  const values = cat([mean, variance, own.reshape([1])])
  const gathered = emit(syncRanks, [values], { syncPoint: 'gather', rank, size, group })
  const all = gathered.reshape([size, 2 * C + 1])
  const numbers = all.narrow(1, 2 * C, 1).detach()
  const total = numbers.sum()
  const shares = numbers.div(total.clamp(1))
  const means = all.narrow(1, 0, C)
  const center = means.mul(shares).sum(0)
  const spread = all
    .narrow(1, C, C)
    .add(means.sub(center.reshape([1, C])).square())
    .mul(shares)
    .sum(0)
  if (running) {
    const kept = [running.mean, running.variance, running.batches]
    emit(trackStatistics, [center, spread, total, ...kept], { momentum })
  }
  const scale = spread.add(eps).rsqrt().mul(toFloat(weight))
  const y = flat
    .sub(perChannel(center))
    .mul(perChannel(scale))
    .add(perChannel(toFloat(bias)))
    .reshape(x.shape)
  return x.dtype === 'f16' ? y.half() : y
}
