import { tensorType } from '../../util/shape.ts'
import { defineUpdate, type UpdateRule } from '../update/rule.ts'
import body from './sgd.wgsl?raw'

// Three ops, because what an op updates is fixed: without a momentum buffer, with it, and with it in Nesterov's form.

const tolerance = {
  absolute: 1e-6,
  relative: 1e-6,
  because: 'a few f32 operations that may be fused',
}

/** Past 65,535 groups of 64 threads the grid folds into its second dimension. */
const folded = 65_536 * 64 + 5

/**
 * One SGD step without momentum on elements start .. start + length of flat tensors.
 *
 * shape: param, grad [n]; param changes in place.
 * source: PyTorch 1.13's SGD.
 */
export const sgd = defineUpdate(
  {
    name: 'sgd',
    tensors: [
      { name: 'param', isUpdated: true },
      { name: 'grad', isUpdated: false },
    ],
    scaled: 'grad',
    settings: ['lr', 'weightDecay'],
    body: `fn with_momentum(d: VALUE, i: u32, s: Settings) -> VALUE {\n  return d;\n}\n${body}`,
    reference(x, s) {
      x[0] -= s.lr * (x[1] + s.weightDecay * x[0])
    },
    tolerance,
    sample: { lr: 0.1, weightDecay: 0.01 },
  },
  [
    {
      name: 'folded grid',
      inputs: [tensorType([folded]), tensorType([folded])],
      attrs: {
        settings: { lr: { slot: 1 }, weightDecay: { slot: 0 } },
        start: 2,
        length: folded - 3,
      },
      scalars: [0, 0.1],
    },
  ],
)

const withMomentum = (isNesterov: boolean): UpdateRule => ({
  name: isNesterov ? 'sgdNesterov' : 'sgdMomentum',
  tensors: [
    { name: 'param', isUpdated: true },
    { name: 'grad', isUpdated: false },
    { name: 'buffer', isUpdated: true },
  ],
  scaled: 'grad',
  settings: ['lr', 'weightDecay', 'momentum', 'gradScale'],
  body: [
    'fn with_momentum(d: VALUE, i: u32, s: Settings) -> VALUE {',
    '  let next = s.momentum * buffer[i] + s.grad_scale * d;',
    '  buffer[i] = next;',
    `  return ${isNesterov ? 'd + s.momentum * next' : 'next'};`,
    '}',
    body,
  ].join('\n'),
  reference(x, s) {
    const d = x[1] + s.weightDecay * x[0]
    x[2] = s.momentum * x[2] + s.gradScale * d
    x[0] -= s.lr * (isNesterov ? d + s.momentum * x[2] : x[2])
  },
  tolerance,
  sample: { lr: 0.1, weightDecay: 0.01, momentum: 0.9, gradScale: 0.75 },
})

/** The same with a momentum buffer [n], which changes in place and starts as zeros. */
export const sgdMomentum = defineUpdate(withMomentum(false))

/** The same with Nesterov's momentum. */
export const sgdNesterov = defineUpdate(withMomentum(true))
