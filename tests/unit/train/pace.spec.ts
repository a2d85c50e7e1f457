import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { KeepPace } from '../../../src/trainer/loop/keep-pace.ts'
import { Pace } from '../../../src/trainer/loop/pace.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { startTask } from '../../support/task-ranks.ts'

/** When each step of `lastMs` begins, by a clock that moves for nothing else. */
async function beginnings(stepsPerSec: number, lastMs: readonly number[]): Promise<number[]> {
  const env = new VirtualEnv(0)
  const pace = new Pace(stepsPerSec, env)
  const began: number[] = []
  for (const ms of lastMs) {
    await env.until(pace.next())
    began.push(Math.round(env.now()))
    await env.advance(ms)
  }
  return began
}

test('steps begin at equal distances; a long one is not followed by a burst', async () => {
  const began = await beginnings(20, [5, 5, 30, 400, 5, 5, 5])
  const gaps = began.slice(1).map((ms, i) => ms - began[i])
  expect(gaps).toEqual([50, 50, 50, 400, 50, 50])
})

test.each([
  ['a first state that took long', [[0, 160]], 2160],
  [
    'states of 10 ms',
    [
      [0, 160],
      [2160, 2170],
    ],
    4170,
  ],
  [
    'states of 100 ms',
    [
      [0, 160],
      [2160, 2260],
    ],
    7260,
  ],
  [
    'one that was long by chance',
    [
      [0, 160],
      [2160, 2170],
      [5000, 5500],
    ],
    7500,
  ],
] as const)('after %s the next one is kept at the right time', (_, kept, dueMs) => {
  const pace = new KeepPace(0)
  pace.begin()
  for (const [beganMs, endedMs] of kept) pace.kept(beganMs, endedMs)
  expect([pace.isDue(dueMs - 1), pace.isDue(dueMs)]).toEqual([false, true])
})

test('without a pace nothing waits', async () => {
  expect(await beginnings(0, [5, 5, 5])).toEqual([0, 5, 10])
})

test('a signal ends the wait with its reason', async () => {
  const env = new VirtualEnv(0)
  const pace = new Pace(1, env)
  const abort = new AbortController()
  await pace.next(abort.signal)
  const next = pace.next(abort.signal)
  abort.abort(new Error('stopped'))
  await expect(env.until(next)).rejects.toThrow('stopped')
  // At once: the next run waits for this one.
  expect([env.now(), env.timers]).toEqual([0, 0])
})

test.each([1, 2])('%i ranks keep the pace, to the bits of a run at full speed', async (size) => {
  const config = { demo: 'playground', steps: 8, batchSize: 12 } as const
  const runs = []
  for (const maxStepsPerSec of [0, 50]) {
    const began = performance.now()
    const { ranks, close } = await startTask(
      size,
      { ...config, maxStepsPerSec },
      () => new ReferenceRuntime(),
    )
    const ends = await Promise.all(ranks.map(({ end }) => end))
    runs.push({ hashes: ends.map(({ paramHash }) => paramHash), ms: performance.now() - began })
    close()
  }
  expect(runs[1].hashes).toEqual(runs[0].hashes)
  // Seven gaps of 20 ms; a timer may be a hair early.
  expect(runs[1].ms).toBeGreaterThan(130)
})
