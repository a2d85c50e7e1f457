import { shareFindings } from '../../graph/inside/anomaly-report.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'

/**
 * Ends the step on every rank when any has found where its values stop being finite; `own` is this rank's finding, undefined for none.
 *
 * All ranks call it between the same steps.
 * errors: `train.nan` with the findings of all ranks, the same on each; the group's.
 */
export async function endIfAnyFound(
  group: ProcessGroup,
  step: number,
  own: string | undefined,
): Promise<void> {
  if (group.size === 1) {
    if (own) throw new TabringError('train.nan', `step ${step}: ${own}`)
    return
  }
  const error = await shareFindings((text) => gatherJson('detectAnomaly', group, text), own)
  if (!error) return
  // The first to throw ends the epoch for those that are still reading; from here on nobody is.
  await group.barrier().catch(() => undefined)
  throw new TabringError('train.nan', `step ${step}: ${error.message}`)
}
