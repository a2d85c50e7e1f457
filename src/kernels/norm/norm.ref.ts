import type { NormSizes } from './geometry.ts'

type Numbers = ArrayLike<number>

/** y and (mean, 1/deviation) of each row; the mean counts as 0 where it is not taken off. */
export function normReference(
  x: Numbers,
  weight: Numbers | undefined,
  bias: Numbers | undefined,
  { rows, size, groups, span, channelsPerRow }: NormSizes,
  eps: number,
  isCentered: boolean,
): Float64Array[] {
  const y = new Float64Array(rows * size)
  const stats = new Float64Array(rows * 2)
  for (let row = 0; row < rows; row++) {
    const first = row * size
    let mean = 0
    if (isCentered) for (let i = 0; i < size; i++) mean += x[first + i] / size
    let variance = 0
    for (let i = 0; i < size; i++) variance += (x[first + i] - mean) ** 2 / size
    const scale = 1 / Math.sqrt(variance + eps)
    for (let i = 0; i < size; i++) {
      const channel = (row % groups) * channelsPerRow + Math.floor(i / span)
      const normal = (x[first + i] - mean) * scale
      y[first + i] = normal * (weight?.[channel] ?? 1) + (bias?.[channel] ?? 0)
    }
    stats.set([mean, scale], row * 2)
  }
  return [y, stats]
}

/** dx, dweight and dbias from dy and the rows' statistics. */
export function normGradReference(
  dy: Numbers,
  x: Numbers,
  stats: Numbers,
  weight: Numbers | undefined,
  { rows, size, groups, span, channels, channelsPerRow }: NormSizes,
  isCentered: boolean,
): { dx: Float64Array; dweight: Float64Array; dbias: Float64Array } {
  const dx = new Float64Array(rows * size)
  const dweight = new Float64Array(channels)
  const dbias = new Float64Array(channels)
  for (let row = 0; row < rows; row++) {
    const first = row * size
    const mean = stats[row * 2]
    const scale = stats[row * 2 + 1]
    const channelOf = (i: number) => (row % groups) * channelsPerRow + Math.floor(i / span)
    let sum = 0
    let sumOfProducts = 0
    for (let i = 0; i < size; i++) {
      const normal = (x[first + i] - mean) * scale
      const g = dy[first + i] * (weight?.[channelOf(i)] ?? 1)
      sum += g
      sumOfProducts += g * normal
      dweight[channelOf(i)] += dy[first + i] * normal
      dbias[channelOf(i)] += dy[first + i]
    }
    for (let i = 0; i < size; i++) {
      const normal = (x[first + i] - mean) * scale
      const g = dy[first + i] * (weight?.[channelOf(i)] ?? 1)
      dx[first + i] = scale * (g - (isCentered ? sum / size : 0) - (normal * sumOfProducts) / size)
    }
  }
  return { dx, dweight, dbias }
}
