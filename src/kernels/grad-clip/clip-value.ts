import { defineUpdate } from '../update/rule.ts'

/**
 * grad <- min(max(grad, -limit), limit) on a slice of a flat tensor, after control's factor.
 *
 * shape: grad [n]; it changes in place.
 * numerics: NaN stays NaN, as in PyTorch.
 */
export const clipValue = defineUpdate({
  name: 'clipValue',
  tensors: [{ name: 'grad', isUpdated: true }],
  scaled: 'grad',
  settings: ['limit'],
  body: `fn update(i: u32, s: Settings) {
  let g = scaled(i, s);
  let is_nan = (bitcast<WORDS>(g) & WORDS(0x7fffffffu)) > WORDS(0x7f800000u);
  grad[i] = select(clamp(g, VALUE(-s.limit), VALUE(s.limit)), g, is_nan);
}`,
  reference(x, s) {
    x[0] = Math.min(Math.max(x[0], -s.limit), s.limit)
  },
  tolerance: { absolute: 0, relative: 2e-7, because: 'at most one product' },
  sample: { limit: 0.5 },
})
