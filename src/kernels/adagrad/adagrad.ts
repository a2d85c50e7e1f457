import { defineUpdate } from '../update/rule.ts'
import body from './adagrad.wgsl?raw'

/**
 * One Adagrad step on elements start .. start + length of flat tensors.
 *
 * shape: param, grad, sum [n]; param and sum change in place.
 * source: PyTorch 1.13's Adagrad.
 */
export const adagrad = defineUpdate({
  name: 'adagrad',
  tensors: [
    { name: 'param', isUpdated: true },
    { name: 'grad', isUpdated: false },
    { name: 'sum', isUpdated: true },
  ],
  scaled: 'grad',
  settings: ['lr', 'weightDecay', 'eps'],
  body,
  reference(x, s) {
    const g = x[1] + s.weightDecay * x[0]
    x[2] += g * g
    x[0] -= (s.lr * g) / (Math.sqrt(x[2]) + s.eps)
  },
  tolerance: {
    absolute: 2e-6,
    relative: 2e-6,
    because: 'a handful of f32 operations, one division of 2.5 ulp and a square root',
  },
  sample: { lr: 0.1, weightDecay: 0.01, eps: 1e-6 },
  nonNegative: ['sum'],
})
