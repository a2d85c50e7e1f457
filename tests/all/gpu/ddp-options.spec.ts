import { afterEach, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { allreduceHook, fp16CompressHook } from '../../../src/ddp/hooks/comm-hooks.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import {
  type ClassifyingRank,
  classifiers,
  endAll,
  lossesOfStep,
  parametersOf,
  samplesOf,
  train,
} from '../../support/classification.ts'
import { checkHookResume, statefulHooks } from '../../support/hook-resume.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'
import { checkSyncBatchNorm, distanceOfPairs, syncCases } from '../../support/sync-batch-norm.ts'
import { updateStep } from '../../support/update-step.ts'

// What tests/unit/train shows on the cpu, on a device: programs cut at sync points, shadows, hooks, shared buffers.

afterEach(async () => (await testRuntime()).gpu.check())

test.each(syncCases)('synchronized batch normalization of %s equals PyTorch’s', async (_, one) => {
  for (const shares of [
    [6, 1],
    [4, 0, 3],
  ]) {
    expect(await checkSyncBatchNorm(one, shares, await testRuntime())).toBeLessThanOrEqual(1)
  }
})

test('a learning rate that differs ends the step on all ranks before an update; with equal ones they continue', async () => {
  const ranks = await classifiers(3, await testRuntime())
  await train(ranks, 2)
  const before = await parametersOf(ranks)
  const groups = ranks.map(({ optimizer }) => optimizer.paramGroups[0])
  groups[1].lr = 0.0001
  const runs = ranks.map(({ program }) => program.run(samplesOf(0)))
  for (const outcome of await Promise.allSettled(runs)) {
    expect(outcome).toMatchObject({
      reason: {
        code: 'peer.mismatch',
        message: expect.stringContaining(
          "disagree about the optimizer's settings: lr 0.5 (SGD, group 0) on ranks 0 and 2, lr 0.0001 (SGD, group 0) on rank 1.",
        ),
      },
    })
  }
  expect(await parametersOf(ranks)).toEqual(before)
  groups[1].lr = 0.5
  await train(ranks, 2)
  expect(await sameOnAll(ranks)).not.toEqual(before[0])
})

test('weights loaded on one rank alone end the step on all; put back on it they are read and are no fault', async () => {
  const ranks = await classifiers(3, await testRuntime())
  await train(ranks, 2)
  const [{ optimizer }] = ranks
  const [parameter] = optimizer.paramGroups[0].params
  const kept = await parameter.read()
  parameter.assign(kept.map((one) => one + 1))
  const runs = ranks.map(({ program }) => program.run(samplesOf(0)))
  for (const outcome of await Promise.allSettled(runs))
    expect(outcome).toMatchObject({
      reason: {
        message: expect.stringMatching(
          /disagree about weights .* contents of ".*" .* on rank 0, .* on ranks 1 and 2\./,
        ),
      },
    })
  parameter.assign(kept)
  await train(ranks, 2)
  await sameOnAll(ranks)
})

test('statistics of a processGroup: two pairs of 4 ranks are one rank that normalizes two halves', async () => {
  expect(await distanceOfPairs(await testRuntime())).toBeLessThan(1e-5)
})

test.each(Object.keys(statefulHooks))(
  '%s on a device: 4 epochs are 2, a checkpoint with the hook and 2 more, bit for bit',
  async (name) => checkHookResume(statefulHooks[name], 2, await testRuntime()),
)

/** Ends a run with equal parameters on all ranks; returns them. */
async function sameOnAll(ranks: readonly ClassifyingRank[]): Promise<number[]> {
  const [first, ...others] = await parametersOf(ranks)
  for (const own of others) expect(own).toEqual(first)
  expect(first.every(Number.isFinite)).toBe(true)
  endAll(ranks)
  return first
}

test('one rank on a device calls its hook, and keeps its gradients there without one', async () => {
  const runtime = await testRuntime()
  let calls = 0
  const run = async (register: (ddp: DistributedDataParallel) => void = () => undefined) => {
    const ranks = await classifiers(1, runtime, register)
    await train(ranks, 5)
    return sameOnAll(ranks)
  }
  const hooked = await run((ddp) =>
    ddp.registerCommHook(null, (_, bucket) => {
      calls++
      return bucket.reduceScatter()
    }),
  )
  expect(hooked).toEqual(await run())
  expect(calls % 5).toBe(0)
  expect(calls).toBeGreaterThan(5)
})

test('hooks on a device: the plain sum gives the plain run’s bits, float16 its loss, with uneven shares and clipping', async () => {
  const runtime = await testRuntime()
  const counts = [8, 5, 0]
  const run = async (register: (ddp: DistributedDataParallel) => void = () => undefined) => {
    const ranks = await classifiers(3, runtime, register, { clipsTo: 0.5 })
    const loss = await train(ranks, 15, counts)
    return { loss, parameters: await sameOnAll(ranks) }
  }
  const plain = await run()
  const sum = await run((ddp) => ddp.registerCommHook(null, allreduceHook))
  expect(sum.parameters).toEqual(plain.parameters)
  const half = await run((ddp) => ddp.registerCommHook(null, fp16CompressHook))
  expect(half.parameters).not.toEqual(plain.parameters)
  expect(Math.abs(half.loss - plain.loss)).toBeLessThan(0.01 * plain.loss)
})

