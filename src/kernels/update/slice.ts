import { ShapeError } from '../../util/errors.ts'
import { formatShape, type TensorType, unify } from '../../util/shape.ts'

/** The part of a flat tensor that an update kernel touches: a rank updates its own slice of every bucket. */
export interface Slice {
  /** First element. */
  readonly start: number
  /** How many elements. */
  readonly length: number
}

/** Returns whether the slice can be read and written four elements at a time. */
export const isAligned = ({ start, length }: Slice): boolean =>
  length > 0 && start % 4 === 0 && length % 4 === 0

/** errors: `shape.mismatch` unless all tensors are flat f32 of one length that holds the slice. */
export function checkSlice(
  op: string,
  names: readonly string[],
  inputs: readonly TensorType[],
  { start, length }: Slice,
): void {
  const { n } = unify(
    op,
    names.map((name, i) => [name, 'n', inputs[i].shape] as const),
  )
  const wrong = names.findIndex((_, i) => inputs[i].dtype !== 'f32')
  if (wrong >= 0) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: ${names[wrong]} must be f32, got ${inputs[wrong].dtype}${formatShape(inputs[wrong].shape)}. Optimizers support only float parameters.`,
    )
  }
  const isWhole = Number.isInteger(start) && Number.isInteger(length)
  if (!isWhole || start < 0 || length < 0 || start + length > n) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: the slice must be within 0..${n}, got start ${start} and length ${length}. Cut the parameter's own length into slices.`,
    )
  }
}
