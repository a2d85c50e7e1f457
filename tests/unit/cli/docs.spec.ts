import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { docsText, listPages } from '../../../node/docs.ts'
import { repository } from '../../support/repository.ts'

const files = readdirSync(join(repository, 'docs'), { recursive: true, encoding: 'utf8' })
  .map((name) => name.replaceAll('\\', '/'))
  .filter((name) => name.endsWith('.md') && name !== 'README.md')

describe('tabring docs', () => {
  test('docs/README.md lists every page once', () => {
    expect(
      listPages()
        .map(({ path }) => path)
        .sort(),
    ).toEqual(files.sort())
  })

  test('base names are unique', () => {
    const names = files.map((path) => basename(path, '.md'))
    expect(new Set(names).size).toBe(names.length)
  })

  test('without a page it lists all of them, by group', () => {
    const text = docsText([])
    expect(docsText(['--help'])).toBe(text)
    for (const { name, group, description } of listPages()) {
      expect(text).toContain(`\n${group}:\n`)
      expect(text).toMatch(
        new RegExp(`^  ${name} +${description.split(' ').slice(0, 3).join(' ')}`, 'm'),
      )
    }
  })

  test.each(listPages())('prints $name', ({ name, path }) => {
    const text = docsText([name])
    expect(text).toMatch(/^# /)
    expect(readFileSync(join(repository, 'docs', path), 'utf8').endsWith(text)).toBe(true)
    expect(docsText([path])).toBe(text)
  })

  test.each([
    [
      ['chekpoints'],
      'docs: there is no page "chekpoints". Did you mean checkpoints? "tabring docs" lists all pages.',
    ],
    [['zzz'], 'docs: there is no page "zzz". "tabring docs" lists all pages.'],
    [['--page'], 'docs: there is no page "--page".'],
    [['data', 'class'], 'docs: one page at a time, got 2: data, class.'],
  ])('%j is refused', (argv, message) => {
    expect(() => docsText(argv)).toThrow(message)
  })
})

test('the package has the pages', () => {
  const { files: packed } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8'))
  expect(packed).toContain('docs/**/*.md')
})
