import { useState } from 'preact/hooks'

/** More ranks than these have lists longer than a screen. */
const maxListed = 10
const maxPicked = 8

/**
 * The ranks that a list shows, in order: of many, this tab's and those that stand out most by `weights` (one a rank, larger ones first; NaN
 * comes last).
 */
export function pickRanks(weights: readonly number[], own: number): number[] {
  const all = weights.map((_, rank) => rank)
  if (all.length <= maxListed) return all
  const weightOf = (rank: number) =>
    Number.isNaN(weights[rank]) ? Number.NEGATIVE_INFINITY : weights[rank]
  const first = all
    .filter((rank) => rank !== own)
    .sort((a, b) => weightOf(b) - weightOf(a) || a - b)
    .slice(0, maxPicked)
  return [...first, own].sort((a, b) => a - b)
}

interface FewRanks {
  readonly shown: readonly number[]
  /** The button that shows the rest; null where none is left out. */
  readonly more: preact.JSX.Element | null
}

/** Of many ranks those that stand out, and a button for all. `which` says what they stand out by: `slowest`. */
export function useFewRanks(weights: readonly number[], own: number, which: string): FewRanks {
  const [isAll, setAll] = useState(false)
  const picked = pickRanks(weights, own)
  const all = weights.length
  if (picked.length === all) return { shown: picked, more: null }
  return {
    shown: isAll ? weights.map((_, rank) => rank) : picked,
    more: (
      <button type="button" class="small more-ranks" onClick={() => setAll(!isAll)}>
        {isAll
          ? `Show only the ${maxPicked} ${which} and this tab’s`
          : `Show all ${all}, not only the ${maxPicked} ${which} and this tab’s`}
      </button>
    ),
  }
}
