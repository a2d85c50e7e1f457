import { defineUpdate } from '../update/rule.ts'

/**
 * The running average of a tensor: average <- decay * average + (1 - decay) * current, on a slice of flat tensors.
 *
 * shape: average, current [n]; average changes in place. With decay 0 it becomes a copy.
 */
export const runningAverage = defineUpdate({
  name: 'runningAverage',
  tensors: [
    { name: 'average', isUpdated: true },
    { name: 'current', isUpdated: false },
  ],
  settings: ['decay', 'oneMinusDecay'],
  body: `fn update(i: u32, s: Settings) {
  average[i] = s.decay * average[i] + s.one_minus_decay * current[i];
}`,
  reference(x, s) {
    x[0] = s.decay * x[0] + s.oneMinusDecay * x[1]
  },
  tolerance: { absolute: 1e-6, relative: 1e-6, because: 'two products and a sum in f32' },
  sample: { decay: 0.9, oneMinusDecay: 0.1 },
})
