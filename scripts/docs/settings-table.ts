import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { metas } from '../../demos/metas.ts'
import { defaultOf, defaultsOf, docOf, textOf } from '../../src/trainer/settings/row.ts'
import { type Setting, settings } from '../../src/ui/settings/list.ts'
import { markdownTable } from '../../src/util/markdown.ts'
import { madeBy } from './made-by.ts'

function defaultText(setting: Setting): string {
  const { key, kind, docDefault } = setting
  if (docDefault) return textOf(docDefault, metas)
  const standard = defaultOf(setting)
  if (standard === undefined) return 'none'
  return defaultsOf(key, setting, metas) ?? (kind === 'number' ? `${standard}` : `\`${standard}\``)
}

const rows = settings.flatMap((setting) => [
  [`\`${setting.key}\``, docOf(setting, metas), defaultText(setting)],
  ...(setting.key === 'data'
    ? [['`given`', 'points drawn in the playground, as it writes them into the address', 'none']]
    : []),
])

const begin = madeBy('src/trainer/settings/table.ts')
const end = '<!-- end -->'

/** docs/reference/page.md, with every parameter of the page's address between these marks. */
export function pageWithSettings(): string {
  const page = readFileSync(resolve(import.meta.dirname, '../../docs/reference/page.md'), 'utf8')
  const [before, rest] = page.split(begin)
  const [, after] = rest.split(end)
  const table = markdownTable(['parameter', 'values', 'default'], rows)
  return `${before}${begin}\n${table}\n${end}${after}`
}
