/** What cross entropy is: plain loops in f64. */
export interface CrossEntropyResult {
  readonly loss: number
  readonly dlogits: Float64Array
}

/**
 * The mean of logsumexp(row) - row[target] over the first `count` rows, and `scale` times its gradient.
 *
 * shape: logits R C, target R. Rows past `count` have gradient 0; a target outside 0..C-1 makes the loss and its row NaN.
 */
export function crossEntropyReference(
  logits: ArrayLike<number>,
  target: ArrayLike<number>,
  classes: number,
  count: number,
  scale = 1,
): CrossEntropyResult {
  const dlogits = new Float64Array(logits.length)
  let total = 0
  for (let row = 0; row < count; row++) {
    const first = row * classes
    const label = target[row]
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
      dlogits[first + c] = ((probability - (c === label ? 1 : 0)) * scale) / count
    }
  }
  return { loss: count === 0 ? 0 : total / count, dlogits }
}
