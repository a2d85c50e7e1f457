import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, sameShape, type TensorType } from '../../util/shape.ts'
import type { HalfAttrs } from '../op.ts'

/**
 * What is normalised: rows of `size` neighbouring elements, each by its own mean and deviation.
 *
 * Weight and bias belong to channels: row r has `size / span` of them, from `(r % groups) * size / span` on, each over `span`
 * neighbours. Layer normalisation is one group with span 1; group normalisation of [N, C, H, W] has span H*W.
 */
export interface NormAttrs extends HalfAttrs {
  readonly size: number
  readonly groups: number
  readonly span: number
  readonly eps: number
  /** True if the mean is taken off first; RMS normalisation leaves it. */
  readonly isCentered: boolean
}

export interface NormSizes {
  readonly rows: number
  readonly size: number
  readonly groups: number
  readonly span: number
  /** Channels of weight and bias. */
  readonly channels: number
  /** Channels of one row. */
  readonly channelsPerRow: number
}

/** Returns whether rows are read and stored four elements at a time. */
export const isInFours = ({ size, span }: Pick<NormAttrs, 'size' | 'span'>): boolean =>
  size % 4 === 0 && (span === 1 || span % 4 === 0)

/** errors: `shape.unsupported` where x does not cut into such rows, or is no f32 or f16. */
export function normSizes(op: string, x: TensorType, attrs: NormAttrs): NormSizes {
  const { size, groups, span } = attrs
  const rows = countElements(x.shape) / size
  const isFloat = x.dtype === 'f32' || x.dtype === 'f16'
  if (!isFloat || !(size > 0) || size % span !== 0 || rows % groups !== 0) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected f32 or f16 in whole rows of ${size} elements, ${groups} rows per sample, got ${x.dtype}${formatShape(x.shape)}. Check the normalized shape or the number of groups.`,
    )
  }
  const channelsPerRow = size / span
  return { rows, size, groups, span, channels: groups * channelsPerRow, channelsPerRow }
}

/** errors: `shape.mismatch` unless each parameter has one f32 element a channel, under one shape. */
export function checkChannels(
  op: string,
  parameters: readonly TensorType[],
  { channels }: NormSizes,
): void {
  const wrong = parameters.find(
    ({ shape, dtype }) =>
      countElements(shape) !== channels ||
      dtype !== 'f32' ||
      !sameShape(shape, parameters[0].shape),
  )
  if (wrong) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: weight and bias must be f32 with ${channels} elements, got ${wrong.dtype}${formatShape(wrong.shape)}. Create them for this normalized shape.`,
    )
  }
}
