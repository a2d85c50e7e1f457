import { defineUpdate } from '../update/rule.ts'

/**
 * grad <- min(max(grad, -limit), limit) on a slice of a flat tensor, after control's factor.
 *
 * shape: grad [n]; it changes in place.
 * numerics: a NaN becomes either bound; GradScaler looks for NaN before.
 */
export const clipValue = defineUpdate({
  name: 'clipValue',
  tensors: [{ name: 'grad', isUpdated: true }],
  scaled: 'grad',
  settings: ['limit'],
  body: `fn update(i: u32, s: Settings) {
  grad[i] = clamp(scaled(i, s), VALUE(-s.limit), VALUE(s.limit));
}`,
  reference(x, s) {
    x[0] = Math.min(Math.max(x[0], -s.limit), s.limit)
  },
  tolerance: { absolute: 0, relative: 2e-7, because: 'at most one product' },
  sample: { limit: 0.5 },
})
