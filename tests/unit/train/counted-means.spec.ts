import { expect, test } from 'vitest'
import { compile, tensorType } from '../../../src/entries/index.ts'
import { crossEntropy } from '../../../src/entries/nn/functional.ts'
import {
  allreduceHook,
  DistributedDataParallel,
  fp16CompressHook,
  Int8State,
  int8CompressHook,
  PowerSgdState,
  powerSgdHook,
} from '../../../src/entries/nn/parallel.ts'
import { Linear } from '../../../src/entries/nn.ts'
import { SGD } from '../../../src/entries/optim.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import golden from '../../golden/counted-means.json'
import {
  type CountedCase,
  type CountedOptions,
  countedBatch,
  countedParameters,
  countedRanks,
  countedRows,
  endCounted,
  trainCounted,
} from '../../support/counted-means.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()
const steps = 4

async function trained(one: CountedCase, options?: CountedOptions) {
  const ranks = await countedRanks(one, runtime, options)
  const losses = await trainCounted(ranks, one, steps)
  const parameters = await countedParameters(ranks)
  endCounted(ranks)
  for (const other of parameters) expect(other).toEqual(parameters[0])
  return { losses, parameters: parameters[0] }
}

const distance = (a: readonly number[], b: readonly number[]) =>
  Math.max(...a.map((value, i) => Math.abs(value - b[i])))

test.each(golden.cases)(
  '$name: ranks and micro-steps weigh by what counts, as torch does by hand',
  async (one) => {
    const { losses, parameters } = await trained(one)
    const bound = 5 * Math.max(one.distance, 1e-7)
    expect(distance(parameters, one.parameters)).toBeLessThan(bound)
    for (const own of losses) {
      for (const [step, loss] of one.losses.entries()) {
        if (loss !== null) expect(Math.abs(own[step] - loss), `step ${step}`).toBeLessThan(bound)
      }
    }
  },
)

const uneven = golden.cases.find(({ name }) => name === 'samples, 3 ranks')!
const classes = golden.cases.find(({ name }) => name === 'class numbers, 4 ranks')!

test.each<[string, (ddp: DistributedDataParallel) => void, number]>([
  ['allreduce', (ddp) => ddp.registerCommHook(null, allreduceHook), 1e-6],
  ['fp16', (ddp) => ddp.registerCommHook(null, fp16CompressHook), 2e-3],
  ['int8', (ddp) => ddp.registerCommHook(new Int8State(), int8CompressHook), 2e-2],
  [
    'powerSgd',
    (ddp) => {
      const options = { startPowerSgdIter: 0, matrixApproximationRank: 5, minCompressionRate: 0.1 }
      ddp.registerCommHook(new PowerSgdState(options), powerSgdHook)
    },
    2e-2,
  ],
])('the %s hook gets gradients weighted by what counts', async (_, register, bound) => {
  for (const one of [uneven, classes]) {
    const { parameters } = await trained(one, { prepare: register })
    expect(distance(parameters, one.parameters)).toBeLessThan(bound)
    // Ranks with equal weights end with other parameters.
    const alike = await countedRanks(one, runtime, { prepare: register })
    const own = one.kind === 'samples' ? (count: number) => ({ count }) : () => ({})
    const gradientWeight = 1 / one.counts.length
    await trainCounted(alike, one, steps, (count) => ({ ...own(count), gradientWeight }))
    expect(distance((await countedParameters(alike))[0], one.parameters)).toBeGreaterThan(bound)
    endCounted(alike)
  }
})

test('gradients in a hook are weighted already: the mean over ranks is the mean over what counts', async () => {
  const one: CountedCase = { kind: 'samples', counts: [[8], [1]] }
  const means = async (counted: CountedCase) => {
    const seen: number[][] = []
    const ranks = await countedRanks(counted, runtime, {
      bucketCapMb: 1,
      prepare: (ddp, rank) =>
        ddp.registerCommHook(null, (_, bucket) => {
          seen[rank] = [...bucket.buffer()]
          return allreduceHook(null, bucket)
        }),
    })
    await trainCounted(ranks, counted, 1)
    endCounted(ranks)
    return seen[0].map((_, i) => seen.reduce((sum, own) => sum + own[i], 0) / seen.length)
  }
  // The same 9 samples with their weights by hand.
  const plain = await countedRanks(one, runtime, { bucketCapMb: 1 })
  const before = (await countedParameters(plain))[0]
  await trainCounted(plain, one, 1, (count) => ({ count, gradientWeight: count / 9 }))
  const after = (await countedParameters(plain))[0]
  endCounted(plain)
  const moved = before.map((value, i) => (value - after[i]) / 0.3)
  const mean = await means(one)
  const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value ** 2, 0)
  expect(sumOf(mean)).toBeCloseTo(sumOf(moved), 6)
})

test('a norm to clip by is that of gradients that count for what counts', async () => {
  const one: CountedCase = { kind: 'samples', counts: [[8], [1]] }
  const total = 9
  const byHand = await countedRanks(one, runtime, { clipsTo: 0.1 })
  await trainCounted(byHand, one, steps, (count) => ({ count, gradientWeight: count / total }))
  const expected = (await countedParameters(byHand))[0]
  endCounted(byHand)
  const { parameters } = await trained(one, { clipsTo: 0.1 })
  expect(distance(parameters, expected)).toBeLessThan(1e-6)
  expect(distance(parameters, golden.cases[0].parameters)).toBeGreaterThan(1e-2)
})

