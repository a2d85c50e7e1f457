/** Middle value; the mean of the two middle ones where the count is even. NaN for none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/** The mean of the middle half: as robust as the median, and finer than the clock that the values come from. */
export function midmean(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const quarter = sorted.length >> 2
  const middle = sorted.slice(quarter, sorted.length - quarter)
  return middle.reduce((sum, value) => sum + value, 0) / middle.length
}

/** Smallest and largest. */
export const spread = (values: readonly number[]): [number, number] => [
  Math.min(...values),
  Math.max(...values),
]

/** The ratios ours / theirs of pairs that were measured next to each other. */
export const pairRatios = (ours: readonly number[], theirs: readonly number[]): number[] =>
  ours.map((value, round) => value / theirs[round])
