/** One way to train the same model on the same samples. */
export interface Strategy {
  /** In the address. */
  readonly name: string
  readonly words: string
  readonly ranks: number
  /** How many times the global batch of the settings a step takes. */
  readonly batchTimes: number
  /** No gradients are exchanged: each rank trains a separate model. */
  readonly isAlone: boolean
  /** On devices that this computer does not have. */
  readonly isSimulated?: true
}

const simulated = (ranks: number): Strategy => ({
  name: `${ranks}sim`,
  words: `${ranks} devices, simulated`,
  ...{ ranks, batchTimes: 1, isAlone: false, isSimulated: true },
})

/** All of them, in the order of training; the place decides the look of a strategy's lines. */
export const strategies: readonly Strategy[] = [
  { name: '1', words: '1 rank', ranks: 1, batchTimes: 1, isAlone: false },
  { name: '2', words: '2 ranks', ranks: 2, batchTimes: 1, isAlone: false },
  { name: '4', words: '4 ranks', ranks: 4, batchTimes: 1, isAlone: false },
  { name: '2x', words: '2 ranks, batch × 2', ranks: 2, batchTimes: 2, isAlone: false },
  { name: '4x', words: '4 ranks, batch × 4', ranks: 4, batchTimes: 4, isAlone: false },
  { name: '2alone', words: '2 ranks, no exchange', ranks: 2, batchTimes: 1, isAlone: true },
  simulated(2),
  simulated(4),
]

/** The number of a strategy's look. */
export const slotOf = ({ name }: Strategy): number =>
  strategies.findIndex((strategy) => strategy.name === name)

/** Whether a strategy trains, and its losses must be those of one rank, up to rounding. */
export const isSameTraining = ({ batchTimes, isAlone, isSimulated }: Strategy): boolean =>
  batchTimes === 1 && !isAlone && !isSimulated
