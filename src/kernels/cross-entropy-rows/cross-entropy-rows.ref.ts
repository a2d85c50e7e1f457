import type { Pass } from '../reduce/shapes.ts'

/** What the reference of the family needs to know of a call. */
export interface RowsProblem {
  readonly sizes: Pass
  readonly isLogits: boolean
  readonly smoothing: number
  readonly ignoreIndex: number
  /** How many of the first `outer` samples count. */
  readonly count: number
}

/** Loss, weight and gradient of each row, in f64. `dloss` is the gradient by each row's loss. */
export function rowsReference(
  x: ArrayLike<number>,
  target: ArrayLike<number>,
  weight: ArrayLike<number> | undefined,
  {
    sizes: { outer, reduced: classes, inner },
    isLogits,
    smoothing,
    ignoreIndex,
    count,
  }: RowsProblem,
  dloss?: ArrayLike<number>,
) {
  const losses = new Float64Array(outer * inner)
  const weights = new Float64Array(outer * inner)
  const dx = new Float64Array(outer * classes * inner)
  const weightOf = (c: number) => (weight ? weight[c] : 1)
  const allWeights = Array.from({ length: classes }, (_, c) => weightOf(c)).reduce(
    (sum, w) => sum + w,
    0,
  )
  for (let row = 0; row < outer * inner; row++) {
    const sample = Math.floor(row / inner)
    const label = target[row]
    if (sample >= count || label === ignoreIndex) continue
    const at = (c: number) => (sample * classes + c) * inner + (row % inner)
    const isBad = !(label >= 0 && label < classes)
    let top = isLogits ? -Infinity : 0
    let total = isLogits ? 0 : 1
    if (isLogits) {
      for (let c = 0; c < classes; c++) top = Math.max(top, x[at(c)])
      for (let c = 0; c < classes; c++) total += Math.exp(x[at(c)] - top)
    }
    const cost = (c: number) => Math.log(total) + (top - x[at(c)])
    let smooth = 0
    for (let c = 0; c < classes; c++) smooth += smoothing === 0 ? 0 : weightOf(c) * cost(c)
    const own = weightOf(isBad ? 0 : label)
    weights[row] = own
    losses[row] = isBad
      ? Number.NaN
      : (1 - smoothing) * own * cost(label) + (smoothing / classes) * smooth
    for (let c = 0; c < classes; c++) {
      const probability = isLogits ? Math.exp(x[at(c)] - top) / total : 0
      const main = (1 - smoothing) * own * (probability - (c === label ? 1 : 0))
      const spread =
        smoothing === 0 ? 0 : (smoothing / classes) * (probability * allWeights - weightOf(c))
      dx[at(c)] = isBad ? Number.NaN : (dloss?.[row] ?? 1) * (main + spread)
    }
  }
  return { losses, weights, dx }
}
