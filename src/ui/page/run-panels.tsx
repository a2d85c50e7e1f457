import { GanttView } from '../live/gantt-view.tsx'
import { MemoryView } from '../live/memory-view.tsx'
import { hasStoppedLog, StoppedLog } from '../run/log-act.tsx'
import { RankRates } from '../run/rank-rates.tsx'
import { StepPartsView } from '../run/step-parts.tsx'
import { Summary } from '../run/summary.tsx'
import type { Acts } from '../state/acts.ts'
import { huesOf } from '../state/hues.ts'
import type { Run } from '../state/run.ts'
import type { Snapshot } from '../state/snapshot.ts'

export { RunTable } from '../run/run-table.tsx'

interface RunPanelsProps {
  snapshot: Snapshot
  run: Run
  acts: Acts
}

/** What there is to see of a run only once it has begun. Loaded then, with the table of runs. */
export function RunPanels({ snapshot, run, acts }: RunPanelsProps) {
  const hues = run.members.map(huesOf(snapshot))
  return (
    <>
      {run.end?.kind === 'finished' && (
        <Summary snapshot={snapshot} run={run} ending={run.end} acts={acts} />
      )}
      {hasStoppedLog(run) && <StoppedLog run={run} acts={acts} />}
      {/* They show steps: before the first they would be empty frames. */}
      {run.step > 0 && (
        <>
          <GanttView run={run} acts={acts} hues={hues} />
          <RankRates run={run} hues={hues} />
          <StepPartsView run={run} />
          <MemoryView run={run} hues={hues} />
        </>
      )}
    </>
  )
}
