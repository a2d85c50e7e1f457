import { describe, expect, test } from 'vitest'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { partsOf } from '../../../src/graph/plan/parts.ts'
import { type InputTypes, planStep, traceStep } from '../../../src/graph/plan/prepare.ts'
import type { StageTask } from '../../../src/graph/trace/stage-marks.ts'
import { isEnd } from '../../../src/kernels/transfer/ends.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { type Pipe, pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import {
  type Schedule,
  Schedule1F1B,
  ScheduleGPipe,
  ScheduleInterleaved1F1B,
  type ScheduleOptions,
} from '../../../src/parallel/pipeline/schedule.ts'
import { bubbleOf, simulateSchedule } from '../../../src/parallel/pipeline/simulate.ts'
import { formatDevice } from '../../../src/util/device.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

const width = 64
const types = { x: tensorType([32, width]), y: tensorType([32], 'i32') }

/** Linear and ReLU in turn. */
const tower = (layers: number, features = width) =>
  new Sequential(
    ...Array.from({ length: layers }, () => [new Linear(features, features), new ReLU()]).flat(),
  )

type AnySchedule = new (pipe: Pipe, options: ScheduleOptions) => Schedule

/** The parts of a training step. */
function partsFor(
  Schedule: AnySchedule,
  pipe: Pipe,
  options: ScheduleOptions,
  inputs: InputTypes = types,
) {
  const lossFn = crossEntropy
  const schedule = new Schedule(pipe, { lossFn, ...options })
  const optimizer = new SGD(pipe.module.parameters(), { lr: 0.1 })
  const step = traceStep(
    { type: 'webgpu', index: 0 },
    ({ x, y }) => {
      optimizer.zeroGrad()
      const { loss } = schedule.step(x, y)
      optimizer.step()
      return { loss }
    },
    inputs,
  )
  return partsOf(step).map(({ device, step: own }) => ({
    name: formatDevice(device),
    step: own,
    plan: planStep(planningTarget, own),
  }))
}

const peakOf = (parts: ReturnType<typeof partsFor>) => parts.map(({ plan }) => plan.plan.peakBytes)

