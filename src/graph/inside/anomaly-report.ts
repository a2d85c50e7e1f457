import { TabringError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'

/** Of what a rank has found this much travels, and an error shows this many different findings; the rest would not help. units: characters. */
const longestFinding = 700
const maxFindings = 3

/** Findings of the ranks, the same on all of them. */
export interface Findings {
  /** Those that have found something. */
  readonly ranks: readonly number[]
  /** `train.nan` with all findings. */
  readonly error: TabringError
}

/**
 * Shares where each rank has found values that are not finite (`own`; undefined for nowhere) and returns what all have found; undefined
 * where nobody has found anything. `gatherTexts`: every rank's text, in rank order.
 *
 * Equal findings are reported once, with the ranks that made them.
 */
export async function shareFindings(
  gatherTexts: (own: string) => Promise<readonly string[]>,
  own: string | undefined,
): Promise<Findings | undefined> {
  const all = await gatherTexts((own ?? '').slice(0, longestFinding))
  const shortened = all.map((finding) => finding.slice(0, longestFinding))
  const ranksOf = new Map<string, number[]>()
  for (const [rank, finding] of shortened.entries()) {
    if (finding) ranksOf.set(finding, [...(ranksOf.get(finding) ?? []), rank])
  }
  if (ranksOf.size === 0) return undefined
  const findings = [...ranksOf].map(([finding, ranks]) => `${formatRanks(ranks)}: ${finding}`)
  const more = findings.length - maxFindings
  const error = new TabringError(
    'train.nan',
    [...findings.slice(0, maxFindings), ...(more > 0 ? [`And ${more} more.`] : [])].join(' '),
  )
  return { ranks: [...shortened.keys()].filter((rank) => shortened[rank]), error }
}
