import { expect, test } from 'vitest'
import { hashesOf } from '../support/cpu-hashes.ts'

// These hashes are those of an AMD EPYC with Node 20.

test.each([
  ['mlp', 30, '13b98878c50bff98'],
  ['cnn', 15, '5eeb4ff15d78ade9'],
  ['gpt', 4, 'f39f348c3f09bad7'],
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
