import { expect, test } from 'vitest'
import { Deadlines, type Timed } from '../../../src/peer/deadlines.ts'
import { VirtualEnv } from '../../support/virtual-env.ts'

function deadlines() {
  const env = new VirtualEnv(1)
  const waiting: Timed[] = []
  const late: { one: Timed; waitedMs: number; atMs: number }[] = []
  const watch = new Deadlines<Timed>({
    env,
    waiting: () => waiting,
    onlate: (one, waitedMs) => late.push({ one, waitedMs, atMs: env.now() }),
  })
  const launch = (deadlineMs: number) => {
    const one = { launchedMs: env.now(), deadlineMs }
    waiting.push(one)
    watch.watch(one)
    return one
  }
  return { env, waiting, late, watch, launch }
}

test('the soonest deadline fires, whatever was launched first, and only once', async () => {
  const { env, late, launch } = deadlines()
  launch(5000)
  await env.advance(100)
  const short = launch(1000)
  await env.advance(20_000)
  expect(late).toEqual([{ one: short, waitedMs: 1000, atMs: 1100 }])
})

test('progress puts every deadline off, and what has ended has none', async () => {
  const { env, waiting, late, watch, launch } = deadlines()
  launch(1000)
  for (let i = 0; i < 10; i++) {
    await env.advance(900)
    watch.progress()
  }
  expect(late).toEqual([])
  waiting.pop()
  await env.advance(5000)
  expect(late).toEqual([])
  const next = launch(1000)
  await env.advance(5000)
  expect(late).toEqual([{ one: next, waitedMs: 1000, atMs: 15_000 }])
})

test('stopped is stopped', async () => {
  const { env, late, watch, launch } = deadlines()
  launch(1000)
  watch.stop()
  launch(500)
  await env.advance(5000)
  expect(late).toEqual([])
})
