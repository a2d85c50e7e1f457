/** What the demo is, and the result that it states: for the page, the spec and the README. */
export const meta = {
  title: 'One network, split',
  sentence:
    'The same network trained on one device, with data, model and pipeline parallelism, side by side.',
  expected: {
    /** All four take the same steps: their losses differ by no more than this, relative to one device's. */
    sameWithin: 1e-5,
    /** Over this number of steps: roundings add up. */
    withinSteps: 100,
  },
} as const
