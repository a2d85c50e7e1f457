import { csvOf } from '../csv.ts'
import { metricName } from '../metric-words.ts'
import { metaOfDraft } from '../settings.ts'
import type { KeptRun } from './kept-runs.ts'

const header = [
  'run',
  'started',
  'experiment',
  'ranks',
  'step',
  'samples',
  'seconds',
  'loss',
  'metric',
  'value',
]

/**
 * The points of these runs as CSV, one line each: `metric` says what `value` is, a share from 0 to 1 for an accuracy; `value` is
 * empty but at the steps that were tested. `nameOf` gives a run's name.
 *
 * order: by run, then by step.
 */
export function lossCsv(runs: readonly KeptRun[], nameOf: (run: KeptRun) => string): string {
  const rows = runs.flatMap((run) => {
    const { steps, losses, samples, seconds } = run.points
    const first = [
      nameOf(run),
      new Date(run.startedAtMs).toISOString(),
      run.config.demo,
      run.worldSize,
    ]
    const metric = metricName(metaOfDraft(run.config).metric)
    const tested = new Map([...run.accuracy.steps].map((step, i) => [step, run.accuracy.values[i]]))
    let since = 0
    return [...steps].map((step, i) => {
      // A point stands for the steps since the one before; a test falls on one of these.
      const at = [...tested.keys()].find((one) => one > since && one <= step)
      since = step
      const value = at === undefined ? '' : tested.get(at)!
      return [...first, step, samples[i], seconds[i], losses[i], metric, value]
    })
  })
  return csvOf(header, rows)
}
