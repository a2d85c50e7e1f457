import { type Column, columnOver, mergedXs } from '../plot/columns.ts'
import type { Series } from '../series.ts'
import { smoothed } from '../series.ts'
import type { Run, Snapshot } from '../state.ts'
import { type KeptRun, thinnedPoints } from './kept-runs.ts'

/** What the loss chart draws, as plain lists: a line a run, and one table of all of them. Pure. */

export const axes = ['step', 'samples', 'seconds'] as const
export type Axis = (typeof axes)[number]

/** A run's points along one axis, in rising order. */
export interface ChartLine {
  readonly id: string
  readonly slot: number
  /** It goes on, or ended last: drawn with every step beside the smoothed line. */
  readonly isMain: boolean
  readonly xs: Float64Array
  readonly losses: Float64Array
  /** How many steps a point is the mean of. */
  readonly stretch: number
  readonly accuracyXs: readonly number[]
  readonly accuracies: readonly number[]
}

/** More points than any screen has columns are thinned. */
const mostDrawn = 3000

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

/** How many runs are to be shown, but are of other demos. */
export const leftOutOfChart = (all: Runs): number =>
  othersShown(all).filter(({ config }) => config.demo !== chartDemo(all)).length

const made = new WeakMap<KeptRun, Partial<Record<Axis, ChartLine>>>()

/** Kept runs do not change, so their lines are made once. */
function keptLine(run: KeptRun, axis: Axis): ChartLine {
  const lines = made.get(run) ?? {}
  made.set(run, lines)
  lines[axis] ??= lineOf(
    { id: run.id, slot: run.slot, isMain: false, stretch: 1 },
    run.points.steps,
    axis === 'step' ? run.points.steps : run.points[axis],
    run.points.losses,
    run.accuracy.steps,
    run.accuracy.values,
  )
  return lines[axis]
}

function runLine(run: Run, axis: Axis): ChartLine {
  const { loss, globalSamples, seconds, accuracy } = run
  const { length } = loss
  const facts = { id: run.id, slot: run.slot, isMain: true }
  const tested = [
    accuracy.xs.subarray(0, accuracy.length),
    accuracy.ys.subarray(0, accuracy.length),
  ]
  if (length > mostDrawn) {
    const points = thinnedPoints(loss, globalSamples, seconds, mostDrawn)
    const stretch = Math.ceil(length / mostDrawn)
    const xs = axis === 'step' ? points.steps : points[axis]
    return lineOf({ ...facts, stretch }, points.steps, xs, points.losses, tested[0], tested[1])
  }
  const steps = loss.xs.subarray(0, length)
  const along: Record<Axis, Series> = { step: loss, samples: globalSamples, seconds }
  const xs = axis === 'step' ? steps : along[axis].ys.subarray(0, length)
  const losses = loss.ys.subarray(0, length)
  return lineOf({ ...facts, stretch: 1 }, steps, xs, losses, tested[0], tested[1])
}

function lineOf(
  facts: Pick<ChartLine, 'id' | 'slot' | 'isMain' | 'stretch'>,
  steps: Float64Array,
  xs: Float64Array,
  losses: Float64Array,
  testedSteps: Float64Array,
  accuracies: Float64Array,
): ChartLine {
  const accuracyXs: number[] = []
  const values: number[] = []
  let at = 0
  for (const [i, step] of testedSteps.entries()) {
    while (at < steps.length && steps[at] < step) at++
    if (at >= steps.length) break
    accuracyXs.push(xs[at])
    values.push(accuracies[i])
  }
  return { ...facts, xs, losses, accuracyXs, accuracies: values }
}

/** A column of the table: a line's losses as they are, smoothed, or its accuracies. */
export interface ChartColumn {
  readonly is: 'raw' | 'loss' | 'accuracy'
  readonly slot: number
  readonly isMain: boolean
}

/** The columns of these lines: what a chart must be made anew for when it changes. */
export function chartColumns(
  lines: readonly ChartLine[],
  withAccuracy: boolean,
  isSmoothing: boolean,
): ChartColumn[] {
  return lines.flatMap(({ slot, isMain }) => [
    ...(isMain && isSmoothing ? [{ is: 'raw' as const, slot, isMain }] : []),
    { is: 'loss' as const, slot, isMain },
    ...(withAccuracy ? [{ is: 'accuracy' as const, slot, isMain }] : []),
  ])
}

/** All x in rising order, and each column's values there; null where a line has no point. cost: O(points of all lines). */
export function chartTable(
  lines: readonly ChartLine[],
  withAccuracy: boolean,
  halfLife: number,
): [xs: ArrayLike<number>, ...columns: Column[]] {
  const xs = lines.length === 1 ? lines[0].xs : mergedXs(lines.map((line) => line.xs))
  const columns = lines.flatMap((line) => [
    ...(line.isMain && halfLife > 0 ? [columnOver(xs, line.xs, line.losses)] : []),
    columnOver(xs, line.xs, smoothed(line.losses, line.losses.length, halfLife / line.stretch)),
    ...(withAccuracy ? [columnOver(xs, line.accuracyXs, line.accuracies)] : []),
  ])
  return [xs, ...columns]
}
