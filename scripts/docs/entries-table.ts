import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { markdownTable } from '../../src/util/markdown.ts'
import { parse } from '../../tests/support/declarations.ts'
import { repository } from '../../tests/support/repository.ts'
import { entries } from '../entries.ts'
import { madeBy } from './made-by.ts'

export const begin = madeBy('src/entries')
export const end = '<!-- end -->'

/** What an entry point has, as its file begins; and its names. */
const rows = entries.map(({ specifier, file }) => {
  const text = readFileSync(join(repository, file), 'utf8')
  const [, about] = /^\/\*\* (.*)\. \*\/$/m.exec(text)!
  const names = [...parse(file, text).exported.keys()].sort()
  return [`\`${specifier}\``, about, `\`${names.join(', ')}\``]
})

/** docs/reference/api.md, with every name of every entry point between these marks. */
export function pageWithEntries(): string {
  const page = readFileSync(join(repository, 'docs/reference/api.md'), 'utf8')
  const [before, rest] = page.split(begin)
  const [, after] = rest.split(end)
  const table = markdownTable(['entry point', 'what it has', 'names'], rows)
  return `${before}${begin}\n${table}\n${end}${after}`
}
