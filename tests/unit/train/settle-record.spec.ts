import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { settleRecord } from '../../../src/trainer/loop/settle-record.ts'
import { ringOf } from '../../support/process-ring.ts'

const own = {
  config: parseTrainConfig({ tune: true, batchSize: 5 }),
  worldSize: 3,
  bucketCapMb: 8,
  shares: [2, 2, 1],
  buckets: [{ parameters: ['0.weight'], elements: 8 }],
  variants: {},
  links: { choice: { oneShotMaxBytes: 4096, directMaxBytes: 65536 }, bytesPerMs: 900 },
  measured: { 'matmul [2]': 'tiled', 'matmul [1]': 'direct' },
}

/** What every rank gets that settles its record, given what differs from `own`. */
async function settleAll(differences: Partial<typeof own>[]) {
  const groups = await ringOf(differences.length)
  const ends = await Promise.allSettled(
    groups.map((group, rank) =>
      settleRecord(group, { ...own, ...differences[rank] }, `adapter ${rank}`),
    ),
  )
  for (const group of groups) group.destroy()
  return ends
}

test('equal records are settled with the adapters of all ranks, whatever variants a rank chose for its rows', async () => {
  const mine = [{}, {}, { variants: { 'matmul [1]': 'direct' } }]
  expect(await settleAll(mine)).toEqual(
    mine.map((difference) => ({
      status: 'fulfilled',
      value: {
        record: { ...own, ...difference, adapters: ['adapter 0', 'adapter 1', 'adapter 2'] },
        bits: [],
      },
    })),
  )
  expect(await settleAll([{}])).toMatchObject([{ value: { record: { adapters: ['adapter 0'] } } }])
})

test.each([
  ['links', { links: { ...own.links, bytesPerMs: 901 } }],
  ['measured', { measured: { ...own.measured, 'matmul [1]': 'tiled' } }],
  ['shares', { shares: [2, 1, 2] }],
  ['config', { config: { ...own.config, seed: 1 } }],
  ['buckets', { buckets: [] }],
  ['bucketCapMb', { bucketCapMb: 4 }],
] as const)('a rank whose %s differ is refused by name', async (part, difference) => {
  const [first, second, third] = await settleAll([{}, difference as Partial<typeof own>, {}])
  expect([first.status, third.status]).toEqual(['fulfilled', 'fulfilled'])
  expect(second).toMatchObject({
    reason: {
      code: 'peer.mismatch',
      message: expect.stringContaining(`run record: ${part} of rank 1 must be rank 0's `),
    },
  })
})
