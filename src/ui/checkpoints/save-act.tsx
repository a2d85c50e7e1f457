import { formatCount } from '../parts/format.ts'
import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'
import { canSave, isSaved } from '../state/save-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** Saves the run in this tab's own browser: for every member of it. */
export function SaveAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { run } = snapshot
  if (!run || !canSave(snapshot)) return null
  const isBusy = run.saving.is === 'busy'
  return (
    <button
      type="button"
      class="save"
      disabled={isBusy || isSaved(snapshot)}
      onClick={acts.save}
      title="Saves the run in this browser, to resume from this step"
    >
      {isBusy ? 'Saving…' : 'Save checkpoint'}
    </button>
  )
}

/** What came of it. */
export function SaveNote({ run }: { run: Run }) {
  const { saving } = run
  return (
    <p role="status" class={`save-note ${saving.is === 'failed' ? 'error' : 'quiet'}`}>
      {saving.is === 'done' &&
        `Step ${formatCount(saving.step)} is saved, under “Checkpoints in this browser”.`}
      {saving.is === 'failed' && `Nothing was saved: ${saving.text}`}
    </p>
  )
}
