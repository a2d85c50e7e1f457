import { afterEach, expect, test } from 'vitest'
import { checkReplicas } from '../../../src/ddp/data-parallel/check-replicas.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { RingExchange } from '../../../src/ddp/data-parallel/ring-exchange.ts'
import { setupKeys } from '../../../src/ddp/hooks/collective-keys.ts'
import { addOverRanks } from '../../../src/ddp/metrics/batch-sums.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { listsOf } from '../../../src/graph/plan/agreement.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import { gatherJson } from '../../../src/peer/group/gather-json.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ifMember } from '../../support/members.ts'
import { destroyRings, ringOf } from '../../support/process-ring.ts'

// What a hostile rank may send about the step that it compiles, and about its errors.

afterEach(destroyRings)

const isAnything = (_: unknown): _ is unknown => true
const long = 'x'.repeat(5e6)

const exchangeOf = (group: CollectiveGroup) =>
  new RingExchange(group, new Linear(2, 2).parameters(), {
    firstBucketCapBytes: undefined,
    findsUnused: false,
    overlaps: false,
    averagesOutputs: false,
  })

/** The error of rank 0, whose exchange receives `texts` from rank 1. */
async function errorOf(
  texts: readonly string[],
  settle: (exchange: RingExchange) => Promise<unknown>,
): Promise<unknown> {
  const groups = await ringOf(2)
  const exchange = exchangeOf(groups[0])
  const settled = settle(exchange).then(
    (value) => value,
    (error: unknown) => error,
  )
  await gatherJson('compile', groups[1], texts, isAnything, setupKeys(groups[1], 2)[0])
  return settled
}

const layout = {
  ...{ unused: [], buckets: ['8 w'], syncPoints: [0], sharedBuffers: 2 },
  ...{ samples: 4, fixed: [] },
}
const others = [
  '1 mid-step collectives',
  'gradient weights by counted samples',
  'no communication hook',
  '2 running statistics changed',
  '8 w',
]
const settleLayout = (exchange: RingExchange) => exchange.compiling.settleLayout(layout)

test('the counts of all ranks are settled', async () => {
  expect(await errorOf(['[[],[[0,1]],5,[]]', ...others], settleLayout)).toEqual([4, 5])
})

test('ranks hear at once that one has called eval() before it compiled', async () => {
  const groups = await ringOf(2)
  const ended = await Promise.allSettled(
    groups.map(async (processGroup, rank) => {
      const inner = new Sequential(new Linear(3, 2), new BatchNorm1d(2))
      const model = new DistributedDataParallel(inner, { processGroup })
      if (rank === 0) model.eval()
      const optimizer = new SGD(model.parameters(), { lr: 0.1 })
      await compile(
        ({ x }) => {
          model.forward(x).square().mean().backward()
          optimizer.step()
          return {}
        },
        { x: tensorType([4, 3]) },
        { device: 'reference' },
      )
    }),
  )
  for (const one of ended)
    expect(one).toMatchObject({
      reason: {
        code: 'peer.mismatch',
        message: expect.stringMatching(
          /disagree about the step: .*0 running statistics changed, as after eval/,
        ),
      },
    })
})

test.each([
  [],
  ['null', ...others],
  ['[', ...others],
  ['[[],[[0,1]],1e308,[]]', ...others],
  ['[[],[[0,1]],4294967296,[]]', ...others],
  ['[[],[[0,1]],-1,[]]', ...others],
  ['[[],[[0,1]],1.5,[]]', ...others],
  ['[[],[[0,7]],4,[]]', ...others],
  ['[[],[[0,0]],4,[]]', ...others],
  ['[[],[7],4,[]]', ...others],
  ['[[],[],4,[]]', ...others],
  ['[[7],[[0,1]],4,[]]', ...others],
  ['[[],[[0,1]],4,[7]]', ...others],
])('a rank that sends %j about its step is named', async (...texts) => {
  expect(await errorOf(texts, settleLayout)).toMatchObject({
    code: 'peer.protocol',
    message: expect.stringMatching(/^compile: rank 1 sent \d+ bytes that are not what compile/),
  })
})

test.each(['2', '', '-1', '1e0', 'length'])(
  'a rank that uses parameter "%s" of a module of 2 is named',
  async (place) => {
    expect(
      await errorOf(['0', place], (exchange) => exchange.compiling.settleUsed([])),
    ).toMatchObject({
      code: 'peer.protocol',
      message: expect.stringContaining('compile: rank 1 sent'),
    })
  },
)

test('names that a rank has not used are cut', async () => {
  const text = JSON.stringify([[long], [[0, 1]], 4, []])
  const error = await errorOf([text, ...others], settleLayout)
  expect(error).toMatchObject({ code: 'graph.misuse' })
  expect(String(error).length).toBeLessThan(2500)
})

test('why another rank could not compile, wrap or evaluate is cut', async () => {
  expect(() => listsOf([0, 1], [[], { failure: long }])).toThrow(
    /^compile: the step did not compile on rank 1: x{1999}…$/,
  )
  const groups = await ringOf(2)
  const replica = { replica: [], failure: long }
  const [wrapped] = await Promise.allSettled([
    checkReplicas(groups[0], 'settings', [], {}),
    gatherJson('DistributedDataParallel', groups[1], replica, isAnything),
  ])
  expect(wrapped).toMatchObject({
    reason: { message: expect.stringMatching(/on rank 1: x{1999}…$/) },
  })
  const failed = { code: 'data.missing', message: long }
  const [evaluated] = await Promise.allSettled([
    addOverRanks(async () => [], groups[0]),
    gatherJson('evaluation', groups[1], failed, isAnything),
  ])
  expect(evaluated).toMatchObject({
    reason: { code: 'data.missing', message: expect.stringMatching(/^rank 1: x{1999}…$/) },
  })
})

test('a synchronization of some ranks that fails ends the group of the model, whose ranks wait', async () => {
  const groups = await ringOf(3)
  const [part, other] = (await Promise.all(groups.map((group) => group.newGroup([0, 1])))).map(
    ifMember,
  )
  const exchange = exchangeOf(groups[0])
  const place = { syncPoint: 'sum', group: exchange.numberOf(part!) } as const
  const met = exchange.syncRanks(0, new Float32Array(1), place)
  other!.abort('enough')
  await expect(met).rejects.toThrow('rank 1 aborted: enough')
  await expect(groups[2].barrier()).rejects.toThrow('rank 1 aborted: enough')
})
