import { useMemo, useState } from 'preact/hooks'
import type { Metric } from '../../trainer/settings/demo-meta.ts'
import {
  capitalized,
  formatLoss,
  formatMetric,
  formatNumber,
  formatSeconds,
} from '../parts/format.ts'
import { isApart, metricDirection, metricName, metricValue } from '../parts/metric-words.ts'
import { Panel } from '../parts/panel.tsx'
import { timeWords } from '../parts/time-words.ts'
import { metaOfDraft } from '../settings/list.ts'
import type { Acts } from '../state/acts.ts'
import { allRuns, type KeptRun } from '../state/kept-runs.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { lossCsv } from './run-csv.ts'
import { differingColumns, nameOfRun, type RunColumn } from './run-words.ts'
import { Swatch } from './swatch.tsx'

const endings: Record<KeptRun['ending'], string> = {
  running: 'running',
  finished: 'finished',
  stopped: 'stopped',
  failed: 'failed',
}

/** The runs of this tab side by side: what differs between them, what they came to, and whether the chart shows them. */
export function RunTable({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const rows = allRuns(snapshot)
  const { experiments, runs, run } = snapshot
  const columns = useMemo(() => differingColumns(experiments, rows), [runs, run?.config, run?.end])
  const now = Date.now()
  if (rows.length === 0) return null
  const demos = new Set(rows.map(({ config }) => config.demo))
  const metric = demos.size === 1 ? metaOfDraft(experiments, rows[0].config).metric : null
  const hasBoth = metric === null || isApart(metric)
  const hasShown = rows.some(({ isShown }) => isShown)
  const csvOf = (shown: readonly KeptRun[]) => {
    const differing = differingColumns(experiments, shown)
    return lossCsv(experiments, shown, (row) => nameOfRun(row, differing, Date.now()))
  }
  return (
    <Panel
      id="runs"
      title="Runs"
      aside={
        <button
          type="button"
          class="small"
          disabled={!hasShown}
          title="The runs shown: every step of the latest, means of steps for earlier ones"
          onClick={() => acts.exportCsv(csvOf)}
        >
          Loss as CSV
        </button>
      }
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls sideways on phones, by the keyboard too */}
      <section class="scroll" tabIndex={0} aria-label="Runs of this tab">
        <table class="runs">
          <thead>
            <tr>
              <th scope="col">Shown</th>
              <th scope="col">Run</th>
              {columns.map(({ key, label }) => (
                <th key={key} scope="col">
                  {label}
                </th>
              ))}
              <th scope="col" class="number">
                Loss
              </th>
              {hasBoth && (
                <th scope="col" class="number">
                  Test loss
                </th>
              )}
              {hasBoth && metric && (
                <th scope="col" class="number">
                  {capitalized(metricName(metric, 'training'))}
                </th>
              )}
              <th scope="col" class="number">
                {metric ? (
                  <>
                    {capitalized(metricName(metric))} <Direction metric={metric} />
                  </>
                ) : (
                  'Test metric'
                )}
              </th>
              <th scope="col" class="number">
                Samples/s
              </th>
              <th scope="col" class="number">
                Steps done
              </th>
              <th scope="col" class="number">
                Time
              </th>
              <th scope="col">End</th>
              <th scope="col">
                <span class="unseen">Delete</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {[...rows].reverse().map((row) => (
              <Row
                key={row.id}
                row={row}
                metric={metric}
                ownMetric={metaOfDraft(experiments, row.config).metric}
                hasBoth={hasBoth}
                columns={columns}
                now={now}
                acts={acts}
              />
            ))}
          </tbody>
        </table>
      </section>
    </Panel>
  )
}

/** Which way is good. */
function Direction({ metric }: { metric: Metric }) {
  const { sign, words } = metricDirection(metric)
  return (
    <span title={words}>
      <span aria-hidden="true">{sign}</span>
      <span class="unseen">{words}</span>
    </span>
  )
}

interface RowProps {
  row: KeptRun
  /** What all rows have measured; null where rows are of several demos. */
  metric: Metric | null
  /** What this one has. */
  ownMetric: Metric
  /** True if loss and metric say different things. */
  hasBoth: boolean
  columns: readonly RunColumn[]
  now: number
  acts: Acts
}

function Row({ row, metric, ownMetric, hasBoth, columns, now, acts }: RowProps) {
  const name = nameOfRun(row, columns, now)
  const isRunning = row.ending === 'running'
  return (
    <tr>
      <td>
        <label class="shown">
          <input
            type="checkbox"
            checked={row.isShown}
            disabled={isRunning}
            aria-label={`Show ${name} in the chart`}
            onChange={(event) => acts.showRun(row.id, event.currentTarget.checked)}
          />
          <Swatch slot={row.slot} />
        </label>
      </td>
      <td>
        {isRunning ? (
          timeWords(row.startedAtMs, now)
        ) : (
          <NameOfRun row={row} now={now} acts={acts} />
        )}
      </td>
      {columns.map(({ key, textOf }) => (
        <td key={key}>{textOf(row)}</td>
      ))}
      <td class="number">{formatLoss(row.loss)}</td>
      {hasBoth && <td class="number">{formatLoss(row.heldOutLoss)}</td>}
      {hasBoth && metric && <td class="number">{metricValue(metric, row.trainValue)}</td>}
      <td class="number">
        {metric ? metricValue(metric, row.finalValue) : <OwnMetric row={row} metric={ownMetric} />}
      </td>
      <td class="number">{formatNumber(row.samplesPerSec)}</td>
      <td class="number">{row.steps}</td>
      <td class="number">{formatSeconds(row.seconds)}</td>
      <td>{endings[row.ending]}</td>
      <td>
        {!isRunning && (
          <button
            type="button"
            class="small"
            aria-label={`Delete ${name}`}
            onClick={() => acts.deleteRun(row.id)}
          >
            ✕
          </button>
        )}
      </td>
    </tr>
  )
}

/** Among runs of several demos each says what it measures. */
function OwnMetric({ row, metric }: { row: KeptRun; metric: Metric }) {
  return (
    <>
      {metric.name} {formatMetric(metric, row.finalValue)} <Direction metric={metric} />
    </>
  )
}

function NameOfRun({ row, now, acts }: Pick<RowProps, 'row' | 'now' | 'acts'>) {
  const [draft, setDraft] = useState(row.name)
  const started = timeWords(row.startedAtMs, now)
  return (
    <input
      type="text"
      class="run-name"
      aria-label={`Name of the run started ${started}`}
      placeholder={started}
      value={draft}
      maxLength={80}
      onInput={(event) => setDraft(event.currentTarget.value)}
      onBlur={() => {
        if (draft.trim() !== row.name) acts.nameRun(row.id, draft.trim())
      }}
      onKeyDown={(event) => {
        if (event.key === 'Enter') event.currentTarget.blur()
      }}
    />
  )
}
