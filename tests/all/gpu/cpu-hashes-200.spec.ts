import { expect, test } from 'vitest'
import { hashesOf } from '../../support/cpu-hashes.ts'

// These hashes are those of an AMD EPYC with Node 20. The shorter tests/values/cpu-hashes.spec.ts runs in all engines.

test.each([
  ['mlp', '2a15e400a2bb1760'],
  ['cnn', '600d01e49cb14898'],
  ['gpt', 'fe32b176146c96e9'],
] as const)(
  '200 steps of the %s on the device cpu end with the same bits on 1 to 4 ranks',
  async (name, hash) => {
    const hashes = await hashesOf(name, 200, [
      { threads: 1, ranks: 1 },
      { threads: 4, ranks: 2 },
      { threads: 2, ranks: 3 },
      { threads: 1, ranks: 4 },
    ])
    expect(hashes).toEqual(Object.fromEntries(Object.keys(hashes).map((key) => [key, hash])))
  },
  300_000,
)
