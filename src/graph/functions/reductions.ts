import { logSumExp } from '../../kernels/softmax/softmax.ts'
import { calledAs } from '../../util/called-as.ts'
import {
  checkFlag,
  checkNumber,
  checkOptions,
  isNoNan,
  type OptionNames,
} from '../../util/options.ts'
import { countElements } from '../../util/shape.ts'
import {
  type Axes,
  elementwise,
  emit,
  mustBeTensor,
  type Tensor,
  type ValuesAndIndices,
} from '../trace/tensor.ts'
import { axesOf, flag, mustBeFloat, notUnderstood } from '../trace/tensor-arguments.ts'
import { where } from './elementwise.ts'

/**
 * Options of `variance` and `std`. Reductions are named as in torch, with arguments in its order. Dimensions may be negative; by default
 * all are reduced.
 */

export interface VarianceOptions {
  /** True if reduced dimensions stay as size 1; default false. */
  readonly keepDim?: boolean
  /** Subtracted from the number of elements in the divisor; default 1, as for a sample. */
  readonly correction?: number
  /** PyTorch's older name for a correction of 1 (true) or 0 (false). */
  readonly unbiased?: boolean
}

export const sum = (x: Tensor, dim?: Axes, keepDim?: boolean): Tensor =>
  mustBeTensor('sum', { x }).sum(dim, keepDim)
export const mean = (x: Tensor, dim?: Axes, keepDim?: boolean): Tensor =>
  mustBeTensor('mean', { x }).mean(dim, keepDim)
export const amax = (x: Tensor, dim?: Axes, keepDim?: boolean): Tensor =>
  mustBeTensor('amax', { x }).amax(dim, keepDim)
export const amin = (x: Tensor, dim?: Axes, keepDim?: boolean): Tensor =>
  mustBeTensor('amin', { x }).amin(dim, keepDim)
export const argmax = (x: Tensor, dim?: number, keepDim?: boolean): Tensor =>
  mustBeTensor('argmax', { x }).argmax(dim, keepDim)
export const argmin = (x: Tensor, dim?: number, keepDim?: boolean): Tensor =>
  mustBeTensor('argmin', { x }).argmin(dim, keepDim)
/** Returns the largest element; or, along one dimension, the largest elements and their indices. */
export function max(x: Tensor): Tensor
export function max(x: Tensor, dim: number, keepDim?: boolean): ValuesAndIndices
export function max(x: Tensor, dim?: number, keepDim?: boolean): Tensor | ValuesAndIndices {
  mustBeTensor('max', { x })
  return dim === undefined ? x.max() : x.max(dim, keepDim)
}

/** Returns the smallest element or elements; see `max`. */
export function min(x: Tensor): Tensor
export function min(x: Tensor, dim: number, keepDim?: boolean): ValuesAndIndices
export function min(x: Tensor, dim?: number, keepDim?: boolean): Tensor | ValuesAndIndices {
  mustBeTensor('min', { x })
  return dim === undefined ? x.min() : x.min(dim, keepDim)
}

export const topk = (x: Tensor, k: number, dim?: number, largest?: boolean): ValuesAndIndices =>
  mustBeTensor('topk', { x }).topk(k, dim, largest)

const varianceOptions: OptionNames<VarianceOptions> = {
  keepDim: true,
  correction: true,
  unbiased: true,
}

/**
 * Returns the variance of the elements.
 *
 * The third argument is options, because versions of torch disagree about a positional one.
 * cost: two passes, the mean first, so a large common offset costs no precision.
 */
