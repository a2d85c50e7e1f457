import { expect, test } from 'vitest'
import { hashes200, hashesOf } from '../../support/cpu-hashes.ts'

// tests/values/cpu-hashes.spec.ts is shorter, for each `npm test`.

const places = [
  { threads: 1, ranks: 1 },
  { threads: 2, ranks: 3 },
  { threads: 4, ranks: 2 },
  { threads: 1, ranks: 4 },
]

test.each([
  ['mlp', 'adamw'],
  ['mlp', 'sgd'],
  ['cnn', 'adamw'],
  ['cnn', 'sgd'],
  ['gpt', 'adamw'],
  ['gpt', 'sgd'],
] as const)(
  '200 steps of the %s by %s on the device cpu end with the same bits on any threads and ranks',
  async (model, optimizer) => {
    const hashes = await hashesOf([model, optimizer], 200, places)
    expect(hashes).toEqual(
      Object.fromEntries(
        Object.keys(hashes).map((key) => [key, hashes200[`${model} ${optimizer}`]]),
      ),
    )
  },
  300_000,
)
