import { afterAll, describe, expect, test, vi } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import { piecesOf } from '../../src/graph/plan/pieces.ts'
import type { RunInputs } from '../../src/graph/plan/step-program.ts'
import { autocast } from '../../src/graph/trace/autocast.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../src/nn/init.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Module, Sequential } from '../../src/nn/module.ts'
import { packPaddedSequence, padPackedSequence } from '../../src/nn/packed-sequence.ts'
import { LSTM } from '../../src/nn/recurrent.ts'
import { Adam } from '../../src/optim/adam.ts'
import { clipGradNorm } from '../../src/optim/clip.ts'
import { GradScaler } from '../../src/optim/grad-scaler.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { DataParallel } from '../../src/parallel/data-parallel/data-parallel.ts'
import { pipeline } from '../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../src/parallel/pipeline/schedule.ts'
import type { DeviceSpec } from '../../src/util/device.ts'
import { tensorType } from '../../src/util/shape.ts'
import { goldenRuns } from '../support/formula-model.ts'
import { losableDevices } from '../support/losable-devices.ts'
import { onRanks, resultOf } from '../support/ranks-of-one.ts'
import { openDevices, pipelined, trainSplit } from '../support/split-model.ts'

// Before anything else in this page opens a device. tests/all/gpu has the larger models, and losses over whole trainings.
const lose = losableDevices()
const devices = await openDevices(3)
afterAll(() => {
  for (const { gpu } of devices) gpu.close()
  vi.restoreAllMocks()
})

/** The tutorial's toy model: `net1` on one device, `net2` on another. */
class ToyModel extends Module {
  net1 = new Linear(10, 10)
  relu = new ReLU()
  net2 = new Linear(10, 5)

  constructor(
    readonly first: DeviceSpec,
    readonly second: DeviceSpec,
  ) {
    super()
  }

  forward(x: Tensor): Tensor {
    const hidden = this.relu.forward(this.net1.forward(x.to(this.first)))
    return this.net2.forward(hidden.to(this.second))
  }
}

describe("the tutorial's toy model", () => {
  const batch = 20
  const types = { x: tensorType([batch, 10]), y: tensorType([batch], 'i32') }
  const inputs = {
    x: Float32Array.from({ length: batch * 10 }, (_, i) => Math.sin(i * 1.7)),
    y: Int32Array.from({ length: batch }, (_, i) => (i * 7) % 5),
  }

  async function trained(second: DeviceSpec, clips: boolean, initScale?: number) {
    manualSeed(3)
    const scaler = new GradScaler({ enabled: initScale !== undefined, initScale })
    const model = new ToyModel(0, second)
    await model.net1.to(0)
    await model.net2.to(second)
    const optimizer = new Adam(model.parameters(), { lr: 0.01 })
    const step = await compile(({ x, y }) => {
      const forward = () => crossEntropy(model.forward(x), y)
      const loss = initScale ? autocast({ dtype: 'float16' }, forward) : forward()
      optimizer.zeroGrad()
      scaler.scale(loss).backward()
      scaler.unscale(optimizer)
      const norm = clips ? clipGradNorm(model.parameters(), 0.5) : undefined
      scaler.step(optimizer)
      scaler.update()
      return { loss, ...(norm && { norm }) }
    }, types)
    const losses: number[] = []
    for (let run = 0; run < 10; run++) losses.push((await step.run(inputs)).loss[0])
    const state = await model.stateDict()
    const scale = await scaler.getScale()
    const { memory } = step
    step.destroy()
    return { losses, state, scale, memory }
  }

  test('reports the memory of each device, and what it sends: the hidden layer, and its gradient', async () => {
    const { memory } = await trained(1, false)
    const { byDevice = [], ...sums } = memory
    expect(byDevice.map(({ device, sentBytes }) => [device, sentBytes])).toEqual([
      ['webgpu:0', 4 * batch * 10],
      ['webgpu:1', 4 * batch * 10],
    ])
    for (const key of ['peakBytes', 'deviceBytes', 'ioBytes'] as const) {
      for (const one of byDevice) expect(one[key]).toBeGreaterThan(0)
      expect(byDevice[0][key] + byDevice[1][key]).toBe(sums[key])
    }
    expect((await trained(0, false)).memory.byDevice).toBeUndefined()
  })

  type Trained = Awaited<ReturnType<typeof trained>>
  const bitsOf = ({ memory: _, ...bits }: Trained) => bits
  const expectSame = (a: Trained, b: Trained) => expect(bitsOf(a)).toEqual(bitsOf(b))

  test('in float16 with loss scaling on two devices: the bits of one, skipped updates included', async () => {
    const one = await trained(0, true, 2 ** 60)
    expect(one.scale).toBe(2 ** 50)
    const fits = await trained(0, true, 2 ** 10)
    expect(fits.losses[9]).toBeLessThan(fits.losses[0])
    expectSame(await trained(1, true, 2 ** 60), one)
    expectSame(await trained(1, true, 2 ** 10), fits)
  })

  test.each([false, true])(
    'trains on two devices to the bits of one; clipped: %s',
    async (clips) => {
      const one = await trained(0, clips)
      const two = await trained(1, clips)
      expectSame(two, one)
      expect(two.losses[9]).toBeLessThan(two.losses[0])
    },
  )

  test('trains with its second layer on the CPU', async () => {
    const one = await trained(0, true)
    const mixed = await trained('reference', true)
    mixed.losses.forEach((loss, i) => {
      expect(loss).toBeCloseTo(one.losses[i], 5)
    })
  })
})

const run = goldenRuns.find(({ name }) => name === 'mlp adamw')!

