/** What the demo is, and the result that it states: for the page, the spec and the README. */
export const meta = {
  title: 'Strategies side by side',
  sentence: 'The same training on 1, 2 and 4 ranks: loss by samples and by seconds.',
  /** Of the losses of strategies, step by step, relative to those of the strategy with the fewest ranks. */
  expected: {
    query: '?strategies=1,2,4,2alone&steps=60',
    /** Where the ranks exchange gradients and the global batch is the same, losses differ by no more than this. */
    sameWithin: 1e-5,
    /** Steps over which that holds: roundings add up. */
    withinSteps: 100,
    /** Losses of ranks that exchange nothing differ by more than this. */
    apartBy: 0.01,
  },
} as const
