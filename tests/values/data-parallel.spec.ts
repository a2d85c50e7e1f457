import { afterEach, expect, test } from 'vitest'
import { byName, equalsOneRank, ranksOf, relative, stepAll } from '../support/ddp-ranks.ts'
import { batchOf, compileTraining, goldenModel } from '../support/formula-model.ts'
import { testRuntime } from '../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

// 47 rows cannot be shared evenly by 3 ranks. tests/all/gpu/data-parallel.spec.ts has other ranks, batches and optimizers, and the CNN.
equalsOneRank([{ name: 'mlp adamw', batchSize: 47, tolerance: 1e-5, sizes: [3] }])

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

test('a rank without samples in a short batch still takes part in the step', async () => {
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