test('ranks without batches shadow the others’ steps, to the bits of steps in which nothing of theirs counts', async () => {
  const runtime = await testRuntime()
  const batches = [1, 4, 2]
  const run = (
    ranks: readonly ClassifyingRank[],
    step: (rank: ClassifyingRank, own: number) => Promise<void>,
  ) => Promise.all(ranks.map(step))
  const joined = await classifiers(3, runtime, undefined, { clipsTo: 0.5 })
  await run(joined, ({ ddp, program }, rank) =>
    ddp.join(
      async () => {
        for (let step = 0; step < batches[rank]; step++)
          await program.run(samplesOf(8 * step + rank))
      },
      { divideByInitialWorldSize: false },
    ),
  )
  const weighed = await classifiers(3, runtime, undefined, { clipsTo: 0.5 })
  await run(weighed, async ({ program }, rank) => {
    for (let step = 0; step < 4; step++) {
      const count = step < batches[rank] ? 8 : 0
      await program.run(samplesOf(8 * step + rank), { count })
    }
  })
  expect(await sameOnAll(joined)).toEqual(await sameOnAll(weighed))
})

test('all ranks take the running statistics of rank 0 from the device, or keep their own', async () => {
  const runtime = await testRuntime()
  const statistics = async (broadcastBuffers: boolean) => {
    const groups = await ringOf(3)
    return Promise.all(
      groups.map(async (processGroup, rank) => {
        const norm = new BatchNorm1d(3)
        const ddp = new DistributedDataParallel(norm, { processGroup, broadcastBuffers })
        const optimizer = new SGD(ddp.parameters(), { lr: 0.1 })
        const program = await compile(
          updateStep(optimizer, ({ x }) => ddp.forward(x).square().mean()),
          { x: tensorType([4, 3]) },
          { runtime },
        )
        for (let step = 0; step < 2; step++) {
          await program.run({ x: uniform(rank, step, 12, rank, rank + 1) })
        }
        const read = await Promise.all(norm.buffers().map(async (one) => [...(await one.read())]))
        processGroup.destroy()
        program.destroy()
        return read
      }),
    )
  }
  const shared = await statistics(true)
  expect(shared[1]).toEqual(shared[0])
  expect(shared[2]).toEqual(shared[0])
  expect(shared[2][2]).toEqual([2])
  const own = await statistics(false)
  expect(own[0]).toEqual(shared[0])
  expect(own[1][0]).not.toEqual(own[0][0])
})

test('parameters that some ranks use are updated on all of them, others keep their value', async () => {
  const runtime = await testRuntime()
  const groups = await ringOf(2)
  const ends = await Promise.all(
    groups.map(async (processGroup, rank) => {
      const model = new Sequential(new Linear(2, 2), new Linear(2, 2), new Linear(2, 2))
      for (const [i, parameter] of model.parameters().entries()) {
        parameter.assign(uniform(7, i, parameter.count, -1, 1))
      }
      const ddp = new DistributedDataParallel(model, { processGroup, findUnusedParameters: true })
      const optimizer = new SGD(ddp.parameters(), { lr: 0.1, momentum: 0.9 })
      const program = await compile(
        ({ x }) => {
          const y = model.at(0).forward(x)
          const loss = (rank === 0 ? y : model.at(1).forward(y)).square().mean()
          optimizer.zeroGrad()
          loss.backward()
          optimizer.step()
          return { loss }
        },
        { x: tensorType([1, 2]) },
        { runtime },
      )
      for (let step = 0; step < 2; step++) await program.run({ x: Float32Array.of(1, 2) })
      const all = await Promise.all(model.parameters().map((parameter) => parameter.read()))
      processGroup.destroy()
      program.destroy()
      return all.map((values) => [...values])
    }),
  )
  expect(ends[1]).toEqual(ends[0])
  const first = ends[0].map((_, i) => [...uniform(7, i, ends[0][i].length, -1, 1)])
  for (const used of [0, 1, 2, 3]) expect(ends[0][used]).not.toEqual(first[used])
  expect(ends[0].slice(4)).toEqual(first.slice(4))
})

test('a loss is the mean over the ranks, and with averageOutputs: false the one of the rank', async () => {
  const runtime = await testRuntime()
  const mean = await lossesOfStep(runtime, {})
  const own = await lossesOfStep(runtime, { averageOutputs: false })
  expect(new Set(mean.losses).size).toBe(1)
  const average = own.losses.reduce((sum, loss) => sum + loss, 0) / 3
  expect(mean.losses[0]).toBeCloseTo(average, 5)
  expect(own.parameters).toEqual(mean.parameters)
})

test.each(['mean', 'median', 'trimmedMean', 'clipped'] as const)(
  'ranks that aggregate among strangers by %s learn, and hold the same bits',
  async (aggregation) => {
    const options = { aggregation, trust: 'strangers' } as const
    const ranks = await classifiers(3, await testRuntime(), undefined, options)
    const first = await train(ranks, 1)
    const last = await train(ranks, 15, undefined, 1)
    expect(last).toBeLessThan(0.7 * first)
    const [one, ...others] = await parametersOf(ranks)
    for (const other of others) expect(other).toEqual(one)
    endAll(ranks)
  },
)
