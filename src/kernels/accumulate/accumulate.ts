import { defineUpdate } from '../update/rule.ts'

// Gradients of several backward passes, added in the order of the passes.

const tolerance = { absolute: 1e-7, relative: 1e-7, because: 'one sum in f32' }

/** total <- total + grad on a slice of flat tensors. shape: total, grad [n]; total changes in place. */
export const accumulate = defineUpdate({
  name: 'accumulate',
  tensors: [
    { name: 'total', isUpdated: true },
    { name: 'grad', isUpdated: false },
  ],
  settings: [],
  body: `fn update(i: u32, s: Settings) {
  total[i] += grad[i];
}`,
  reference(x) {
    x[0] += x[1]
  },
  tolerance,
  sample: {},
})

/** grad <- (total + grad) factor, total <- 0 on a slice of flat tensors: the end of an accumulation. shape: total, grad [n]; both change. */
export const takeAccumulated = defineUpdate({
  name: 'takeAccumulated',
  tensors: [
    { name: 'total', isUpdated: true },
    { name: 'grad', isUpdated: true },
  ],
  settings: ['factor'],
  body: `fn update(i: u32, s: Settings) {
  grad[i] = (total[i] + grad[i]) * s.factor;
  total[i] = VALUE(0.0);
}`,
  reference(x, { factor }) {
    x[1] = (x[0] + x[1]) * factor
    x[0] = 0
  },
  tolerance: { absolute: 2e-7, relative: 2e-7, because: 'a sum and a product in f32' },
  sample: { factor: 0.75 },
})
