import { Panel } from '../parts/panel.tsx'
import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'

/** Saves the log of a run with `exact`. */
export function LogAct({ acts }: { acts: Acts }) {
  return (
    <button type="button" onClick={acts.saveLog}>
      Download log (for npm run replay)
    </button>
  )
}

/** Returns whether a run of this tab was stopped or failed and has left a log. */
export const hasStoppedLog = ({ end, stateHash, isWatched }: Run): boolean =>
  !isWatched && end !== null && end.kind !== 'finished' && stateHash !== null

/** What is left of a run with `exact` that was stopped or failed. */
export function StoppedLog({ run, acts }: { run: Run; acts: Acts }) {
  return (
    <Panel id="stopped-log" title={`Log of run ${run.epoch}`} aside={`up to step ${run.step}`}>
      <p class="acts">
        <LogAct acts={acts} />
      </p>
    </Panel>
  )
}