describe('a pipelined step', () => {
  test('sends each micro-batch once in each direction at every cut', async () => {
    const pipe = await pipeline(tower(4), { stages: 2 })
    const [one, two] = partsFor(ScheduleGPipe, pipe, { microBatches: 4 })
    expect([one.name, two.name]).toEqual(['webgpu:0', 'webgpu:1'])
    expect(one.plan.crossings.map(({ kind }) => kind).join(' ')).toBe(
      'send send send send receive receive receive receive',
    )
    expect(two.plan.crossings.map(({ kind }) => kind).join(' ')).toBe(
      'receive receive receive receive send send send send',
    )
    expect(two.plan.crossings[0].values[0].value.type.shape).toEqual([8, width])
  })

  test('alternates under 1F1B', async () => {
    const pipe = await pipeline(tower(4), { stages: 2 })
    const [one, two] = partsFor(Schedule1F1B, pipe, { splitSize: 8 })
    expect(one.plan.crossings.map(({ kind }) => kind).join(' ')).toBe(
      'send send receive send receive send receive receive',
    )
    expect(two.plan.crossings.map(({ kind }) => kind).join(' ')).toBe(
      'receive send receive send receive send receive send',
    )
  })

  test('1F1B keeps fewer activations than GPipe, and the number does not grow with micro-batches', async () => {
    const [samples, features] = [64, 16]
    const peaks = async (Schedule: AnySchedule, microBatches: number) => {
      const pipe = await pipeline(tower(4, features), { stages: 2 })
      return peakOf(
        partsFor(
          Schedule,
          pipe,
          { microBatches },
          {
            x: tensorType([samples * microBatches, features]),
            y: tensorType([samples * microBatches], 'i32'),
          },
        ),
      )
    }
    const gpipe = [await peaks(ScheduleGPipe, 4), await peaks(ScheduleGPipe, 12)]
    const alternating = [await peaks(Schedule1F1B, 4), await peaks(Schedule1F1B, 12)]
    const activationBytes = samples * features * 4
    for (const stage of [0, 1]) {
      expect(alternating[0][stage]).toBeLessThan(gpipe[0][stage])
      expect(gpipe[1][stage] - gpipe[0][stage]).toBeGreaterThanOrEqual(8 * activationBytes)
      // A loss for each micro-batch, in an aligned place.
      expect(alternating[1][stage] - alternating[0][stage]).toBeLessThanOrEqual(8 * 256)
    }
  })

  test('adds gradients of micro-batches where the bucket keeps them, not beside it', async () => {
    const pipe = await pipeline(tower(8, 256), { stages: 2 })
    const inputs = { x: tensorType([16, 256]), y: tensorType([16], 'i32') }
    const layerBytes = 256 * 256 * 4
    for (const Kind of [ScheduleGPipe, Schedule1F1B]) {
      const peaks = peakOf(partsFor(Kind, pipe, { microBatches: 4 }, inputs))
      // A stage has four layers. One layer's gradient at a time is beside the bucket, with activations of 4 KiB.
      for (const peak of peaks) expect(peak).toBeLessThan(1.5 * layerBytes)
    }
  })

  test('computes blocks under checkpoint again and keeps less', async () => {
    const peaks = async (checkpoint: boolean) => {
      const config = { vocabSize: 11, blockSize: 32, layers: 4, heads: 2, width: 16 }
      const pipe = await pipeline(gpt({ ...config, checkpoint }), {
        splitSpec: ['transformer.h.2'],
      })
      const tokens = tensorType([16, 32], 'i32')
      const lossFn: ScheduleOptions['lossFn'] = (logits, y) =>
        crossEntropy(logits.flatten(0, 1), y.flatten())
      return peakOf(
        partsFor(ScheduleGPipe, pipe, { microBatches: 4, lossFn }, { x: tokens, y: tokens }),
      )
    }
    const [kept, computed] = [await peaks(false), await peaks(true)]
    for (const stage of [0, 1]) expect(computed[stage]).toBeLessThan(kept[stage] / 2)
  })

  test('interleaved stages lie on every n-th device', async () => {
    const pipe = await pipeline(tower(4), { stages: 4, devices: ['webgpu:0', 'webgpu:1'] })
    expect(pipe.stages.map(({ device }) => formatDevice(device))).toEqual([
      'webgpu:0',
      'webgpu:1',
      'webgpu:0',
      'webgpu:1',
    ])
    const parts = partsFor(ScheduleInterleaved1F1B, pipe, { microBatches: 4 })
    expect(parts).toHaveLength(2)
    for (const { plan } of parts) expect(plan.crossings).toHaveLength(3 * 4 * 2)
  })

  test("a GPT's output layer reads the embedding's table, which is copied once per step", async () => {
    const model = gpt({ vocabSize: 11, blockSize: 4, layers: 2, heads: 1, width: 8 })
    const pipe = await pipeline(model, { splitSpec: ['transformer.h.1'] })
    const lossFn: ScheduleOptions['lossFn'] = (logits, y) =>
      crossEntropy(logits.flatten(0, 1), y.flatten())
    const tokens = tensorType([4, 4], 'i32')
    const [one] = partsFor(
      Schedule1F1B,
      pipe,
      { microBatches: 2, lossFn },
      { x: tokens, y: tokens },
    )
    const tables = one.plan.crossings.filter(({ values }) =>
      values.some(({ value }) => value.type.shape[0] === 11),
    )
    expect(tables.map(({ kind }) => kind)).toEqual(['send', 'receive', 'receive'])
  })
})

/** The tasks of a part, in the order of its nodes. */
function tasksIn({ step: { nodes, trace } }: ReturnType<typeof partsFor>[number]): StageTask[] {
  const tasks = nodes.flatMap((node) =>
    isEnd(node.op) ? [] : (trace.stages!.taskOf(node, trace) ?? []),
  )
  const keyOf = (task: StageTask | undefined) => JSON.stringify(task)
  return tasks.filter((task, i) => keyOf(task) !== keyOf(tasks[i - 1]))
}

describe('the order of a traced step', () => {
  test.each([
    ['GPipe', ScheduleGPipe, 2, 2, 4],
    ['GPipe', ScheduleGPipe, 4, 4, 8],
    ['1F1B', Schedule1F1B, 2, 2, 4],
    ['1F1B', Schedule1F1B, 4, 4, 8],
    ['interleaved', ScheduleInterleaved1F1B, 4, 2, 4],
  ] as const)(
    '%s, %#: idles on simulated devices for what the formula says',
    async (_name, Kind, stages, deviceCount, microBatches) => {
      const devices = Array.from({ length: deviceCount }, (_, i) => i)
      const pipe = await pipeline(tower(4), { stages, balance: 'layers', devices })
      const parts = partsFor(Kind, pipe, { microBatches })
      for (const { plan } of parts) {
        const made = new Set<unknown>()
        for (const { inputs: read, outputs } of plan.nodes) {
          for (const value of read) expect(value.node === undefined || made.has(value)).toBe(true)
          for (const value of outputs) made.add(value)
        }
      }
      const orders = parts.map(tasksIn)
      for (const tasks of orders)
        expect(tasks).toHaveLength((2 * microBatches * stages) / deviceCount)
      const costs = { forwardMs: () => 1, backwardMs: () => 2, transferMs: 0 }
      const perDevice = stages / deviceCount
      const idle = (deviceCount - 1) / perDevice
      const ideal = idle / (microBatches + idle)
      const bubble = bubbleOf(simulateSchedule(orders, costs))
      expect(Math.abs(bubble - ideal)).toBeLessThan(0.1 * ideal)
    },
  )
})

