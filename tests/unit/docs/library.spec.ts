import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import * as library from '../../../src/index.ts'
import { repository } from '../../support/repository.ts'

const docs = readdirSync(join(repository, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.md'))
  .map((name) => readFileSync(join(repository, 'docs', name), 'utf8'))

/** What stands in code marks, alone or in a list of names or a call. */
const named = new Set(
  docs.flatMap((text) =>
    [...text.matchAll(/```\w*\n([\s\S]*?)```|`([^`]+)`/g)].flatMap(([, block, inline]) =>
      (inline ?? block).split(/[^\w$]+/),
    ),
  ),
)

test('every function and class of the library is told of in the docs', () => {
  const all = [
    ...Object.keys(library),
    ...Object.keys(library.lrScheduler),
    ...Object.keys(library.amp),
    ...Object.keys(library.distributed),
  ]
  expect(all.length).toBeGreaterThan(150)
  expect(all.filter((name) => !named.has(name))).toEqual([])
})

test('docs/reference/api.md names nothing that is not there', () => {
  const text = readFileSync(join(repository, 'docs/reference/api.md'), 'utf8')
  const rows = text.split('\n').filter((line) => /^\| (?!area|---)/.test(line))
  const told = rows.flatMap((row) =>
    [...row.split('|')[2].matchAll(/`(\w+)[`(.]/g)].map(([, name]) => name),
  )
  const methods = [
    'registerForwardHook',
    'registerForwardPreHook',
    'registerFullBackwardHook',
    'registerHook',
  ]
  const known = new Set<string>([
    ...Object.keys(library),
    ...Object.keys(library.lrScheduler),
    ...Object.keys(library.distributed),
    ...methods,
  ])
  for (const method of methods) {
    expect(method in library.Module.prototype || method in library.Tensor.prototype, method).toBe(
      true,
    )
  }
  expect(told.length).toBeGreaterThan(150)
  expect(told.filter((name) => !known.has(name))).toEqual([])
})
