import { afterEach, expect, test } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { task as playground } from '../../../demos/playground/demo.ts'
import { meta } from '../../../demos/playground/meta.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import { testRuntime } from '../../support/run-op.ts'
import { startTask, type TaskRank } from '../../support/task-ranks.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const boundaries = (ranks: readonly TaskRank[]) =>
  Promise.all(
    ranks.map(async ({ trainer }) => {
      const { probabilities } = await trainer.query('boundary', { side: 32 })
      return new Uint32Array((probabilities as Float32Array).buffer)
    }),
  )

const start = (size: number, input: TrainConfigInput) =>
  startTask(size, { demo: 'playground', bucketCapMb: 1, ...input }, testRuntime)

const [{ config, atLeast, withinSteps }] = meta.expected

test.each([1, 3])(
  '%i ranks reach the stated result, and have one boundary to the bit, while they train and afterwards',
  async (size) => {
    const { ranks, close } = await start(size, { ...config, steps: withinSteps })
    // In the middle: in a pause, so that all look at the same step.
    await ranks[0].until('step', ({ step }) => step >= 20)
    ranks[0].trainer.pause()
    const paused = await Promise.all(ranks.map((rank) => rank.until('paused')))
    expect(new Set(paused.map(({ step }) => step)).size).toBe(1)
    const early = await boundaries(ranks)
    ranks[0].trainer.goOn()
    const results = await Promise.all(ranks.map(({ end }) => end))
    const late = await boundaries(ranks)
    for (const all of [early, late]) for (const one of all) expect(one).toEqual(all[0])
    expect(late[0]).not.toEqual(early[0])
    for (const { value, metric } of results) {
      expect(metric).toEqual(meta.metric)
      expect(value).toBeGreaterThanOrEqual(atLeast!)
    }
    close()
  },
  120_000,
)

test('one rank: the steps that are shown took as long as steps take, and hold their spans', async () => {
  const { ranks, close } = await start(1, { ...config, steps: 1200, evaluateEvery: 1200 })
  const [{ events, end }] = ranks
  const { seconds, steps } = await end
  const usualMs = (1000 * seconds) / steps
  const shown = events.flatMap((one) => (one.event === 'samples' ? one.samples : []))
  expect(shown.length).toBeGreaterThanOrEqual(2)
  for (const { step, totalMs, spans } of shown) {
    // With two steps under way the answers of both may come at once: the second would seem to take no time.
    expect(totalMs, `step ${step}, usually ${usualMs} ms`).toBeGreaterThan(0.3 * usualMs)
    expect(spans.length).toBeGreaterThan(1)
    for (const { fromMs, toMs } of spans) {
      expect(fromMs).toBeGreaterThanOrEqual(-0.01)
      expect(toMs).toBeLessThanOrEqual(totalMs + 0.2)
    }
  }
  close()
}, 60_000)

test('ranks with different slices disagree when the exchange is off, and agree when it is on', async () => {
  const own = { ...config, partition: 'own-slice', steps: 60, evaluateEvery: 60 } as const
  const alone = await start(3, { ...own, strategy: 'alone' })
  await Promise.all(alone.ranks.map(({ end }) => end))
  const [a, b, c] = (await boundaries(alone.ranks)).map((words) => new Float32Array(words.buffer))
  /** Of the plane, where two boundaries say different classes. */
  const apart = (first: Float32Array, second: Float32Array) =>
    first.filter((p, i) => p > 0.5 !== second[i] > 0.5).length / first.length
  for (const share of [apart(a, b), apart(b, c), apart(a, c)]) expect(share).toBeGreaterThan(0.1)
  alone.close()

  const joined = await start(3, own)
  await Promise.all(joined.ranks.map(({ end }) => end))
  const [first, ...others] = await boundaries(joined.ranks)
  for (const other of others) expect(other).toEqual(first)
  joined.close()
}, 120_000)

test('float16 with a loss scale learns, to equal bits on two ranks', async () => {
  const { ranks, close } = await start(2, {
    ...config,
    data: 'xor',
    precision: 'float16',
    steps: 60,
  })
  const results = await Promise.all(ranks.map(({ end }) => end))
  expect(results[0].paramHash).toBe(results[1].paramHash)
  expect(results[0].value).toBeGreaterThan(0.9)
  close()
}, 60_000)

test.each([
  [playground, 3, { demo: 'playground', batchSize: 50 }],
  [digits, 1, { demo: 'digits', model: 'cnn', batchSize: 20 }],
] as const)('what is measured beside the loss changes no bit: %#', async (task, size, input) => {
  const { measure: _, ...plain } = task as Task
  const ends = []
  for (const one of [task, plain] as Task[]) {
    const config = { ...input, steps: 6, evaluateEvery: 6, bucketCapMb: 1 }
    const { ranks, close } = await startTask(size, config, testRuntime, () => ({ task: one }))
    const results = await Promise.all(ranks.map(({ end }) => end))
    const steps = ranks[0].events.flatMap((event) => (event.event === 'step' ? [event] : []))
    expect(steps.every(({ value }) => (one === plain ? Number.isNaN(value) : value >= 0))).toBe(
      true,
    )
    ends.push([
      results.map(({ paramHash, heldOutLoss }) => [paramHash, heldOutLoss]),
      steps.map(({ loss }) => loss),
    ])
    close()
  }
  expect(ends[1]).toEqual(ends[0])
})
