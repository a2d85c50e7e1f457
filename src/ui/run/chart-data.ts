import type { Series } from '../parts/series.ts'
import { smoothed } from '../parts/series.ts'
import { type Column, columnOver, mergedXs } from '../plot/columns.ts'
import { type KeptRun, type RunPoints, thinnedPoints, thinnedTests } from '../state/kept-runs.ts'
import type { Run } from '../state/run.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** What the chart of runs draws, as plain lists: a line a run, and one table of all of them. Pure. */

export const axes = ['step', 'samples', 'seconds'] as const
export type Axis = (typeof axes)[number]

/** A run's points along one axis, in rising order. */
export interface ChartLine {
  readonly id: string
  readonly slot: number
  /** It is running, or ended last: drawn with every step beside the smoothed line. */
  readonly isMain: boolean
  readonly xs: Float64Array
  readonly losses: Float64Array
  /** How many steps a point is the mean of. */
  readonly stretch: number
  /** The demo's metric of training; as long as `xs`. */
  readonly metrics: Float64Array
  /** Where held-out samples were looked at; what they gave. */
  readonly testXs: readonly number[]
  readonly testLosses: readonly number[]
  readonly testMetrics: readonly number[]
}

/** What a chart shows besides the loss of training. */
export interface Shown {
  readonly testLoss: boolean
  readonly trainMetric: boolean
  readonly testMetric: boolean
}

/** More points than any screen has columns are thinned. */
const maxDrawn = 3000
/** Max number of points of tests, which are lines between points that a person can distinguish. */
const maxTestsDrawn = 400

type Runs = Pick<Snapshot, 'run' | 'runs'>

/** The run of this tab, unless it was taken out of the table or is not to be shown. */
function mainRun({ run, runs }: Runs): Run | null {
  const kept = runs.find(({ id }) => id === run?.id)
  return run && (run.end ? kept?.isShown : true) ? run : null
}

/** The demo whose runs the chart shows: that of this tab's run, else that of the newest run that is shown. Another one's loss is another quantity. */
export function chartDemo({ run, runs }: Runs): string | undefined {
  const main = mainRun({ run, runs })
  return main?.config?.demo ?? runs.findLast(({ isShown }) => isShown)?.config.demo
}

const othersShown = ({ run, runs }: Runs) =>
  runs.filter(({ id, isShown }) => isShown && id !== run?.id)

/** The kept runs of the chart's demo that are shown, and the run of this tab, last. */
export function chartLines(all: Runs, axis: Axis): ChartLine[] {
  const demo = chartDemo(all)
  const lines = othersShown(all)
    .filter(({ config }) => config.demo === demo)
    .map((kept) => keptLine(kept, axis))
  const main = mainRun(all)
  return main ? [...lines, runLine(main, axis)] : lines
}

export interface LegendRun {
  readonly id: string
  readonly slot: number
  readonly isShown: boolean
  /** It is running, and always shown. */
  readonly isRunning: boolean
}

/** The runs of `demo` that the chart shows or could show, where there are several, in the order of its lines. */
export function legendRuns({ run, runs }: Runs, demo: string): LegendRun[] {
  const kept = runs
    .filter(({ id, config }) => config.demo === demo && id !== run?.id)
    .map(({ id, slot, isShown }) => ({ id, slot, isShown, isRunning: false }))
  const own = runs.find(({ id }) => id === run?.id)
  const isThere = run?.config?.demo === demo && (run.end === null || own !== undefined)
  const all = isThere
    ? [
        ...kept,
        {
          id: run.id,
          slot: run.slot,
          isShown: run.end === null || own!.isShown,
          isRunning: run.end === null,
        },
      ]
    : kept
  return all.length > 1 ? all : []
}

/** How many runs are to be shown, but are of other demos. */
export const leftOutOfChart = (all: Runs): number =>
  othersShown(all).filter(({ config }) => config.demo !== chartDemo(all)).length

const made = new WeakMap<KeptRun, Partial<Record<Axis, ChartLine>>>()

/** Kept runs do not change, so their lines are made once. */
function keptLine(run: KeptRun, axis: Axis): ChartLine {
  const lines = made.get(run) ?? {}
  made.set(run, lines)
  lines[axis] ??= lineOf(
    { id: run.id, slot: run.slot, isMain: false, stretch: run.points.stretch },
    run.points,
    axis,
    run.accuracy,
  )
  return lines[axis]
}

/** What stands in the place of a run's own points, and its words. */
export interface Ghost {
  readonly words: string
  readonly line: ChartLine
}

