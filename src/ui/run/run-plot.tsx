import type uPlot from 'uplot'
import type { Metric } from '../../trainer/settings/demo-meta.ts'
import {
  lossRange,
  pointerOptions,
  shareRange,
  shareTicks,
  xAxis,
  yAxis,
} from '../plot/chart-options.ts'
import type { Column } from '../plot/columns.ts'
import { type PlotTheme, usePlot } from '../plot/use-plot.ts'
import { type Zoom, zoomHint } from '../plot/zoom.tsx'
import { type Axis, type ChartColumn, isOfOneRun, type PlotKind, plotOf } from './chart-data.ts'
import { lookOf } from './run-looks.ts'

interface RunPlotProps {
  readonly kind: PlotKind
  readonly metric: Metric
  /** Of all plots of the chart; each draws its own. */
  readonly columns: readonly ChartColumn[]
  /** All x, then the values of each of `columns`. */
  readonly table: () => readonly ArrayLike<number | null>[]
  readonly dependsOn: readonly unknown[]
  readonly axis: Axis
  readonly isLog: boolean
  /** Another plot below it shows what x is. */
  readonly isAbove: boolean
  readonly zoom: Zoom
  readonly setCursor: (index: number | null) => void
  /** The words of a line in the place of a run's own, which is faint. */
  readonly ghost: string | undefined
  /** What it shows, for those who do not see it. */
  readonly words: string
}

/** The losses, or the metrics, of the chart's runs. */
export function RunPlot(props: RunPlotProps) {
  const { kind, columns, table, zoom, axis, metric, isLog, isAbove, ghost, words } = props
  const own = columns.filter((column) => plotOf(column) === kind)
  const { holder, failure } = usePlot({
    // Another list of runs, or another axis, takes another plot.
    shape: JSON.stringify([own, isOfOneRun(columns), axis, metric, isLog, isAbove]),
    options: (theme) => optionsFor({ ...props, own, theme }),
    data: () => {
      const [xs, ...all] = table()
      return [xs, ...all.filter((_: Column, i) => plotOf(columns[i]) === kind)]
    },
    dependsOn: [...props.dependsOn, zoom.stretch],
  })
  return (
    <>
      {failure && <p role="alert">{failure}</p>}
      <div
        class="chart"
        data-kind={kind}
        data-above={isAbove}
        data-ghost={ghost}
        ref={holder}
        role="img"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: its keys do what dragging over it does
        tabIndex={0}
        aria-label={words}
        onKeyDown={zoom.onKeyDown}
        title={zoomHint}
      />
    </>
  )
}

const noWords = (_: uPlot, ticks: readonly number[]) => ticks.map(() => '')

const shortNumbers = (_: uPlot, ticks: readonly number[]) =>
  ticks.map((tick) => String(Number(tick.toPrecision(3))))

/** Max number of points that get marks; more would form a band. */
const maxMarked = 60

/** Returns whether so few of a column's points are in view that each gets a mark. */
function areFew(plot: uPlot, column: number, from: number, to: number): boolean {
  const values = plot.data[column]
  let count = 0
  for (let i = from; i <= to && count <= maxMarked; i++) if (typeof values[i] === 'number') count++
  return count <= maxMarked
}

interface PlotOptions extends RunPlotProps {
  readonly theme: PlotTheme
  readonly own: readonly ChartColumn[]
}

function optionsFor({
  theme: { colour, axis },
  kind,
  metric,
  columns,
  own,
  axis: along,
  isLog,
  isAbove,
  zoom,
  setCursor,
}: PlotOptions): Omit<uPlot.Options, 'width' | 'height'> {
  const isAlone = isOfOneRun(columns)
  const isShare = kind === 'metric' && metric.unit === 'share'
  const seriesOf = ({ is, slot, isMain }: ChartColumn): uPlot.Series => {
    const look = lookOf(slot)
    const stroke = colour(look.colour)
    const line = { stroke, spanGaps: true, points: { show: false } }
    if (is === 'raw') return { ...line, stroke: `${stroke}66`, width: 1 }
    if (is === 'loss' || is === 'trainMetric')
      // Alone, dashes distinguish tests from training, else one run from another.
      return { ...line, width: isMain ? 2 : 1.5, dash: isAlone ? [] : [...look.dash] }
    return {
      ...line,
      width: isAlone ? 1.5 : 1,
      dash: isAlone ? [8, 4] : [3, 3],
      points: { show: areFew, size: isAlone ? 7 : 6, fill: colour('--panel') },
    }
  }
  const yRange = isShare ? shareRange : lossRange(kind === 'loss' ? 2.5 : 1)
  return {
    ...pointerOptions(zoom.parts, setCursor, 'runs'),
    padding: [8, 12, isAbove ? 6 : 0, 0],
    scales: {
      x: { time: false, range: zoom.parts.xRange },
      y: kind === 'loss' && isLog ? { distr: 3 } : { range: yRange },
    },
    axes: [
      { ...xAxis(axis, along === 'seconds'), ...(isAbove && { size: 4, values: noWords }) },
      { ...yAxis(axis), ...(kind === 'metric' && { values: isShare ? shareTicks : shortNumbers }) },
    ],
    series: [{}, ...own.map(seriesOf)],
  }
}
