import { ShapeError } from '../../util/errors.ts'
import { formatShape, type TensorType } from '../../util/shape.ts'
import type { NormSizes } from './batch-norm.ref.ts'

/** The sizes of x [N, C, ...] with its vectors by channel. errors: `shape.mismatch`, `shape.unsupported`. */
export function normSizes(
  op: string,
  x: TensorType,
  vectors: readonly (readonly [name: string, type: TensorType])[],
): NormSizes {
  const { shape } = x
  if (shape.length < 2 || (x.dtype !== 'f32' && x.dtype !== 'f16')) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: x must be f32 or f16 with at least 2 dimensions [N, C, ...], got ${x.dtype}${formatShape(shape)}. Reshape it.`,
    )
  }
  const [N, C, ...rest] = shape
  const L = rest.reduce((product, size) => product * size, 1)
  if (C < 1 || L < 1) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: only the first dimension of x may be 0, got ${formatShape(shape)}. Check the layers before it.`,
    )
  }
  for (const [name, { shape: own, dtype }] of vectors) {
    if (own.length === 1 && own[0] === C && dtype === 'f32') continue
    throw new ShapeError(
      'shape.mismatch',
      `${op}: ${name} must be f32[${C}] for x${formatShape(shape)}, got ${dtype}${formatShape(own)}. Check the layer's number of features.`,
    )
  }
  return { N, C, L, M: N * L }
}

/** errors: `shape.unsupported` unless a channel has two values at least: one has no variance. */
export function needsTwo(op: string, { M }: NormSizes, x: TensorType): void {
  if (M >= 2) return
  throw new ShapeError(
    'shape.unsupported',
    `${op}: expected more than 1 value per channel in training, got x${formatShape(x.shape)}. Use a larger batch, in an exact run fewer virtual workers, or eval().`,
  )
}
