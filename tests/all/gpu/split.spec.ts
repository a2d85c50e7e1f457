import { afterAll, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { Module } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { DataParallel } from '../../../src/parallel/data-parallel/data-parallel.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import {
  Schedule1F1B,
  ScheduleGPipe,
  ScheduleInterleaved1F1B,
} from '../../../src/parallel/pipeline/schedule.ts'
import {
  convModel,
  convOptimizer,
  convRecipes,
  convRuns,
  convStep,
  convTypes,
} from '../../support/conv-models.ts'
import { goldenRuns } from '../../support/formula-model.ts'
import {
  goldenGpt,
  run as goldenRun,
  batchOf as gptBatch,
  stepTypes,
} from '../../support/golden-gpt.ts'
import { openDevices, plainLoss, trainSplit } from '../../support/split-model.ts'
import { expectGolden } from '../../support/trajectory-tests.ts'

// Before anything else in this page opens a device.
const devices = await openDevices(4)
afterAll(() => {
  for (const { gpu } of devices) gpu.close()
})

const run = goldenRuns.find(({ name }) => name.startsWith('cnn'))!

test("a CNN in a pipeline of 2, 3 and 4 stages: PyTorch's losses, and equal bits", {
  timeout: 600_000,
}, async () => {
  const split =
    (stages: number, count: number, Kind: typeof Schedule1F1B | typeof ScheduleInterleaved1F1B) =>
    async (model: Module) => {
      const ids = Array.from({ length: count }, (_, i) => i)
      const pipe = await pipeline(model, { stages, balance: 'layers', devices: ids })
      const schedule = new Kind(pipe, { microBatches: 4, lossFn: crossEntropy })
      return (x: Parameters<typeof schedule.step>[0], y: typeof x) => schedule.step(x, y).loss
    }
  const two = await trainSplit(run, split(2, 2, Schedule1F1B), devices)
  expectGolden(run, two.losses)
  for (const other of [
    split(3, 3, Schedule1F1B),
    split(4, 4, Schedule1F1B),
    split(4, 2, ScheduleInterleaved1F1B),
  ]) {
    const { losses } = await trainSplit(run, other, devices, 8)
    expect(losses).toEqual(two.losses.slice(0, 8))
  }
})

test("a CNN in DataParallel on 2 and 4 devices: PyTorch's losses", {
  timeout: 600_000,
}, async () => {
  for (const count of [2, 4]) {
    const { losses } = await trainSplit(
      run,
      async (model) => {
        await model.to(0)
        const deviceIds = Array.from({ length: count }, (_, i) => i)
        return plainLoss(new DataParallel(model, { deviceIds }))
      },
      devices,
      // Sums over shares round otherwise than those of the batch, which adds up over steps.
      10,
    )
    expectGolden(run, losses)
  }
})

test.each(['cnn with batch norm', 'resnet18 on 32x32'])(
  "%s with its layers on 1, 2, 3 and 4 devices: PyTorch's losses, and equal bits",
  { timeout: 600_000 },
  async (name) => {
    const run = convRuns.find((one) => one.name === name)!
    const trained = async (count: number) => {
      const model = await convModel(run)
      const ids = Array.from({ length: count }, (_, i) => i)
      await pipeline(model, { stages: count, devices: ids })
      const program = await compile(convStep(model, convOptimizer(run, model)), convTypes(run))
      const losses: number[] = []
      for (let step = 0; step < run.steps; step++) {
        const batch = convRecipes[run.name].batch(step, run.batchSize)
        losses.push((await program.run(batch)).loss[0])
      }
      const state = await model.stateDict()
      program.destroy()
      return { losses, state }
    }
    const one = await trained(1)
    expectGolden(run, one.losses)
    for (const count of [2, 3, 4]) expect(await trained(count)).toEqual(one)
  },
)

test("PyTorch's GPT in pipelines of 2, 3 and 4 stages, by every schedule, and with blocks computed again: its losses, and equal bits", {
  timeout: 600_000,
}, async () => {
  const trained = async (
    stages: number,
    count: number,
    Kind: typeof Schedule1F1B | typeof ScheduleGPipe | typeof ScheduleInterleaved1F1B,
    checkpoint = false,
  ) => {
    const model = goldenGpt({ checkpoint })
    const ids = Array.from({ length: count }, (_, i) => i)
    const pipe = await pipeline(model, { stages, balance: 'layers', devices: ids })
    const schedule = new Kind(pipe, {
      microBatches: 4,
      lossFn: (logits, target) => crossEntropy(logits.flatten(0, 1), target),
    })
    const optimizer = new AdamW(model.parameters(), { lr: goldenRun.lr })
    const step = await compile(({ tokens, targets }) => {
      optimizer.zeroGrad()
      const { loss } = schedule.step(tokens, targets)
      optimizer.step()
      return { loss }
    }, stepTypes())
    const losses: number[] = []
    for (let i = 0; i < goldenRun.steps; i++) losses.push((await step.run(gptBatch(i))).loss[0])
    const state = await model.stateDict()
    step.destroy()
    return { losses, state }
  }
  const one = await trained(1, 1, ScheduleGPipe)
  expectGolden(goldenRun, one.losses)
  expect(Object.keys(one.state)).toEqual(Object.keys(await goldenGpt().stateDict()))
  expect(await trained(2, 2, Schedule1F1B)).toEqual(one)
  expect(await trained(2, 2, Schedule1F1B, true)).toEqual(one)
  expect(await trained(3, 3, ScheduleGPipe)).toEqual(one)
  expect(await trained(4, 4, Schedule1F1B)).toEqual(one)
  expect(await trained(4, 2, ScheduleInterleaved1F1B)).toEqual(one)
})