/** What `demo` is expected to give with default settings; null where that is not stated. */
export function ghostOf(
  experiments: Snapshot['experiments'],
  demo: string,
  axis: Axis,
): Ghost | null {
  if (!experiments.has(demo)) return null
  const { config, curve, withinSteps } = experiments.metaOf(demo).expected[0] ?? {}
  // Seconds are those of another machine.
  if (!curve || axis === 'seconds') return null
  const losses = Float64Array.from(curve.losses)
  const stretch = Math.ceil(withinSteps / losses.length)
  const steps = losses.map((_, i) => Math.min(withinSteps, (i + 1) * stretch))
  const { batchSize } = experiments.parseTrainConfig({ demo, ...config })
  const samples = steps.map((step) => step * batchSize)
  const metrics = Float64Array.from(curve.metrics ?? curve.losses)
  const points = { stretch, steps, losses, metrics, samples, seconds: steps }
  const none = new Float64Array(0)
  const tests = { steps: none, values: none, losses: none }
  const facts = { id: 'expected', slot: 0, isMain: false, stretch }
  return {
    words: 'expected with default settings',
    line: lineOf(facts, points, axis, tests),
  }
}

function runLine(run: Run, axis: Axis): ChartLine {
  const { loss } = run
  const ys = ({ ys, length }: Series) => ys.subarray(0, length)
  const stretch = Math.max(1, Math.ceil(loss.length / maxDrawn))
  const points =
    stretch > 1
      ? thinnedPoints(run, maxDrawn)
      : {
          stretch,
          steps: loss.xs.subarray(0, loss.length),
          losses: ys(loss),
          metrics: ys(run.trainMetric),
          samples: ys(run.globalSamples),
          seconds: ys(run.seconds),
        }
  const facts = { id: run.id, slot: run.slot, isMain: true, stretch }
  return lineOf(facts, points, axis, thinnedTests(run, maxTestsDrawn))
}

function lineOf(
  facts: Pick<ChartLine, 'id' | 'slot' | 'isMain' | 'stretch'>,
  points: RunPoints,
  axis: Axis,
  tests: KeptRun['accuracy'],
): ChartLine {
  const { steps, losses, metrics } = points
  const xs = axis === 'step' ? steps : points[axis]
  const testXs: number[] = []
  let at = 0
  for (const step of tests.steps) {
    while (at < steps.length && steps[at] < step) at++
    if (at >= steps.length) break
    testXs.push(xs[at])
  }
  const seen = (values: Float64Array) => [...values.subarray(0, testXs.length)]
  const tested = { testXs, testLosses: seen(tests.losses), testMetrics: seen(tests.values) }
  return { ...facts, xs, losses, metrics, ...tested }
}

/** A column of the table: a line's losses as they are, or a part of it that is smoothed or tested. */
export interface ChartColumn {
  readonly is: 'raw' | 'loss' | keyof Shown
  readonly slot: number
  readonly isMain: boolean
}

/** Returns whether all of these columns are of one run, whose lines then differ by what they are alone. */
export const isOfOneRun = (columns: readonly ChartColumn[]): boolean =>
  new Set(columns.map(({ slot }) => slot)).size === 1

/** Losses and metrics are drawn one below the other, each with its own axis. */
export const plotKinds = ['loss', 'metric'] as const
export type PlotKind = (typeof plotKinds)[number]

export const plotOf = ({ is }: Pick<ChartColumn, 'is'>): PlotKind =>
  is === 'trainMetric' || is === 'testMetric' ? 'metric' : 'loss'

/** The columns of these lines: a plot must be made again when its own change. */
export function chartColumns(
  lines: readonly ChartLine[],
  shown: Shown,
  isSmoothing: boolean,
): ChartColumn[] {
  return lines.flatMap((line) => {
    const { slot, isMain } = line
    const kinds: readonly (readonly [ChartColumn['is'], boolean])[] = [
      ['raw', isMain && isSmoothing],
      ['loss', true],
      ['testLoss', shown.testLoss],
      ['trainMetric', shown.trainMetric],
      ['testMetric', shown.testMetric],
    ]
    return kinds.flatMap(([is, isThere]) => (isThere ? [{ is, slot, isMain }] : []))
  })
}

/** All x in rising order, and the values of each of `chartColumns` there; null where a line has no point. cost: O(points of all lines). */
export function chartTable(
  lines: readonly ChartLine[],
  shown: Shown,
  halfLife: number,
): [xs: ArrayLike<number>, ...columns: Column[]] {
  const xs = lines.length === 1 ? lines[0].xs : mergedXs(lines.map((line) => line.xs))
  const columns = lines.flatMap((line) => {
    const smooth = (values: Float64Array) =>
      columnOver(xs, line.xs, smoothed(values, values.length, halfLife / line.stretch))
    const tested = (values: readonly number[]) => columnOver(xs, line.testXs, values)
    return [
      ...(line.isMain && halfLife > 0 ? [columnOver(xs, line.xs, line.losses)] : []),
      smooth(line.losses),
      ...(shown.testLoss ? [tested(line.testLosses)] : []),
      ...(shown.trainMetric ? [smooth(line.metrics)] : []),
      ...(shown.testMetric ? [tested(line.testMetrics)] : []),
    ]
  })
  return [xs, ...columns]
}
