import { useMemo, useState } from 'preact/hooks'
import type uPlot from 'uplot'
import type { Metric } from '../train/demo-meta.ts'
import { formatCount, formatLoss, formatMany, formatMetric, formatSeconds } from './format.ts'
import { metricDirection, metricName } from './metric-words.ts'
import { Panel } from './panel.tsx'
import { halfLives, SmoothingTool } from './plot/smoothing.tsx'
import { type PlotTheme, secondTicks, usePlot, wholeTicks } from './plot/use-plot.ts'
import { type Stretch, useZoom, ZoomButtons, type ZoomParts, zoomHint } from './plot/zoom.tsx'
import {
  type Axis,
  type ChartColumn,
  type ChartLine,
  chartColumns,
  chartDemo,
  chartLines,
  chartTable,
  leftOutOfChart,
} from './runs/chart-data.ts'
import { lookOf } from './runs/run-looks.ts'
import { last } from './series.ts'
import { metaOfDraft } from './settings.ts'
import type { Run, Snapshot } from './state.ts'

const axisWords: Record<Axis, string> = {
  step: 'step',
  samples: 'samples',
  seconds: 'time, no pauses',
}

/** Loss and test metric of this tab's run and of earlier ones of its demo, laid over each other. uPlot draws, from the first run on; this component feeds it the newest snapshot. */
export function LossChart({ snapshot }: { snapshot: Snapshot }) {
  const { run, runs } = snapshot
  const [smoothing, setSmoothing] = useState(3)
  const [isLog, setLog] = useState(false)
  const [withAccuracy, setWithAccuracy] = useState(true)
  const [axis, setAxis] = useState<Axis>('step')
  const [cursor, setCursor] = useState<number | null>(null)

  const { loss, accuracy, totalSteps } = run ?? { loss: null, accuracy: null, totalSteps: 0 }
  const lines = useMemo(
    () => chartLines({ run, runs }, axis),
    [loss, accuracy, run?.config, run?.end, runs, axis],
  )
  const demo = chartDemo({ run, runs })
  const { metric } = metaOfDraft({ demo: demo ?? snapshot.draft.demo })
  const leftOut = leftOutOfChart({ run, runs })
  const columns = chartColumns(lines, withAccuracy, smoothing > 0)
  const zoom = useZoom(() => fullRange(lines))
  const { holder, plot, failure } = usePlot({
    isWanted: run !== null || runs.length > 0,
    // Another list of runs, or another axis, takes another plot.
    shape: JSON.stringify([columns, axis, isLog, metric]),
    options: (theme) =>
      optionsFor({ theme, columns, metric, isLog, axis, setCursor, ...zoom.parts }),
    data: () =>
      lines.length > 0
        ? chartTable(lines, withAccuracy, halfLives[smoothing])
        : [[], ...columns.map(() => [])],
    dependsOn: [lines, totalSteps, smoothing, zoom.stretch],
  })

  const main = lines.find(({ isMain }) => isMain)

  return (
    <Panel
      id="loss-chart"
      title="Loss"
      class="chart-panel"
      aside={
        <div class="tool">
          <span class="mono" aria-hidden="true">
            {cursorWords(plot.current, columns, cursor, axis)}
          </span>
          <ZoomButtons zoom={zoom} />
        </div>
      }
    >
      <div class="chart-tools">
        <ul
          class="legend"
          aria-hidden="true"
          style={main && { '--own': `var(${lookOf(main.slot).colour})` }}
        >
          {smoothing > 0 && main && (
            <li class="raw">{main.stretch > 1 ? `means of ${main.stretch} steps` : 'each step'}</li>
          )}
          <li class="smooth">{smoothing > 0 ? 'smoothed' : 'each step'}</li>
          {withAccuracy && (
            <li class="accuracy" title={metricDirection(metric).words}>
              {metricName(metric)}, right {metricDirection(metric).sign}
            </li>
          )}
        </ul>
        <label class="tool">
          <span>By</span>
          <select
            value={axis}
            onChange={(event) => {
              setAxis(event.currentTarget.value as Axis)
              zoom.showAll()
            }}
          >
            {Object.entries(axisWords).map(([value, words]) => (
              <option key={value} value={value}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <SmoothingTool at={smoothing} onChange={setSmoothing} />
        <label class="tool">
          <input
            type="checkbox"
            checked={withAccuracy}
            onChange={(event) => setWithAccuracy(event.currentTarget.checked)}
          />
          <span>test {metric.name}</span>
        </label>
        <label class="tool">
          <input
            type="checkbox"
            checked={isLog}
            onChange={(event) => setLog(event.currentTarget.checked)}
          />
          <span>log</span>
        </label>
      </div>
      {failure && <p role="alert">{failure}</p>}
      <div
        class="chart"
        ref={holder}
        role="img"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: its keys do what dragging over it does
        tabIndex={0}
        aria-label={chartWords(run, lines, metric)}
        onKeyDown={zoom.onKeyDown}
        title={zoomHint}
      />
      {leftOut > 0 && (
        <p class="quiet">
          {formatMany(leftOut, 'run')} of{' '}
          {leftOut === 1 ? 'another experiment is' : 'other experiments are'} not drawn: loss and
          metric there are other quantities.
        </p>
      )}
    </Panel>
  )
}

function chartWords(run: Run | null, lines: readonly ChartLine[], metric: Metric): string {
  const others = lines.filter(({ isMain }) => !isMain).length
  const beside = others > 0 ? `; ${others} earlier run${others > 1 ? 's' : ''} beside it` : ''
  if (!run || run.loss.length === 0) return `Loss by step: no step yet${beside}`
  const tested = run.accuracy.length
    ? `, test ${metric.name} ${formatMetric(metric, last(run.accuracy))}`
    : ''
  return `Loss by step: ${formatLoss(run.loss.ys[0])} at the first, ${formatLoss(last(run.loss))} at step ${run.step}${tested}${beside}`
}

function fullRange(lines: readonly ChartLine[]): Stretch | null {
  const filled = lines.filter(({ xs }) => xs.length > 0)
  if (filled.length === 0) return null
  return {
    min: Math.min(...filled.map(({ xs }) => xs[0])),
    max: Math.max(...filled.map(({ xs }) => xs[xs.length - 1])),
  }
}

const xWords: Record<Axis, (x: number) => string> = {
  step: (x) => `step ${x}`,
  samples: (x) => `${formatCount(x)} samples`,
  seconds: formatSeconds,
}

/** What is under the pointer: the losses of the lines there, as they are drawn. */
function cursorWords(
  plot: uPlot | null,
  columns: readonly ChartColumn[],
  index: number | null,
  axis: Axis,
): string {
  const x = index === null ? undefined : plot?.data[0][index]
  if (x === undefined || x === null || !plot) return ''
  const values = columns.flatMap(({ is }, i) => {
    const value = is === 'loss' ? plot.data[i + 1]?.[index!] : undefined
    return value === null || value === undefined ? [] : [formatLoss(value)]
  })
  return values.length > 0 ? `${xWords[axis](x)}: ${values.slice(0, 3).join(' · ')}` : ''
}

interface PlotOptions extends ZoomParts {
  readonly theme: PlotTheme
  readonly columns: readonly ChartColumn[]
  /** Of the right axis. */
  readonly metric: Metric
  readonly isLog: boolean
  readonly axis: Axis
  readonly setCursor: (index: number | null) => void
}

function optionsFor({
  theme: { colour, axis },
  columns,
  metric,
  isLog,
  axis: along,
  setCursor,
  ...zooming
}: PlotOptions): Omit<uPlot.Options, 'width' | 'height'> {
  const isAlone = columns.every(({ isMain }) => isMain)
  const seriesOf = ({ is, slot, isMain }: ChartColumn): uPlot.Series => {
    const look = lookOf(slot)
    const own = colour(look.colour)
    const line = { spanGaps: true, points: { show: false } }
    if (is === 'raw') return { ...line, stroke: `${own}66`, width: 1 }
    if (is === 'loss')
      return { ...line, stroke: own, width: isMain ? 2 : 1.5, dash: [...look.dash] }
    // Alone, the metric has a colour of its own; among runs, that of its run, and points.
    const stroke = isAlone ? colour('--trace-2') : own
    const dash = isAlone ? [4, 3] : [...look.dash]
    return {
      scale: 'metric',
      stroke,
      width: isAlone ? 1.5 : 1,
      dash,
      spanGaps: true,
      points: { show: true, size: isAlone ? 7 : 6, fill: stroke },
    }
  }
  return {
    legend: { show: false },
    cursor: zooming.cursor,
    padding: [10, 4, 0, 0],
    scales: {
      x: { time: false, range: zooming.xRange },
      y: isLog
        ? { distr: 3 }
        : { range: (_, min, max) => [Math.min(0, min || 0), Math.max(1e-3, 1.05 * (max || 2.5))] },
      metric:
        metric.unit === 'share'
          ? { range: [0, 1.02] }
          : { range: (_, _min, max) => [0, 1.05 * (max || 1)] },
    },
    axes: [
      {
        ...axis,
        size: 28,
        space: 70,
        ...(along === 'seconds' ? { values: secondTicks } : { incrs: wholeTicks }),
      },
      { ...axis, size: 48, space: 36 },
      {
        ...axis,
        scale: 'metric',
        side: 1,
        size: 48,
        space: 36,
        grid: { show: false },
        values: (_, values) =>
          values.map((value) =>
            metric.unit === 'share'
              ? `${Math.round(100 * value)} %`
              : String(Number(value.toPrecision(3))),
          ),
      },
    ],
    series: [{}, ...columns.map(seriesOf)],
    hooks: {
      setCursor: [({ cursor }) => setCursor(cursor.idx ?? null)],
      setSelect: [zooming.setSelect],
    },
  }
}
