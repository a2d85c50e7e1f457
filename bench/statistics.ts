export { median } from '../src/measure/median.ts'

/** The mean of each block of `size` values; what does not fill a block is left out. For values that are short against the clock's tick. */
export function blockMeans(values: readonly number[], size: number): number[] {
  const means: number[] = []
  for (let begin = 0; begin + size <= values.length; begin += size) {
    means.push(mean(values.slice(begin, begin + size)))
  }
  return means
}

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

/** The standard deviation of just these values. */
export const deviation = (values: readonly number[]): number =>
  Math.sqrt(mean(values.map((value) => (value - mean(values)) ** 2)))

/** Smallest and largest. */
export const spread = (values: readonly number[]): [number, number] => [
  Math.min(...values),
  Math.max(...values),
]

/** The ratios ours / theirs of pairs that were measured next to each other. */
export const pairRatios = (ours: readonly number[], theirs: readonly number[]): number[] =>
  ours.map((value, round) => value / theirs[round])

/** How much more time `ms` is than `baseMs`, in per cent; PyTorch's tutorial also turns it round, for how much faster something became. */
export const percentMore = (ms: number, baseMs: number): number => (ms / baseMs - 1) * 100
