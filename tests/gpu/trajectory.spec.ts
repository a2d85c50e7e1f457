import { afterEach, expect, test, vi } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { matmul } from '../../src/graph/functions/matmul.ts'
import { PhaseTimer } from '../../src/graph/run/phase-timer.ts'
import { tensorType } from '../../src/util/shape.ts'
import {
  batchOf,
  compileTraining,
  goldenModel,
  goldenRuns,
  losses,
} from '../support/formula-model.ts'
import { testRuntime } from '../support/run-op.ts'
import { trajectoryTests } from '../support/trajectory-tests.ts'

afterEach(async () => (await testRuntime()).gpu.check())

/** Puts `deviceMs` in place of what the device's clock says, which decides how many submits a run is. */
function eachStepTakes(deviceMs: number) {
  const { read } = PhaseTimer.prototype
  return vi.spyOn(PhaseTimer.prototype, 'read').mockImplementation(async function (
    this: PhaseTimer,
  ) {
    return (await read.call(this)) && { forward: deviceMs, backward: 0, optimizer: 0 }
  })
}

// tests/all/gpu/trajectory.spec.ts has the others.
trajectoryTests(goldenRuns.filter(({ name }) => name === 'mlp adamw'))

test('a replayed step creates nothing, and an MLP step is few dispatches in one submit', async () => {
  const [run] = goldenRuns
  const { gpu } = await testRuntime()
  const clock = eachStepTakes(2)
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
  // On a GPU four products are split along k, and on `cpu` four operands are packed: each adds a dispatch.
  const max = gpu.facts.isSoftware && gpu.id.type !== 'cpu' ? 9 : 13
  expect((dispatches - before.dispatches) / steps).toBeLessThanOrEqual(max)
  const batchBytes = run.batchSize * (784 + 1) * 4
  expect((bytesUploaded - before.bytesUploaded) / steps).toBeLessThan(batchBytes + 256)
  clock.mockRestore()
  program.destroy()
})

test('a run that takes the device more than 100 ms is several submits, and computes the same', async () => {
  const runtime = await testRuntime()
  const { gpu } = runtime
  // Three parts of less than 100 ms.
  const clock = eachStepTakes(250)
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
  // The first run is not cut, since none was timed yet. Without timestamps none is, and the cpu yields without cuts.
  const isCut = gpu.facts.hasTimestamps && gpu.id.type === 'webgpu'
  expect(submits).toEqual(isCut ? [1, 3, 3, 3] : [1, 1, 1, 1])
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
