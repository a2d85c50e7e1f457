import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import type { Bits } from '../../../src/trainer/loop/run-bits.ts'
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

const proof = { samples: 'ab', parameters: 'cd', results: 'ef' }
const bitsOf = (rank: number): Bits => ({ who: { id: `id ${rank}`, name: `tab ${rank}` }, proof })

/** Settles the record on every rank, given what differs from `own`, and the bits that it sends. */
async function settleAll(differences: Partial<typeof own>[], bits?: (rank: number) => unknown) {
  const groups = await ringOf(differences.length)
  const ends = await Promise.allSettled(
    groups.map((group, rank) =>
      settleRecord(
        group,
        { ...own, ...differences[rank] },
        { adapter: `adapter ${rank}`, device: `device ${rank}` },
        bits?.(rank) as Bits | undefined,
      ),
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
        devices: ['device 0', 'device 1', 'device 2'],
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
  ['config.seed', { config: { ...own.config, seed: 1 } }],
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

test('the bits of all ranks are passed on', async () => {
  const full = {
    ...bitsOf(1),
    known: proof,
    lasting: { step: 3, text: 'it differs', isLasting: true },
    took: { us: 1200, isOfProof: false },
  }
  const ends = await settleAll([{}, {}], (rank) => (rank === 1 ? full : bitsOf(rank)))
  for (const end of ends) expect(end).toMatchObject({ value: { bits: [bitsOf(0), full] } })
})

test('a rank of an exact run that does not send its bits is named, and no other', async () => {
  const ends = await settleAll([{}, {}, {}], (rank) => (rank === 1 ? undefined : bitsOf(rank)))
  for (const rank of [0, 2])
    expect(ends[rank]).toMatchObject({
      reason: {
        code: 'peer.protocol',
        message: expect.stringContaining('run record: rank 1 did not tell by which bits'),
      },
    })
})

test.each([
  ['more than its bits', { ...bitsOf(1), more: 1 }],
  ['more of who it is', { ...bitsOf(1), who: { id: 'a', name: 'b', more: 1 } }],
  ['more of its proof', { ...bitsOf(1), proof: { ...proof, more: 1 } }],
  [
    'more of what lasts',
    { ...bitsOf(1), lasting: { step: 3, text: 'a', isLasting: true, more: 1 } },
  ],
  ...[0, 1.5, 2 ** 31, '1'].map((us): [string, unknown] => [
    `${JSON.stringify(us)} µs for a virtual worker`,
    { ...bitsOf(1), took: { us, isOfProof: true } },
  ]),
  ['a name that no log takes', { ...bitsOf(1), who: { id: 'a', name: 'b'.repeat(101) } }],
  ['a name longer than names are', { ...bitsOf(1), who: { id: 'a', name: 'b'.repeat(41) } }],
  ['a name that cannot be seen', { ...bitsOf(1), who: { id: 'a', name: 'b\u202ec' } }],
  ['an id that no log takes', { ...bitsOf(1), who: { id: 'a'.repeat(101), name: 'b' } }],
])('a rank that sends %s is named', async (_, received) => {
  const [first] = await settleAll([{}, {}], (rank) => (rank === 1 ? received : bitsOf(rank)))
  expect(first).toMatchObject({
    reason: {
      code: 'peer.protocol',
      message: expect.stringContaining('the run record: rank 1 sent'),
    },
  })
})

test('an error shows long parts around the first place where they differ', async () => {
  const bucketsOf = (last: string) => {
    const parameters = [...Array(1000).fill('layer.weight'), last]
    return [{ parameters, elements: 8 }]
  }
  const differences = [{ buckets: bucketsOf('a') }, { buckets: bucketsOf('b') }]
  const [, second] = await settleAll(differences)
  const { message } = (second as { reason: Error }).reason
  expect(message).toMatch(/buckets of rank 1 must be rank 0's .*"a"\],.*, got .*"b"\],/)
  expect(message.length).toBeLessThan(300)
})

test('a setting that only one rank has is named', async () => {
  const more = { config: { ...own.config, later: 1 } }
  for (const [at, differences] of [
    [{}, more],
    [more, {}],
  ].entries()) {
    const [, second] = await settleAll(differences)
    const received = at === 0 ? "rank 0's nothing, got 1" : "rank 0's 1, got nothing"
    expect(second).toMatchObject({
      reason: {
        code: 'peer.mismatch',
        message: expect.stringContaining(`run record: config.later of rank 1 must be ${received}`),
      },
    })
  }
})
