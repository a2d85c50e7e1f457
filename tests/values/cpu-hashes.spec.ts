import { expect, test } from 'vitest'
import { hashesOf } from '../support/cpu-hashes.ts'

// These hashes are those of an AMD EPYC with Node 20.

test.each([
  ['mlp', 'adamw', 10, '328209fde954b916'],
  ['cnn', 'sgd', 5, '2d656835eab5494b'],
  ['gpt', 'adamw', 2, 'a781992e4810f37c'],
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
