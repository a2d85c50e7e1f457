import { describe, expect, test } from 'vitest'
import type { StageTask } from '../../../src/graph/trace/stage-marks.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { resnet18 } from '../../../src/nn/resnet.ts'
import { cutEvenly, layersOf } from '../../../src/parallel/pipeline/cut.ts'
import {
  gpipeOrder,
  interleavedOrder,
  type TaskOrder,
} from '../../../src/parallel/pipeline/orders.ts'
import { bubbleOf, simulateSchedule } from '../../../src/parallel/pipeline/simulate.ts'

const text = (tasks: readonly StageTask[]) =>
  tasks
    .map(({ kind, stage, microBatch }) => `${kind === 'forward' ? 'F' : 'B'}${stage}.${microBatch}`)
    .join(' ')

const ordersOf = (order: TaskOrder, deviceCount: number, perDevice: number, microBatches: number) =>
  Array.from({ length: deviceCount }, (_, device) =>
    order({ device, deviceCount, stageCount: deviceCount * perDevice, microBatches }),
  )

const even = { forwardMs: () => 1, backwardMs: () => 2, transferMs: 0 }

describe('orders of tasks', () => {
  test('GPipe runs all forwards first', () => {
    expect(ordersOf(gpipeOrder, 2, 1, 3).map(text)).toEqual([
      'F0.0 F0.1 F0.2 B0.0 B0.1 B0.2',
      'F1.0 F1.1 F1.2 B1.0 B1.1 B1.2',
    ])
  })

  test('1F1B alternates once the pipeline is full', () => {
    expect(ordersOf(interleavedOrder, 3, 1, 4).map(text)).toEqual([
      'F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3',
      'F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3',
      'F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3',
    ])
  })

  test('interleaved stages take turns in rounds of one micro-batch for each device', () => {
    expect(text(ordersOf(interleavedOrder, 2, 2, 4)[0])).toBe(
      'F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3',
    )
  })

  const grid = [1, 2, 3, 4].flatMap((devices) =>
    [1, 2, 3].flatMap((perDevice) =>
      [1, 2, 5].map((rounds) => [devices, perDevice, devices * rounds] as const),
    ),
  )
  test.each(grid)(
    '%i devices with %i stages each and %i micro-batches do every task once',
    (devices, perDevice, microBatches) => {
      for (const order of [gpipeOrder, interleavedOrder]) {
        const spans = simulateSchedule(ordersOf(order, devices, perDevice, microBatches), even)
        const names = spans.map((span) => text([span]))
        expect(new Set(names).size).toBe(2 * devices * perDevice * microBatches)
        expect(names).toHaveLength(2 * devices * perDevice * microBatches)
      }
    },
  )

  test.each([
    [2, 4],
    [3, 3],
    [4, 8],
    [4, 2],
  ])(
    'stage s of %i holds at most %i forwards under 1F1B, bounded by the stages after it',
    (devices, microBatches) => {
      for (const [stage, tasks] of ordersOf(interleavedOrder, devices, 1, microBatches).entries()) {
        let [held, max] = [0, 0]
        for (const { kind } of tasks) {
          held += kind === 'forward' ? 1 : -1
          max = Math.max(max, held)
        }
        expect(max).toBe(Math.min(microBatches, devices - stage))
      }
    },
  )
})

describe('bubbles on simulated devices', () => {
  test.each([
    [2, 1, 1],
    [2, 4, 1],
    [4, 8, 1],
    [4, 8, 2],
    [2, 6, 3],
  ])(
    '%i devices, %i micro-batches, %i stages each: the formula',
    (devices, microBatches, perDevice) => {
      const orders = ordersOf(interleavedOrder, devices, perDevice, microBatches)
      const each = {
        forwardMs: () => 1 / perDevice,
        backwardMs: () => 2 / perDevice,
        transferMs: 0,
      }
      const idle = (devices - 1) / perDevice
      expect(bubbleOf(simulateSchedule(orders, each))).toBeCloseTo(idle / (microBatches + idle), 10)
      if (perDevice > 1) return
      const gpipe = ordersOf(gpipeOrder, devices, 1, microBatches)
      expect(bubbleOf(simulateSchedule(gpipe, each))).toBeCloseTo(idle / (microBatches + idle), 10)
    },
  )

  test('transfers make it larger', () => {
    const orders = ordersOf(gpipeOrder, 2, 1, 4)
    const slow = simulateSchedule(orders, { ...even, transferMs: 0.5 })
    expect(bubbleOf(slow)).toBeGreaterThan(bubbleOf(simulateSchedule(orders, even)))
  })

  test('orders that wait for each other are refused', () => {
    const [one, two] = ordersOf(gpipeOrder, 2, 1, 1)
    expect(() => simulateSchedule([[...one].reverse(), two], even)).toThrow(/wait for each other/)
  })
})

describe('cuts', () => {
  test('make the dearest stage as cheap as can be', () => {
    expect(cutEvenly([1, 1, 1, 1], 2)).toEqual([2])
    expect(cutEvenly([9, 1, 1, 1], 2)).toEqual([1])
    expect(cutEvenly([2, 3, 4, 1, 5, 2], 3)).toEqual([2, 4])
    expect(cutEvenly([1, 2, 3], 3)).toEqual([1, 2])
  })

  test('more stages than layers are refused', () => {
    expect(() => cutEvenly([1, 2], 3)).toThrow('3 stages are more than the 2 layers')
  })

  test('layers are blocks, not what is inside them', () => {
    const model = gpt({ vocabSize: 11, blockSize: 4, layers: 2, heads: 1, width: 4 })
    expect(layersOf(model).map(([path]) => path)).toEqual([
      'transformer.wte',
      'transformer.drop',
      'transformer.h.0',
      'transformer.h.1',
      'transformer.ln_f',
      'lm_head',
    ])
    const paths = layersOf(resnet18()).map(([path]) => path)
    expect(paths.slice(0, 6)).toEqual(['conv1', 'bn1', 'relu', 'maxpool', 'layer1.0', 'layer1.1'])
  })
})
