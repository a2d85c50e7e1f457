import type { Metric } from '../../src/trainer/settings/demo-meta.ts'
import {
  formatBytes,
  formatCount,
  formatLoss,
  formatMetric,
  formatMs,
  formatNumber,
} from '../../src/ui/parts/format.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { saveText } from '../../src/ui/parts/save-file.ts'
import { Swatch } from '../../src/ui/run/swatch.tsx'
import { metaOf } from '../experiments.ts'
import { curvesCsv } from './curves-csv.ts'
import { experimentOf, type Settings } from './settings.ts'
import { links } from './simulated.ts'
import { slotOf } from './strategies.ts'
import type { StrategyLog } from './strategy-log.ts'

const stages: Record<StrategyLog['stage'], string> = {
  waiting: 'waiting',
  setup: 'loading and compiling',
  training: 'training',
  finished: 'finished',
  stopped: 'cancelled',
  failed: 'failed',
}

/** What all of them train: the form may say something else by now. */
function aboutOf({ experiment, data, seed }: Settings): string {
  const { words, demo } = experimentOf(experiment)
  return `${words}; ${metaOf(demo).data[data] ?? data}, seed ${seed}`
}

const aboutSimulated = `Simulated: arithmetic for devices that this computer may not have. Each computes for as long as one device took here, alone, for its share; the exchange runs over simulated links of ${links.latencyMs} ms and ${links.rateMb} MB/s; losses are those of 1 rank.`

interface StrategyTableProps {
  readonly logs: readonly StrategyLog[]
  readonly metric: Metric
  /** Of what the table shows; null while they are wrong. */
  readonly settings: Settings | null
}

/** What each strategy came to: the charts in numbers, and what they do not show. */
export function StrategyTable({ logs, metric, settings }: StrategyTableProps) {
  const hasPoints = logs.some(({ step }) => step > 0)
  const save = () => saveText(curvesCsv(logs), 'text/csv', 'tabring-strategies.csv')
  const heads = [
    ...['Ranks', 'Batch per rank', 'Steps', 'Samples', 'Set-up', 'Training', 'Samples/s'],
    ...['Computing per step', 'Exchange per step'],
  ]
  return (
    <Panel
      id="strategies"
      title="Strategies"
      aside={
        <button type="button" class="small" disabled={!hasPoints} onClick={save}>
          Curves as CSV
        </button>
      }
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls sideways on phones, by the keyboard too */}
      <section class="scroll" tabIndex={0} aria-label="Strategies in numbers">
        <table class="runs">
          <thead>
            <tr>
              <th scope="col">Strategy</th>
              <th scope="col">State</th>
              {heads.map((head) => (
                <th key={head} scope="col" class="number">
                  {head}
                </th>
              ))}
              <th scope="col" class="number">
                Last loss
              </th>
              <th scope="col" class="number">
                Held-out {metric.name}
              </th>
              <th scope="col" class="number">
                Sent per step
              </th>
              <th scope="col">Parameter hash</th>
            </tr>
          </thead>
          <tbody>
            {logs.map((log) => (
              <Row key={log.strategy.name} log={log} metric={metric} />
            ))}
          </tbody>
        </table>
      </section>
      <p class="quiet">
        {settings && `${aboutOf(settings)}. `}Training excludes set-up (loading, compiling,
        measuring links) and tests on held-out samples. Sent: payload bytes of each rank. Exchange:
        with waiting for it, as far as no computing hides it. Without an exchange, the loss is the
        mean over the ranks.
        {logs.some(({ strategy }) => strategy.isSimulated) && ` ${aboutSimulated}`}
      </p>
    </Panel>
  )
}

function Row({ log, metric }: { log: StrategyLog; metric: Metric }) {
  const { strategy, config, stage, end } = log
  return (
    <tr data-strategy={strategy.name} data-stage={stage}>
      <th scope="row">
        <span class="shown">
          <Swatch slot={slotOf(strategy)} />
          {strategy.words}
        </span>
      </th>
      <td>{stages[stage]}</td>
      <td class="number">{strategy.ranks}</td>
      <td class="number">{sharesIn(log)}</td>
      <td class="number">
        {log.step} / {config.steps}
      </td>
      <td class="number">{formatCount(log.samples)}</td>
      <td class="number">{formatTime(log.setupSeconds)}</td>
      <td class="number">{formatTime(log.seconds)}</td>
      <td class="number">{formatNumber(log.samplesPerSecond)}</td>
      <td class="number">{formatMs(log.cost.computedMs)}</td>
      <td class="number">{formatMs(log.cost.exchangedMs)}</td>
      <td class="number" data-loss={Number.isFinite(log.loss) ? log.loss : undefined}>
        {formatLoss(log.loss)}
      </td>
      <td class="number">
        {end
          ? distinct(end.tested.map((value) => formatMetric(metric, value)))
          : formatMetric(metric, log.tests.values.at(-1) ?? Number.NaN)}
      </td>
      <td class="number">{rangeOf(log.bytesPerStep)}</td>
      <td class="mono">
        {end ? distinct(end.paramHashes.map((hash) => hash.slice(0, 8))) : '–'}
        {end && strategy.ranks > 1 && <HashWords hashes={end.paramHashes} />}
      </td>
    </tr>
  )
}

function HashWords({ hashes }: { hashes: readonly string[] }) {
  const isEqual = new Set(hashes).size === 1
  return <span class={isEqual ? 'agree' : 'quiet'}>{isEqual ? ' equal on all' : ' differ'}</span>
}

/** `48`, or `24–25` where the batch does not divide. */
function sharesIn({ shares }: StrategyLog): string {
  const min = Math.min(...shares)
  const max = Math.max(...shares)
  return min === max ? `${min}` : `${min}–${max}`
}

/** `0.04 s`: small models train within parts of a second. */
const formatTime = (seconds: number): string =>
  Number.isFinite(seconds) ? `${formatNumber(seconds)} s` : '–'

const distinct = (texts: readonly string[]): string => [...new Set(texts)].join(' · ')

/** `4.31 to 4.81 KiB`. */
function rangeOf(bytes: readonly number[]): string {
  const [min, unit] = formatBytes(Math.min(...bytes)).split(' ')
  const max = formatBytes(Math.max(...bytes))
  if (max === `${min} ${unit}` || unit === undefined) return max
  return max.endsWith(` ${unit}`) ? `${min} to ${max}` : `${min} ${unit} to ${max}`
}
