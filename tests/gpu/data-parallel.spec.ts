import { afterEach, describe, expect, test } from 'vitest'
import { planShares } from '../../src/data/shares.ts'
import { compile } from '../../src/graph/compile.ts'
import type { StepProgram } from '../../src/graph/step-program.ts'
import type { Module } from '../../src/nn/module.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'
import type { ProcessGroup } from '../../src/peer/group.ts'
import { DistributedDataParallel } from '../../src/train/data-parallel.ts'
import { paramDigest } from '../../src/train/param-digest.ts'
import { ReplicaCheck } from '../../src/train/verify.ts'
import { flipBit } from '../support/flip-bit.ts'
import {
  batchOf,
  compileTraining,
  type GoldenRun,
  goldenModel,
  goldenOptimizer,
  goldenRuns,
  losses,
  stepTypes,
  trainingStep,
} from '../support/formula-model.ts'
import { ringOf } from '../support/process-ring.ts'
import { testRuntime } from '../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

interface Rank {
  group: ProcessGroup
  model: Module
  ddp: DistributedDataParallel
  optimizer: Optimizer
  program: StepProgram
  offset: number
  rows: number
}

/** N ranks of one model on the specs' device. Only rank 0 begins with PyTorch's weights; the rest gets them by broadcast. */
async function ranksOf(
  run: GoldenRun,
  size: number,
  batch: number,
  bucketCapMb: number,
): Promise<Rank[]> {
  const groups = await ringOf(size)
  const shares = planShares(batch, size)
  const runtime = await testRuntime()
  return Promise.all(
    groups.map(async (group, rank) => {
      const model = goldenModel(run)
      if (rank > 0)
        for (const parameter of model.parameters())
          parameter.assign(new Float32Array(parameter.count))
      const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb })
      const optimizer = goldenOptimizer(run, ddp)
      const { offset, rows } = shares[rank]
      const program = await compile(trainingStep(ddp, optimizer), stepTypes(run.model, rows), {
        runtime,
      })
      return { group, model, ddp, optimizer, program, offset, rows }
    }),
  )
}

/** One global step on all ranks at once; returns each rank's view of the global loss. */
function stepAll(ranks: Rank[], first: number, batch: number): Promise<number[]> {
  return Promise.all(
    ranks.map(async ({ program, offset, rows }) => {
      const count = Math.max(0, Math.min(rows, batch - offset))
      const outputs = await program.run(batchOf(first + offset, count, rows), {
        count,
        gradientWeight: count / batch,
      })
      return outputs.loss[0]
    }),
  )
}

async function lossesAlone(run: GoldenRun, steps: number): Promise<number[]> {
  const { program } = await compileTraining(run, goldenModel(run), run.batchSize)
  const result = await losses(run, program, steps)
  program.destroy()
  return result
}

const byName = (name: string) => goldenRuns.find((run) => run.name === name)!
const relative = (a: number, b: number) => Math.abs(a - b) / Math.abs(b)

// 48 and 12 rows can be shared evenly by 2, 3 and 4 ranks, 47 and 13 by none of them.
describe.each([
  { name: 'mlp adamw', batchSize: 48, tolerance: 1e-5 },
  { name: 'mlp adamw', batchSize: 47, tolerance: 1e-5 },
  { name: 'mlp sgd', batchSize: 47, tolerance: 1e-5, steps: 20, sizes: [3] },
  { name: 'cnn adamw', batchSize: 12, tolerance: 1e-4 },
  { name: 'cnn adamw', batchSize: 13, tolerance: 1e-4 },
])(
  '$name, batches of $batchSize',
  ({ name, batchSize, tolerance, steps = 50, sizes = [2, 3, 4] }) => {
    const run = { ...byName(name), batchSize }
    let expected: number[] | undefined
    test.each(sizes)(
      '%d ranks with the global batch equal one rank with it',
      { timeout: 300_000 },
      async (size) => {
        expected ??= await lossesAlone(run, steps)
        const ranks = await ranksOf(run, size, batchSize, 0.01)
        expect(ranks[0].optimizer.buckets.length).toBeGreaterThanOrEqual(3)
        const runtime = await testRuntime()
        const checks = await Promise.all(
          ranks.map(({ optimizer }) => ReplicaCheck.create(runtime, optimizer.buckets)),
        )
        for (let step = 0; step < steps; step++) {
          const got = await stepAll(ranks, step * batchSize, batchSize)
          expect(new Set(got).size, 'every rank sees the same loss').toBe(1)
          expect(
            relative(got[0], expected[step]),
            `step ${step + 1}: ${got[0]} and ${expected[step]}`,
          ).toBeLessThanOrEqual(tolerance)
        }
        const digests = await Promise.all(
          ranks.map(({ model }) => paramDigest(model.parameters(), runtime)),
        )
        expect(new Set(digests).size).toBe(1)
        await Promise.all(checks.map((check, rank) => check.compare(ranks[rank].group, steps)))
        for (const { group, program } of ranks) {
          group.destroy()
          program.destroy()
        }
      },
    )
  },
)

