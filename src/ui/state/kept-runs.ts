import type { TrainConfig } from '../../trainer/settings/config.ts'
import { last } from '../parts/series.ts'
import type { Run } from './run.ts'
import { meanSamplesPerSec, secondsOf } from './run-time.ts'
import type { Action, Snapshot } from './snapshot.ts'

/** The runs of this tab that have ended: what is kept of each, and how that comes to change. Pure, as the reducer that it is a part of. */

/** A run's points, thinned: each is the mean of the steps since the point before. All lists are as long as `steps`. */
export interface RunPoints {
  /** Steps of each but the last, which may be of fewer. */
  readonly stretch: number
  readonly steps: Float64Array
  readonly losses: Float64Array
  /** The demo's metric over the steps' own samples. */
  readonly metrics: Float64Array
  /** Of all ranks so far. */
  readonly samples: Float64Array
  /** Since training began; pauses do not count. */
  readonly seconds: Float64Array
}

export interface KeptRun {
  readonly id: string
  readonly name: string
  /** units: ms of Unix time. */
  readonly startedAtMs: number
  readonly config: TrainConfig
  readonly worldSize: number
  readonly rank: number
  readonly ending: 'running' | 'finished' | 'stopped' | 'failed'
  readonly points: RunPoints
  /** Over held-out samples, by step, the demo's metric and the loss: of many tests some, the last among them. */
  readonly accuracy: {
    readonly steps: Float64Array
    readonly values: Float64Array
    readonly losses: Float64Array
  }
  readonly steps: number
  readonly seconds: number
  /** Of all ranks, tests included in the time; NaN before there is any. */
  readonly samplesPerSec: number
  readonly loss: number
  /** The metric over the last step's samples. */
  readonly trainValue: number
  /** The last of `accuracy`. */
  readonly heldOutLoss: number
  readonly finalValue: number
  readonly isShown: boolean
  /** See `lookOf`. */
  readonly slot: number
}

/** Under which the tab remembers their ids. */
export const runsKey = 'tabring-runs'

/** Max number of runs that are kept; the oldest give way. */
export const maxRuns = 30
/** Max number of lines that are drawn at once, unless a person asks for more. */
const maxShown = 6
/** Points that are kept of each run. */
export const maxPoints = 1000

export type RunsAction =
  | { type: 'runsLoaded'; runs: readonly KeptRun[] }
  | { type: 'runShown'; id: string; isShown: boolean }
  | { type: 'runNamed'; id: string; name: string }
  | { type: 'runDeleted'; id: string }

/** The kept runs after `action`, which led from `before` to `after`; the same list where nothing changed. */
export function reduceRuns(before: Snapshot, after: Snapshot, action: Action): readonly KeptRun[] {
  const { runs } = before
  const change = (id: string, part: Partial<KeptRun>) =>
    runs.map((run) => (run.id === id ? { ...run, ...part } : run))
  switch (action.type) {
    case 'runsLoaded':
      return action.runs
    case 'runShown':
      return change(action.id, { isShown: action.isShown })
    case 'runNamed':
      return change(action.id, { name: action.name })
    case 'reset':
      // They stay in the table, where a person can show them again.
      return after !== before && runs.some(({ isShown }) => isShown)
        ? runs.map((run) => ({ ...run, isShown: false }))
        : runs
    case 'runDeleted':
      return runs.filter(({ id }) => id !== action.id)
    case 'finished':
    case 'failed': {
      const run = after.run
      if (!run?.end || before.run?.end || run.loss.length === 0 || !run.config) return runs
      return withRun(runs, keptRun(run))
    }
    default:
      return runs
  }
}

function withRun(runs: readonly KeptRun[], added: KeptRun): readonly KeptRun[] {
  const all = [...runs, added].slice(-maxRuns)
  let others = all.filter(({ isShown }) => isShown).length - maxShown
  return all.map((run) => {
    if (!run.isShown || others <= 0) return run
    others--
    return { ...run, isShown: false }
  })
}

