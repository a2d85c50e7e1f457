import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { end } from '../../../scripts/docs/entries-table.ts'
import * as library from '../../support/library.ts'
import { repository } from '../../support/repository.ts'

/** The page as it is written by hand: what comes after the generated table. */
const [, api] = readFileSync(join(repository, 'docs/reference/api.md'), 'utf8').split(end)

test('docs/reference/api.md names every function and class of the library', () => {
  const prose = api.replaceAll(/^```[\s\S]*?^```/gm, '')
  const named = new Set(
    [...prose.matchAll(/`([^`]+)`/g)].flatMap(([, code]) => code.split(/[^\w$]+/)),
  )
  const { amp, distributed, lrScheduler, parallel, ...names } = library
  const all = Object.keys(names)
  expect(all.length).toBeGreaterThan(150)
  expect(all.filter((name) => !named.has(name))).toEqual([])
})

test('docs/reference/api.md names nothing that is not there', () => {
  const rows = api.split('\n').filter((line) => /^\| (?!area|---)/.test(line))
  const received = rows.flatMap((row) =>
    [...row.split('|')[2].matchAll(/`(\w+)[`(.]/g)].map(([, name]) => name),
  )
  const methods = [
    'registerForwardHook',
    'registerForwardPreHook',
    'registerFullBackwardHook',
    'registerHook',
  ]
  const known = new Set<string>([...Object.keys(library), ...methods])
  for (const method of methods) {
    expect(method in library.Module.prototype || method in library.Tensor.prototype, method).toBe(
      true,
    )
  }
  expect(received.length).toBeGreaterThan(150)
  expect(received.filter((name) => !known.has(name))).toEqual([])
})
