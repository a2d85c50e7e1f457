import type { Rounds } from './measure/interleave.ts'
import { median } from './measure/median.ts'
import { type PeerKey, peers } from './measure/peers/peers.ts'
import { geometricMean } from './measure/training-shapes.ts'
import { formatNumber } from './ui/parts/format.ts'

/** What the benchmark page says about other libraries. */

/** One product: GFLOP/s by round, ours under `tabring`. */
export interface BesideRow {
  readonly product: string
  readonly rounds: Rounds
}

/** Median over the rounds of ours by theirs; undefined where either failed. */
function ratioOf({ rounds }: BesideRow, key: PeerKey): number | undefined {
  const [ours, theirs] = [rounds.tabring, rounds[key]]
  if (!Array.isArray(ours) || !Array.isArray(theirs)) return undefined
  return median(ours.map((gflops, round) => gflops / theirs[round]))
}

const ratiosOf = (rows: readonly BesideRow[], key: PeerKey): number[] =>
  rows.map((row) => ratioOf(row, key)).filter((ratio) => ratio !== undefined)

const twoDigits = (ratio: number | undefined): string =>
  ratio === undefined ? '' : ratio.toFixed(2)

/** Cells of a table, a library that failed with its reason; undefined before there is a row. */
export function besideTable(
  rows: readonly BesideRow[],
  keys: readonly PeerKey[],
): { heads: string[]; cells: string[][] } | undefined {
  if (rows.length === 0) return undefined
  const speed = (of: Rounds[string]) =>
    Array.isArray(of) ? formatNumber(median(of)) : `failed: ${of.error}`
  const cells = rows.map((row) => [
    row.product,
    speed(row.rounds.tabring),
    ...keys.flatMap((key) => [speed(row.rounds[key]), twoDigits(ratioOf(row, key))]),
  ])
  const means = keys.flatMap((key) => {
    const ratios = ratiosOf(rows, key)
    return ['', ratios.length > 0 ? twoDigits(geometricMean(ratios)) : '']
  })
  return {
    heads: [
      'product',
      'Tabring',
      ...keys.flatMap((key) => [peers[key].short, `ours / ${peers[key].short}`]),
    ],
    cells: [...cells, ['geometric mean', '', ...means]],
  }
}

/** What the table holds, in words. */
export const besideWords = (keys: readonly PeerKey[]): string =>
  `${keys.map((key) => peers[key].name).join(', ')}: GFLOP/s of single calls`

/** The geometric means as the end of a sentence; empty where nothing was compared. */
export function geometricRatios(rows: readonly BesideRow[], keys: readonly PeerKey[]): string {
  const means = keys.flatMap((key) => {
    const ratios = ratiosOf(rows, key)
    return ratios.length > 0 ? [`${twoDigits(geometricMean(ratios))} times ${peers[key].name}`] : []
  })
  return means.length > 0 ? `; ${means.join(', ')} as a geometric mean` : ''
}
