/** How the gradients of several ranks become one. */
export type Aggregation = 'mean' | 'clipped' | 'trimmedMean' | 'median'

export const aggregations: readonly Aggregation[] = ['mean', 'clipped', 'trimmedMean', 'median']

/** How often a center moves towards what lies around it. */
const clippingRounds = 3

/**
 * Returns one gradient for those of several ranks, all finite and of one length.
 *
 * - `mean`: their sum over their number.
 * - `median`: of each element; of an even number of ranks, the mean of the two in the middle.
 * - `trimmedMean`: of each element, without the largest and smallest quarter of the ranks, rounded down, of three or more ranks at least one.
 * - `clipped`: a center that moves three times by the mean of the distances to all ranks, none longer than the median distance. It begins at
 *   the median, and not where the step before ended: so no checkpoint has to hold it.
 *
 * source: median and trimmed mean, Yin et al., arXiv 1803.01498; centered clipping, Karimireddy et al., arXiv 2012.10333.
 */
export function aggregate(
  kind: Aggregation,
  ranks: readonly Float32Array[],
): Float32Array<ArrayBuffer> {
  const { length: count } = ranks
  if (kind === 'clipped') return clipped(ranks)
  const cut =
    kind === 'mean'
      ? 0
      : kind === 'median'
        ? (count - 1) >> 1
        : Math.max(count >> 2, count >= 3 ? 1 : 0)
  return middle(ranks, cut)
}

/** The mean of each element without the `cut` largest and smallest; in rank order where nothing is cut. */
function middle(ranks: readonly Float32Array[], cut: number): Float32Array<ArrayBuffer> {
  const { length: count } = ranks
  const result = new Float32Array(ranks[0].length)
  const values = new Float32Array(count)
  for (let i = 0; i < result.length; i++) {
    for (let rank = 0; rank < count; rank++) {
      const value = ranks[rank][i]
      let at = rank
      if (cut > 0) for (; at > 0 && values[at - 1] > value; at--) values[at] = values[at - 1]
      values[at] = value
    }
    let sum = 0
    for (let at = cut; at < count - cut; at++) sum += values[at]
    result[i] = sum / (count - 2 * cut)
  }
  return result
}

function clipped(ranks: readonly Float32Array[]): Float32Array<ArrayBuffer> {
  const center = aggregate('median', ranks)
  for (let round = 0; round < clippingRounds; round++) {
    const distances = ranks.map((one) => distanceOf(one, center))
    const radius = medianOf(distances)!
    const move = new Float64Array(center.length)
    for (const [rank, one] of ranks.entries()) {
      const part = Math.min(1, radius / distances[rank]) / ranks.length
      // At the center itself.
      if (Number.isNaN(part)) continue
      for (let i = 0; i < move.length; i++) move[i] += part * (one[i] - center[i])
    }
    for (let i = 0; i < move.length; i++) center[i] += move[i]
  }
  return center
}

function distanceOf(a: Float32Array, b: Float32Array): number {
  let sum = 0
  for (let i = 0; i < a.length; i++) sum += (a[i] - b[i]) ** 2
  return Math.sqrt(sum)
}

/** The lower one of the two in the middle of an even number, so that half of the ranks cannot raise it; undefined of none. */
export function medianOf(values: readonly number[]): number | undefined {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[(sorted.length - 1) >> 1]
}
