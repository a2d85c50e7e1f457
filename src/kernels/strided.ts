import type { Shape } from '../util/shape.ts'
import { countElements, stridesOf } from '../util/shape.ts'

/** A tensor read in place from another one's memory: element (i, j, ..) lies at `offset + i * strides[0] + j * strides[1] + ..`. */
export interface Strided {
  readonly shape: Shape
  /** In elements; 0 along an axis that repeats one element, negative along a flipped one. */
  readonly strides: readonly number[]
  readonly offset: number
}

/** A whole tensor in row-major order. */
export const contiguous = (shape: Shape): Strided => ({
  shape,
  strides: stridesOf(shape),
  offset: 0,
})

/** Returns whether the elements are the `count` first ones of their memory, in row-major order. */
export function isContiguous({ shape, strides, offset }: Strided): boolean {
  const own = stridesOf(shape)
  return (
    offset === 0 &&
    (countElements(shape) === 0 ||
      shape.every((size, axis) => size === 1 || strides[axis] === own[axis]))
  )
}

/**
 * The same elements under another shape without moving them, or undefined where strides cannot express it.
 *
 * source: ATen's computeStride.
 */
export function reshapeStrided(from: Strided, shape: Shape): Strided | undefined {
  if (countElements(shape) === 0) return { shape, strides: stridesOf(shape), offset: 0 }
  const strides = new Array<number>(shape.length).fill(1)
  let at = shape.length - 1
  let chunk = 1
  let base = from.shape.length > 0 ? from.strides[from.shape.length - 1] : 1
  for (let axis = from.shape.length - 1; axis >= 0; axis--) {
    chunk *= from.shape[axis]
    const isEnd =
      axis === 0 || (from.shape[axis - 1] !== 1 && from.strides[axis - 1] !== chunk * base)
    if (!isEnd) continue
    let made = 1
    while (at >= 0 && (made < chunk || shape[at] === 1)) {
      strides[at] = made * base
      made *= shape[at]
      at--
    }
    if (made !== chunk) return undefined
    if (axis > 0) {
      chunk = 1
      base = from.strides[axis - 1]
    }
  }
  return at < 0 || shape.slice(0, at + 1).every((size) => size === 1)
    ? { shape, strides, offset: from.offset }
    : undefined
}

/** Axes as few as possible: size 1 goes, neighbours that all `strides` walk as one axis merge. */
export function mergeAxes(
  sizes: Shape,
  strides: readonly (readonly number[])[],
): { sizes: number[]; strides: number[][] } {
  const merged: { size: number; strides: number[] }[] = []
  sizes.forEach((size, axis) => {
    if (size === 1) return
    const own = strides.map((of) => of[axis])
    const last = merged.at(-1)
    if (last?.strides.every((outer, i) => outer === own[i] * size)) {
      last.size *= size
      last.strides = own
    } else merged.push({ size, strides: own })
  })
  return {
    sizes: merged.map(({ size }) => size),
    strides: strides.map((_, i) => merged.map((axis) => axis.strides[i])),
  }
}

/** WGSL coordinates of the axes of `sizes` from the row-major index `flat`. */
export function coordinatesOf(sizes: Shape, flat: string): string[] {
  let inner = countElements(sizes)
  return sizes.map((size, axis) => {
    inner /= size
    const divided = inner === 1 ? flat : `${flat} / ${inner}u`
    if (axis === 0) return inner === 1 ? flat : `(${divided})`
    return `(${divided} % ${size}u)`
  })
}

/** WGSL sum of coordinate * stride, `offset` first; strides must not be negative. */
export function offsetOf(
  coordinates: readonly string[],
  strides: readonly number[],
  offset = 0,
): string {
  const terms = coordinates.flatMap((coordinate, axis) =>
    strides[axis] === 0
      ? []
      : [strides[axis] === 1 ? coordinate : `${coordinate} * ${strides[axis]}u`],
  )
  if (offset !== 0) terms.unshift(`${offset}u`)
  return terms.length === 0 ? '0u' : terms.join(' + ')
}
