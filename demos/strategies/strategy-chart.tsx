import { useState } from 'preact/hooks'
import type uPlot from 'uplot'
import type { Metric } from '../../src/trainer/settings/demo-meta.ts'
import { formatCount, formatLoss, formatMetric, formatSeconds } from '../../src/ui/parts/format.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { smoothed } from '../../src/ui/parts/series.ts'
import {
  lossRange,
  pointerOptions,
  shareRange,
  shareTicks,
  xAxis,
  yAxis,
} from '../../src/ui/plot/chart-options.ts'
import { columnOver, mergedXs } from '../../src/ui/plot/columns.ts'
import { halfLives } from '../../src/ui/plot/smoothing.tsx'
import { usePlot } from '../../src/ui/plot/use-plot.ts'
import { useZoom, ZoomButtons, zoomHint } from '../../src/ui/plot/zoom.tsx'
import { lookOf } from '../../src/ui/run/run-looks.ts'
import { slotOf } from './strategies.ts'
import type { StrategyLog } from './strategy-log.ts'

/** What lines show: the loss at each step, or what is measured on held-out samples. */
export type Drawn = 'losses' | 'tests'

interface StrategyChartProps {
  readonly along: 'samples' | 'seconds'
  readonly drawn: Drawn
  readonly metric: Metric
  readonly logs: readonly StrategyLog[]
  readonly version: number
  /** Which of `halfLives`. */
  readonly smoothing: number
}

const xWords = {
  samples: (x: number) => `${formatCount(x)} samples`,
  seconds: formatSeconds,
}

/** Lines that lie on each other stay seen: each is thinner than the one below it. */
const widths = [7, 4.5, 2.5, 2, 2, 2]

/** The strategies' lines over one axis. */
export function StrategyChart(props: StrategyChartProps) {
  const { along, drawn, metric, logs, version, smoothing } = props
  const [cursor, setCursor] = useState<number | null>(null)
  const slots = logs.map(({ strategy }) => slotOf(strategy))
  const isShare = drawn === 'tests' && metric.unit === 'share'
  const zoom = useZoom(() => {
    const max = Math.max(0, ...logs.map((log) => log[drawn][along].at(-1) ?? 0))
    return max > 0 ? { min: 0, max: max } : null
  })
  const { holder, plot, failure } = usePlot({
    shape: JSON.stringify([slots, isShare]),
    options: ({ colour, axis }) => ({
      ...pointerOptions(zoom.parts, setCursor),
      padding: [10, 12, 0, 0],
      scales: {
        // From the beginning on, whatever the first point is.
        x: { time: false, range: (self, _, max, key) => zoom.parts.xRange(self, 0, max, key) },
        y: { range: isShare ? shareRange : lossRange(1) },
      },
      axes: [
        xAxis(axis, along === 'seconds'),
        { ...yAxis(axis), ...(isShare && { values: shareTicks }) },
      ],
      series: [
        {},
        ...slots.map((slot, i): uPlot.Series => {
          const { colour: name, dash } = lookOf(slot)
          return {
            stroke: colour(name),
            width: widths[i] ?? widths.at(-1),
            dash: [...dash],
            spanGaps: true,
            points: { show: false },
          }
        }),
      ],
    }),
    data: () => {
      const lists = logs.map((log) => Float64Array.from(log[drawn][along]))
      const xs = mergedXs(lists)
      const halfLife = drawn === 'losses' ? halfLives[smoothing] : 0
      const columns = logs.map((log, i) => {
        const values = Float64Array.from(log[drawn].values)
        return columnOver(xs, lists[i], smoothed(values, values.length, halfLife))
      })
      return [xs, ...columns]
    },
    dependsOn: [logs, version, drawn, smoothing, zoom.stretch],
  })
  const title = `By ${along === 'samples' ? 'samples seen' : 'seconds of training'}`
  const format = drawn === 'losses' ? formatLoss : (value: number) => formatMetric(metric, value)
  const x = cursor === null ? undefined : plot.current?.data[0][cursor]
  const under = logs.flatMap(({ strategy }, i) => {
    const value = cursor === null ? undefined : plot.current?.data[i + 1]?.[cursor]
    return value === null || value === undefined ? [] : [`${strategy.words} ${format(value)}`]
  })
  return (
    <Panel
      id={`by-${along}`}
      title={title}
      class="chart-panel"
      aside={
        <div class="tool">
          <ZoomButtons zoom={zoom} of={title} />
        </div>
      }
    >
      <p class="under mono" aria-hidden="true">
        {x === undefined || under.length === 0
          ? '\u00a0'
          : `${xWords[along](x)}: ${under.join(' · ')}`}
      </p>
      {failure && <p role="alert">{failure}</p>}
      <div
        class="chart"
        ref={holder}
        role="img"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: its keys do what dragging over it does
        tabIndex={0}
        aria-label={`${drawn === 'losses' ? 'Loss' : metric.name} ${title.toLowerCase()}, ${wordsOf(logs, props, format)}. The table below has the numbers.`}
        onKeyDown={zoom.onKeyDown}
        title={zoomHint}
      />
    </Panel>
  )
}

function wordsOf(
  logs: readonly StrategyLog[],
  { drawn, along }: StrategyChartProps,
  format: (value: number) => string,
): string {
  const newest = logs.flatMap((log) => {
    const { values, [along]: xs } = log[drawn]
    return values.length === 0
      ? []
      : [`${log.strategy.words} ${format(values.at(-1)!)} after ${xWords[along](xs.at(-1)!)}`]
  })
  return newest.length > 0 ? newest.join(', ') : 'no step yet'
}
