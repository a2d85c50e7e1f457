import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { allDemos } from '../../../demos/all-demos.ts'
import { Named } from '../../../src/ui/parts/named.tsx'
import { repository } from '../../support/repository.ts'

const scale = join('src', 'ui', 'theme', 'base.css')
const sheets = ['src', 'demos'].flatMap((folder) =>
  readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.css'))
    .map((name) => join(folder, name)),
)

it('style sheets take sizes of type from the scale when they set one', () => {
  expect(sheets).toContain(scale)
  const own = sheets
    .filter((sheet) => sheet !== scale)
    .flatMap((sheet) => {
      const text = readFileSync(join(repository, sheet), 'utf8')
      const set = text.match(/font(-size)?:[^;]*\d(px|rem|pt|v[wh])[^;]*/g) ?? []
      return set.filter((one) => !one.includes('var(--type-')).map((one) => `${sheet}: ${one}`)
    })
  expect(own).toEqual([])
})

it('cards have a picture in light and in dark colours, of few bytes, when there is a demo', () => {
  for (const name of Object.keys(allDemos))
    for (const colours of ['', '-dark']) {
      const file = join(repository, 'docs', 'images', `demo-${name}${colours}.webp`)
      expect(statSync(file).size, file).toBeLessThan(45_000)
    }
})

it('Named marks whole names alone when one name begins another', () => {
  const hues = new Map([
    ['Ada', 'blue'],
    ['Ada · 2', 'green'],
    ['(x)', 'red'],
  ])
  const marked = (text: string) =>
    [Named({ text, hues })]
      .flat()
      .flatMap((part) =>
        typeof part === 'string' ? [] : [`${part.props.children} ${part.props.style['--hue']}`],
      )
  expect(marked('Waiting for Ada, Ada · 2 and (x).')).toEqual([
    'Ada blue',
    'Ada · 2 green',
    '(x) red',
  ])
  expect(marked('Adam and Canada')).toEqual([])
})
