import { expect, test } from 'vitest'
import { hashesOf } from '../support/cpu-hashes.ts'

// These hashes are those of an AMD EPYC with Node 20.

test.each([
  ['mlp', 10, '8b7c7a3f2a30b31e'],
  ['cnn', 5, '9e74f845e58f0a81'],
  ['gpt', 2, '66a5f4671f8f85f2'],
] as const)(
  'the device cpu trains the %s to the same bits on any threads and ranks',
  async (name, steps, hash) => {
    const hashes = await hashesOf(name, steps, [
      { threads: 1, ranks: 1 },
      { threads: 2, ranks: 3 },
      { threads: 4, ranks: 2 },
    ])
    expect(hashes).toEqual(Object.fromEntries(Object.keys(hashes).map((key) => [key, hash])))
  },
  60_000,
)