test('a step of three ranks creates nothing and sends 2(N-1)/N of the parameter bytes', async () => {
  const run = byName('mlp adamw')
  const { gpu } = await testRuntime()
  const ranks = await ranksOf(run, 3, run.batchSize, 0.1)
  for (let step = 0; step < 2; step++) await stepAll(ranks, 0, run.batchSize)
  const before = ranks.map(({ group }) => group.stats().payloadBytesSent)
  const { buffers, bindGroups, pipelines, submits } = gpu.counters
  const steps = 4
  for (let step = 0; step < steps; step++) await stepAll(ranks, step * run.batchSize, run.batchSize)
  expect(gpu.counters).toMatchObject({ buffers, bindGroups, pipelines })
  const buckets = ranks[0].optimizer.buckets.length
  expect(buckets).toBeGreaterThan(1)
  expect((gpu.counters.submits - submits) / (3 * steps)).toBeLessThanOrEqual(2 * buckets + 2)
  const parameterBytes = ranks[0].model.parameters().reduce((sum, { count }) => sum + 4 * count, 0)
  ranks.forEach(({ group }, rank) => {
    const sent = group.stats().payloadBytesSent - before[rank]
    expect(sent / (((2 * 2) / 3 / 1) * parameterBytes * steps), `rank ${rank}`).toBeCloseTo(1, 1)
  })
  for (const { group, program } of ranks) {
    group.destroy()
    program.destroy()
  }
})

test('a short batch leaves a rank without samples, and it takes part all the same', async () => {
  const run = byName('mlp adamw')
  const ranks = await ranksOf(run, 3, 7, 0.1)
  const alone = await compileTraining(run, goldenModel(run), 7)
  for (const batch of [7, 2, 1, 5]) {
    const [loss] = await stepAll(ranks, 0, batch)
    const expected = await alone.program.run(batchOf(0, batch, 7), { count: batch })
    expect(relative(loss, expected.loss[0])).toBeLessThan(1e-5)
  }
  for (const { group, program } of ranks) {
    group.destroy()
    program.destroy()
  }
  alone.program.destroy()
})

test('one flipped bit in one GPU is found, with step, bucket and rank', async () => {
  const run = byName('mlp adamw')
  const { gpu } = await testRuntime()
  const ranks = await ranksOf(run, 3, run.batchSize, 0.01)
  const runtime = await testRuntime()
  const checks = await Promise.all(
    ranks.map(({ optimizer }) => ReplicaCheck.create(runtime, optimizer.buckets)),
  )
  await stepAll(ranks, 0, run.batchSize)
  const compareAll = (step: number) =>
    Promise.allSettled(checks.map((check, rank) => check.compare(ranks[rank].group, step)))
  expect((await compareAll(1)).map(({ status }) => status)).toEqual([
    'fulfilled',
    'fulfilled',
    'fulfilled',
  ])

  flipBit(gpu, ranks[1].optimizer.buckets[2].parameterPool.buffer)
  for (const result of await compareAll(2)) {
    expect(result.status).toBe('rejected')
    expect(String((result as PromiseRejectedResult).reason)).toMatch(
      /after step 2 bucket 2 .*on rank 1/,
    )
  }
  for (const { group, program } of ranks) {
    group.destroy()
    program.destroy()
  }
})