export function variance(x: Tensor, dim?: Axes, options: VarianceOptions = {}): Tensor {
  const { keepDim, unbiased, correction } = checkOptions('variance', options, varianceOptions)
  checkFlag('variance', 'keepDim', keepDim)
  checkNumber('variance', 'correction', correction, Number.isFinite, 'a finite number')
  checkFlag('variance', 'unbiased', unbiased)
  mustBeFloat('variance', mustBeTensor('variance', { x }))
  const axes = axesOf('variance', x.shape, dim)
  const count = axes.reduce((product, axis) => product * x.shape[axis], 1)
  // The gradient by way of the mean is a sum of differences from it, so nothing: the mean is a constant.
  const squares = elementwise('squaredError', { x, mean: x.mean(dim, true).detach() })
  const lost = correction ?? (unbiased === false ? 0 : 1)
  return squares.sum(dim, keepDim).div(Math.max(0, count - lost))
}

/** Returns the square root of the variance; its gradient where that is 0 is 0, as in PyTorch. cost: as `variance`. */
export const std = (x: Tensor, dim?: Axes, options?: VarianceOptions): Tensor =>
  elementwise('root', { x: calledAs('std', 'variance', () => variance(x, dim, options)) })

/** Returns the variance and the mean. */
export const varMean = (x: Tensor, dim?: Axes, options?: VarianceOptions): [Tensor, Tensor] => [
  calledAs('varMean', 'variance', () => variance(x, dim, options)),
  x.mean(dim, options?.keepDim),
]

/**
 * Returns log of the sum of exp(x), without overflow; -Infinity for no elements or only -Infinity. cost: one dispatch per run of
 * neighbouring dimensions.
 */
export function logsumexp(x: Tensor, dim?: Axes, keepDim = false): Tensor {
  mustBeFloat('logsumexp', mustBeTensor('logsumexp', { x }))
  const axes = axesOf('logsumexp', x.shape, dim).sort((a, b) => a - b)
  let result = x
  // From the last to the first, so that earlier axes keep their numbers; neighbours are one axis.
  for (let end = axes.length; end > 0; ) {
    let start = end - 1
    while (start > 0 && axes[start - 1] === axes[start] - 1) start--
    const [first, last] = [axes[start], axes[end - 1]]
    const { shape } = result
    const length = countElements(shape.slice(first, last + 1))
    const joined = result.reshape([...shape.slice(0, first), length, ...shape.slice(last + 1)])
    result = emit(logSumExp, [joined], { axis: first })
    end = start
  }
  return flag('logsumexp', 'keepDim', keepDim)
    ? result.reshape(x.shape.map((size, axis) => (axes.includes(axis) ? 1 : size)))
    : result
}

/**
 * Returns the p-norm of the elements: (sum |x|^p)^(1/p); the largest magnitude for p = Infinity, the smallest for -Infinity.
 *
 * numerics: the gradient is 0 at the origin, and for an element that is 0, as in PyTorch.
 */
export function norm(x: Tensor, p = 2, dim?: Axes, keepDim = false): Tensor {
  if (!isNoNan(p)) throw notUnderstood('norm', 'p', 'a number', p)
  mustBeFloat('norm', mustBeTensor('norm', { x }))
  axesOf('norm', x.shape, dim)
  flag('norm', 'keepDim', keepDim)
  if (p === 2) return elementwise('root', { x: x.square().sum(dim, keepDim) })
  const size = x.abs()
  if (p === 1) return size.sum(dim, keepDim)
  if (p === Number.POSITIVE_INFINITY) return size.amax(dim, keepDim)
  if (p === Number.NEGATIVE_INFINITY) return size.amin(dim, keepDim)
  if (p === 0) return x.ne(0).sum(dim, keepDim)
  // A power whose slope at 0 is infinite is taken of other numbers alone: 0 times that slope would be NaN.
  const powers = p < 1 ? powerAwayFrom0(size, p) : size.pow(p)
  const total = powers.sum(dim, keepDim)
  return p > 1 ? powerAwayFrom0(total, 1 / p) : total.pow(1 / p)
}

/** x to the power of p for x from 0 up, with a gradient of 0 at 0. */
function powerAwayFrom0(x: Tensor, p: number): Tensor {
  const isZero = x.eq(0)
  const power = where(isZero, 1, x).pow(p)
  return where(isZero, p < 0 ? Number.POSITIVE_INFINITY : 0, power)
}
