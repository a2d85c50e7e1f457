import { defineUpdate, type UpdateRule } from '../update/rule.ts'
import body from './adam.wgsl?raw'

// Two ops, because what an op updates is fixed: with the largest second moment and without.

const rule = (hasMaximum: boolean): UpdateRule => ({
  name: hasMaximum ? 'adamAmsgrad' : 'adam',
  tensors: [
    { name: 'param', isUpdated: true },
    { name: 'grad', isUpdated: false },
    { name: 'm', isUpdated: true },
    { name: 'v', isUpdated: true },
    ...(hasMaximum ? [{ name: 'largest', isUpdated: true }] : []),
  ],
  scaled: 'grad',
  settings: ['decay', 'l2', 'beta1', 'oneMinusBeta1', 'beta2', 'oneMinusBeta2', 'stepSize', 'eps'],
  body: [
    hasMaximum
      ? 'fn second_moment(i: u32, v: VALUE) -> VALUE {\n  let w = max(largest[i], v);\n  largest[i] = w;\n  return w;\n}'
      : 'fn second_moment(i: u32, v: VALUE) -> VALUE {\n  return v;\n}',
    body,
  ].join('\n'),
  reference(x, s) {
    const g = x[1] + s.l2 * x[0]
    x[2] = s.beta1 * x[2] + s.oneMinusBeta1 * g
    x[3] = s.beta2 * x[3] + s.oneMinusBeta2 * g * g
    if (hasMaximum) x[4] = Math.max(x[4], x[3])
    x[0] = s.decay * x[0] - (s.stepSize * x[2]) / (Math.sqrt(x[hasMaximum ? 4 : 3]) + s.eps)
  },
  tolerance: {
    absolute: 2e-6,
    relative: 2e-6,
    because: 'a handful of f32 operations, one division of 2.5 ulp and a square root',
  },
  sample: {
    decay: 0.999,
    l2: 0.05,
    beta1: 0.9,
    oneMinusBeta1: 0.1,
    beta2: 0.99,
    oneMinusBeta2: 0.01,
    stepSize: 1e-2,
    eps: 1e-3,
  },
  nonNegative: ['v', 'largest'].slice(0, hasMaximum ? 2 : 1),
})

/**
 * One step of Adam or AdamW on elements start .. start + length of flat tensors; the rest is left alone.
 *
 * shape: param, grad, m, v [n]; param, m and v change in place. m and v start as zeros.
 * source: PyTorch 1.13's Adam and AdamW.
 */
export const adam = defineUpdate(rule(false))

/** The same with amsgrad: `largest` [n] holds the largest v so far, zeros at first. */
export const adamAmsgrad = defineUpdate(rule(true))