test('full batches have the weights that users would pass, and no further factor: equal bits', async () => {
  for (const counts of [
    [[8], [8]],
    [[8], [8], [8]],
  ]) {
    const one: CountedCase = { kind: 'samples', counts }
    const byHand = await countedRanks(one, runtime)
    await trainCounted(byHand, one, steps, (count) => ({
      count,
      gradientWeight: 1 / counts.length,
    }))
    const expected = (await countedParameters(byHand))[0]
    endCounted(byHand)
    expect((await trained(one)).parameters).toEqual(expected)
  }
})

test('weights that do not add up are refused on all ranks before anything is updated, and the next step works', async () => {
  const one: CountedCase = { kind: 'samples', counts: [[8], [8]] }
  for (const clipsTo of [undefined, 1]) {
    const ranks = await countedRanks(one, runtime, { clipsTo })
    const before = await countedParameters(ranks)
    const run = (weights: readonly (number | undefined)[]) =>
      Promise.allSettled(
        ranks.map(({ run }, rank) => {
          const { x, y } = countedBatch(one, 0, rank)
          const gradientWeight = weights[rank]
          return run(x, y, gradientWeight === undefined ? {} : { gradientWeight })
        }),
      )
    const reasons = (outcomes: PromiseSettledResult<number>[]) =>
      outcomes.map((outcome) =>
        outcome.status === 'rejected' ? `${outcome.reason.code} ${outcome.reason.message}` : '',
      )
    for (const weights of [
      [0.8, 0.8],
      [0.5, Number.NaN],
      [0.3, 0.3],
    ]) {
      const received = reasons(await run(weights))
      expect(received[0]).toMatch(
        /^graph.misuse gradientWeight: the weights of the 2 ranks must add up to 1, got /,
      )
      expect(received[1]).toBe(received[0])
    }
    const some = reasons(await run([0.5, undefined]))
    expect(some[0]).toMatch(
      /all ranks and micro-steps of an update must pass it, or none, but 1 of 2 runs passed it/,
    )
    expect(some[1]).toBe(some[0])
    expect(await countedParameters(ranks)).toEqual(before)
    const [first, second] = await run([0.8, 0.2])
    expect(first).toEqual(second)
    expect(first.status).toBe('fulfilled')
    expect(await countedParameters(ranks)).not.toEqual(before)
    endCounted(ranks)
  }
})

test('parameters stay when nothing counts on any rank, and the loss is that of one rank', async () => {
  for (const [kind, loss] of [
    ['samples', 0],
    ['classes', Number.NaN],
  ] as const) {
    const one: CountedCase = { kind, counts: [[0], [0]] }
    const ranks = await countedRanks(one, runtime)
    const before = await countedParameters(ranks)
    expect(await trainCounted(ranks, one, 1)).toEqual([[loss], [loss]])
    expect(await countedParameters(ranks)).toEqual(before)
    endCounted(ranks)
  }
})

test('an uneven end of an epoch inside join counts each sample once', async () => {
  // Rank 0 has 8 and 8 samples, rank 1 has 3 and no more.
  const one: CountedCase = { kind: 'samples', counts: [[8], [8]] }
  const ranks = await countedRanks(one, runtime)
  await Promise.all(
    ranks.map(({ ddp, run }, rank) =>
      ddp.join(
        async () => {
          const counts = rank === 0 ? [8, 8] : [3]
          for (const [step, count] of counts.entries()) {
            const { x, y } = countedBatch(one, step, rank)
            await run(x, y, { count })
          }
        },
        { divideByInitialWorldSize: false },
      ),
    ),
  )
  const joined = await countedParameters(ranks)
  endCounted(ranks)
  const byHand = await countedRanks(one, runtime)
  const weights = [
    [8 / 11, 3 / 11],
    [1, 0],
  ]
  await Promise.all(
    byHand.map(async ({ run }, rank) => {
      for (const step of [0, 1]) {
        const { x, y } = countedBatch(one, step, rank)
        const count = rank === 0 ? 8 : [3, 0][step]
        await run(x, y, { count, gradientWeight: weights[step][rank] })
      }
    }),
  )
  const expected = await countedParameters(byHand)
  endCounted(byHand)
  expect(joined[1]).toEqual(joined[0])
  expect(distance(joined[0], expected[0])).toBeLessThan(1e-6)
})

test('counts travel in the first bucket: as many collectives, a few bytes more', async () => {
  const one: CountedCase = { kind: 'classes', counts: [[4], [1], [countedRows]] }
  const ranks = await countedRanks(one, runtime)
  await trainCounted(ranks, one, 1)
  const completed = () => ranks.map(({ group }) => group.stats().collectives)
  const before = completed()
  await trainCounted(ranks, one, 1)
  // A reduce-scatter and an all-gather for each of two buckets.
  expect(completed().map((count, rank) => count - before[rank])).toEqual([4, 4, 4])
  endCounted(ranks)
})

test('ranks do not compile when one weighs by counted samples and another equally', async () => {
  const groups = await ringOf(2)
  const outcomes = await Promise.allSettled(
    groups.map(async (processGroup, rank) => {
      const model = new Linear(2, 2)
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 1 })
      return compile(
        ({ x, y }) => {
          const out = ddp.forward(x)
          const loss = rank === 0 ? crossEntropy(out, y) : out.square().mean()
          optimizer.zeroGrad()
          loss.backward()
          optimizer.step()
          return { loss }
        },
        { x: tensorType([4, 2]), y: tensorType([4], 'i32') },
        { runtime },
      )
    }),
  )
  for (const group of groups) group.destroy()
  for (const outcome of outcomes) {
    const message = expect.stringMatching(
      /ranks disagree about the step: gradient weights by counted samples .* equal gradient weights/,
    )
    expect(outcome).toMatchObject({ reason: { code: 'peer.mismatch', message } })
  }
})
