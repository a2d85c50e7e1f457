import { expect, test } from 'vitest'
import { hashes200, hashesOf } from '../../support/cpu-hashes.ts'

// The shorter tests/values/cpu-hashes.spec.ts runs in all engines.

test.each(['mlp', 'cnn', 'gpt'] as const)(
  '200 steps of the %s on the device cpu end with the same bits on 1 to 4 ranks',
  async (name) => {
    const hashes = await hashesOf(name, 200, [
      { threads: 1, ranks: 1 },
      { threads: 4, ranks: 2 },
      { threads: 2, ranks: 3 },
      { threads: 1, ranks: 4 },
    ])
    expect(hashes).toEqual(
      Object.fromEntries(Object.keys(hashes).map((key) => [key, hashes200[name]])),
    )
  },
  300_000,
)
