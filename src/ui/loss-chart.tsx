import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { formatLoss, formatPercent } from './format.ts'
import { Panel } from './panel.tsx'
import { last, smoothed } from './series.ts'
import type { Run } from './state.ts'

/** Points that count half as much as the newest, by position of the slider. */
const halfLives = [0, 2, 5, 10, 20, 50, 100]

/** Loss by step, as it is and smoothed, and the test accuracy. uPlot draws; this component feeds it the newest snapshot. */
export function LossChart({ run }: { run: Run | null }) {
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const [smoothing, setSmoothing] = useState(3)
  const [isLog, setLog] = useState(false)
  const [theme, setTheme] = useState(0)
  const [cursor, setCursor] = useState<number | null>(null)

  useLayoutEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const changed = () => setTheme((count) => count + 1)
    dark.addEventListener('change', changed)
    return () => dark.removeEventListener('change', changed)
  }, [])

  useLayoutEffect(() => {
    const element = holder.current!
    const made = new uPlot(optionsFor(element, isLog, setCursor), [[], [], [], []], element)
    plot.current = made
    const resized = new ResizeObserver(() => made.setSize(sizeOf(element)))
    resized.observe(element)
    return () => {
      resized.disconnect()
      made.destroy()
      plot.current = null
    }
  }, [isLog, theme])

  const { loss, accuracy, totalSteps } = run ?? { loss: null, accuracy: null, totalSteps: 0 }
  // With the render, not after it: readouts and chart show the same step. A new plot needs its data as well.
  useLayoutEffect(() => {
    plot.current?.setData(dataOf(run, halfLives[smoothing]))
  }, [loss, accuracy, totalSteps, smoothing, isLog, theme])

  const shown = run && cursor !== null && cursor < run.loss.length ? cursor : null
  return (
    <Panel
      id="loss-chart"
      title="Loss"
      class="chart-panel"
      aside={
        <span class="mono" aria-hidden="true">
          {run && shown !== null
            ? `step ${run.loss.xs[shown]}: ${formatLoss(run.loss.ys[shown])}`
            : ''}
        </span>
      }
    >
      <div class="chart-tools">
        <ul class="legend" aria-hidden="true">
          <li class="raw">each step</li>
          {smoothing > 0 && <li class="smooth">smoothed</li>}
          <li class="accuracy">test accuracy, right</li>
        </ul>
        <label class="tool">
          <span>Smoothing</span>
          <input
            type="range"
            min={0}
            max={halfLives.length - 1}
            value={smoothing}
            aria-valuetext={smoothing ? `half-life ${halfLives[smoothing]} steps` : 'off'}
            onInput={(event) => setSmoothing(Number(event.currentTarget.value))}
          />
          <span class="mono tool-value">{smoothing ? halfLives[smoothing] : 'off'}</span>
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
      <div class="chart" ref={holder} role="img" aria-label={chartWords(run)} />
    </Panel>
  )
}

function chartWords(run: Run | null): string {
  if (!run || run.loss.length === 0) return 'Loss by step: no step yet'
  const accuracy = run.accuracy.length ? `, test accuracy ${formatPercent(last(run.accuracy))}` : ''
  return `Loss by step: ${formatLoss(run.loss.ys[0])} at the first, ${formatLoss(last(run.loss))} at step ${run.step}${accuracy}`
}

/** Steps, loss, smoothed loss, accuracy. The accuracies fall on steps, so all share one axis. */
function dataOf(run: Run | null, halfLife: number): uPlot.AlignedData {
  if (!run) return [[], [], [], []]
  const { loss, accuracy } = run
  const accuracies: (number | null)[] = new Array(loss.length).fill(null)
  for (let i = 0; i < accuracy.length; i++) {
    const at = accuracy.xs[i] - loss.xs[0]
    if (at < accuracies.length) accuracies[at] = accuracy.ys[i]
  }
  return [
    loss.xs.subarray(0, loss.length),
    loss.ys.subarray(0, loss.length),
    smoothed(loss.ys, loss.length, halfLife),
    accuracies,
  ]
}

function sizeOf(element: HTMLElement): { width: number; height: number } {
  return { width: element.clientWidth, height: element.clientHeight }
}

/** Steps are whole, so are the numbers under them. */
const wholeSteps = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((power) =>
  [1, 2, 5].map((first) => first * 10 ** power),
)

function optionsFor(
  element: HTMLElement,
  isLog: boolean,
  onCursor: (index: number | null) => void,
): uPlot.Options {
  const style = getComputedStyle(element)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  const axis = {
    stroke: colour('--ink-quiet'),
    font: `11px ${style.fontFamily}`,
    grid: { stroke: colour('--hairline'), width: 1 },
    ticks: { stroke: colour('--hairline'), width: 1, size: 4 },
  }
  return {
    ...sizeOf(element),
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false }, points: { size: 6 } },
    padding: [10, 4, 0, 0],
    scales: {
      x: {
        time: false,
        range: (_, min, max) => (max > min ? [min, max] : [0, Math.max(10, max || 0)]),
      },
      y: isLog
        ? { distr: 3 }
        : { range: (_, min, max) => [Math.min(0, min || 0), Math.max(1e-3, 1.05 * (max || 2.5))] },
      share: { range: [0, 1.02] },
    },
    axes: [
      { ...axis, size: 28, space: 70, incrs: wholeSteps },
      { ...axis, size: 48, space: 36 },
      {
        ...axis,
        scale: 'share',
        side: 1,
        size: 48,
        space: 36,
        grid: { show: false },
        values: (_, values) => values.map((value) => `${Math.round(100 * value)} %`),
      },
    ],
    series: [
      {},
      { stroke: colour('--trace-raw'), width: 1, points: { show: false } },
      { stroke: colour('--trace'), width: 2, points: { show: false } },
      {
        scale: 'share',
        stroke: colour('--trace-2'),
        width: 1.5,
        dash: [4, 3],
        spanGaps: true,
        points: { show: true, size: 7, fill: colour('--trace-2') },
      },
    ],
    hooks: { setCursor: [({ cursor }) => onCursor(cursor.idx ?? null)] },
  }
}
