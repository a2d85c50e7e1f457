import { formatCount } from '../../src/ui/parts/format.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { type Cost, costsOf, isAsStated } from './costs.ts'
import { meta } from './meta.ts'
import type { Moment } from './moment.ts'
import type { Story } from './story.ts'
import { formatTime } from './words.ts'

/** What has gone so far. */
export function Readouts({ story, moment }: { story: Story; moment: Moment }) {
  const { ms, dataMessages, controlMessages, resent, bytes, underWay } = moment
  const sent = bytes.map((row) => row.reduce((a, b) => a + b, 0))
  const cells: [label: string, value: string, note: string][] = [
    ['Time', formatTime(ms), `of ${formatTime(story.endMs)}`],
    ['Messages with data', formatCount(dataMessages), `of ${formatCount(story.messages.length)}`],
    [
      'In flight',
      formatCount(underWay.length),
      resent > 0 ? `${formatCount(resent)} resent` : 'none lost so far',
    ],
    ['Bytes per rank', formatCount(Math.max(...sent)), 'the most of any rank'],
    ['Other messages', formatCount(controlMessages), 'START, credit, pings'],
  ]
  return (
    <dl class="readouts ring-readouts">
      {cells.map(([label, value, note]) => (
        <div key={label} class="readout">
          <dt>{label}</dt>
          <dd>
            <span class="value">{value}</span>
            <span class="note">{note}</span>
          </dd>
        </div>
      ))}
    </dl>
  )
}

/** A run beside what the documentation says that it costs. */
export function Costs({ story }: { story: Story }) {
  return (
    <Panel id="costs" title="Counted against the formula" aside="whole run">
      <table class="grid-table costs">
        <thead>
          <tr>
            {['', 'formula', 'expected', 'counted', ''].map((head, at) => (
              <th key={at} scope="col">
                {head || <span class="unseen">{at === 0 ? 'what' : 'equal'}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {costsOf(story).map((cost) => (
            <tr key={cost.what}>
              <th scope="row">{cost.what}</th>
              <td class="formula">{cost.formula || '–'}</td>
              <td data-is="number">{format(cost, cost.stated)}</td>
              <td data-is="number">{format(cost, cost.counted)}</td>
              <td>
                <Tick is={isAsStated(cost)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        N ranks, S bytes per array, without headers;{' '}
        {story.algorithm === 'hierarchical' ? 'M machines; ' : ''}bytes are the mean over
        {story.algorithm === 'hierarchical' ? ' ranks and machines' : ' all ranks'}. The time
        formula assumes whole chunks without headers: segments of a long chunk are forwarded before
        the rest arrives.
      </p>
    </Panel>
  )
}

function format({ unit }: Cost, value: number | undefined): string {
  if (value === undefined) return '–'
  if (unit === 'ms') return formatTime(value)
  const rounded =
    Math.abs(value - Math.round(value)) < 1e-6
      ? formatCount(value)
      : value.toLocaleString('en', { maximumFractionDigits: 1 })
  return unit === 'bytes' ? `${rounded} B` : rounded
}

/** By shape and word. */
function Tick({ is }: { is: boolean | undefined }) {
  if (is === undefined) return null
  return (
    <span class="tick" data-is={is}>
      <span aria-hidden="true">{is ? '✓' : '✕'}</span>
      <span class="unseen">{is ? 'as expected' : 'not as expected'}</span>
    </span>
  )
}

/** How it ended, once it has. */
export function Result({ story, isOver }: { story: Story; isOver: boolean }) {
  const { failure } = story
  return (
    <Panel id="result" title="Result" aside={isOver ? '' : 'once the run has ended'}>
      <ul class="verdicts" data-over={isOver}>
        {verdictsOf(story).map(({ good, bad, is }) => (
          <li key={good} data-is={isOver ? String(is) : 'open'}>
            {isOver ? <Tick is={is} /> : <span aria-hidden="true">○</span>}{' '}
            {isOver && !is ? bad : good}
          </li>
        ))}
      </ul>
      {isOver && <p class={failure ? '' : 'quiet'}>{failure || orderWords(story)}</p>}
      {!isStatedFor(story) && (
        <p class="quiet">
          {`Expected for ${expected.ranks} ranks and ${formatCount(expected.length)} elements: ${expectedWords}. `}
          <a href={`?length=${expected.length}`}>See it</a>
        </p>
      )}
    </Panel>
  )
}

const { expected } = meta
const expectedWords = `${expected.steps} steps, ${formatCount(expected.bytesPerRank)} bytes per rank`

/** What a run must show, in words for both cases. */
export function verdictsOf(story: Story): { good: string; bad: string; is: boolean }[] {
  const { failure, verdict, settings, algorithm } = story
  const loop = `a plain loop over all arrays${algorithm === 'hierarchical' ? ', machines first' : ''}`
  const verdicts = [
    {
      good: `Equal bits on all ${settings.ranks} ranks`,
      bad: failure ? `No sums: the run failed` : 'The ranks hold different bits',
      is: !failure && verdict.unlikeFirst.every((count) => count === 0),
    },
    {
      good: `Same bits as ${loop}`,
      bad: failure ? `Nothing to compare with ${loop}` : `Different bits from ${loop}`,
      is: !failure && verdict.unlikeLoop === 0,
    },
  ]
  if (!isStatedFor(story)) return verdicts
  const [inSteps, inBytes] = costsOf(story)
  const isMet = inSteps.counted === expected.steps && inBytes.counted === expected.bytesPerRank
  const stated = `As expected: ${expectedWords}`
  return [...verdicts, { good: stated, bad: `Not a${stated.slice(1)}`, is: isMet }]
}

/** Whether the demo's stated result is about such a run. */
const isStatedFor = ({ settings, algorithm }: Story): boolean =>
  settings.ranks === expected.ranks &&
  settings.length === expected.length &&
  algorithm === expected.algorithm

function orderWords({ verdict, settings }: Story): string {
  const { unlikeRankOrder } = verdict
  const length = formatCount(settings.length)
  return unlikeRankOrder > 0
    ? `The order of additions is fixed, and it matters: added from rank 0 up, ${formatCount(unlikeRankOrder)} of ${length} elements would have different bits.`
    : `Added from rank 0 up, all ${length} elements would have the same bits: with so few additions, rounding rarely differs.`
}

/** Bytes from rank to rank so far. */
export function LinkTable({ moment }: { moment: Moment }) {
  const { bytes } = moment
  return (
    <details class="link-table">
      <summary>Bytes by link</summary>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">from \ to</th>
              {bytes.map((_, to) => (
                <th key={to} scope="col">
                  {to}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {bytes.map((row, from) => (
              <tr key={from}>
                <th scope="row">{from}</th>
                {row.map((count, to) => (
                  <td key={to}>{count > 0 ? formatCount(count) : '·'}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  )
}
