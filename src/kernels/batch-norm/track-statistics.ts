import { ShapeError } from '../../util/errors.ts'
import { formatShape, type TensorType, tensorType } from '../../util/shape.ts'
import { type Case, defineOp, type Op } from '../op.ts'
import { dispatch, f32Literal, reads, updates, writes } from '../shader.ts'
import wgsl from './track-statistics.wgsl?raw'

export interface TrackStatisticsAttrs {
  /** The share of the batch in the running statistics; null: the mean over all batches so far. */
  readonly momentum: number | null
}

function featuresOf(inputs: readonly TensorType[]): number {
  const [mean, variance, count, runningMean, runningVariance, batches] = inputs
  const [C] = mean.shape
  const vectors = [mean, variance, runningMean, runningVariance]
  const fits =
    vectors.every(({ shape, dtype }) => shape.length === 1 && shape[0] === C && dtype === 'f32') &&
    count.shape.length === 0 &&
    batches.shape.length === 0 &&
    batches.dtype === 'i32'
  if (fits) return C
  throw new ShapeError(
    'shape.mismatch',
    `trackStatistics: expected mean, variance, count [], running mean, running variance and batches i32[], got ${inputs.map(({ dtype, shape }) => `${dtype}${formatShape(shape)}`).join(', ')}. Check the layer's number of features.`,
  )
}

const sample = (name: string, C: number, momentum: number | null): Case<TrackStatisticsAttrs> => {
  const features = tensorType([C])
  return {
    name,
    inputs: [features, features, tensorType([]), features, features, tensorType([], 'i32')],
    attrs: { momentum },
    fill: 'huge',
  }
}

/**
 * Moves running mean and (unbiased) variance towards a batch's of `count` values a channel, and counts the batch; where fewer than two count,
 * all stay as they are. Returns the share of the batch: [].
 *
 * shape: mean[C], variance[C], count[], running mean[C], running variance[C], batches i32[]; the last three change in place.
 * source: torch.nn.BatchNorm2d in training.
 */
export const trackStatistics: Op<TrackStatisticsAttrs> = defineOp<TrackStatisticsAttrs>({
  name: 'trackStatistics',
  updates: [3, 4, 5],
  infer(inputs) {
    featuresOf(inputs)
    return [tensorType([])]
  },
  variants: [
    {
      name: 'naive',
      lower({ inputs, attrs: { momentum } }) {
        const C = featuresOf(inputs)
        const part = momentum === null ? '1.0 / f32(before + 1)' : f32Literal(momentum)
        return {
          dispatches: [
            dispatch({
              label: `trackStatistics ${C}`,
              bindings: [
                reads('mean', { in: 0 }),
                reads('variance', { in: 1 }),
                reads('count', { in: 2 }),
                updates('running_mean', { in: 3 }),
                updates('running_variance', { in: 4 }),
                updates('batches', { in: 5 }, 'i32'),
                writes('share', { out: 0 }),
              ],
              constants: { C },
              body: `fn part_of(before: i32) -> f32 { return ${part}; }\n\n${wgsl}`,
              groups: [1, 1, 1],
            }),
          ],
        }
      },
    },
  ],
  reference([mean, variance, [n], runningMean, runningVariance, batches], { attrs }) {
    if (n < 2) return [Float64Array.of(0)]
    batches[0]++
    const part = attrs.momentum ?? 1 / batches[0]
    for (let c = 0; c < mean.length; c++) {
      runningMean[c] = (1 - part) * runningMean[c] + part * mean[c]
      const unbiased = variance[c] * (n / (n - 1))
      runningVariance[c] = (1 - part) * runningVariance[c] + part * unbiased
    }
    return [Float64Array.of(part)]
  },
  tolerance: { absolute: 1e-6, relative: 1e-6, because: 'a few roundings each' },
  cases: [
    sample('one channel', 1, 0.1),
    sample('67 channels', 67, 0.3),
    sample('the mean over batches', 130, null),
    { ...sample('normal', 5, 0.1), fill: 'normal' },
    { ...sample('ties', 9, 0.5), fill: 'ties' },
    { ...sample('positive', 9, null), fill: 'positive' },
  ],
})
