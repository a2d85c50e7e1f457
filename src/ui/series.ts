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
 * The values without their noise: at each point a straight line is fitted to all before it, where a point counts half after `halfLife`
 * more, and read at its end. A moving average would lag behind a falling loss; a line does not. 0 returns the values as they are.
 *
 * cost: O(length). source: exponentially weighted least squares, as Brown's linear smoothing; here with exact weights from the first point on.
 */
export function smoothed(values: Float64Array, length: number, halfLife: number): Float64Array {
  const result = values.slice(0, length)
  if (halfLife <= 0) return result
  const keep = 0.5 ** (1 / halfLife)
  // Weighted sums over ages a (0 for the newest): of 1, a, a*a, y, a*y.
  let w = 0
  let wa = 0
  let waa = 0
  let wy = 0
  let way = 0
  for (let i = 0; i < length; i++) {
    waa = keep * (waa + 2 * wa + w)
    wa = keep * (wa + w)
    way = keep * (way + wy)
    w = keep * w + 1
    wy = keep * wy + values[i]
    const spread = w * waa - wa * wa
    if (spread > 1e-9) result[i] = (waa * wy - wa * way) / spread
  }
  return result
}

function grown(values: Float64Array, capacity: number): Float64Array {
  const larger = new Float64Array(capacity)
  larger.set(values)
  return larger
}
