import { invariant } from '../../util/errors.ts'
import { countElements, type DType, type Shape, stridesOf } from '../../util/shape.ts'
import type { HostArray } from '../op.ts'
import type { Strided } from '../strided.ts'

/**
 * Where a small tensor lies in a large one: its axis `n` walks the large one's axis `axes[n]`, -1 for an axis that repeats.
 *
 * Along axis d of the large one it begins at `start[d]` in steps of `step[d]`; axes that none walks stay at `start[d]`.
 */
export interface Region {
  readonly axes: readonly number[]
  readonly start: readonly number[]
  /** Not 0; negative to walk backwards. */
  readonly step: readonly number[]
}

/** The region of a whole tensor in order. */
export const wholeRegion = (shape: Shape): Region => ({
  axes: shape.map((_, axis) => axis),
  start: shape.map(() => 0),
  step: shape.map(() => 1),
})

/** Returns whether a region of that size lies inside. */
export const isInside = ({ axes, start, step }: Region, small: Shape, large: Shape): boolean =>
  axes.length === small.length &&
  start.length === large.length &&
  step.length === large.length &&
  new Set(axes.filter((axis) => axis >= 0)).size === axes.filter((axis) => axis >= 0).length &&
  axes.every((axis) => axis === -1 || axis in large) &&
  (countElements(small) === 0 ||
    large.every((size, axis) => {
      const own = axes.indexOf(axis)
      const last = start[axis] + (own < 0 ? 0 : (small[own] - 1) * step[axis])
      return start[axis] >= 0 && start[axis] < size && last >= 0 && last < size && step[axis] !== 0
    }))

/** The small tensor as strides over the memory in which the large one lies. */
export function regionStrided(
  { axes, start, step }: Region,
  small: Shape,
  large: Strided,
): Strided {
  invariant(start.length === large.shape.length, () => 'view: a region of another tensor')
  return {
    shape: small,
    strides: axes.map((axis) => (axis < 0 ? 0 : large.strides[axis] * step[axis])),
    offset: start.reduce((sum, at, axis) => sum + at * large.strides[axis], large.offset),
  }
}

/** The order of axes of a region that only reorders them, or undefined. */
export function permutationOf(
  { axes, start, step }: Region,
  small: Shape,
  large: Shape,
): readonly number[] | undefined {
  const isWhole =
    small.length === large.length &&
    axes.every((axis, own) => axis >= 0 && small[own] === large[axis]) &&
    start.every((at) => at === 0) &&
    step.every((by) => by === 1)
  return isWhole ? axes : undefined
}

/** For each element of the small tensor, its flat index in the large one. */
export function* regionIndices(region: Region, small: Shape, large: Shape): Generator<number> {
  const { strides, offset } = regionStrided(region, small, {
    shape: large,
    strides: stridesOf(large),
    offset: 0,
  })
  const count = countElements(small)
  for (let flat = 0; flat < count; flat++) {
    let rest = flat
    let at = offset
    for (let axis = small.length - 1; axis >= 0; axis--) {
      at += (rest % small[axis]) * strides[axis]
      rest = Math.floor(rest / small[axis])
    }
    yield at
  }
}

/** A host array for `count` elements of that dtype. */
export const emptyLike = (dtype: DType, count: number): HostArray =>
  dtype === 'f32'
    ? new Float64Array(count)
    : dtype === 'i32'
      ? new Int32Array(count)
      : new Uint32Array(count)
