import { shareFindings } from '../../graph/inside/anomaly-report.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { isText } from '../../util/kind-of.ts'

/** Ranks whose values stop being finite in a step that the others can leave out. */
export interface LostStep {
  readonly ranks: readonly number[]
  /** What they have found. */
  readonly text: string
}

/**
 * Settles what becomes of a step in which ranks have looked where values stop being finite; `own` is this rank's finding, undefined for none.
 * Undefined: nobody has found anything. With `leavesOut` the step is left out where at most half of the ranks have found something.
 *
 * All ranks call it between the same steps.
 * errors: `train.nan` with the findings of all ranks, the same on each, where the step is not left out; the group's.
 */
export async function settleFindings(
  group: ProcessGroup,
  step: number,
  own: string | undefined,
  leavesOut: boolean,
): Promise<LostStep | undefined> {
  if (group.size === 1) {
    if (own) throw new TabringError('train.nan', `step ${step}: ${own}`)
    return undefined
  }
  const found = await shareFindings((text) => gatherJson('detectAnomaly', group, text, isText), own)
  if (!found) return undefined
  const { ranks, error } = found
  if (leavesOut && 2 * ranks.length <= group.size) return { ranks, text: error.message }
  throw await failTogether(group, `step ${step}: ${error.message}`)
}

/** Returns the error with which all ranks end, once none of them waits for another: the first to throw ends the group for those that do. */
export async function failTogether(group: ProcessGroup, text: string): Promise<TabringError> {
  await group.barrier().catch(() => undefined)
  return new TabringError('train.nan', text)
}
