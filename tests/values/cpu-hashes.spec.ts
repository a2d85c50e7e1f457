import { expect, test } from 'vitest'
import { hashesOf } from '../support/cpu-hashes.ts'

// These hashes are those of an AMD EPYC with Node 20.

test.each([
  ['mlp', 'adamw', 10, '8b7c7a3f2a30b31e'],
  ['cnn', 'sgd', 5, '9e74f845e58f0a81'],
  ['gpt', 'adamw', 2, '04ebf0fb9962f7bf'],
] as const)(
  'the device cpu trains the %s by %s to the same bits on any threads and ranks',
  async (model, optimizer, steps, hash) => {
    const hashes = await hashesOf([model, optimizer], steps, [
      { threads: 1, ranks: 1 },
      { threads: 2, ranks: 3 },
      { threads: 4, ranks: 2 },
    ])
    expect(hashes).toEqual(Object.fromEntries(Object.keys(hashes).map((key) => [key, hash])))
  },
  60_000,
)
