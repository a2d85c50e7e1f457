/** A column of a plot's table; null where its line has no point. */
export type Column = ArrayLike<number | null>

/** Each value of these lists once, in rising order. */
export function mergedXs(lists: readonly ArrayLike<number>[]): Float64Array {
  const all = new Float64Array(lists.reduce((sum, { length }) => sum + length, 0))
  let end = 0
  for (const list of lists) {
    all.set(list, end)
    end += list.length
  }
  all.sort()
  let count = 0
  for (const value of all) if (count === 0 || all[count - 1] !== value) all[count++] = value
  return all.subarray(0, count)
}

/** The values at `from`, which rises, as a column over `xs`, which has all of `from`. */
export function columnOver(
  xs: ArrayLike<number>,
  from: ArrayLike<number>,
  values: ArrayLike<number>,
): Column {
  if (from === xs) return values
  const column = new Array<number | null>(xs.length).fill(null)
  let at = 0
  for (let i = 0; i < from.length; i++) {
    while (xs[at] < from[i]) at++
    column[at] = values[i]
  }
  return column
}
