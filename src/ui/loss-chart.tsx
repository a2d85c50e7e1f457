import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { formatCount, formatLoss, formatPercent, formatSeconds } from './format.ts'
import { Panel } from './panel.tsx'
import {
  type Axis,
  type ChartColumn,
  type ChartLine,
  chartColumns,
  chartLines,
  chartTable,
} from './runs/chart-data.ts'
import { lookOf } from './runs/run-looks.ts'
import { last } from './series.ts'
import type { Run, Snapshot } from './state.ts'

/** Points that count half as much as the newest, by position of the slider. */
const halfLives = [0, 2, 5, 10, 20, 50, 100]

const axisWords: Record<Axis, string> = {
  step: 'step',
  samples: 'samples',
  seconds: 'wall-clock',
}

interface Zoom {
  readonly min: number
  readonly max: number
}

/** Loss and test accuracy of this tab's run and of earlier ones, laid over each other. uPlot draws; this component feeds it the newest snapshot. */
export function LossChart({ snapshot }: { snapshot: Snapshot }) {
  const { run, runs } = snapshot
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const [smoothing, setSmoothing] = useState(3)
  const [isLog, setLog] = useState(false)
  const [withAccuracy, setWithAccuracy] = useState(true)
  const [axis, setAxis] = useState<Axis>('step')
  const [theme, setTheme] = useState(0)
  const [cursor, setCursor] = useState<number | null>(null)
  const [zoom, setZoom] = useState<Zoom | null>(null)
  const zoomNow = useRef(zoom)
  zoomNow.current = zoom

  useLayoutEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const changed = () => setTheme((count) => count + 1)
    dark.addEventListener('change', changed)
    return () => dark.removeEventListener('change', changed)
  }, [])

  const { loss, accuracy, totalSteps } = run ?? { loss: null, accuracy: null, totalSteps: 0 }
  const lines = useMemo(
    () => chartLines({ run, runs }, axis),
    [loss, accuracy, run?.end, runs, axis],
  )
  const columns = chartColumns(lines, withAccuracy, smoothing > 0)
  // What a plot is made of; another list of runs, or another axis, takes another one.
  const shape = JSON.stringify([columns, axis, isLog, theme])

  useLayoutEffect(() => {
    const element = holder.current!
    const made = new uPlot(
      optionsFor(element, {
        columns,
        isLog,
        axis,
        zoom: () => zoomNow.current,
        setCursor,
        setZoom,
      }),
      [[], ...columns.map(() => [])] as unknown as uPlot.AlignedData,
      element,
    )
    plot.current = made
    const resized = new ResizeObserver(() => made.setSize(sizeOf(element)))
    resized.observe(element)
    return () => {
      resized.disconnect()
      made.destroy()
      plot.current = null
    }
  }, [shape])

  // With the render, not after it: readouts and chart show the same step. A new plot needs its data as well.
  useLayoutEffect(() => {
    const table = chartTable(lines, withAccuracy, halfLives[smoothing])
    plot.current?.setData(
      (lines.length > 0 ? table : [[], ...columns.map(() => [])]) as unknown as uPlot.AlignedData,
    )
  }, [lines, totalSteps, smoothing, shape, zoom])

  const main = lines.find(({ isMain }) => isMain)
  /** A narrower or wider view around the middle (`by` below or above 1), moved by a share of its width. */
  const look = (by: number, move = 0) => {
    const from = zoom ?? fullRange(lines)
    if (!from) return
    const full = fullRange(lines)!
    const width = Math.min(full.max - full.min, (from.max - from.min) * by)
    const middle = (from.min + from.max) / 2 + move * width
    const min = Math.max(full.min, Math.min(full.max - width, middle - width / 2))
    setZoom(width >= full.max - full.min || width <= 0 ? null : { min, max: min + width })
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const acts: Record<string, () => void> = {
      '+': () => look(0.5),
      '=': () => look(0.5),
      '-': () => look(2),
      ArrowLeft: () => look(1, -0.25),
      ArrowRight: () => look(1, 0.25),
      Escape: () => setZoom(null),
      '0': () => setZoom(null),
    }
    const act = acts[event.key]
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    act()
  }

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
          <span class="zoom">
            <button type="button" aria-label="Zoom in" onClick={() => look(0.5)}>
              +
            </button>
            <button type="button" aria-label="Zoom out" disabled={!zoom} onClick={() => look(2)}>
              −
            </button>
            <button
              type="button"
              disabled={!zoom}
              aria-label="Show all"
              onClick={() => setZoom(null)}
            >
              All
            </button>
          </span>
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
          {withAccuracy && <li class="accuracy">test accuracy, right</li>}
        </ul>
        <label class="tool">
          <span>By</span>
          <select
            value={axis}
            onChange={(event) => {
              setAxis(event.currentTarget.value as Axis)
              setZoom(null)
            }}
          >
            {Object.entries(axisWords).map(([value, words]) => (
              <option key={value} value={value}>
                {words}
              </option>
            ))}
          </select>
        </label>
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
            checked={withAccuracy}
            onChange={(event) => setWithAccuracy(event.currentTarget.checked)}
          />
          <span>accuracy</span>
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
      <div
        class="chart"
        ref={holder}
        role="img"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: its keys do what dragging over it does
        tabIndex={0}
        aria-label={chartWords(run, lines)}
        onKeyDown={onKeyDown}
        title="Drag to zoom in, double-click for all. Keys: + − ← → and Escape."
      />
    </Panel>
  )
}

