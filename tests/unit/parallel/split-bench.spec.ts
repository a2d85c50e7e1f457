import { describe, expect, test } from 'vitest'
import { barLines, barsAsSvg, stripLines } from '../../../bench/split/plot.ts'
import { formatReport } from '../../../bench/split/report.ts'
import type { Split, SplitTimes } from '../../../bench/split/task.ts'
import { tasksOf, tasksOfWhole } from '../../../bench/split/tasks.ts'
import { percentMore } from '../../../bench/statistics.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { partsOf } from '../../../src/graph/plan/parts.ts'
import { planStep, traceStep } from '../../../src/graph/plan/prepare.ts'
import { cnn } from '../../../src/nn/cnn.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { gpipeOrder } from '../../../src/parallel/pipeline/orders.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { ScheduleGPipe } from '../../../src/parallel/pipeline/schedule.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

test("the tutorial's times give its percentages", () => {
  // Seconds for ResNet-50: on one GPU, with layers on two, and pipelined.
  const [one, layers, pipelined, best] = [3.75, 4.02, 2.51, 2.43]
  expect(percentMore(layers, one).toFixed(0)).toBe('7')
  expect(percentMore(one, pipelined).toFixed(0)).toBe('49')
  expect(percentMore(one, best).toFixed(0)).toBe('54')
})

test('bars are as long as their values, in text and as an image', () => {
  const bars = [
    { name: 'one', value: 10, deviation: 1 },
    { name: 'a < b', value: 5, deviation: 0 },
  ]
  const lengths = barLines(bars).map((line) => line.replaceAll(/[^█]/g, '').length)
  expect(lengths).toEqual([50, 25])
  const svg = barsAsSvg('Times', bars)
  expect(svg).toContain('a &lt; b')
  const widths = [...svg.matchAll(/<rect x="180"[^>]* width="([\d.]+)"/g)]
  expect(widths.map(([, width]) => Number(width))).toEqual([418.2, 209.1])
})

test('a schedule as text has a line for each device, idle before its first task', () => {
  const task = { kind: 'forward', stage: 0, microBatch: 0 } as const
  const lines = stripLines(
    [
      { ...task, device: 0, startMs: 0, endMs: 1 },
      { ...task, kind: 'backward', device: 1, startMs: 1, endMs: 3 },
    ],
    2,
  )
  expect(lines).toEqual([
    `device 0 ${'░'.repeat(24)}${'·'.repeat(48)}`,
    `device 1 ${'·'.repeat(24)}${'█'.repeat(48)}`,
  ])
})

const ordersOf = (stages: number, microBatches: number) =>
  Array.from({ length: stages }, (_, device) =>
    gpipeOrder({ device, deviceCount: stages, stageCount: stages, microBatches }),
  )

describe('the report', () => {
  const task = { model: 'cnn', batch: 12, stages: 3, repeats: 2 } as const
  const facts = { compileMs: 1000, peakBytes: [0], sentBytes: [0] }
  const timesOf = (split: Split, ms: number, tasks: SplitTimes['tasks'] = []): SplitTimes => ({
    ...facts,
    split,
    stepMs: [ms, ms],
    tasks,
  })
  /** A column by the names of its rows. */
  const columnOf = (times: readonly SplitTimes[], name: string) => {
    const lines = formatReport(task, times, [1 / 3, 1 / 3, 1 / 3], 'here')
      .split('\n')
      .filter((line) => line.startsWith('|'))
    const [head, , ...rows] = lines.map((line) => line.split('|').map((cell) => cell.trim()))
    return Object.fromEntries(rows.map((cells) => [cells[1], cells[head.indexOf(name)]]))
  }
  const layers = [0, 1, 2].map(tasksOfWhole)
  const times = [
    timesOf('one', 90),
    timesOf('layers', 100, layers),
    timesOf(4, 60, ordersOf(3, 3)),
    timesOf(2, 50, ordersOf(3, 6)),
  ]

  test('has the ideal and the bubble of m micro-batches on 3 devices', () => {
    // 1, 3 and 6 micro-batches take 3, 5 and 8 turns, in each of which a device computes 1/3, 1/9 and 1/18 of the step.
    expect(columnOf(times, 'ideal')).toEqual({
      'one device': '1.000',
      'layers on devices': '1.000',
      'micro-batches of 4': '0.556',
      'micro-batches of 2': '0.444',
    })
    // Of these turns each device idles for 2.
    expect(columnOf(times, 'bubble of it, %')).toEqual({
      'one device': '0',
      'layers on devices': '67',
      'micro-batches of 4': '40',
      'micro-batches of 2': '25',
    })
    expect(columnOf(times, 'of the ideal, %')).toEqual({
      'one device': '100',
      'layers on devices': '90',
      'micro-batches of 4': '83',
      'micro-batches of 2': '80',
    })
  })

  test('simulates the tasks that the step has, not those of GPipe', () => {
    const simulated = columnOf(times, 'simulated devices')
    // Equal stages come to the ideal, and a little more for each task and transfer.
    expect(Number(simulated['micro-batches of 4'])).toBeGreaterThan(0.556)
    expect(Number(simulated['micro-batches of 4'])).toBeLessThan(0.62)
    // One micro-batch after the other: no two devices compute at the same time.
    const inTurn = [0, 1, 2].map((stage) =>
      [0, 1, 2].flatMap((microBatch) => tasksOfWhole(stage).map((one) => ({ ...one, microBatch }))),
    )
    const slow = columnOf([times[0], times[1], timesOf(4, 60, inTurn)], 'simulated devices')
    expect(Number(slow['micro-batches of 4'])).toBeGreaterThan(1)
  })
})

test('the tasks of a traced step are those of its schedule, in order', async () => {
  const model = cnn()
  const pipe = await pipeline(model, { stages: 2 })
  const schedule = new ScheduleGPipe(pipe, { microBatches: 4, lossFn: crossEntropy })
  const optimizer = new SGD(model.parameters(), { lr: 0.1 })
  const step = traceStep(
    { type: 'webgpu', index: 0 },
    ({ x, y }) => {
      optimizer.zeroGrad()
      const { loss } = schedule.step(x, y)
      optimizer.step()
      return { loss }
    },
    { x: tensorType([8, 1, 28, 28]), y: tensorType([8], 'i32') },
  )
  const parts = partsOf(step).map(({ step: own }) => tasksOf(planStep(planningTarget, own)))
  expect(parts).toEqual(ordersOf(2, 4))
})