describe('an MLP', () => {
  test('in a pipeline that is watched: the same bits, and when each stage did each micro-batch', async () => {
    const split = pipelined(Schedule1F1B, 2, 2)
    const steps: { name: string; atMs: number }[][] = []
    const watched = await trainSplit(run, split, devices, 3, steps)
    expect(watched).toEqual(await trainSplit(run, split, devices, 3))
    const pieces = piecesOf(steps[2])
    for (const stage of [0, 1]) {
      const own = pieces.filter((piece) => piece.stage === stage)
      const tasks = own.map(({ phase, microBatch }) => `${phase[0].toUpperCase()}${microBatch}`)
      // A task that waits for a gradient in its middle is two.
      expect(tasks.filter((task, i) => task !== tasks[i - 1]).join(' ')).toBe(
        ['F0 F1 B0 F2 B1 F3 B2 B3', 'F0 B0 F1 B1 F2 B2 F3 B3'][stage],
      )
      for (const [i, { device, beginMs, endMs }] of own.entries()) {
        expect(device).toBe(`webgpu:${stage}`)
        expect(endMs).toBeGreaterThanOrEqual(beginMs)
        expect(beginMs).toBeGreaterThanOrEqual(own[i - 1]?.endMs ?? 0)
      }
    }
  })
})

/** An LSTM over sequences of different lengths. */
class Ragged extends Module {
  lstm = new LSTM(3, 4, { batchFirst: true })
  head = new Linear(4, 2)

  forward(x: Tensor, lengths: Tensor): Tensor {
    const packed = packPaddedSequence(x, lengths, { batchFirst: true })
    const { output: out } = this.lstm.withState(packed)
    const options = { batchFirst: true, totalLength: x.shape[1] }
    return this.head.forward(padPackedSequence(out, options).output)
  }
}

describe('DataParallel', () => {
  test('sequences of different lengths give the outputs of one device', async () => {
    const types = { x: tensorType([6, 5, 3]), lengths: tensorType([6], 'i32') }
    const inputs = {
      x: Float32Array.from({ length: 90 }, (_, i) => Math.sin(i)),
      lengths: Int32Array.of(5, 4, 4, 3, 2, 1),
    }
    const outputsOf = async (wrap: (model: Ragged) => Module) => {
      manualSeed(6)
      const model = new Ragged()
      await model.to(0)
      const wrapped = wrap(model)
      const program = await compile(
        ({ x, lengths }) => ({ y: wrapped.forward(x, lengths) as Tensor }),
        types,
      )
      const { y } = await program.run(inputs)
      program.destroy()
      return y
    }
    const two = await outputsOf((model) => new DataParallel(model, { deviceIds: [0, 1] }))
    expect(two).toEqual(await outputsOf((model) => model))
  })
})

describe('a part that fails', () => {
  test('ends the run on all devices with its error, and the next run with the same', async () => {
    const model = new ToyModel(0, 2)
    await model.net1.to(0)
    await model.net2.to(2)
    const types = { x: tensorType([4, 10]) }
    const step = await compile(({ x }) => ({ out: model.forward(x) }), types)
    const x = new Float32Array(40).fill(1)
    await step.run({ x })
    const staged = new Sequential(new Linear(10, 10), new Linear(10, 5))
    const pipe = await pipeline(staged, { stages: 2, devices: [0, 2] })
    const schedule = new Schedule1F1B(pipe, { microBatches: 2, lossFn: (out) => out.sum() })
    const pipelined = await compile(({ x }) => ({ loss: schedule.step(x, x).loss }), types)
    await pipelined.run({ x })
    lose(devices[2].gpu.device)
    for (const _ of [1, 2])
      await expect(step.run({ x })).rejects.toMatchObject({
        code: 'gpu.lost',
        message: expect.stringMatching(/^device webgpu:2: lost /),
      })
    await expect(pipelined.run({ x })).rejects.toMatchObject({
      code: 'gpu.lost',
      message: expect.stringMatching(/^device webgpu:2, stage 1 \("1"\): lost /),
    })
  })

  test('ends the run on all ranks when a device is lost in the middle of it', async () => {
    const errors = await onRanks(2, async (group) => {
      manualSeed(1)
      const model = new Sequential(new Linear(10, 10), new ReLU(), new Linear(10, 5))
      const pipe = await pipeline(model, {
        splitSpec: ['2'],
        devices: ['rank:0/webgpu:0', 'rank:1/webgpu:1'],
      })
      const schedule = new Schedule1F1B(pipe, { microBatches: 4, lossFn: crossEntropy })
      const optimizer = new SGD(model.parameters(), { lr: 0.1 })
      const step = await compile(
        ({ x, y }) => {
          optimizer.zeroGrad()
          const { loss } = schedule.step(x, y)
          optimizer.step()
          return { loss }
        },
        { x: tensorType([8, 10]), y: tensorType([8], 'i32') },
        { device: 'webgpu:0', group },
      )
      const x = new Float32Array(80).fill(1)
      const y = new Int32Array(8)
      const inputs: RunInputs = group.rank === 0 ? { x } : { y }
      await step.run(inputs)
      // The second stage's device goes as soon as it has begun the second of four micro-batches.
      if (group.rank === 1)
        step.onMark = (name) => {
          if (/forward of micro-batch 1, stage 1: ready/.test(name)) lose(devices[1].gpu.device)
        }
      return step.run(inputs).then(
        () => 'no error',
        ({ code, message }) => `${code}: ${message}`,
      )
    })
    const [first, second] = errors.map(resultOf)
    expect(second).toMatch(/^gpu\.lost: device rank:1\/webgpu:1, stage 1 \("2"\): lost /)
    expect(first).toMatch(/rank 1.*stage 1 \("2"\): lost /s)
  })
})
