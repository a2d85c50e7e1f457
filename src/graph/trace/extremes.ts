import { byName } from '../../util/plain-callers.ts'
import { type DType, resolveAxis, type Shape } from '../../util/shape.ts'
import { flag, mustHaveElements } from './tensor-arguments.ts'

/** The one largest or smallest element, and where it is: `max`, `min`, `argmax` and `argmin` of tensors. */

export type Extreme = 'max' | 'min'

/** The part of a tensor that extremes need. */
interface Ordered<T> {
  readonly dtype: DType
  readonly shape: Shape
  readonly count: number
  reshape(shape: Shape): T
  amax(): T
  amin(): T
  topk(k: number, dim: number, largest: boolean): { readonly values: T; readonly indices: T }
}

/** Of all elements. */
export function extremeOf<T extends Ordered<T>>(x: Ordered<T>, which: Extreme): T {
  mustHaveElements(which, x)
  return which === 'max' ? x.amax() : x.amin()
}

/** Along one dimension, of equal ones the first; `name` is the function that was called. */
export function firstExtremes<T extends Ordered<T>>(
  x: Ordered<T>,
  which: Extreme,
  dim: number,
  keepDim: boolean,
  name: string = which,
): { readonly values: T; readonly indices: T } {
  const axis = resolveAxis(name, 'dim', x.shape, dim)
  if (x.shape[axis] === 0 || x.dtype === 'u32') mustHaveElements(name, x)
  const { values, indices } = x.topk(1, dim, which === 'max')
  if (flag(name, 'keepDim', keepDim)) return byName(name, { values, indices })
  const shape = x.shape.filter((_, at) => at !== axis)
  return byName(name, { values: values.reshape(shape), indices: indices.reshape(shape) })
}

/** The index along a dimension, or in the flattened tensor. */
export function extremePlace<T extends Ordered<T>>(
  x: Ordered<T>,
  which: Extreme,
  dim: number | undefined,
  keepDim: boolean,
): T {
  const name = `arg${which}`
  if (dim !== undefined) return firstExtremes(x, which, dim, keepDim, name).indices
  mustHaveElements(name, x)
  const { indices } = firstExtremes(x.reshape([x.count]), which, 0, false, name)
  return flag(name, 'keepDim', keepDim) ? indices.reshape(x.shape.map(() => 1)) : indices
}
