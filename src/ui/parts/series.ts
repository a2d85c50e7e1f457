/**
 * A growing list of points that snapshots share.
 *
 * Appending writes behind the last point into the same storage, so a point costs O(1) and an older series still reads as it was, as long
 * as each series is appended to once (the reducer's way).
 */
export interface Series {
  readonly xs: Float64Array
  readonly ys: Float64Array
  readonly length: number
}

export const emptySeries: Series = {
  xs: new Float64Array(0),
  ys: new Float64Array(0),
  length: 0,
}

/** `series` with one more point. */
export function append(series: Series, x: number, y: number): Series {
  let { xs, ys } = series
  const { length } = series
  if (length === xs.length) {
    const capacity = Math.max(256, 2 * length)
    xs = grown(xs, capacity)
    ys = grown(ys, capacity)
  }
  xs[length] = x
  ys[length] = y
  return { xs, ys, length: length + 1 }
}

/** The newest value; NaN when there is none. */
export function last(series: Series): number {
  return series.length > 0 ? series.ys[series.length - 1] : Number.NaN
}

/**
 * The values without most of their noise: each is the mean of those around it, where one that lies `halfLife` points away counts half. It
 * looks no further ahead than the points before it reach back: so the line begins where the values do, and follows a steep fall. The newest
 * points have only what came before them. What is no number counts nowhere. 0 returns the values as they are.
 *
 * cost: O(length). source: the exponential moving average, taken in both directions.
 */
export function smoothed(values: Float64Array, length: number, halfLife: number): Float64Array {
  const result = values.slice(0, length)
  if (halfLife <= 0) return result
  const keep = 0.5 ** (1 / halfLife)
  // Of the values and of their weights: from each point on to the end, and then one behind it.
  const sums = new Float64Array(length + 1)
  const weights = new Float64Array(length + 1)
  for (let i = length - 1; i >= 0; i--) {
    const counts = Number.isFinite(values[i])
    sums[i] = keep * sums[i + 1] + (counts ? values[i] : 0)
    weights[i] = keep * weights[i + 1] + (counts ? 1 : 0)
  }
  let sum = 0
  let weight = 0
  for (let i = 0; i < length; i++) {
    sum *= keep
    weight *= keep
    // A gap stays one.
    if (!Number.isFinite(values[i])) continue
    const beyond = Math.min(length, 2 * i + 1)
    const far = keep ** (beyond - i)
    const ahead = sums[i] - far * sums[beyond]
    const weightAhead = weights[i] - far * weights[beyond]
    result[i] = (sum + ahead) / (weight + weightAhead)
    sum += values[i]
    weight++
  }
  return result
}

function grown(values: Float64Array, capacity: number): Float64Array {
  const larger = new Float64Array(capacity)
  larger.set(values)
  return larger
}
