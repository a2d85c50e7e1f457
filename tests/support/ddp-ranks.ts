import { describe, expect, test } from 'vitest'
import { batchShares } from '../../src/data/shares.ts'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { paramDigest } from '../../src/ddp/hashes/param-digest.ts'
import { ReplicaCheck } from '../../src/ddp/hashes/replica-check.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import type { Module } from '../../src/nn/module.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
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
} from './formula-model.ts'
import { ringOf } from './process-ring.ts'
import { testRuntime } from './run-op.ts'

export interface Rank {
  group: ProcessGroup
  model: Module
  ddp: DistributedDataParallel
  optimizer: Optimizer
  program: StepProgram
  offset: number
  rows: number
}

/** N ranks of one model on the specs' device. Only rank 0 begins with PyTorch's weights; the rest gets them by broadcast. */
export async function ranksOf(
  run: GoldenRun,
  size: number,
  batch: number,
  bucketCapMb: number,
): Promise<Rank[]> {
  const groups = await ringOf(size)
  const shares = batchShares(batch, size)
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
export function stepAll(ranks: Rank[], first: number, batch: number): Promise<number[]> {
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

export async function lossesAlone(run: GoldenRun, steps: number): Promise<number[]> {
  const { program } = await compileTraining(run, goldenModel(run), run.batchSize)
  const result = await losses(run, program, steps)
  program.destroy()
  return result
}

export const byName = (name: string) => goldenRuns.find((run) => run.name === name)!
export const relative = (a: number, b: number) => Math.abs(a - b) / Math.abs(b)

export interface GlobalBatch {
  name: string
  batchSize: number
  tolerance: number
  steps?: number
  sizes?: number[]
}

/** Tests that N ranks with the global batch follow one rank with it, step by step, and end with equal parameters. */
export const equalsOneRank = (runs: GlobalBatch[]): void =>
  describe.each(runs)(
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
