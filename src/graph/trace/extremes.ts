import type { Tensor, ValuesAndIndices } from './tensor.ts'
import { flag, mustHaveElements } from './tensor-arguments.ts'

/** The one largest or smallest element, and where it is: `max`, `min`, `argmax` and `argmin` of tensors. */

export type Extreme = 'max' | 'min'

/** Of all elements. */
export function extremeOf(x: Tensor, which: Extreme): Tensor {
  mustHaveElements(which, x)
  return which === 'max' ? x.amax() : x.amin()
}

/** Along one dimension, of equal ones the first; `name` is the function that was called. */
export function firstExtremes(
  x: Tensor,
  which: Extreme,
  dim: number,
  keepDim: boolean,
  name: string = which,
): ValuesAndIndices {
  const axis = x.axis(dim)
  if (x.shape[axis] === 0 || x.dtype === 'u32') mustHaveElements(name, x)
  const { values, indices } = x.topk(1, dim, which === 'max')
  if (flag('keepDim', keepDim)) return { values, indices }
  const shape = x.shape.filter((_, at) => at !== axis)
  return { values: values.reshape(shape), indices: indices.reshape(shape) }
}

/** The index along a dimension, or in the flattened tensor. */
export function extremePlace(
  x: Tensor,
  which: Extreme,
  dim: number | undefined,
  keepDim: boolean,
): Tensor {
  const name = `arg${which}`
  if (dim !== undefined) return firstExtremes(x, which, dim, keepDim, name).indices
  mustHaveElements(name, x)
  const { indices } = firstExtremes(x.reshape([x.count]), which, 0, false, name)
  return flag('keepDim', keepDim) ? indices.reshape(x.shape.map(() => 1)) : indices
}
