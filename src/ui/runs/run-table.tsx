import { useMemo, useState } from 'preact/hooks'
import type { Acts } from '../acts.ts'
import { formatLoss, formatNumber, formatPercent, formatSeconds } from '../format.ts'
import { Panel } from '../panel.tsx'
import type { Snapshot } from '../state.ts'
import { allRuns, type KeptRun } from './kept-runs.ts'
import { differingColumns, nameOfRun, type RunColumn, startedWords } from './run-words.ts'
import { Swatch } from './swatch.tsx'

const endings: Record<KeptRun['ending'], string> = {
  running: 'goes on',
  finished: 'finished',
  stopped: 'stopped',
  failed: 'failed',
}

/** The runs of this tab side by side: what differs between them, what they came to, and whether the chart shows them. */
export function RunTable({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const rows = allRuns(snapshot)
  const { runs, run } = snapshot
  const columns = useMemo(() => differingColumns(rows), [runs, run?.config, run?.end])
  const now = Date.now()
  if (rows.length === 0) return null
  const hasShown = runs.some(({ isShown }) => isShown)
  return (
    <Panel
      id="runs"
      title="Runs"
      aside={
        <button type="button" class="small" disabled={!hasShown} onClick={acts.exportCsv}>
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
              <th scope="col" class="number">
                Test accuracy
              </th>
              <th scope="col" class="number">
                Samples/s
              </th>
              <th scope="col" class="number">
                Steps
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
              <Row key={row.id} row={row} columns={columns} now={now} acts={acts} />
            ))}
          </tbody>
        </table>
      </section>
    </Panel>
  )
}

interface RowProps {
  row: KeptRun
  columns: readonly RunColumn[]
  now: number
  acts: Acts
}

function Row({ row, columns, now, acts }: RowProps) {
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
          startedWords(row.startedAtMs, now)
        ) : (
          <NameOfRun row={row} now={now} acts={acts} />
        )}
      </td>
      {columns.map(({ key, textOf }) => (
        <td key={key}>{textOf(row)}</td>
      ))}
      <td class="number">{formatLoss(row.loss)}</td>
      <td class="number">{formatPercent(row.finalAccuracy)}</td>
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

function NameOfRun({ row, now, acts }: Pick<RowProps, 'row' | 'now' | 'acts'>) {
  const [draft, setDraft] = useState(row.name)
  const started = startedWords(row.startedAtMs, now)
  return (
    <input
      type="text"
      class="run-name"
      aria-label={`Name of the run of ${started}`}
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
