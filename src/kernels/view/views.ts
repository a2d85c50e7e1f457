import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import {
  checkWhole,
  checkWholes,
  formatShape,
  resolveAxes,
  resolveAxis,
  type Shape,
} from '../../util/shape.ts'
import { wholeRegion } from './region.ts'
import type { ViewAttrs } from './view.ts'

// The views that users ask for, as regions.

const refuse = (where: string, expected: string, got: string, advice: string) =>
  new ShapeError('shape.mismatch', `${where}: ${expected}, got ${got}. ${advice}`)

/** Axes in another order. errors: `shape.mismatch` unless each occurs once. */
export function permuted(shape: Shape, axes: readonly number[]): ViewAttrs {
  const order = resolveAxes('permute', 'axes', shape, axes)
  if (order.length !== shape.length) {
    throw refuse(
      'permute',
      `axes must name each dimension of ${formatShape(shape)} once`,
      formatShape(axes),
      'Name each of them once.',
    )
  }
  return { ...wholeRegion(shape), axes: order, shape: order.map((axis) => shape[axis]) }
}

/** Two axes swapped. */
export function transposed(shape: Shape, first: number, second: number): ViewAttrs {
  const a = resolveAxis('transpose', 'first', shape, first)
  const b = resolveAxis('transpose', 'second', shape, second)
  const order = shape.map((_, axis) => (axis === a ? b : axis === b ? a : axis))
  return permuted(shape, order)
}

/** Axes of size 1 repeated, and new ones in front; -1 keeps a size. */
export function expanded(shape: Shape, to: Shape): ViewAttrs {
  checkWholes('expand', 'shape', to, -1)
  const added = to.length - shape.length
  const sizes = to.map((size, axis) => (size === -1 && axis >= added ? shape[axis - added] : size))
  const fits =
    added >= 0 &&
    shape.every((size, axis) => size === 1 || size === sizes[axis + added]) &&
    sizes.every((size) => size >= 0)
  if (!fits) {
    throw refuse(
      'expand',
      `shape must be one to which ${formatShape(shape)} broadcasts`,
      formatShape(to),
      'Only dimensions of size 1 can be repeated.',
    )
  }
  return {
    ...wholeRegion(shape),
    shape: sizes,
    axes: sizes.map((size, axis) => {
      const own = axis - added
      return own < 0 || (shape[own] === 1 && size !== 1) ? -1 : own
    }),
  }
}

/** Python's `start:end:step` along one axis; negative ends count from the back, ends beyond the size are cut. */
export function sliced(
  shape: Shape,
  dim: number,
  start: number,
  end: number,
  step: number,
): ViewAttrs {
  const axis = resolveAxis('slice', 'dim', shape, dim)
  const size = shape[axis]
  const isEnd =
    Number.isInteger(end) || end === Number.POSITIVE_INFINITY || end === Number.NEGATIVE_INFINITY
  if (!Number.isInteger(step) || step < 1 || !Number.isInteger(start) || !isEnd) {
    throw refuse(
      'slice',
      'expected a whole start and end and a step of at least 1',
      `start ${quoted(start)}, end ${quoted(end)} and step ${quoted(step)}`,
      'Use flip() to reverse the order.',
    )
  }
  const bound = (at: number) => Math.min(Math.max(at < 0 ? at + size : at, 0), size)
  const [first, last] = [bound(start), bound(end)]
  return along(shape, axis, first, Math.max(0, Math.ceil((last - first) / step)), step)
}

/** `length` elements of one axis from `start` on. errors: `shape.mismatch` where they are not there. */
export function narrowed(shape: Shape, dim: number, start: number, length: number): ViewAttrs {
  const axis = resolveAxis('narrow', 'dim', shape, dim)
  const size = shape[axis]
  checkWhole('narrow', 'start', start)
  checkWhole('narrow', 'length', length)
  const first = start < 0 ? start + size : start
  if (!(first >= 0 && length >= 0 && first + length <= size)) {
    throw refuse(
      'narrow',
      `expected a range inside dimension ${axis} of ${formatShape(shape)}`,
      `start ${start} and length ${length}`,
      'Check start and length.',
    )
  }
  return along(shape, axis, first, length, 1)
}

function along(shape: Shape, axis: number, start: number, count: number, step: number): ViewAttrs {
  const whole = wholeRegion(shape)
  return {
    axes: whole.axes,
    start: whole.start.map((at, d) => (d === axis && count > 0 ? start : at)),
    step: whole.step.map((by, d) => (d === axis ? step : by)),
    shape: shape.map((size, d) => (d === axis ? count : size)),
  }
}

/** One index of one axis, which is gone from the result. */
export function selected(shape: Shape, dim: number, index: number): ViewAttrs {
  const axis = resolveAxis('select', 'dim', shape, dim)
  checkWhole('select', 'index', index)
  const at = index < 0 ? index + shape[axis] : index
  if (!(at >= 0 && at < shape[axis])) {
    throw refuse(
      'select',
      `index must be one into dimension ${axis} of ${formatShape(shape)}`,
      String(index),
      'Indices count from 0, or from -1 at the end.',
    )
  }
  const whole = wholeRegion(shape)
  return {
    axes: whole.axes.filter((d) => d !== axis),
    start: whole.start.map((from, d) => (d === axis ? at : from)),
    step: whole.step,
    shape: shape.filter((_, d) => d !== axis),
  }
}

/** Axes walked backwards. */
export function flipped(shape: Shape, dims: readonly number[]): ViewAttrs {
  const axes = resolveAxes('flip', 'dims', shape, dims)
  const whole = wholeRegion(shape)
  return {
    axes: whole.axes,
    start: shape.map((size, d) => (axes.includes(d) ? Math.max(0, size - 1) : 0)),
    step: whole.step.map((by, d) => (axes.includes(d) ? -by : by)),
    shape,
  }
}
