import { ShapeError } from '../../util/errors.ts'
import {
  checkWholes,
  countElements,
  formatShape,
  resolveAxis,
  type Shape,
} from '../../util/shape.ts'

/** The shapes that the same elements, in the same order, get by `reshape` and what is built on it. */

/** `shape` with its one dimension of -1 filled in. errors: `shape.mismatch` unless it holds as many elements as `from`. */
export function reshaped(from: Shape, shape: Shape): Shape {
  checkWholes('reshape', 'shape', shape, -1)
  const count = countElements(from)
  const known = shape.reduce((product, d) => (d === -1 ? product : product * d), 1)
  const resolved = shape.map((d) => (d === -1 ? count / known : d))
  if (countElements(resolved) !== count || !resolved.every(Number.isInteger)) {
    throw new ShapeError(
      'shape.mismatch',
      `reshape: shape must have the ${count} elements of ${formatShape(from)}, got ${formatShape(shape)}. Check the product of the dimensions.`,
    )
  }
  return resolved
}

/** Dimensions from `start` to `end`, that one included, as one; of a scalar, one element. errors: `shape.mismatch`. */
export function flattened(shape: Shape, start: number, end: number): Shape {
  if (shape.length === 0) return [1]
  const first = resolveAxis('flatten', 'start', shape, start)
  const last = resolveAxis('flatten', 'end', shape, end)
  if (first > last) {
    throw new ShapeError(
      'shape.mismatch',
      `flatten: start must not be after end, got ${start} and ${end} for ${formatShape(shape)}. Swap them.`,
    )
  }
  const joined = countElements(shape.slice(first, last + 1))
  return [...shape.slice(0, first), joined, ...shape.slice(last + 1)]
}

/** Without the axis `dim` where its size is 1; without all such axes where none is named. */
export function squeezed(shape: Shape, dim: number | undefined): Shape {
  const only = dim === undefined ? undefined : resolveAxis('squeeze', 'dim', shape, dim)
  return shape.filter((size, axis) => size !== 1 || (only !== undefined && axis !== only))
}

/** With a new axis of size 1 that becomes axis `dim`. */
export function unsqueezed(shape: Shape, dim: number): Shape {
  const at = resolveAxis('unsqueeze', 'dim', [...shape, 1], dim)
  return [...shape.slice(0, at), 1, ...shape.slice(at)]
}
