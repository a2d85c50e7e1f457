import { checkChoice, checkNumber, isNoNan } from '../../util/options.ts'
import { elementwise, mustBeTensor, type Tensor } from '../trace/tensor.ts'

/** Returns 1 / (1 + exp(-x)). Activations are named as in torch.nn.functional; all are safe at any magnitude. */

export const sigmoid = (x: Tensor): Tensor => elementwise('sigmoid', { x })
export const tanh = (x: Tensor): Tensor => elementwise('tanh', { x })
export const silu = (x: Tensor): Tensor => elementwise('silu', { x })
export function leakyRelu(x: Tensor, negativeSlope = 0.01): Tensor {
  checkNumber('leakyRelu', 'negativeSlope', negativeSlope, isNoNan, 'a number')
  mustBeTensor('leakyRelu', { x })
  return elementwise('leakyRelu', { x, negativeSlope })
}

/** Returns x Phi(x), exact to float32; or its tanh approximation, as in GPT-2. */
export function gelu(x: Tensor, approximate: 'none' | 'tanh' = 'none'): Tensor {
  checkChoice('gelu', 'approximate', approximate, ['none', 'tanh'])
  return elementwise(approximate === 'tanh' ? 'geluTanh' : 'gelu', { x })
}

/** Returns log(1 + exp(beta x)) / beta, or x itself where beta x is above the threshold. */
export function softplus(x: Tensor, beta = 1, threshold = 20): Tensor {
  checkNumber('softplus', 'beta', beta, isNoNan, 'a number')
  checkNumber('softplus', 'threshold', threshold, isNoNan, 'a number')
  mustBeTensor('softplus', { x })
  return elementwise('softplus', { x, beta, threshold })
}

/** Returns exp(x) / sum of exp(x) over an axis. cost: one dispatch, and one for the gradient. */
export const softmax = (x: Tensor, dim: number): Tensor =>
  mustBeTensor('softmax', { x }).softmax(dim)

/** Returns the logarithm of `softmax`, without its underflow. cost: as `softmax`. */
export const logSoftmax = (x: Tensor, dim: number): Tensor =>
  mustBeTensor('logSoftmax', { x }).logSoftmax(dim)