/** What is kept of a run, or would be if it ended now; with `max` points and tests of each. */
export function keptRun(run: Run, max = maxPoints): KeptRun {
  const { loss, trainMetric, accuracy, heldOutLoss, end, config } = run
  return {
    id: run.id,
    name: '',
    startedAtMs: run.startedAtMs,
    config: config!,
    worldSize: run.worldSize,
    rank: run.rank,
    ending: end?.kind ?? 'running',
    points: thinnedPoints(run, max),
    accuracy: thinnedTests(run, max),
    steps: run.step,
    seconds: secondsOf(run),
    samplesPerSec: meanSamplesPerSec(run),
    loss: end?.kind === 'finished' ? end.result.loss : last(loss),
    trainValue: last(trainMetric),
    heldOutLoss: end?.kind === 'finished' ? end.result.heldOutLoss : last(heldOutLoss),
    finalValue: end?.kind === 'finished' ? end.result.value : last(accuracy),
    isShown: true,
    slot: run.slot,
  }
}

/** The first slot that none of these has. */
export function freeSlot(taken: readonly number[]): number {
  let slot = 0
  while (taken.includes(slot)) slot++
  return slot
}

/** The slot of a run that begins now. */
export const nextSlot = ({ runs }: Pick<Snapshot, 'runs'>): number =>
  freeSlot(runs.map(({ slot }) => slot))

/** The runs of the table: those that have ended, and the current one. */
export function allRuns({ runs, run }: Snapshot): readonly KeptRun[] {
  return run && !run.end && run.config && run.loss.length > 0 ? [...runs, runRow(run)] : runs
}

/** A row for the current run: its numbers, without its points, which the chart has from the run itself. */
function runRow(run: Run): KeptRun {
  const none = new Float64Array(0)
  return {
    ...keptRun({ ...run, loss: { ...run.loss, length: 0 } }),
    loss: last(run.loss),
    points: { stretch: 1, steps: none, losses: none, metrics: none, samples: none, seconds: none },
  }
}

/** Tests at equal distances, as they were, the newest never left out. */
export function thinnedTests(
  { accuracy, heldOutLoss }: Pick<Run, 'accuracy' | 'heldOutLoss'>,
  max = maxPoints,
): KeptRun['accuracy'] {
  const { xs, ys, length } = accuracy
  const stretch = Math.max(1, Math.ceil(length / max))
  const count = Math.ceil(length / stretch)
  const at = (i: number) => length - 1 - (count - 1 - i) * stretch
  return {
    steps: Float64Array.from({ length: count }, (_, i) => xs[at(i)]),
    values: Float64Array.from({ length: count }, (_, i) => ys[at(i)]),
    losses: Float64Array.from({ length: count }, (_, i) => heldOutLoss.ys[at(i)]),
  }
}

/** Stretches of equal length, the newest points never left out. */
export function thinnedPoints(
  {
    loss,
    trainMetric,
    globalSamples,
    seconds,
  }: Pick<Run, 'loss' | 'trainMetric' | 'globalSamples' | 'seconds'>,
  max = maxPoints,
): RunPoints {
  const { length } = loss
  const stretch = Math.max(1, Math.ceil(length / max))
  const count = Math.ceil(length / stretch)
  const points = {
    stretch,
    steps: new Float64Array(count),
    losses: new Float64Array(count),
    metrics: new Float64Array(count),
    samples: new Float64Array(count),
    seconds: new Float64Array(count),
  }
  for (let i = 0; i < count; i++) {
    const end = Math.min(length, (i + 1) * stretch)
    let sum = 0
    let metrics = 0
    for (let at = i * stretch; at < end; at++) {
      sum += loss.ys[at]
      metrics += trainMetric.ys[at]
    }
    points.steps[i] = loss.xs[end - 1]
    points.losses[i] = sum / (end - i * stretch)
    points.metrics[i] = metrics / (end - i * stretch)
    points.samples[i] = globalSamples.ys[end - 1]
    points.seconds[i] = seconds.ys[end - 1]
  }
  return points
}
