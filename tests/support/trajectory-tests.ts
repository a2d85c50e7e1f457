import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { runEagerly } from '../../src/graph/compile/eager.ts'
import type { Module } from '../../src/nn/module.ts'
import { formulaSamples } from './formula-data.ts'
import {
  batchOf,
  compileTraining,
  type GoldenRun,
  goldenEvaluation,
  goldenModel,
  goldenOptimizer,
  goldenSeeds,
  losses,
  stepTypes,
  trainingStep,
} from './formula-model.ts'
import { allowedDistance, largestDistance, valuesOf } from './golden.ts'
import { testRuntime } from './run-op.ts'

const bitsOf = (values: ArrayLike<number>) => [...new Uint32Array(Float32Array.from(values).buffer)]

/** All parameters as raw words, by key. */
export async function parameterBits(model: Module): Promise<Record<string, string>> {
  const state = await model.stateDict()
  return Object.fromEntries(
    Object.entries(state).map(([key, { data }]) => [key, bitsOf(data).join()]),
  )
}

/** Losses stay within 8x of the distance of PyTorch's own float32 run. */
export function expectGolden(
  run: Pick<GoldenRun, 'losses' | 'distances'>,
  losses: readonly number[],
): void {
  let distance = 0
  losses.forEach((loss, step) => {
    distance = Math.max(distance, run.distances[step])
    expect(
      Math.abs(loss - run.losses[step]),
      `step ${step + 1}: ours ${loss}, PyTorch ${run.losses[step]}`,
    ).toBeLessThanOrEqual(allowedDistance(distance, [run.losses[step]]))
  })
}

/** Tests of whole runs: losses against PyTorch's, replay against eager steps, the fused program against the naive one. */
export function trajectoryTests(runs: readonly GoldenRun[]): void {
  for (const run of runs) {
    const timeout = 240_000
    test(`${run.name}: 50 losses and the final logits stay within 8x of PyTorch's own float32 distance`, {
      timeout,
    }, async () => {
      const model = goldenModel(run)
      const { program } = await compileTraining(run, model, run.batchSize)
      const ours = await losses(run, program, run.steps)
      expectGolden(run, ours)
      const forward = await compile(
        ({ x }) => ({ logits: model.forward(x) }),
        { x: stepTypes(run.model, 8).x },
        { runtime: await testRuntime() },
      )
      const { first, count } = goldenEvaluation
      const { logits } = await forward.run({ x: formulaSamples(goldenSeeds, first, count).images })
      const expected = valuesOf(run.finalLogits as Parameters<typeof valuesOf>[0])
      expect(largestDistance(logits, expected)).toBeLessThanOrEqual(
        allowedDistance(run.finalLogits.distance, expected),
      )
      program.destroy()
      forward.destroy()
    })

    test(`${run.name}: replay equals eager bit for bit over 30 steps`, { timeout }, async () => {
      const replayed = goldenModel(run)
      const { program } = await compileTraining(run, replayed, run.batchSize)
      const fromReplay = await losses(run, program, 30)

      const eager = goldenModel(run)
      const optimizer = goldenOptimizer(run, eager)
      const fromEager: number[] = []
      for (let step = 0; step < 30; step++) {
        const outputs = await runEagerly(
          await testRuntime(),
          trainingStep(eager, optimizer),
          stepTypes(run.model, run.batchSize),
          batchOf(step * run.batchSize, run.batchSize),
          { count: run.batchSize },
        )
        fromEager.push(outputs.loss[0])
      }
      const ofReplay = { losses: bitsOf(fromReplay), ...(await parameterBits(replayed)) }
      const ofEager = { losses: bitsOf(fromEager), ...(await parameterBits(eager)) }
      const { isSoftware, description } = (await testRuntime()).gpu.facts
      if (isSoftware) expect(ofReplay).toEqual(ofEager)
      else {
        const step = fromReplay.findIndex((loss, i) => !Object.is(loss, fromEager[i]))
        const isEqual = JSON.stringify(ofReplay) === JSON.stringify(ofEager)
        const found = isEqual
          ? 'equal'
          : step < 0
            ? 'equal losses, other parameters'
            : `first differ at step ${step + 1}`
        console.log(`${run.name} on ${description}: replay and eager ${found}`)
      }
      program.destroy()
    })

    test(`${run.name}: the naive, unfused program agrees over 3 steps`, { timeout }, async () => {
      const fused = await compileTraining(run, goldenModel(run), run.batchSize)
      const naive = await compileTraining(run, goldenModel(run), run.batchSize, {
        useNaiveKernels: true,
      })
      expect(naive.program.dispatchCount).toBeGreaterThan(fused.program.dispatchCount)
      const [a, b] = [await losses(run, fused.program, 3), await losses(run, naive.program, 3)]
      a.forEach((loss, i) => {
        expect(Math.abs(loss - b[i]) / loss).toBeLessThan(2e-5)
      })
      fused.program.destroy()
      naive.program.destroy()
    })
  }
}