function chartWords(run: Run | null, lines: readonly ChartLine[]): string {
  const others = lines.filter(({ isMain }) => !isMain).length
  const beside = others > 0 ? `; ${others} earlier run${others > 1 ? 's' : ''} beside it` : ''
  if (!run || run.loss.length === 0) return `Loss by step: no step yet${beside}`
  const accuracy = run.accuracy.length ? `, test accuracy ${formatPercent(last(run.accuracy))}` : ''
  return `Loss by step: ${formatLoss(run.loss.ys[0])} at the first, ${formatLoss(last(run.loss))} at step ${run.step}${accuracy}${beside}`
}

function fullRange(lines: readonly ChartLine[]): Zoom | null {
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

function sizeOf(element: HTMLElement): { width: number; height: number } {
  return { width: element.clientWidth, height: element.clientHeight }
}

/** Steps are whole, so are the numbers under them. */
const wholeSteps = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((power) =>
  [1, 2, 5].map((first) => first * 10 ** power),
)

interface PlotOptions {
  readonly columns: readonly ChartColumn[]
  readonly isLog: boolean
  readonly axis: Axis
  readonly zoom: () => Zoom | null
  readonly setCursor: (index: number | null) => void
  readonly setZoom: (zoom: Zoom | null) => void
}

function optionsFor(
  element: HTMLElement,
  { columns, isLog, axis: along, zoom, setCursor, setZoom }: PlotOptions,
): uPlot.Options {
  const style = getComputedStyle(element)
  const colour = (name: string) => style.getPropertyValue(name).trim()
  const axis = {
    stroke: colour('--ink-quiet'),
    font: `11px ${style.fontFamily}`,
    grid: { stroke: colour('--hairline'), width: 1 },
    ticks: { stroke: colour('--hairline'), width: 1, size: 4 },
  }
  const isAlone = columns.every(({ isMain }) => isMain)
  const seriesOf = ({ is, slot, isMain }: ChartColumn): uPlot.Series => {
    const look = lookOf(slot)
    const own = colour(look.colour)
    const line = { spanGaps: true, points: { show: false } }
    if (is === 'raw') return { ...line, stroke: `${own}66`, width: 1 }
    if (is === 'loss')
      return { ...line, stroke: own, width: isMain ? 2 : 1.5, dash: [...look.dash] }
    // Alone, the accuracy has a colour of its own; among runs, that of its run, and points.
    const stroke = isAlone ? colour('--trace-2') : own
    const dash = isAlone ? [4, 3] : [...look.dash]
    return {
      scale: 'share',
      stroke,
      width: isAlone ? 1.5 : 1,
      dash,
      spanGaps: true,
      points: { show: true, size: isAlone ? 7 : 6, fill: stroke },
    }
  }
  return {
    ...sizeOf(element),
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          setZoom(null)
          return null
        },
      },
    },
    padding: [10, 4, 0, 0],
    scales: {
      x: {
        time: false,
        range: (_, min, max) => {
          const chosen = zoom()
          if (chosen) return [chosen.min, chosen.max]
          return max > min ? [min, max] : [0, Math.max(10, max || 0)]
        },
      },
      y: isLog
        ? { distr: 3 }
        : { range: (_, min, max) => [Math.min(0, min || 0), Math.max(1e-3, 1.05 * (max || 2.5))] },
      share: { range: [0, 1.02] },
    },
    axes: [
      {
        ...axis,
        size: 28,
        space: 70,
        ...(along !== 'seconds' && { incrs: wholeSteps }),
        ...(along === 'seconds' && {
          values: (_: uPlot, values: number[]) =>
            values.map((value) => `${Number(value.toPrecision(4))} s`),
        }),
      },
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
    series: [{}, ...columns.map(seriesOf)],
    hooks: {
      setCursor: [({ cursor }) => setCursor(cursor.idx ?? null)],
      setSelect: [
        (drawn) => {
          const { left, width } = drawn.select
          if (width < 4) return
          const min = drawn.posToVal(left, 'x')
          const max = drawn.posToVal(left + width, 'x')
          drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          if (max > min) setZoom({ min, max })
        },
      ],
    },
  }
}
