import { clippedToDifference } from './clipped.ts'
import { formatRanks } from './format-ranks.ts'

/** Which ranks say what: `this on rank 1, that on ranks 0 and 2`; of long texts, the part where they differ. */
function formatBySaying(sayings: readonly string[], ranks: readonly number[]): string {
  const ranksOf = new Map<string, number[]>()
  sayings.forEach((saying, i) => {
    ranksOf.set(saying, [...(ranksOf.get(saying) ?? []), ranks[i]])
  })
  const shown = clippedToDifference([...ranksOf.keys()])
  return [...ranksOf.values()].map((own, i) => `${shown[i]} on ${formatRanks(own)}`).join(', ')
}

/** The first place where the lists of ranks differ, with what each says there; undefined where all are equal. `ranks`: default from 0 up. */
export function firstDifference(
  lists: readonly (readonly string[])[],
  missing: string,
  ranks: readonly number[] = lists.map((_, rank) => rank),
): { readonly at: number; readonly text: string } | undefined {
  const length = Math.max(...lists.map((list) => list.length))
  for (let at = 0; at < length; at++) {
    const sayings = lists.map((list) => list[at] ?? missing)
    if (sayings.some((saying) => saying !== sayings[0])) {
      return { at, text: formatBySaying(sayings, ranks) }
    }
  }
  return undefined
}
