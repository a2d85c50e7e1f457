import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { lossesOf, resultsOf } from '../../support/train-ranks.ts'

// 36 samples in batches of 15: an epoch is 3 steps, of which the last is short, and no number of virtual workers divides the batch.

beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

const exact = (size: number, input: TrainConfigInput = {}) =>
  trainDigits(size, { exact: true, virtualWorkers: 4, epochs: 2, ...input })

describe('a run with exact', () => {
  test.each(['adamw', 'sgd'] as const)(
    'with %s ends with the same bits on 1 to 5 ranks',
    async (optimizer) => {
      const [one] = await exact(1, { optimizer })
      const [{ paramHash, loss }] = resultsOf([one])
      for (const size of [2, 3, 5]) {
        const ranks = await exact(size, { optimizer })
        for (const rank of ranks) expect(lossesOf(rank)).toEqual(lossesOf(one))
        for (const result of resultsOf(ranks)) {
          expect(result.paramHash).toBe(paramHash)
          expect(result.loss).toBe(loss)
        }
      }
    },
    60_000,
  )

  test('plain runs of 1 and 2 ranks differ, so equal hashes say something', async () => {
    const hashes = [1, 2].map(async (size) => resultsOf(await trainDigits(size, {}))[0].paramHash)
    const [one, two] = await Promise.all(hashes)
    expect(two).not.toBe(one)
  }, 60_000)

  test('follows the losses of a plain run', async () => {
    const [plain] = await trainDigits(1, { epochs: 2 })
    const [own] = await exact(1)
    for (const [i, loss] of lossesOf(plain).entries()) expect(lossesOf(own)[i]).toBeCloseTo(loss, 4)
  }, 60_000)
})
