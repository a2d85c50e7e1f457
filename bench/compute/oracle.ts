/** Largest relative difference between two trajectories. */
export const worstDifference = (losses: readonly number[], expected: readonly number[]): number =>
  Math.max(...losses.map((loss, step) => Math.abs(loss / expected[step] - 1)))
