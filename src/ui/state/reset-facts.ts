import { givenData } from '../../trainer/settings/config.ts'
import { resetDraft } from '../settings/draft.ts'
import { settings } from '../settings/list.ts'
import { canStart } from './room-facts.ts'
import type { Run } from './run.ts'
import type { Snapshot } from './snapshot.ts'

/** What views ask of a reset. */

/** Returns whether a reset would change anything. */
export function canReset(snapshot: Snapshot): boolean {
  if (!canStart(snapshot)) return false
  const { experiments, draft, given, run, runs, transport, ranks } = snapshot
  const fresh = resetDraft(experiments, draft, transport, ranks)
  return (
    run !== null ||
    Object.keys(given).length > 0 ||
    runs.some(({ isShown }) => isShown) ||
    settings.some(({ key }) => draft[key] !== fresh[key])
  )
}

/** What a reset takes away that cannot be had again, in a sentence; null where that is nothing. */
export function lostByReset({ run, draft, given }: Snapshot): string | null {
  const lost = [
    ...(run ? lostOf(run) : []),
    ...(draft.data === givenData || Object.keys(given).length > 0 ? ['your own data'] : []),
  ]
  return lost.length > 0 ? `You will lose ${lost.join(', and ')}.` : null
}

/** Of the trained model. */
function lostOf({ step, saved, download }: Run): readonly string[] {
  if (step === 0 || download.is === 'done') return []
  if (!saved) return ['the trained model, which is not saved']
  return saved.step < step ? [`what the model learned after step ${saved.step}, its last save`] : []
}
