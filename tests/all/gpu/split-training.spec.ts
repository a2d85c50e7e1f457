import { afterAll, describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { spectralNorm } from '../../../src/nn/spectral-norm.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { DataParallel } from '../../../src/parallel/data-parallel/data-parallel.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B, ScheduleGPipe } from '../../../src/parallel/pipeline/schedule.ts'
import { countElements, tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/split.json'
import { formulaUniform, formulaWord } from '../../support/formula-data.ts'
import { goldenRuns } from '../../support/formula-model.ts'
import { allowedDistance, largestDistance } from '../../support/golden.ts'
import {
  type LossOf,
  openDevices,
  pipelined,
  plainLoss,
  trainSplit,
} from '../../support/split-model.ts'
import { expectGolden } from '../../support/trajectory-tests.ts'

// Before anything else in this page opens a device. tests/gpu/split.spec.ts has shorter runs.
const devices = await openDevices(3)
afterAll(() => {
  for (const { gpu } of devices) gpu.close()
})

const run = goldenRuns.find(({ name }) => name === 'mlp adamw')!

describe('an MLP', () => {
  test("in a pipeline: equal bits for every schedule, and PyTorch's losses over 50 steps", async () => {
    const gpipe = await trainSplit(run, pipelined(ScheduleGPipe, 2, 2), devices)
    expectGolden(run, gpipe.losses)
    const others = [pipelined(Schedule1F1B, 2, 2), pipelined(Schedule1F1B, 3, 3, false)]
    const [first, ...rest] = [
      await trainSplit(run, others[0], devices, 10),
      await trainSplit(run, others[1], devices, 10),
    ]
    expect(first.losses).toEqual(gpipe.losses.slice(0, 10))
    for (const one of rest) expect([one.losses, one.bits]).toEqual([first.losses, first.bits])
  })

  test("in DataParallel on two devices: PyTorch's losses over 50 steps", async () => {
    const split = async (model: Module) => {
      await model.to(0)
      return plainLoss(new DataParallel(model, { deviceIds: [0, 1] }))
    }
    const { losses, sentBytes, bits } = await trainSplit(run, split, devices)
    expectGolden(run, losses)
    const parameterBytes = Object.values(bits).reduce(
      (sum, words) => sum + 4 * words.split(',').length,
      0,
    )
    const outputBytes = (run.batchSize / 2) * 10 * 4
    expect(sentBytes).toEqual([parameterBytes + outputBytes, parameterBytes + outputBytes])
  })
})

describe('DataParallel', () => {
  test('spectral norm keeps the vectors of the first device, and is itself on one', async () => {
    const trained = async (wrap: (model: Module) => Module) => {
      manualSeed(6)
      const model = new Sequential(spectralNorm(new Linear(6, 5)), new ReLU(), new Linear(5, 3))
      await model.to(0)
      const before = await model.stateDict()
      const wrapped = wrap(model)
      const optimizer = new SGD(model.parameters(), { lr: 0.1 })
      const program = await compile(
        ({ x, y }) => {
          optimizer.zeroGrad()
          const loss = crossEntropy(wrapped.forward(x) as Tensor, y)
          loss.backward()
          optimizer.step()
          return { loss }
        },
        { x: tensorType([8, 6]), y: tensorType([8], 'i32') },
      )
      const x = Float32Array.from({ length: 48 }, (_, i) => Math.sin(i))
      for (let i = 0; i < 5; i++)
        await program.run({ x, y: Int32Array.from(x.slice(0, 8), (v) => (v > 0 ? 1 : 2)) })
      const after = await model.stateDict()
      program.destroy()
      return { before, after }
    }
    const one = await trained((model) => model)
    const two = await trained((model) => new DataParallel(model, { deviceIds: [0, 1] }))
    const alone = await trained((model) => new DataParallel(model, { deviceIds: [0] }))
    expect(alone.after).toEqual(one.after)
    expect(Object.keys(two.after)).toContain('0.weight_u')
    expect(two.after['0.weight_u'].data).not.toEqual(two.before['0.weight_u'].data)
    for (const [key, { data }] of Object.entries(one.after))
      data.forEach((value, i) => {
        expect(two.after[key].data[i]).toBeCloseTo(value, 5)
      })
  })
})

describe('batch normalization', () => {
  const { features, hidden, classes, steps, cases } = golden

  /** The oracle's classifier, with the weights that it began with. */
  function classifier(): Sequential {
    const model = new Sequential(
      new Linear(features, hidden),
      new BatchNorm1d(hidden),
      new ReLU(),
      new Linear(hidden, hidden),
      new BatchNorm1d(hidden),
      new ReLU(),
      new Linear(hidden, classes),
    )
    const weights = model.parameters().map((parameter, i): [string, object] => [
      parameter.name,
      {
        shape: parameter.shape,
        data: formulaUniform(1 + i, countElements(parameter.shape), 0.5),
      },
    ])
    model.loadStateDict(Object.fromEntries(weights) as never, { strict: false })
    return model
  }

  test.each(cases)(
    '$name: losses and statistics of 20 steps equal those of PyTorch',
    async (one) => {
      const { kind, parts, batchSize } = one
      const model = classifier()
      const optimizer = new SGD(model.parameters(), { lr: 0.2, momentum: 0.9 })
      let lossOf: LossOf
      if (kind === 'pipeline') {
        const pipe = await pipeline(model, { splitSpec: ['3'] })
        const schedule = new Schedule1F1B(pipe, { microBatches: parts, lossFn: crossEntropy })
        lossOf = (x, y) => schedule.step(x, y).loss
      } else {
        const deviceIds = devices.slice(0, parts).map((_, i) => i)
        lossOf = plainLoss(new DataParallel(model, { deviceIds }))
      }
      const step = await compile(
        ({ x, y }) => {
          optimizer.zeroGrad()
          const loss = lossOf(x, y)
          optimizer.step()
          return { loss }
        },
        { x: tensorType([batchSize, features]), y: tensorType([batchSize], 'i32') },
      )
      for (let i = 0; i < steps; i++) {
        const y = Int32Array.from(
          { length: batchSize },
          (_, j) => formulaWord(500 + i, j) % classes,
        )
        const { loss } = await step.run({ x: formulaUniform(100 + i, batchSize * features, 1), y })
        const expected = one.losses[i]
        const distance = Math.max(...one.lossDistances.slice(0, i + 1))
        expect(Math.abs(loss[0] - expected)).toBeLessThanOrEqual(
          allowedDistance(distance, [expected]),
        )
      }
      const state = await model.stateDict()
      for (const [key, { data, distance }] of Object.entries(one.state))
        expect(largestDistance(Array.from(state[key].data), data), key).toBeLessThanOrEqual(
          allowedDistance(distance, data),
        )
      step.destroy()
    },
  )
})
