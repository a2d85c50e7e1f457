import { afterEach, expect, test, vi } from 'vitest'
import { compile } from '../../src/graph/compile.ts'
import { runEagerly } from '../../src/graph/eager.ts'
import { matmul } from '../../src/graph/functions/matmul.ts'
import { PhaseTimer } from '../../src/graph/phase-timer.ts'
import type { Module } from '../../src/nn/module.ts'
import { tensorType } from '../../src/util/shape.ts'
import { formulaSamples } from '../support/formula-data.ts'
import {
  batchOf,
  compileTraining,
  goldenEvaluation,
  goldenModel,
  goldenOptimizer,
  goldenRuns,
  goldenSeeds,
  losses,
  stepTypes,
  trainingStep,
} from '../support/formula-model.ts'
import { allowedDistance, largestDistance, valuesOf } from '../support/golden.ts'
import { testRuntime } from '../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const bitsOf = (values: ArrayLike<number>) => [...new Uint32Array(Float32Array.from(values).buffer)]

/** All parameters as raw words, by key. */
async function parameterBits(model: Module): Promise<Record<string, string>> {
  const state = await model.stateDict()
  return Object.fromEntries(
    Object.entries(state).map(([key, { data }]) => [key, bitsOf(data).join()]),
  )
}

for (const run of goldenRuns) {
  const timeout = 240_000
  test(`${run.name}: 50 losses and the final logits stay within 5x of PyTorch's own float32 distance`, {
    timeout,
  }, async () => {
    const model = goldenModel(run)
    const { program } = await compileTraining(run, model, run.batchSize)
    const ours = await losses(run, program, run.steps)
    let distance = 0
    ours.forEach((loss, step) => {
      distance = Math.max(distance, run.distances[step])
      const allowed = allowedDistance(distance, [run.losses[step]])
      expect(
        Math.abs(loss - run.losses[step]),
        `step ${step + 1}: ours ${loss}, PyTorch ${run.losses[step]}`,
      ).toBeLessThanOrEqual(allowed)
    })
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
    const naive = await compileTraining(run, goldenModel(run), run.batchSize, { isNaive: true })
    expect(naive.program.dispatchCount).toBeGreaterThan(fused.program.dispatchCount)
    const [a, b] = [await losses(run, fused.program, 3), await losses(run, naive.program, 3)]
    a.forEach((loss, i) => {
      expect(Math.abs(loss - b[i]) / loss).toBeLessThan(2e-5)
    })
    fused.program.destroy()
    naive.program.destroy()
  })
}

test('two runs end with equal bits', async () => {
  const [run] = goldenRuns
  const ends = []
  for (let time = 0; time < 2; time++) {
    const model = goldenModel(run)
    const { program } = await compileTraining(run, model, run.batchSize)
    await losses(run, program, 10)
    ends.push(await parameterBits(model))
    program.destroy()
  }
  expect(ends[0]).toEqual(ends[1])
})

test('a replayed step creates nothing, and an MLP step is few dispatches in one submit', async () => {
  const [run] = goldenRuns
  const { gpu } = await testRuntime()
  const { program } = await compileTraining(run, goldenModel(run), run.batchSize)
  await losses(run, program, 2)
  const before = { ...gpu.counters }
  const steps = 6
  await losses(run, program, steps)
  const { buffers, bindGroups, pipelines, submits, dispatches, bytesUploaded } = gpu.counters
  expect({
    buffers: buffers - before.buffers,
    bindGroups: bindGroups - before.bindGroups,
    pipelines: pipelines - before.pipelines,
    submits: (submits - before.submits) / steps,
  }).toEqual({ buffers: 0, bindGroups: 0, pipelines: 0, submits: 1 })
  expect((dispatches - before.dispatches) / steps).toBeLessThanOrEqual(9)
  const batchBytes = run.batchSize * (784 + 1) * 4
  expect((bytesUploaded - before.bytesUploaded) / steps).toBeLessThan(batchBytes + 256)
  program.destroy()
})

test('a run that takes the device more than 100 ms is several submits, and computes the same', async () => {
  const runtime = await testRuntime()
  const { gpu } = runtime
  // What the device's clock says decides, here always the same: three parts of less than 100 ms.
  const { read } = PhaseTimer.prototype
  const clock = vi.spyOn(PhaseTimer.prototype, 'read').mockImplementation(async function (
    this: PhaseTimer,
  ) {
    return (await read.call(this)) && { forward: 250, backward: 0, optimizer: 0 }
  })
  const size = 64
  const program = await compile(
    ({ a }) => {
      let product = a
      for (let i = 0; i < 6; i++) product = matmul(product, a)
      return { total: product.sum() }
    },
    { a: tensorType([size, size]) },
    { runtime },
  )
  const a = Float32Array.from({ length: size * size }, (_, i) => Math.sin(i) / 16)
  const totals = new Set<number>()
  const submits: number[] = []
  for (let run = 0; run < 4; run++) {
    const before = gpu.counters.submits
    totals.add((await program.run({ a })).total[0])
    submits.push(gpu.counters.submits - before)
  }
  expect(totals.size).toBe(1)
  // The first run is whole: nobody has timed one yet. Without timestamps nobody does.
  expect(submits).toEqual(gpu.facts.hasTimestamps ? [1, 3, 3, 3] : [1, 1, 1, 1])
  clock.mockRestore()
  program.destroy()
})

test('padded rows that do not count change nothing', async () => {
  const [run] = goldenRuns
  const exact = await compileTraining(run, goldenModel(run), 20)
  const padded = await compileTraining(run, goldenModel(run), 24)
  for (let step = 0; step < 3; step++) {
    const a = await exact.program.run(batchOf(step * 20, 20), { count: 20 })
    const b = await padded.program.run(batchOf(step * 20, 20, 24), { count: 20 })
    expect(Math.abs(a.loss[0] - b.loss[0])).toBeLessThan(1e-6)
  }
  exact.program.destroy()
  padded.program.destroy()
})

test('peak memory of intermediates is near the liveness bound', async () => {
  for (const run of goldenRuns) {
    const { program } = await compileTraining(run, goldenModel(run), run.batchSize)
    const { peakBytes, lowerBoundBytes } = program.prepared.plan
    console.log(`${run.name}: peak ${peakBytes} bytes, bound ${lowerBoundBytes}`)
    expect(peakBytes).toBeLessThanOrEqual(1.1 * lowerBoundBytes)
    program.destroy()
  }
})
