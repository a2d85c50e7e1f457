import { defineUpdate } from '../update/rule.ts'
import body from './lion.wgsl?raw'

/**
 * One Lion step on elements start .. start + length of flat tensors.
 *
 * shape: param, grad, m [n]; param and m change in place. m starts as zeros.
 * source: Chen et al., arXiv 2302.06675.
 */
export const lion = defineUpdate({
  name: 'lion',
  tensors: [
    { name: 'param', isUpdated: true },
    { name: 'grad', isUpdated: false },
    { name: 'm', isUpdated: true },
  ],
  scaled: 'grad',
  settings: ['decay', 'lr', 'beta1', 'oneMinusBeta1', 'beta2', 'oneMinusBeta2'],
  body,
  reference(x, s) {
    x[0] = s.decay * x[0] - s.lr * Math.sign(s.beta1 * x[2] + s.oneMinusBeta1 * x[1])
    x[2] = s.beta2 * x[2] + s.oneMinusBeta2 * x[1]
  },
  tolerance: {
    absolute: 1e-6,
    relative: 1e-6,
    because: 'a few f32 operations that may be fused; no drawn direction is within rounding of 0',
  },
  sample: {
    decay: 0.999,
    lr: 0.01,
    beta1: 0.875,
    oneMinusBeta1: 0.125,
    beta2: 0.99,
    oneMinusBeta2: 0.01,
  },
})
