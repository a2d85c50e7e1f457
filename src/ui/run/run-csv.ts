import type { Experiments } from '../../trainer/settings/experiments.ts'
import { csvOf } from '../parts/csv.ts'
import { metricName } from '../parts/metric-words.ts'
import { metaOfDraft } from '../settings/list.ts'
import type { KeptRun } from '../state/kept-runs.ts'

const header = [
  'run',
  'started',
  'experiment',
  'ranks',
  'step',
  'samples',
  'seconds',
  'loss',
  'loss_is_mean_of_steps',
  'test_loss',
  'metric',
  'training_value',
  'test_value',
]

/**
 * These runs as CSV: a line for each point of the loss, the mean of the steps since the point before, as is the metric of training; and each
 * test at the step that it was made behind. Where that is no point's it has a separate line, which has nothing of training. `metric` says
 * what the values are, shares from 0 to 1 for an accuracy. `nameOf` gives a run's name.
 *
 * order: by run, then by step.
 */
export function lossCsv(
  experiments: Experiments,
  runs: readonly KeptRun[],
  nameOf: (run: KeptRun) => string,
): string {
  return csvOf(
    header,
    runs.flatMap((run) => rowsOf(experiments, run, nameOf(run))),
  )
}

function rowsOf(experiments: Experiments, run: KeptRun, name: string): (string | number)[][] {
  const { steps, losses, metrics, samples, seconds, stretch } = run.points
  const first = [name, new Date(run.startedAtMs).toISOString(), run.config.demo, run.worldSize]
  const metric = metricName(metaOfDraft(experiments, run.config).metric, '')
  const { accuracy } = run
  const tests = new Map([...accuracy.steps].map((step, i) => [step, i]))
  const testCells = (test: number | undefined, trained: number | '') =>
    test === undefined
      ? ['', metric, trained, '']
      : [accuracy.losses[test], metric, trained, accuracy.values[test]]
  const points = [...steps].map((step, i) => {
    const meanOf = i > 0 ? step - steps[i - 1] : Math.min(step, stretch)
    const tested = testCells(tests.get(step), metrics[i])
    tests.delete(step)
    return [...first, step, samples[i], seconds[i], losses[i], meanOf, ...tested]
  })
  const apart = [...tests].map(([step, i]) => [...first, step, '', '', '', '', ...testCells(i, '')])
  const at = first.length
  return [...points, ...apart].sort((a, b) => Number(a[at]) - Number(b[at]))
}
