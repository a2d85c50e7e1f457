import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { demoTables } from '../../../bench/demos/tables.ts'
import { ranksOf } from '../../../src/ui/settings/draft.ts'
import { repository } from '../../support/repository.ts'
import { checkDraft, draftFromQuery } from '../../support/ui-with-experiments.ts'

/** The tables that `npm run bench -- demos` makes, and the READMEs that have them. */

const readmeOf = (demo: string) =>
  readFileSync(join(repository, 'demos', demo, 'README.md'), 'utf8')

describe.each(demoTables)('the table of $demo: $head', ({ demo, head, rows, columns }) => {
  it.each(rows)('$words: all its settings are the demo’s', (row) => {
    for (const column of columns) {
      const settings: Record<string, unknown> = { demo, ...row.query, ...column.query }
      const query = new URLSearchParams(settings as Record<string, string>)
      const draft = draftFromQuery(`?${query}`)
      expect(checkDraft(draft, ranksOf(draft)).errors).toEqual({})
      expect(draft).toMatchObject(
        Object.fromEntries(Object.entries(settings).map(([key, value]) => [key, String(value)])),
      )
    }
  })

  it('stands in the README, row by row, with the command that makes it', () => {
    const readme = readmeOf(demo)
    expect(readme).toContain('`npm run bench -- demos`')
    expect(readme).toContain(`| ${[head, ...columns.map(({ words }) => words)].join(' | ')} |`)
    for (const { words } of rows) {
      const line = readme.split('\n').find((line) => line.startsWith(`| ${words} | `))
      expect(line, words).toBeDefined()
      // Each cell has what was reached, and the seconds.
      const cells = line!.split('|').slice(2, -1)
      expect(cells).toHaveLength(columns.length)
      for (const cell of cells) expect(cell).toMatch(/^ [\d.]+( %| bits)?, [\d.]+ s $/)
    }
  })
})
