import { logSumExp } from '../../kernels/softmax/softmax.ts'
import { type Axes, elementwise, emit, type Tensor, type ValuesAndIndices } from '../tensor.ts'

/** Reductions, named as in torch. Axes may count from the end; all of them are reduced unless told. */

export interface ReduceOptions {
  readonly axes?: Axes
  /** Whether reduced axes stay as size 1. */
  readonly keepDims?: boolean
}

export interface VarianceOptions extends ReduceOptions {
  /** Whether the sum of squares is divided by n - 1, as for a sample; else by n. True unless told. */
  readonly unbiased?: boolean
}

export const sum = (x: Tensor, axes?: Axes, keepDims?: boolean): Tensor => x.sum(axes, keepDims)
export const mean = (x: Tensor, axes?: Axes, keepDims?: boolean): Tensor => x.mean(axes, keepDims)
export const amax = (x: Tensor, axes?: Axes, keepDims?: boolean): Tensor => x.amax(axes, keepDims)
export const amin = (x: Tensor, axes?: Axes, keepDims?: boolean): Tensor => x.amin(axes, keepDims)
export const argmax = (x: Tensor, axis?: number, keepDims?: boolean): Tensor =>
  x.argmax(axis, keepDims)
export const argmin = (x: Tensor, axis?: number, keepDims?: boolean): Tensor =>
  x.argmin(axis, keepDims)
export const topk = (x: Tensor, k: number, axis?: number, isLargest?: boolean): ValuesAndIndices =>
  x.topk(k, axis, isLargest)

/**
 * The variance of the elements.
 *
 * cost: two passes, the mean first, so that a large common offset costs no digits.
 */
export function variance(x: Tensor, options: VarianceOptions = {}): Tensor {
  const axes = x.axes(options.axes)
  const count = axes.reduce((product, axis) => product * x.shape[axis], 1)
  // The gradient by way of the mean is a sum of differences from it, so nothing: the mean is a constant.
  const squares = elementwise('squaredError', x, x.mean(axes, true).detach())
  return squares
    .sum(axes, options.keepDims)
    .div(Math.max(0, count - (options.unbiased === false ? 0 : 1)))
}

/** The square root of the variance; its gradient where that is 0 is 0, as PyTorch's. cost: as `variance`. */
export const std = (x: Tensor, options: VarianceOptions = {}): Tensor =>
  elementwise('root', variance(x, options))

/** The variance and the mean together. */
export const varMean = (x: Tensor, options: VarianceOptions = {}): [Tensor, Tensor] => [
  variance(x, options),
  x.mean(options.axes, options.keepDims),
]

/** log of the sum of exp(x), without overflow. cost: one dispatch for each run of neighbouring axes. */
export function logsumexp(x: Tensor, options: ReduceOptions = {}): Tensor {
  const axes = x.axes(options.axes).sort((a, b) => a - b)
  let result = x
  // From the last to the first, so that earlier axes keep their numbers; neighbours are one axis.
  for (let end = axes.length; end > 0; ) {
    let start = end - 1
    while (start > 0 && axes[start - 1] === axes[start] - 1) start--
    const [first, last] = [axes[start], axes[end - 1]]
    const { shape } = result
    const joined = result.reshape([...shape.slice(0, first), -1, ...shape.slice(last + 1)])
    result = emit(logSumExp, [joined], { axis: first })
    end = start
  }
  return options.keepDims
    ? result.reshape(x.shape.map((size, axis) => (axes.includes(axis) ? 1 : size)))
    : result
}

/**
 * The p-norm of the elements: (sum |x|^p)^(1/p); the largest magnitude for p of Infinity, the smallest for -Infinity.
 *
 * numerics: the gradient of the 2-norm at the origin is 0.
 */
export function norm(x: Tensor, p = 2, options: ReduceOptions = {}): Tensor {
  const axes = x.axes(options.axes)
  const { keepDims } = options
  if (p === 2) return elementwise('root', x.square().sum(axes, keepDims))
  const size = x.abs()
  if (p === 1) return size.sum(axes, keepDims)
  if (p === Number.POSITIVE_INFINITY) return size.amax(axes, keepDims)
  if (p === Number.NEGATIVE_INFINITY) return size.amin(axes, keepDims)
  if (p === 0) return x.ne(0).sum(axes, keepDims)
  return size
    .pow(p)
    .sum(axes, keepDims)
    .pow(1 / p)
}
