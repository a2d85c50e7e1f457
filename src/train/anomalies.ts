import type { ProcessGroup } from '../peer/group.ts'
import { TabringError } from '../util/errors.ts'

/** What a rank tells of its own finding, and how many different ones an error shows; the rest would not help. units: characters. */
const longestFinding = 700
const mostFindings = 3

const formatRanks = (ranks: readonly number[]): string =>
  ranks.length === 1
    ? `rank ${ranks[0]}`
    : `ranks ${ranks.slice(0, -1).join(', ')} and ${ranks[ranks.length - 1]}`

/**
 * Ends the step on every rank when any has found where its values stop being finite; `own` is this rank's finding, undefined for none.
 *
 * All ranks call it between the same steps. Alike findings are told once, with the ranks that made them.
 * errors: `train.nan` with the findings of all ranks, the same on each; the group's.
 */
export async function shareFindings(
  group: ProcessGroup,
  step: number,
  own: string | undefined,
): Promise<void> {
  const text = (own ?? '').slice(0, longestFinding)
  if (group.size === 1) {
    if (text) throw new TabringError('train.nan', `step ${step}: ${text}`)
    return
  }
  const told = await group.allGatherBytes(new TextEncoder().encode(text))
  const ranksOf = new Map<string, number[]>()
  told.forEach((bytes, rank) => {
    const finding = new TextDecoder().decode(bytes)
    if (finding) ranksOf.set(finding, [...(ranksOf.get(finding) ?? []), rank])
  })
  if (ranksOf.size === 0) return
  const findings = [...ranksOf].map(([finding, ranks]) => `${formatRanks(ranks)}: ${finding}`)
  // The first to throw ends the epoch for those that are still reading; from here on nobody is.
  await group.barrier().catch(() => undefined)
  throw new TabringError(
    'train.nan',
    `step ${step}: ${findings.slice(0, mostFindings).join(' ')}${findings.length > mostFindings ? ` And ${findings.length - mostFindings} more.` : ''}`,
  )
}
