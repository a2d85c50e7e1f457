import { expect, test } from 'vitest'
import { batchOf, makeNetwork, makeOptimizer, run, types } from '../../../demos/split/network.ts'
import { batch, choices, defaults, queryOf, settingsIn } from '../../../demos/split/settings.ts'
import { costs, momentOf, oneDeviceMs, simulated } from '../../../demos/split/simulated.ts'
import { ddpSent } from '../../../demos/split/ways.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { startTask } from '../../support/task-ranks.ts'

test('an address and its settings are each other, and what it has wrong is named', () => {
  const settings = { devices: 4, schedule: 'gpipe', split: 15 } as const
  const query = new URLSearchParams(queryOf(settings)).toString()
  expect(query).toBe('devices=4&schedule=gpipe&split=15')
  expect(settingsIn(`?${query}`)).toEqual({ settings, refused: [] })
  expect(queryOf(defaults)).toEqual([])
  expect(settingsIn('?devices=9&split=30')).toEqual({
    settings: defaults,
    refused: ['devices=9: expected 2, 3, 4'],
  })
  for (const size of choices.split) expect(batch % size).toBe(0)
})

test('each rank of DDP sends less than the first device of DataParallel, and all ranks twice its sum', () => {
  for (const count of [2, 3, 4]) {
    const devices = Array.from({ length: count }, (_, i) => ({
      parameters: i === 0 ? 1200 : 0,
      plan: 0,
      sent: 0,
    }))
    const firstSends = (count - 1) * 1200
    expect(count * ddpSent(devices)).toBe(2 * firstSends)
    expect(ddpSent(devices)).toBeLessThanOrEqual(firstSends)
  }
})

test('four steps have every point once, and both arms', () => {
  const points = new Set<string>()
  for (let step = 0; step < 4; step++) {
    const { x, y } = batchOf(step)
    expect(new Set(y)).toEqual(new Set([0, 1]))
    for (let row = 0; row < batch; row++) points.add(`${x[2 * row]} ${x[2 * row + 1]} ${y[row]}`)
  }
  expect(points.size).toBe(480)
})

test('takes the steps of the run that its link opens', async () => {
  const link = { ...run, steps: 6, parallel: 'dp' }
  const { ranks, close } = await startTask(1, link, () => new ReferenceRuntime())
  const [{ events }] = ranks
  await ranks[0].end
  close()
  const model = makeNetwork()
  const optimizer = makeOptimizer(model)
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const loss = crossEntropy(model.forward(x), y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    types,
    { device: 'reference' },
  )
  const losses: number[] = []
  for (let i = 0; i < 6; i++) losses.push((await step.run({ ...batchOf(i) })).loss[0])
  expect(losses).toEqual(events.flatMap((one) => (one.event === 'step' ? [one.loss] : [])))
})

test.each([2, 3, 4])(
  'on %i simulated devices a pipeline idles for what the formula says',
  (devices) => {
    for (const schedule of ['1f1b', 'gpipe'] as const) {
      for (const microBatches of [4, 12]) {
        const { bubble, endMs } = simulated({ devices, schedule }, microBatches)
        const ideal = (devices - 1) / (microBatches + devices - 1)
        // The rest are transfers and what each task costs besides.
        expect(bubble).toBeGreaterThanOrEqual(ideal - 1e-9)
        expect(bubble).toBeLessThan(ideal + 0.1)
        expect(endMs).toBeLessThan(oneDeviceMs)
      }
    }
    const whole = simulated({ devices, schedule: '1f1b' }, 1)
    expect(whole.endMs).toBeCloseTo(
      costs.forward +
        costs.backward +
        2 * devices * costs.perTask +
        2 * (devices - 1) * costs.transfer,
    )
  },
)

test.each([
  ['gpipe', [6, 6, 6]],
  ['1f1b', [3, 2, 1]],
] as const)('%s: each stage holds at most %j micro-batches', (schedule, expected) => {
  const step = simulated({ devices: 3, schedule }, 6)
  const max = [0, 0, 0]
  let moved = 0
  for (let ms = 0; ms < step.endMs; ms += 0.4) {
    const { held, transfers, running } = momentOf(step, 3, ms)
    held.forEach((own, stage) => {
      max[stage] = Math.max(max[stage], own.length)
    })
    moved += transfers.length
    for (const one of transfers) expect(Math.abs(one.from - one.to)).toBe(1)
    running.forEach((task, stage) => {
      if (task) expect(task.stage).toBe(stage)
    })
  }
  expect(max).toEqual(expected)
  expect(moved).toBeGreaterThan(0)
  const end = momentOf(step, 3, step.endMs)
  expect(end.held).toEqual([[], [], []])
})
