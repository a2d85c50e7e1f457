import type { GpuCalls } from './compute/calls.ts'
import type { Place, Row } from './row.ts'

/** The rows for people, as Markdown, so that what the command prints is what a README shows. */

export function formatReport(rows: readonly Row[], place: Place): string {
  const parts = [heading(place), pairTable(rows.filter(({ peer }) => !isOwn(peer)))]
  const own = rows.filter(({ peer }) => isOwn(peer))
  if (own.length > 0) parts.push(ownTable(own))
  parts.push(...lossTables(rows), ...kernelTables(rows))
  return `${parts.join('\n\n')}\n`
}

const isOwn = (peer: string) => peer === 'limit' || peer === 'none'

function heading({ adapter, software, browser, date, machine }: Place): string {
  const label = software
    ? `**software adapter** (${adapter}): ratios hold for this CPU rendering of WebGPU, not for a GPU`
    : `adapter: ${adapter}`
  return `${date}, ${browser}, ${machine}; ${label}.`
}

function pairTable(rows: readonly Row[]): string {
  return table(
    ['row', 'ours', 'peer', 'theirs', 'ours / theirs', 'lowest to highest', 'goal'],
    rows.map((row) => [
      row.row,
      amount(row.ours, row.unit),
      row.peer,
      row.error === undefined ? amount(row.theirs, row.unit) : `failed: ${row.error}`,
      row.ratio === null ? '' : `${row.ratio.toFixed(3)}${isPeerBetter(row) ? ' (peer wins)' : ''}`,
      row.ratioSpread ? row.ratioSpread.map((ratio) => ratio.toFixed(2)).join(' to ') : '',
      goalOf(row),
    ]),
  )
}

const isPeerBetter = ({ ratio, better }: Row) =>
  ratio !== null && (better === 'lower' ? ratio > 1 : ratio < 1)

function goalOf({ goal, isReached, better }: Row): string {
  if (goal === undefined) return ''
  return `${better === 'lower' ? '≤' : '≥'} ${goal}: ${isReached ? 'yes' : 'NO'}`
}

function ownTable(rows: readonly Row[]): string {
  return table(
    ['our step', 'value', 'lowest to highest', 'limit'],
    rows.map((row) => [
      row.row,
      amount(row.ours, row.unit),
      row.oursSpread?.join(' to ') ?? '',
      row.theirs === null ? '' : `≤ ${row.theirs}: ${row.isReached ? 'yes' : 'NO'}`,
    ]),
  )
}

interface Detail {
  losses?: number[]
  lossDifference?: number
  runAhead?: string
  callsPerStep?: Partial<GpuCalls>
  mainThreadUsPerStep?: number
}

/** What each library did in a step, from the details that the rows carry. */
function lossTables(rows: readonly Row[]): string[] {
  const steps = new Map<string, Map<string, Detail>>()
  for (const { row, peer, oursDetail, theirsDetail } of rows) {
    if (!oursDetail && !theirsDetail) continue
    const found = steps.get(row) ?? new Map<string, Detail>()
    steps.set(row, found)
    if (oursDetail) found.set('Tabring', oursDetail as Detail)
    if (theirsDetail) found.set(peer, theirsDetail as Detail)
  }
  return [...steps].map(([step, found]) => lossTable(step, found))
}

function lossTable(step: string, found: ReadonlyMap<string, Detail>): string {
  return table(
    [
      step,
      'dispatches / submits / uploads / buffers / bind groups',
      'main thread, µs per step',
      'run-ahead (fastest of three)',
      'losses of steps 1 to 5 (worst difference from PyTorch in float64)',
    ],
    [...found].map(([name, detail]) => {
      const { dispatches, submits, writes, buffers, bindGroups } = detail.callsPerStep ?? {}
      return [
        name,
        [dispatches, submits, writes, buffers, bindGroups].map((count) => count ?? '?').join(' / '),
        String(detail.mainThreadUsPerStep ?? '?'),
        detail.runAhead ?? '',
        `${detail.losses?.map((loss) => loss.toFixed(5)).join(', ')} (${detail.lossDifference})`,
      ]
    }),
  )
}

/** Device time by kernel, a table for each step that has one. */
function kernelTables(rows: readonly Row[]): string[] {
  return rows.flatMap(({ row, kernels: found }) => {
    if (!found) return []
    const kernels = found as { label: string; groups: number[]; us: number }[]
    const total = kernels.reduce((sum, { us }) => sum + us, 0)
    return table(
      [row, 'workgroups', 'µs', 'share'],
      kernels.map(({ label, groups, us }) => [
        label,
        groups.join(' x '),
        us.toFixed(0),
        `${((us / total) * 100).toFixed(0)} %`,
      ]),
    )
  })
}

const amount = (value: number | null, unit: string): string =>
  value === null ? '' : `${value}${unit ? ` ${unit}` : ''}`

function table(columns: readonly string[], lines: readonly (readonly string[])[]): string {
  const escaped = lines.map((cells) => cells.map((cell) => cell.replaceAll('|', '\\|')))
  const widths = columns.map((column, i) =>
    Math.max(column.length, ...escaped.map((cells) => cells[i].length)),
  )
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, i) => cell.padEnd(widths[i])).join(' | ')} |`
  return [line(columns), line(widths.map((width) => '-'.repeat(width))), ...escaped.map(line)].join(
    '\n',
  )
}
