import { defineUpdate, type UpdateRule } from '../update/rule.ts'
import body from './rmsprop.wgsl?raw'

// Four ops, because what an op updates is fixed: centered or not, with a momentum buffer or not.

const rule = (isCentered: boolean, hasMomentum: boolean): UpdateRule => {
  const tensors = [
    { name: 'param', isUpdated: true },
    { name: 'grad', isUpdated: false },
    { name: 'square_avg', isUpdated: true },
    ...(isCentered ? [{ name: 'grad_avg', isUpdated: true }] : []),
    ...(hasMomentum ? [{ name: 'buffer', isUpdated: true }] : []),
  ]
  const average = 3
  const buffer = isCentered ? 4 : 3
  return {
    name: `rmsprop${isCentered ? 'Centered' : ''}${hasMomentum ? 'Momentum' : ''}`,
    tensors,
    scaled: 'grad',
    settings: [
      'lr',
      'weightDecay',
      'alpha',
      'oneMinusAlpha',
      'eps',
      ...(hasMomentum ? ['momentum'] : []),
    ],
    body: [
      'fn spread(i: u32, g: VALUE, q: VALUE, s: Settings) -> VALUE {',
      ...(isCentered
        ? [
            '  let a = s.alpha * grad_avg[i] + s.one_minus_alpha * g;',
            '  grad_avg[i] = a;',
            '  return max(q - a * a, VALUE(0.0));',
          ]
        : ['  return q;']),
      '}',
      'fn with_momentum(i: u32, d: VALUE, s: Settings) -> VALUE {',
      ...(hasMomentum
        ? ['  let b = s.momentum * buffer[i] + d;', '  buffer[i] = b;', '  return b;']
        : ['  return d;']),
      '}',
      body,
    ].join('\n'),
    reference(x, s) {
      const g = x[1] + s.weightDecay * x[0]
      x[2] = s.alpha * x[2] + s.oneMinusAlpha * g * g
      let spread = x[2]
      if (isCentered) {
        x[average] = s.alpha * x[average] + s.oneMinusAlpha * g
        spread = Math.max(spread - x[average] ** 2, 0)
      }
      let d = g / (Math.sqrt(spread) + s.eps)
      if (hasMomentum) {
        x[buffer] = s.momentum * x[buffer] + d
        d = x[buffer]
      }
      x[0] -= s.lr * d
    },
    tolerance: {
      absolute: 4e-6,
      relative: 4e-6,
      because:
        'a handful of f32 operations, one division of 2.5 ulp, a square root, and centered a difference',
    },
    // alpha and 1 - alpha are separate settings: these keep the centered difference well above 0 for any drawn contents.
    sample: {
      lr: 0.01,
      weightDecay: 0.01,
      alpha: isCentered ? 0 : 0.9,
      oneMinusAlpha: isCentered ? 0.5 : 0.1,
      eps: 1e-3,
      momentum: 0.9,
    },
    nonNegative: ['square_avg'],
  }
}

/**
 * One RMSprop step on elements start .. start + length of flat tensors.
 *
 * shape: param, grad, square_avg [n]; param and square_avg change in place; all states start as zeros.
 * source: PyTorch 1.13's RMSprop.
 */
export const rmsprop = defineUpdate(rule(false, false))

/** The same with the gradient's mean, grad_avg [n], taken off. */
export const rmspropCentered = defineUpdate(rule(true, false))

/** The same with a momentum buffer [n]. */
export const rmspropMomentum = defineUpdate(rule(false, true))

/** The same with both, grad_avg first. */
export const rmspropCenteredMomentum = defineUpdate(rule(true, true))
