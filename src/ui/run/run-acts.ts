import { loadPart } from '../../util/load-part.ts'
import { saveText } from '../parts/save-file.ts'
import { recall } from '../parts/tab-memory.ts'
import type { Acts } from '../state/acts.ts'
import { keptRun, runsKey } from '../state/kept-runs.ts'
import type { Snapshot } from '../state/snapshot.ts'
import type { Store } from '../state/store.ts'

/** What people do with the runs of this tab; each change is remembered over a reload. */
export function runActs(
  store: Store,
): Pick<Acts, 'exportCsv' | 'saveTimeline' | 'saveLog' | 'showRun' | 'nameRun' | 'deleteRun'> {
  keepRuns(store).catch(() => undefined)
  return {
    exportCsv(csvOf) {
      const { runs, run } = store.snapshot
      // Of this tab's last run every step is still there.
      const whole =
        run?.config && run.loss.length > 0 ? keptRun(run, Number.POSITIVE_INFINITY) : null
      const shown = runs
        .filter(({ isShown }) => isShown)
        .map((kept) => (kept.id === whole?.id ? { ...whole, name: kept.name } : kept))
      const rows = whole && !run?.end ? [...shown, whole] : shown
      saveText(csvOf(rows), 'text/csv', 'tabring-loss.csv')
    },
    saveTimeline(traceOf) {
      const { run } = store.snapshot
      if (!run || run.sampledSteps.length === 0) return
      const hosts = run.members.map(({ hostTag }) => hostTag)
      const trace = traceOf(
        run.sampledSteps,
        run.rank,
        (rank) => hosts[rank] !== '' && hosts[rank] === hosts[run.rank],
      )
      saveText(trace, 'application/json', `tabring-steps-to-${run.step}.trace.json`)
    },
    async saveLog() {
      const { run } = store.snapshot
      if (!run?.config) return
      const { end } = run
      const result = end?.kind === 'finished' ? end.result : null
      const ended = result && { step: result.steps, paramHash: result.paramHash }
      const { RunLog } = await loadPart('the log', () => import('../../trainer/watch/run-log.ts'))
      const log = new RunLog()
      for (const event of run.logged) log.add(event)
      saveText(log.text(run.config, ended), 'application/json', 'tabring-run.json')
    },
    showRun: (id, isShown) => store.dispatch({ type: 'runShown', id, isShown }),
    nameRun: (id, name) => store.dispatch({ type: 'runNamed', id, name }),
    deleteRun: (id) => store.dispatch({ type: 'runDeleted', id }),
  }
}

/** Brings back what the tab remembers, and remembers what changes. What does it is loaded where there are runs, and else with the first one. */
async function keepRuns(store: Store): Promise<void> {
  const hasRuns = recall(runsKey) !== ''
  if (!hasRuns) await firstRun(store)
  const { recallRuns, rememberRuns } = await loadPart(
    'the runs of this tab',
    () => import('./run-memory.ts'),
  )
  if (hasRuns) store.dispatch({ type: 'runsLoaded', runs: recallRuns(store.snapshot.experiments) })
  let remembered: Snapshot['runs'] = hasRuns ? store.snapshot.runs : []
  const keep = ({ runs }: Snapshot) => {
    if (runs === remembered) return
    const before = remembered
    remembered = runs
    rememberRuns(runs, before)
  }
  keep(store.snapshot)
  store.onChange(keep)
}

const firstRun = (store: Store): Promise<void> =>
  new Promise((resolve) => {
    const stop = store.onChange(({ run }) => {
      if (!run) return
      stop()
      resolve()
    })
  })
