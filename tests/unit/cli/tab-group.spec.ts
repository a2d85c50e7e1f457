import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { TabGroup } from '../../../node/train/tab-group.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const ignore = () => undefined
const failed = (rank: number | null, code: string, message: string) => ({
  ok: false,
  rank,
  code,
  message,
})
const done = (rank: number) =>
  JSON.stringify({
    ok: true,
    rank,
    bytesSent: 5,
    result: {
      steps: 1,
      loss: null,
      trainValue: 0.1,
      testAccuracy: 0.1,
      heldOutLoss: 2,
      value: 0.1,
      paramHash: 'a',
      samples: 3,
      seconds: 1,
    },
  })

test('words may come as JSON text or as objects, and results are ordered by rank', async () => {
  const heard: unknown[] = []
  const group = new TabGroup(2, 1000, (event) => heard.push(event))
  group.event(0, '{"event":"phase","phase":"load","rank":1}')
  expect([group.nameOf(0), group.nameOf(1)]).toEqual(['rank 1', 'tab 2 of 2'])
  group.done(0, done(1))
  group.done(1, JSON.parse(done(0)))
  expect((await group.finished).map(({ rank }) => rank)).toEqual([0, 1])
  expect(heard.length).toBe(1)
  await group.firstWord
  expect(vi.getTimerCount()).toBe(0)
})

test('the failure nearest to the cause is told, whatever the order of arrival', async () => {
  const group = new TabGroup(3, 60_000, ignore)
  group.done(0, failed(0, 'peer.aborted', 'rank 2 gave up'))
  group.done(1, failed(1, 'peer.lost', 'the link to rank 2 ended'))
  group.done(2, failed(2, 'gpu.lost', 'device lost\n    at somewhere.js:1'))
  await vi.advanceTimersByTimeAsync(1000)
  await expect(group.finished).rejects.toMatchObject({
    code: 'gpu.lost',
    message: 'rank 2: device lost',
  })
  group.stop()
  expect(vi.getTimerCount()).toBe(0)
})

test('a report that cannot be read is a failure of its tab', async () => {
  const group = new TabGroup(1, 60_000, ignore)
  group.done(0, { ok: true, rank: 0 })
  await vi.advanceTimersByTimeAsync(1000)
  await expect(group.finished).rejects.toThrow('tab 1 of 1: its result is invalid: bad')
})

test('words put the silence off', async () => {
  const group = new TabGroup(1, 4000, ignore)
  for (let i = 0; i < 5; i++) {
    await vi.advanceTimersByTimeAsync(3000)
    group.event(0, { event: 'phase', phase: 'train', rank: 0 })
  }
  await vi.advanceTimersByTimeAsync(5100)
  await expect(group.finished).rejects.toMatchObject({ code: 'peer.timeout' })
})
