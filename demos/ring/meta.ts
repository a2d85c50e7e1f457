/** What the demo is, and the result that it states: for the page, the spec and the README. */
export const meta = {
  title: 'Ring only',
  sentence: 'An all-reduce on plain arrays, message by message: no GPU, no server.',
  /** All ranks end with the bits of a plain loop; steps are messages that wait for one another, bytes are what each rank sends. */
  expected: {
    ranks: 4,
    length: 1000,
    algorithm: 'ring',
    steps: 6,
    bytesPerRank: 6000,
  },
} as const
