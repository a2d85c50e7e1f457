import { afterAll, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { SplitProgram } from '../../../src/graph/run/split-program.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import type { Module } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { DataParallel } from '../../../src/parallel/data-parallel/data-parallel.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import {
  Schedule1F1B,
  ScheduleGPipe,
  ScheduleInterleaved1F1B,
} from '../../../src/parallel/pipeline/schedule.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { goldenRuns } from '../../support/formula-model.ts'
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

test('a GPT in a pipeline trains to equal bits on 2 and 4 devices, by every schedule, and keeps its keys', {
  timeout: 600_000,
}, async () => {
  const [batch, length, vocabSize] = [8, 8, 17]
  const tokens = tensorType([batch, length], 'i32')
  const x = Int32Array.from({ length: batch * length }, (_, i) => (i * i + 3 * i) % vocabSize)
  const y = Int32Array.from(x, (_, i) => x[(i + 1) % x.length])
  const trained = async (count: number, Kind: typeof Schedule1F1B | typeof ScheduleGPipe) => {
    manualSeed(5)
    const model = gpt({ vocabSize, blockSize: length, layers: 4, heads: 2, width: 16 })
    const keys = Object.keys(await model.stateDict())
    const splitSpec = [1, 2, 3].slice(3 - (count - 1)).map((block) => `transformer.h.${block}`)
    const pipe = await pipeline(model, { splitSpec })
    const schedule = new Kind(pipe, {
      microBatches: 4,
      lossFn: (logits, target) => crossEntropy(logits.flatten(0, 1), target.flatten()),
    })
    const optimizer = new AdamW(model.parameters(), { lr: 0.01 })
    const step = await compile(
      (given) => {
        optimizer.zeroGrad()
        const { loss } = schedule.step(given.x, given.y)
        optimizer.step()
        return { loss }
      },
      { x: tokens, y: tokens },
    )
    expect((step as unknown as SplitProgram).parts).toHaveLength(count)
    const losses: number[] = []
    for (let i = 0; i < 12; i++) losses.push((await step.run({ x, y })).loss[0])
    const state = await model.stateDict()
    expect(Object.keys(state)).toEqual(keys)
    step.destroy()
    return { losses, state }
  }
  const two = await trained(2, Schedule1F1B)
  expect(two.losses[11]).toBeLessThan(two.losses[0])
  expect(await trained(4, Schedule1F1B)).toEqual(two)
  expect(await trained(4, ScheduleGPipe)).toEqual(two)
})
