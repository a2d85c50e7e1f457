import { markdownTable } from '../../src/util/markdown.ts'
import { type Bar, barLines } from '../split/plot.ts'
import { deviation, median, pairRatios, spread } from '../statistics.ts'
import type { Lived } from './live.ts'

export const wayNames = ['restart', 'elastic', 'exact'] as const
export type WayName = (typeof wayNames)[number]

/** One run of a way. */
export interface Row extends Lived {
  readonly way: WayName
  /** Mean life of a tab; null: none was lost. units: s. */
  readonly life: number | null
  readonly round: number
}

/** A way at a mean life, over the rounds. */
interface Cell {
  readonly way: WayName
  readonly life: number | null
  /** units: steps a second. */
  readonly goodput: number[]
  /** Of the same way in the same round without losses. */
  readonly ratios: number[]
  readonly lost: number
  readonly starts: number
}

const goodputOf = ({ steps, seconds }: Lived): number => steps / seconds

/** By mean life, longest first, then by way. */
export function cellsOf(rows: readonly Row[]): Cell[] {
  const lives = [...new Set(rows.map(({ life }) => life))].toSorted(
    (a, b) => (b ?? Number.POSITIVE_INFINITY) - (a ?? Number.POSITIVE_INFINITY),
  )
  const of = (way: WayName, life: number | null) =>
    rows.filter((row) => row.way === way && row.life === life).toSorted((a, b) => a.round - b.round)
  return lives.flatMap((life) =>
    wayNames.map((way) => {
      const own = of(way, life)
      const goodput = own.map(goodputOf)
      const sum = (key: 'lost' | 'starts') => own.reduce((total, row) => total + row[key], 0)
      const ratios = pairRatios(goodput, of(way, null).map(goodputOf))
      return { way, life, goodput, ratios, lost: sum('lost'), starts: sum('starts') }
    }),
  )
}

const percent = (ratio: number): string => `${(100 * ratio).toFixed(0)} %`

export function tableOf(cells: readonly Cell[]): string {
  return markdownTable(
    ['mean life, s', 'way', 'tabs lost', 'starts', 'steps/s', 'of undisturbed', 'rounds'],
    cells.map(({ way, life, goodput, ratios, lost, starts }) => [
      life === null ? 'no loss' : String(life),
      way,
      String(lost),
      String(starts),
      median(goodput).toFixed(2),
      `**${percent(median(ratios))}**`,
      spread(ratios).map(percent).join(' to '),
    ]),
  )
}

/** Goodput of what was disturbed. units: per cent of the undisturbed one. */
export const barsOf = (cells: readonly Cell[]): Bar[] =>
  cells
    .filter(({ life }) => life !== null)
    .map(({ way, life, ratios }) => ({
      name: `${life} s, ${way}`,
      value: 100 * median(ratios),
      deviation: 100 * deviation(ratios),
    }))

export function formatReport(heading: string, cells: readonly Cell[]): string {
  const bars = barLines(barsOf(cells)).join('\n')
  return `${heading}\n\n${tableOf(cells)}\n\nGoodput in per cent of the same way without losses, by mean life of a tab:\n\n\`\`\`text\n${bars}\n\`\`\`\n`
}
