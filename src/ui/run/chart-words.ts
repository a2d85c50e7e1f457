import type { Metric } from '../../trainer/settings/demo-meta.ts'
import {
  capitalized,
  formatCount,
  formatLoss,
  formatMetric,
  formatSeconds,
} from '../parts/format.ts'
import { isApart } from '../parts/metric-words.ts'
import { last } from '../parts/series.ts'
import type { Run } from '../state/run.ts'
import type { Axis, ChartColumn, ChartLine, PlotKind } from './chart-data.ts'

type PlotWords = (run: Run | null, lines: readonly ChartLine[], metric: Metric) => string

/** What a plot of runs shows, for those who do not see it. */
export const plotWords: Record<PlotKind, PlotWords> = {
  loss(run, lines, metric) {
    if (!run || run.loss.length === 0) return `Loss by step: no step yet${besideWords(lines)}`
    const parts = [
      `${formatLoss(run.loss.ys[0])} at the first, ${formatLoss(last(run.loss))} at step ${run.step}`,
    ]
    if (run.heldOutLoss.length > 0) parts.push(`test loss ${testLossWords(run, metric)}`)
    return `Loss by step: ${parts.join(', ')}${besideWords(lines)}`
  },
  metric(run, lines, metric) {
    const name = capitalized(metric.name)
    if (!run || run.loss.length === 0) return `${name} by step: none yet${besideWords(lines)}`
    const parts = [`training ${formatMetric(metric, last(run.trainMetric))}`]
    if (run.accuracy.length > 0) parts.push(`test ${formatMetric(metric, last(run.accuracy))}`)
    return `${name} by step: ${parts.join(', ')}${besideWords(lines)}`
  },
}

function besideWords(lines: readonly ChartLine[]): string {
  const others = lines.filter(({ isMain }) => !isMain).length
  return others > 0 ? `; ${others} earlier run${others > 1 ? 's' : ''} for comparison` : ''
}

/** Where the metric is the loss in another unit, in that one too. */
function testLossWords(run: Run, metric: Metric): string {
  const loss = formatLoss(last(run.heldOutLoss))
  const isOtherUnit = !isApart(metric) && metric.ofLoss !== 1
  return isOtherUnit ? `${loss} (${formatMetric(metric, last(run.accuracy))})` : loss
}

const xWords: Record<Axis, (x: number) => string> = {
  step: (x) => `step ${x}`,
  samples: (x) => `${formatCount(x)} samples`,
  seconds: formatSeconds,
}

/** What one run has under the pointer. */
export interface Pointed {
  readonly slot: number
  readonly words: string
}

/** What is under the pointer, as it is drawn: where that is, and each run's losses and metrics there; null where nothing is. */
export function pointedAt(
  columns: readonly ChartColumn[],
  [xs, ...values]: readonly ArrayLike<number | null>[],
  index: number,
  axis: Axis,
  metric: Metric,
): { readonly at: string; readonly runs: readonly Pointed[] } | null {
  const x = xs[index]
  if (x === undefined || x === null) return null
  const bySlot = new Map<number, string[]>()
  for (const [i, { is, slot }] of columns.entries()) {
    const value = values[i][index]
    if (value === null || value === undefined || is === 'raw') continue
    const isLoss = is === 'loss' || is === 'testLoss'
    const words = isLoss ? formatLoss(value) : formatMetric(metric, value)
    const named = is === 'testLoss' || is === 'testMetric' ? `test ${words}` : words
    bySlot.set(slot, [...(bySlot.get(slot) ?? []), named])
  }
  const runs = Array.from(bySlot, ([slot, named]) => ({ slot, words: named.join(' · ') }))
  return runs.length > 0 ? { at: xWords[axis](x), runs } : null
}
