import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { expect, test } from 'vitest'
import { addFlags } from '../../../node/launch/flags.ts'
import * as dist from '../../../src/entries/distributed.ts'
import { repository } from '../../support/repository.ts'

// docs/reference/pytorch.md has a word on every name of torch.distributed 1.13 and torchrun that a user may type, and on every one of ours.

const read = (path: string) => readFileSync(join(repository, path), 'utf8')
const { names } = JSON.parse(read('tests/golden/distributed.json')) as {
  names: Record<string, string[]>
}

/** What stands in code marks: in the column of PyTorch, and in ours. */
const rows = read('docs/reference/pytorch.md')
  .split('\n')
  .filter((line) => line.startsWith('| '))
  .map((line) => line.split(/(?<!\\)\|/).slice(1, 3))
const words = (cells: readonly string[]) =>
  new Set(
    cells
      .flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)])
      .flatMap(([, code]) => code!.split(/[^\w-]+/)),
  )
const theirs = words(rows.map(([left]) => left!))
const ours = words(rows.map(([, right]) => right!))

test.each(Object.keys(names))('every name of PyTorch: %s', (group) => {
  expect(names[group]!.length).toBeGreaterThan(0)
  // What is wrapped, and what is sampled, come first everywhere.
  const known = new Set([...theirs, 'module', 'dataset'])
  expect(names[group]!.filter((name) => !known.has(name))).toEqual([])
})

test('every name of the namespace', () => {
  expect(Object.keys(dist).filter((name) => !ours.has(name))).toEqual([])
})

test('every flag of torchrun is one that the launcher knows, to take or to refuse', () => {
  const spelled = (flag: string) => flag.replace(/^--/, '').replaceAll('_', '-')
  const flags = addFlags(new Command()).options.map(({ long }) => spelled(long ?? ''))
  const unknown = names.torchrun!.map(spelled).filter((flag) => !flags.includes(flag))
  expect(unknown).toEqual(['help'])
})
