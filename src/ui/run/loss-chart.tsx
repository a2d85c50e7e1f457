import { Fragment } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { formatMany } from '../parts/format.ts'
import { isApart } from '../parts/metric-words.ts'
import { Panel } from '../parts/panel.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { halfLives, SmoothingTool } from '../plot/smoothing.tsx'
import { type Stretch, useZoom, ZoomButtons } from '../plot/zoom.tsx'
import { metaOfDraft } from '../settings/list.ts'
import type { Acts } from '../state/acts.ts'
import { settingsOfRoom } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import {
  type Axis,
  type ChartLine,
  chartColumns,
  chartDemo,
  chartLines,
  chartTable,
  ghostOf,
  leftOutOfChart,
  legendRuns,
  type PlotKind,
  plotKinds,
  plotOf,
  type Shown,
} from './chart-data.ts'
import { LineLegend, RunLegend } from './chart-legend.tsx'
import { plotWords, pointedAt } from './chart-words.ts'
import { differingColumns, nameOfRun } from './run-words.ts'
import { Swatch } from './swatch.tsx'

const axisWords: Record<Axis, string> = {
  step: 'step',
  samples: 'samples',
  seconds: 'time without pauses',
}

/** Loss and, below it, the demo's metric, each of training and of held-out samples, of this tab's run and of earlier ones of its demo, laid over each other. Zoomed and pointed at together. */
export function LossChart({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { experiments, run, runs } = snapshot
  const [smoothing, setSmoothing] = useState(3)
  const [isLog, setLog] = useState(false)
  const [chosen, setChosen] = useState(everything)
  const [axis, setAxis] = useState<Axis>('step')
  const [cursor, setCursor] = useState<number | null>(null)

  const { loss, accuracy, totalSteps } = run ?? { loss: null, accuracy: null, totalSteps: 0 }
  const demo = chartDemo({ run, runs }) ?? (settingsOfRoom(snapshot) ?? snapshot.draft).demo
  const own = useMemo(
    () => chartLines({ run, runs }, axis),
    [loss, accuracy, run?.config, run?.end, runs, axis],
  )
  // A run that a person has taken out of the chart leaves it empty.
  const hasOwn = (loss?.length ?? 0) > 0 || own.some(({ xs }) => xs.length > 0)
  const ghost = useMemo(
    () => (hasOwn ? null : ghostOf(experiments, demo, axis)),
    [hasOwn, demo, axis],
  )
  const lines = useMemo(() => (ghost ? [ghost.line] : own), [ghost, own])
  const { metric } = metaOfDraft(experiments, { demo })
  const shown = isApart(metric) ? chosen : { ...chosen, trainMetric: false, testMetric: false }
  const isSmoothing = smoothing > 0
  const columns = chartColumns(lines, shown, isSmoothing)
  // Made when the first plot asks, for all of them; out of the window none does.
  const table = useMemo(() => {
    let made: ReturnType<typeof chartTable> | null = null
    return () => {
      made ??= lines.length > 0 ? chartTable(lines, shown, halfLives[smoothing]) : [[]]
      return made
    }
  }, [lines, smoothing, JSON.stringify(columns)])
  const zoom = useZoom(() => fullRange(lines))
  const hasRuns = run !== null || runs.length > 0 || ghost !== null
  const { part: plots, failure } = useLoaded('the chart', loadPlots, hasRuns)
  const wordsOf = (kind: PlotKind) =>
    plotWords[kind](run, own, metric) + (ghost ? `; faint: ${ghost.words}` : '')
  const main = lines.find(({ isMain }) => isMain)
  const rawWords = (main?.stretch ?? 1) > 1 ? `means of ${main?.stretch} steps` : 'each step'
  // Before a run its place is kept.
  const hasMetric =
    isApart(metric) &&
    (columns.length === 0 || columns.some((column) => plotOf(column) === 'metric'))
  const isDrawn = (kind: PlotKind) => kind === 'loss' || hasMetric
  const kinds = isApart(metric) ? plotKinds : (['loss'] as const)
  const pointed = cursor === null ? null : pointedAt(columns, table(), cursor, axis, metric)
  const leftOut = leftOutOfChart({ run, runs })

  return (
    <Panel
      id="loss-chart"
      title={isApart(metric) ? `Loss and ${metric.name}` : 'Loss'}
      class="chart-panel"
      aside={
        <div class="tool">
          <ZoomButtons zoom={zoom} />
        </div>
      }
    >
      <div class="chart-tools">
        <RunLegend
          runs={legendRuns({ run, runs }, demo)}
          nameOf={(id) => nameIn(snapshot, id)}
          onShow={acts.showRun}
        />
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
            checked={isLog}
            onChange={(event) => setLog(event.currentTarget.checked)}
          />
          <span>log scale</span>
        </label>
      </div>
      {/* Its place is kept, so that pointing moves nothing. */}
      <p class="pointed mono" data-among={lines.length > 1} aria-hidden="true">
        {pointed ? (
          <>
            {pointed.at}
            {ghost && `, ${ghost.words}`}:
            {pointed.runs.map(({ slot, words }) => (
              <span key={slot}>
                <Swatch slot={slot} /> {words}
              </span>
            ))}
          </>
        ) : (
          '\u00a0'
        )}
      </p>
      {kinds.map((kind) => (
        <Fragment key={kind}>
          <LineLegend
            kind={kind}
            metric={metric}
            columns={columns}
            rawWords={isSmoothing && main ? rawWords : null}
            isSmoothing={isSmoothing}
            shown={chosen}
            onChange={setChosen}
          />
          {isDrawn(kind) &&
            (plots ? (
              <plots.RunPlot
                kind={kind}
                metric={metric}
                columns={columns}
                table={table}
                dependsOn={[table, totalSteps]}
                axis={axis}
                isLog={isLog}
                isAbove={kind === 'loss' && hasMetric}
                zoom={zoom}
                setCursor={setCursor}
                ghost={ghost?.words}
                words={wordsOf(kind)}
              />
            ) : (
              // Its place, until there is something to draw.
              <div
                class="chart"
                data-kind={kind}
                data-above={kind === 'loss' && hasMetric}
                data-ghost={ghost?.words}
                role="img"
                aria-label={wordsOf(kind)}
              />
            ))}
        </Fragment>
      ))}
      {failure && <p role="alert">{failure}</p>}
      {leftOut > 0 && (
        <p class="quiet">
          {formatMany(leftOut, 'run')} of{' '}
          {leftOut === 1 ? 'another experiment is' : 'other experiments are'} not drawn: loss and
          metric are not comparable.
        </p>
      )}
    </Panel>
  )
}

/** What draws, and uPlot, which it would load next. */
const loadPlots = async () => {
  const [part] = await Promise.all([import('./run-plot.tsx'), import('uplot')])
  return part
}

const everything: Shown = { testLoss: true, trainMetric: true, testMetric: true }

/** What a run is called in the table below. */
function nameIn({ experiments, runs }: Snapshot, id: string): string {
  const kept = runs.find((one) => one.id === id)
  return kept ? nameOfRun(kept, differingColumns(experiments, runs), Date.now()) : 'this run'
}

function fullRange(lines: readonly ChartLine[]): Stretch | null {
  const filled = lines.filter(({ xs }) => xs.length > 0)
  if (filled.length === 0) return null
  return {
    min: Math.min(...filled.map(({ xs }) => xs[0])),
    max: Math.max(...filled.map(({ xs }) => xs[xs.length - 1])),
  }
}
