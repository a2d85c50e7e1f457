import { afterEach, expect, test, vi } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import type { RingExchange } from '../../../src/ddp/data-parallel/ring-exchange.ts'
import { RobustAggregation } from '../../../src/ddp/hooks/robust-aggregation.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Counts } from '../../../src/graph/trace/step-notes.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { classifiers, endAll, parametersOf, train } from '../../support/classification.ts'
import { liar, trainWithLiar } from '../../support/lying-ranks.ts'
import { destroyRings, ringOf } from '../../support/process-ring.ts'

afterEach(() => {
  destroyRings()
  vi.restoreAllMocks()
})

test('the mean among strangers is that of plain training when nobody lies', async () => {
  const plain = await trainWithLiar(undefined, {}, { steps: 8 })
  const robust = await trainWithLiar(undefined, { trust: 'strangers' }, { steps: 8 })
  expect(robust.leftOut).toEqual([])
  expect(robust.lastLoss).toBeCloseTo(plain.lastLoss, 4)
  expect(robust.accuracy).toBe(plain.accuracy)
})

test.each(['one large coordinate', 'not a number', 'measures no number', 'measures far too much'])(
  'all ranks leave a stranger out of each step, and name it, when it lies: %s',
  async (kind) => {
    const steps = 8
    const { leftOut, lastLoss } = await trainWithLiar(kind, { trust: 'strangers' }, { steps })
    expect(Number.isFinite(lastLoss)).toBe(true)
    // Of two buckets in each step.
    expect(leftOut).toHaveLength(2 * steps)
    const notFinite = kind.includes('number') ? [liar] : []
    for (const one of leftOut) expect(one).toEqual({ ranks: [liar], notFinite })
  },
)

test.each<[string, Partial<Counts>]>([
  ['a count below 0, which reverses all gradients', { countLow: -100 }],
  ['more samples than its batch has', { countLow: 1000 }],
  ['more samples than its batch has, by their upper half', { countHigh: 1 }],
  ['a count that is not a number', { countLow: Number.NaN }],
  ['a last count below 0', { lastLow: -1 }],
  ['many runs in one', { runs: 4 }],
  ['to take back the weights of the others', { weighed: -7 }],
  ['to be many ranks without samples', { shadows: 7 }],
  ['to have no samples, and some', { shadows: 1 }],
])('all ranks name one that claims %s, and update nothing', async (_, counts) => {
  const run = trainWithLiar(undefined, { aggregation: 'median' }, { steps: 1, counts })
  await expect(run).rejects.toMatchObject({
    code: 'peer.protocol',
    message: expect.stringContaining(`rank ${liar}: what it tells of its samples`),
  })
})

test('ranks may run some more micro-steps than most', async () => {
  const counts = { runs: 3 }
  const run = trainWithLiar(undefined, { aggregation: 'median' }, { steps: 1, counts })
  await expect(run).resolves.toMatchObject({ leftOut: [] })
})

test.each([
  [[8, 8, 128], undefined],
  [
    [8, 8, 129],
    'compile: rank 2 counts 129 samples in a batch, over 16 times as many as most ranks, 8.',
  ],
])('ranks that count %j samples in a batch compile, or one is named: %s', async (counts, text) => {
  const groups = await ringOf(3)
  const ends = await Promise.allSettled(
    groups.map(async (processGroup, rank) => {
      manualSeed(1)
      const model = new Linear(2, 2)
      const ddp = new DistributedDataParallel(model, { processGroup, aggregation: 'median' })
      const exchange = ddp.parameters()[0]!.exchange as RingExchange
      await exchange.ready
      const layout = { unused: [], buckets: [], syncPoints: [], sharedBuffers: 0, fixed: [] }
      return exchange.compiling.settleLayout({ ...layout, samples: counts[rank] })
    }),
  )
  for (const end of ends)
    if (text === undefined) expect(end).toEqual({ status: 'fulfilled', value: counts })
    else expect(end).toMatchObject({ reason: { message: expect.stringContaining(text) } })
})

test.each(['median', 'trimmedMean', 'clipped'] as const)(
  'a run by %s that begins again in the middle ends with the same bits',
  async (aggregation) => {
    const options = { aggregation, hidden: 16, bucketCapMb: 0.002 }
    const trainBoth = async (between: (exchange: RingExchange) => void) => {
      const ranks = await classifiers(3, new ReferenceRuntime(), undefined, options)
      await train(ranks, 3)
      for (const { ddp } of ranks) between(ddp.parameters()[0]!.exchange as RingExchange)
      await train(ranks, 3, undefined, 3)
      const parameters = await parametersOf(ranks)
      endAll(ranks)
      return parameters
    }
    const whole = await trainBoth(() => undefined)
    const resumed = await trainBoth((exchange) => {
      exchange.reducer = new RobustAggregation({ aggregation, trust: 'members' }).reducer
    })
    expect(resumed).toEqual(whole)
  },
)
