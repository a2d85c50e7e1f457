import { ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'

/** Which axes an op reduces, counted from 0, and whether they stay as size 1. */
export interface ReduceAttrs {
  readonly axes: readonly number[]
  readonly keepDims: boolean
}

/** The shape after the axes are reduced. */
export const reducedShape = (shape: Shape, axes: readonly number[], keepDims: boolean): number[] =>
  keepDims
    ? shape.map((size, axis) => (axes.includes(axis) ? 1 : size))
    : shape.filter((_, axis) => !axes.includes(axis))

/** One pass over memory: [outer, reduced, inner] becomes [outer, inner]. */
export interface Pass {
  readonly outer: number
  readonly reduced: number
  readonly inner: number
}

/** The passes of a reduction, one for each run of neighbouring reduced axes, innermost first. */
export function reductionPasses(shape: Shape, axes: readonly number[]): Pass[] {
  if (axes.some((axis) => shape[axis] === 0)) {
    return [{ outer: countElements(reducedShape(shape, axes, false)), reduced: 0, inner: 1 }]
  }
  const runs: { size: number; isReduced: boolean }[] = []
  shape.forEach((size, axis) => {
    if (size === 1) return
    const isReduced = axes.includes(axis)
    const last = runs.at(-1)
    if (last?.isReduced === isReduced) last.size *= size
    else runs.push({ size, isReduced })
  })
  const passes: Pass[] = []
  let inner = 1
  for (let at = runs.length - 1; at >= 0; at--) {
    const { size, isReduced } = runs[at]
    if (isReduced) {
      const outer = runs.slice(0, at).reduce((product, run) => product * run.size, 1)
      passes.push({ outer, reduced: size, inner })
    } else inner *= size
  }
  return passes.length > 0 ? passes : [{ outer: countElements(shape), reduced: 1, inner: 1 }]
}

/** The sizes before, along and after an axis. */
export const aroundAxis = (shape: Shape, axis: number): Pass => ({
  outer: countElements(shape.slice(0, axis)),
  reduced: shape[axis],
  inner: countElements(shape.slice(axis + 1)),
})

/** The type after a reduction in the input's own dtype. */
export const reducedType = (x: TensorType, { axes, keepDims }: ReduceAttrs): TensorType =>
  tensorType(reducedShape(x.shape, axes, keepDims), x.dtype)

/** The dtype of a reduction that `checkAxes` let through. */
export const reducedDType = ({ dtype }: TensorType): 'f32' | 'i32' =>
  dtype === 'i32' ? 'i32' : 'f32'

/** errors: `shape.unsupported` for axes that the tensor lacks or that come twice, and for other types than f32 and i32. */
export function checkAxes(op: string, x: TensorType, axes: readonly number[]): void {
  const wrong = axes.find((axis, n) => !(axis in x.shape) || axes.indexOf(axis) !== n)
  if (wrong !== undefined || (x.dtype !== 'f32' && x.dtype !== 'i32')) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected distinct axes of an f32 or i32 tensor, got axes ${formatShape(axes)} of ${x.dtype}${formatShape(x.shape)}. Axes count from 0; convert other types with float().`,
    )
  }
}

/** errors: `shape.unsupported` where an axis without elements leaves nothing to take. */
export function refuseEmpty(op: string, { shape }: TensorType, axes: readonly number[]): void {
  const isEmpty = axes.some((axis) => shape[axis] === 0)
  if (isEmpty && countElements(reducedShape(shape, axes, false)) > 0) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected at least one element along axes ${formatShape(axes)}, got ${formatShape(shape)}. Skip empty tensors.`,
    )
  }
}

/** Attrs of a reduction over these axes, for cases. */
export const over = (...axes: number[]): ReduceAttrs => ({ axes, keepDims: false })

/** As `over`; the axes stay, of size 1. */
export const kept = (...axes: number[]): ReduceAttrs => ({ axes, keepDims: true })
