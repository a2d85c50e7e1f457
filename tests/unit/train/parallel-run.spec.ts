import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { lossesOf, resultsOf } from '../../support/train-ranks.ts'

// The built-in training with a model that is divided over ranks. tests/all/unit/train/parallel-run.spec.ts has more ranks and continued runs.

beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

test('two sharded ranks end with the bits of two whole ones, evaluations included', async () => {
  const whole = await trainDigits(2, { epochs: 2 })
  const sharded = await trainDigits(2, { epochs: 2, parallel: 'fsdp' })
  const [expected] = resultsOf(whole)
  for (const [rank, result] of resultsOf(sharded).entries()) {
    expect(result.paramHash).toBe(expected.paramHash)
    expect(result.testAccuracy).toBe(expected.testAccuracy)
    expect(result.heldOutLoss).toBeCloseTo(expected.heldOutLoss, 5)
    const losses = lossesOf(sharded[rank])
    expect(losses).toHaveLength(6)
    for (const [i, loss] of lossesOf(whole[rank]).entries()) expect(losses[i]).toBeCloseTo(loss, 5)
  }
}, 60_000)

test('three sharded ranks, of which one has no sample in a short step, follow one rank', async () => {
  const [one] = await trainDigits(1, { epochs: 2 })
  const three = await trainDigits(3, { epochs: 2, parallel: 'fsdp' })
  const results = resultsOf(three)
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  for (const rank of three) {
    const losses = lossesOf(rank)
    for (const [i, loss] of lossesOf(one).entries()) expect(losses[i]).toBeCloseTo(loss, 4)
  }
}, 60_000)

test('two sharded ranks clip by the norm of all gradients', async () => {
  const settings = { epochs: 1, optimizer: 'sgd' } as const
  const [free] = await trainDigits(2, settings)
  const [whole] = await trainDigits(2, { ...settings, clipNorm: 0.05 })
  const [sharded] = await trainDigits(2, { ...settings, clipNorm: 0.05, parallel: 'fsdp' })
  resultsOf([free, whole, sharded])
  const wanted = lossesOf(whole)
  expect(Math.abs(lossesOf(free).at(-1)! - wanted.at(-1)!)).toBeGreaterThan(0.0005)
  for (const [i, loss] of lossesOf(sharded).entries()) expect(loss).toBeCloseTo(wanted[i], 5)
}, 60_000)

test('float16 with loss scaling trains sharded too', async () => {
  const settings = { epochs: 2, precision: 'float16' } as const
  const whole = await trainDigits(2, settings)
  const sharded = await trainDigits(2, { ...settings, parallel: 'fsdp' })
  const [expected] = resultsOf(whole)
  for (const { paramHash } of resultsOf(sharded)) expect(paramHash).toBe(expected.paramHash)
}, 60_000)

test('float16 with loss scaling trains 2 ranks in stages too', async () => {
  const settings = { epochs: 2, precision: 'float16' } as const
  const [one] = await trainDigits(1, settings)
  const ranks = await trainDigits(2, { ...settings, parallel: 'pp=2' })
  const results = resultsOf(ranks)
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  for (const rank of ranks)
    for (const [i, loss] of lossesOf(one).entries()) expect(lossesOf(rank)[i]).toBeCloseTo(loss, 2)
}, 60_000)

test('replicas that exchange nothing cannot be sharded', () =>
  expect(trainDigits(2, { strategy: 'alone', parallel: 'fsdp' })).rejects.toThrow(
    "parallel: not available with the strategy 'alone'",
  ))

test('2 ranks in a pipeline of 2 stages follow one rank, and agree', async () => {
  const [one] = await trainDigits(1, { epochs: 2 })
  const [alone] = resultsOf([one])
  const ranks = await trainDigits(2, { epochs: 2, parallel: 'pp=2' })
  const results = resultsOf(ranks)
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  expect(results.reduce((sum, { samples }) => sum + samples, 0)).toBe(alone.samples)
  for (const [i, rank] of ranks.entries()) {
    const losses = lossesOf(rank)
    expect(losses).toHaveLength(6)
    for (const [at, loss] of lossesOf(one).entries()) expect(losses[at]).toBeCloseTo(loss, 4)
    const { heldOutLoss, testAccuracy, trainValue } = results[i]
    expect(heldOutLoss).toBeCloseTo(alone.heldOutLoss, 4)
    expect(testAccuracy).toBeCloseTo(alone.testAccuracy, 6)
    expect(trainValue).toBeCloseTo(alone.trainValue, 6)
  }
}, 60_000)

test('pipelines that do not fit the ranks are refused on all', async () => {
  const refused = async (size: number, input: TrainConfigInput) =>
    (await trainDigits(size, { epochs: 1, ...input })).map(({ reason }) => String(reason))
  for (const reason of await refused(3, { parallel: 'pp=2' }))
    expect(reason).toContain('pp=2 needs a multiple of 2 ranks, got 3')
  for (const size of [2, 3])
    for (const reason of await refused(size, { parallel: 'pp=2,dp=2' }))
      expect(reason).toContain(`pp=2,dp=2 needs 4 ranks, got ${size}`)
})

test('samples of a pipeline show each micro-batch in the order of 1F1B, and what each rank holds', async () => {
  const ranks = await trainDigits(2, { epochs: 4, parallel: 'pp=2' })
  resultsOf(ranks)
  for (const { events } of ranks) {
    const divided = events.filter((event) => event.event === 'divided')
    expect(divided.map(({ held }) => held)).toEqual([
      [
        { layers: ['0'], parameterBytes: 4 * (784 * 32 + 32) },
        { layers: ['1', '2'], parameterBytes: 4 * (32 * 10 + 10) },
      ],
    ])
    const samples = events.flatMap((event) => (event.event === 'samples' ? [event.samples] : []))
    expect(samples.length).toBeGreaterThan(0)
    for (const [rank, { spans, totalMs }] of samples[0].entries()) {
      const device = spans.filter(({ kind }) => kind !== 'data' && kind !== 'optimizer')
      const tasks = device.map(({ kind, part }) => `${kind[0].toUpperCase()}${part}`)
      const names = tasks.filter((task, i) => task !== tasks[i - 1]).join(' ')
      // A task that takes no time has no span.
      const expected = ['F0 F1 B0 F2 B1 F3 B2 B3', 'F0 B0 F1 B1 F2 B2 F3 B3'][rank].split(' ')
      expect(expected.filter((name) => names.includes(name)).join(' ')).toBe(names)
      expect(device.length).toBeGreaterThan(5)
      for (const [i, { fromMs, toMs }] of device.entries()) {
        expect(fromMs).toBeGreaterThanOrEqual(device[i - 1]?.toMs - 0.02 || 0)
        expect(toMs).toBeLessThanOrEqual(totalMs + 0.02)
      }
    }
  }
}, 60_000)

test('samples of a sharded run show when layers are gathered and gradients summed', async () => {
  const ranks = await trainDigits(2, { epochs: 4, parallel: 'fsdp' })
  const { events } = ranks[0]
  const held = events.find((event) => event.event === 'divided')?.held
  expect(held).toHaveLength(2)
  expect(held![0].parameterBytes).toBe((4 * (784 * 32 + 32 + 32 * 10 + 10)) / 2)
  const [sample] = events.flatMap((event) => (event.event === 'samples' ? [event.samples] : []))
  for (const { spans } of sample) {
    const kinds = new Set(spans.map(({ kind }) => kind))
    for (const kind of ['forward', 'backward', 'allGather', 'reduceScatter'] as const)
      expect(kinds).toContain(kind)
  }
}, 60_000)
