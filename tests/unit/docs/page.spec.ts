import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { settings } from '../../../src/ui/settings/list.ts'
import { readPages } from '../../support/markdown.ts'
import { repository } from '../../support/repository.ts'

// docs/reference/page.md lists every flag of `npm start` and every value of the settings in the page's address.

const [page] = readPages('docs/reference/page.md')
const firstCells = (heading: string): string[] => {
  const section = page.text.split(/^## /m).find((part) => part.startsWith(heading))!
  return [...section.matchAll(/^\| `([\w-]+)/gm)].map(([, name]) => name)
}

test('every value of a choice that all demos have', () => {
  const choices = settings.flatMap(({ key, choices = [] }) =>
    choices.map(([value]) => ({ key, value })),
  )
  expect(choices.length).toBeGreaterThan(10)
  const missing = choices.filter(({ key, value }) => {
    const row = page.text.split('\n').find((line) => line.startsWith(`| \`${key}\` |`))
    return value !== '' && !row?.includes(`\`${value}\``)
  })
  expect(missing).toEqual([])
})

test('every flag of npm start', { timeout: 60_000 }, () => {
  const help = execFileSync(
    join(repository, 'node_modules/.bin/tsx'),
    [join(repository, 'node/start.ts'), '--help'],
    { encoding: 'utf8' },
  )
  const flags = [...help.matchAll(/^ {2}(?:-\w, )?(--[\w-]+)/gm)].map(([, flag]) => flag)
  expect(flags.length).toBeGreaterThan(10)
  expect(firstCells('npm start').sort()).toEqual(flags.filter((flag) => flag !== '--help').sort())
})
