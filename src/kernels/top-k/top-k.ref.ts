/** How many of the first `count` rows have their target among the k largest logits; ties go to the lower index. */
export function topKCorrectReference(
  logits: ArrayLike<number>,
  target: ArrayLike<number>,
  classes: number,
  k: number,
  count: number,
): number {
  let correct = 0
  for (let row = 0; row < count; row++) {
    const first = row * classes
    const label = target[row]
    if (!(label >= 0 && label < classes) || Number.isNaN(logits[first + label])) continue
    let place = 0
    for (let c = 0; c < classes; c++) {
      const isBefore =
        logits[first + c] > logits[first + label] ||
        (logits[first + c] === logits[first + label] && c < label)
      if (isBefore) place++
    }
    if (place < k) correct++
  }
  return correct
}
