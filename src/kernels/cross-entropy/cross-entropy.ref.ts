/** What cross entropy is: plain loops in f64. */
export interface CrossEntropyResult {
  readonly loss: number
  readonly dlogits: Float64Array
}

/** Which rows a mean is over, and what it is over none. */
export interface UsedRows {
  readonly count: number
  readonly ignoreIndex: number
  readonly ofNothing: number
}

/**
 * The mean of logsumexp(row) - row[target] over those of the first `count` rows whose target is not `ignoreIndex`, and `scale` times
 * its gradient.
 *
 * shape: logits R C, target R. Other rows have gradient 0; a target outside 0..C-1 makes the loss and its row NaN.
 */
export function crossEntropyReference(
  logits: ArrayLike<number>,
  target: ArrayLike<number>,
  classes: number,
  { count, ignoreIndex, ofNothing }: UsedRows,
  scale = 1,
): CrossEntropyResult {
  const dlogits = new Float64Array(logits.length)
  let total = 0
  let used = 0
  for (let row = 0; row < count; row++) used += target[row] === ignoreIndex ? 0 : 1
  for (let row = 0; row < count; row++) {
    const first = row * classes
    const label = target[row]
    if (label === ignoreIndex) continue
    if (!(label >= 0 && label < classes)) {
      dlogits.fill(Number.NaN, first, first + classes)
      total = Number.NaN
      continue
    }
    let top = -Infinity
    for (let c = 0; c < classes; c++) top = Math.max(top, logits[first + c])
    let sum = 0
    for (let c = 0; c < classes; c++) sum += Math.exp(logits[first + c] - top)
    total += Math.log(sum) + (top - logits[first + label])
    for (let c = 0; c < classes; c++) {
      const probability = Math.exp(logits[first + c] - top) / sum
      dlogits[first + c] = ((probability - (c === label ? 1 : 0)) * scale) / used
    }
  }
  return { loss: used === 0 ? ofNothing : total / used, dlogits }
}
