import { expect, test } from 'vitest'
import { VirtualWorkers } from '../../../src/trainer/evaluate/virtual-workers.ts'

const plan = (batchSize: number, virtualWorkers: number, worldSize: number) =>
  Array.from(
    { length: worldSize },
    (_, rank) => new VirtualWorkers({ seed: 0, batchSize, virtualWorkers }, 1000, rank, worldSize),
  )

test.each([
  // Workers of 2 rows each: 33 have some, of 64.
  [65, 64, 2, [32, 33]],
  [60, 8, 2, [32, 28]],
  [60, 8, 3, [16, 24, 20]],
  // More ranks than workers with rows.
  [3, 2, 3, [0, 2, 1]],
])(
  'a batch of %i in %i virtual workers on %i ranks gives these samples: %j',
  (batch, virtualWorkers, size, samples) => {
    const ranks = plan(batch, virtualWorkers, size)
    expect(ranks.map(({ draws }) => draws.take(0, 0).own.length)).toEqual(samples)
    const all = ranks.flatMap(({ draws }) => [...draws.take(0, 0).own])
    expect(all).toEqual([...plan(batch, virtualWorkers, 1)[0].draws.take(0, 0).own])
  },
)