describe('pipeline', () => {
  const cut = (options: Parameters<typeof pipeline>[1], module: Module = tower(2)) =>
    pipeline(module, options)

  test('lists the keys of each stage, and keeps those of the state dict', async () => {
    const pipe = await cut({ splitSpec: ['2'] })
    expect(pipe.stages.map(({ keys }) => keys)).toEqual([
      ['0.weight', '0.bias'],
      ['2.weight', '2.bias'],
    ])
    expect(Object.keys(await pipe.module.stateDict())).toEqual([
      '0.weight',
      '0.bias',
      '2.weight',
      '2.bias',
    ])
  })

  test.each([
    [{ splitSpec: ['7'] }, 'no submodule "7"'],
    [{ splitSpec: ['2', '1'] }, 'stage 2 begins at "1", which is not after "2"'],
    [{ splitSpec: { 2: 'beginning' } as never }, 'splitSpec must be a list of paths of submodules'],
    [{ splitSpec: [2] as never }, 'splitSpec[0] must be one of the paths of submodules'],
    [{ splitSpec: '2' as never }, 'splitSpec must be a list of paths of submodules'],
    [
      { stages: 2, devices: 'reference' as never },
      'devices must be a list of devices, got "reference"',
    ],
    [{ stages: 9 }, '9 stages are more than the 4 layers'],
    [{ stages: 0 }, 'a number of stages above 0, got 0'],
    [{ stages: 2, balance: [1, 2] }, 'balance has 2 costs, but the module has 4 layers'],
    [{ stages: 2, balance: [Number.NaN, 1, 1, 1] }, 'balance[0] must be a number of 0 or more'],
    [{ stages: 2, balance: [1, -5, 1, 1] }, 'balance[1] must be a number of 0 or more, got -5'],
    [{ stages: 2, balance: 'time' as 'layers' }, 'balance must be "parameters", "layers" or costs'],
    [{ stages: 2, devices: [] }, 'devices is empty'],
  ])('refuses %j', async (options, text) => {
    await expect(cut(options)).rejects.toThrow(text)
  })

  test('a stage that forward does not call is named', async () => {
    const model = gpt({ vocabSize: 11, blockSize: 4, layers: 1, heads: 1, width: 8 })
    const pipe = await pipeline(model, { splitSpec: ['transformer.wpe'] })
    const tokens = tensorType([4, 4], 'i32')
    expect(() =>
      partsFor(ScheduleGPipe, pipe, { microBatches: 2 }, { x: tokens, y: tokens }),
    ).toThrow(
      'pipeline: stage 1 begins at "transformer.wpe", but forward called "transformer.drop" without it',
    )
  })
})

describe('a schedule', () => {
  test('refuses micro-batches that do not divide the batch', async () => {
    const pipe = await pipeline(tower(2), { stages: 2 })
    expect(() => partsFor(ScheduleGPipe, pipe, { microBatches: 5 })).toThrow(
      'ScheduleGPipe: 5 micro-batches do not divide a batch of 32',
    )
    expect(() => partsFor(ScheduleGPipe, pipe, { splitSize: 5 })).toThrow(
      'micro-batches of 5 samples do not divide a batch of 32',
    )
  })

  test('refuses both or neither of microBatches and splitSize', async () => {
    const pipe = await pipeline(tower(2), { stages: 2 })
    for (const options of [{}, { microBatches: 2, splitSize: 16 }])
      expect(() => new ScheduleGPipe(pipe, options)).toThrow('expected microBatches or splitSize')
  })

  test('1F1B refuses several stages on a device', async () => {
    const pipe = await pipeline(tower(4), { stages: 4, devices: [0, 1] })
    expect(() => partsFor(Schedule1F1B, pipe, { microBatches: 4 })).toThrow(
      'Schedule1F1B: 4 stages on 2 devices',
    )
  })
})
