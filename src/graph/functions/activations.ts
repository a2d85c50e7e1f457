import { checkChoice } from '../../util/options.ts'
import { elementwise, type Tensor } from '../trace/tensor.ts'

/** Activations, named as in torch.nn.functional; all are safe at any magnitude. */

export const sigmoid = (x: Tensor): Tensor => x.sigmoid()
export const tanh = (x: Tensor): Tensor => x.tanh()
export const silu = (x: Tensor): Tensor => elementwise('silu', x)
export const leakyRelu = (x: Tensor, negativeSlope = 0.01): Tensor =>
  elementwise('leakyRelu', x, negativeSlope)

/** x Phi(x), exact to float32; or its approximation by tanh, as GPT-2 has it. */
export function gelu(x: Tensor, approximate: 'none' | 'tanh' = 'none'): Tensor {
  checkChoice('gelu', 'approximate', approximate, ['none', 'tanh'])
  return elementwise(approximate === 'tanh' ? 'geluTanh' : 'gelu', x)
}

/** log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold. */
export const softplus = (x: Tensor, beta = 1, threshold = 20): Tensor =>
  elementwise('softplus', x, beta, threshold)

/** exp(x) / sum of exp(x) over an axis. cost: one dispatch, and one for the gradient. */
export const softmax = (x: Tensor, axis: number): Tensor => x.softmax(axis)

/** The logarithm of `softmax`, without its underflow. cost: as `softmax`. */
export const logSoftmax = (x: Tensor, axis: number): Tensor => x.logSoftmax(axis)
