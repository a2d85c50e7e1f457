import { markdownTable } from '../../src/util/markdown.ts'
import type { Row } from './options.ts'

/** What the exact runs of a row came to. */
export interface RowEnd extends Pick<Row, 'model' | 'optimizer'> {
  readonly runs: readonly { readonly tabs: number; readonly hashes: readonly string[] }[]
  /** Of all of them. */
  readonly seconds: number
}

/** The hash of the first run's first tab, which all others are to have. */
const hashOf = ({ runs }: RowEnd): string => runs[0].hashes[0]

const agrees = (row: RowEnd, hashes: readonly string[]): boolean =>
  hashes.length > 0 && hashes.every((hash) => hash === hashOf(row))

/** A row each: its hash, and in which numbers of tabs the runs ended with it. */
export const tableOf = (rows: readonly RowEnd[]): string =>
  markdownTable(
    ['model', 'optimizer', 'hash', 'tabs that agree', 'tabs that differ', 'seconds'],
    rows.map((row) => {
      const tabsWhere = (isSame: boolean) =>
        row.runs
          .filter(({ hashes }) => agrees(row, hashes) === isSame)
          .map(({ tabs }) => tabs)
          .join(', ')
      const places = [tabsWhere(true), tabsWhere(false) || 'none']
      return [row.model, row.optimizer, hashOf(row), ...places, row.seconds.toFixed(0)]
    }),
  )

const inTabs = (tabs: number): string => (tabs === 1 ? 'one tab' : `${tabs} tabs`)

/** A line for each row whose runs differ. */
export const differencesOf = (rows: readonly RowEnd[]): string[] =>
  rows.flatMap((row) => {
    const others = row.runs.filter(({ hashes }) => !agrees(row, hashes))
    if (others.length === 0) return []
    const said = others.map(
      ({ tabs, hashes }) => `${[...new Set(hashes)].join()} in ${inTabs(tabs)}`,
    )
    return [
      `${row.model} with ${row.optimizer} ends with ${hashOf(row)} in ${inTabs(row.runs[0].tabs)}, but with ${said.join(', ')}. This is a defect, or the adapters differ.`,
    ]
  })
