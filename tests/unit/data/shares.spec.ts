import { expect, test } from 'vitest'
import {
  batchSamples,
  batchShares,
  epochOrder,
  shareIndices,
  stepsPerEpoch,
} from '../../../src/data/shares.ts'

test.each([
  [64, 1, [64]],
  [64, 3, [22, 21, 21]],
  [64, 4, [16, 16, 16, 16]],
  [7, 4, [2, 2, 2, 1]],
  [2, 3, [1, 1, 0]],
])('a batch of %i over %i ranks gives shares of %j', (batchSize, worldSize, rows) => {
  const shares = batchShares(batchSize, worldSize)
  expect(shares.map((share) => share.rows)).toEqual(rows)
  let offset = 0
  for (const share of shares) {
    expect(share.offset).toBe(offset)
    offset += share.rows
  }
})

test('for 1 to 17 ranks the shares of all ranks, put together, are the global batches in order', () => {
  for (let worldSize = 1; worldSize <= 17; worldSize++)
    for (let batchSize = worldSize; batchSize <= worldSize + 17; batchSize++)
      for (const samples of [1, 16, 17, 50]) {
        const order = epochOrder(1, 4, samples)
        const shares = batchShares(batchSize, worldSize)
        const sizes = shares.map((share) => share.rows)
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1)
        const steps = stepsPerEpoch(samples, batchSize)
        const seen: number[] = []
        for (let step = 0; step < steps; step++) {
          const batch = shares.flatMap((share) => [...shareIndices(order, batchSize, step, share)])
          expect(batch.length).toBe(batchSamples(samples, batchSize, step))
          seen.push(...batch)
        }
        expect(seen).toEqual([...order])
        expect(batchSamples(samples, batchSize, steps)).toBe(0)
      }
})

test('a short last batch leaves the last shares short, then empty', () => {
  const order = epochOrder(0, 0, 70)
  const rows = batchShares(64, 3).map((share) => shareIndices(order, 64, 1, share).length)
  expect(rows).toEqual([6, 0, 0])
})
