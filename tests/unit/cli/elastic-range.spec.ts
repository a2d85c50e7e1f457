import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { MinRanks } from '../../../node/min-ranks.ts'
import { failsAgain, Restarts } from '../../../node/restarts.ts'
import type { ErrorCode } from '../../../src/util/errors.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

function watched(min: number) {
  const received: string[] = []
  const ended: Error[] = []
  const ranks = new MinRanks({
    min,
    waitMs: 5000,
    waitFlag: '--timeout',
    onNotice: (line) => received.push(line),
    onEnd: (error) => ended.push(error),
  })
  return { ranks, received, ended }
}

test('LeastRanks says once that there are too few ranks, and ends a run that stays so', () => {
  const { ranks, received, ended } = watched(3)
  ranks.count(3, 0)
  ranks.count(2, 1)
  vi.advanceTimersByTime(4000)
  ranks.count(1, 2)
  expect(received).toEqual([
    '--elastic: 2 of at least 3 ranks left; waiting for another, at most 5 s',
  ])
  expect(ended).toEqual([])
  vi.advanceTimersByTime(1000)
  expect(ended).toMatchObject([
    { code: 'peer.timeout', message: expect.stringContaining('of at least 3 ranks left, for 5 s') },
  ])
})

test('LeastRanks ends no run that has its ranks again in time, and waits as long the next time', () => {
  const { ranks, received, ended } = watched(2)
  ranks.count(1, 1)
  vi.advanceTimersByTime(4000)
  ranks.count(2, 0)
  expect(vi.getTimerCount()).toBe(0)
  ranks.count(1, 1)
  vi.advanceTimersByTime(4000)
  ranks.stop()
  vi.advanceTimersByTime(4000)
  expect(received).toHaveLength(2)
  expect(ended).toEqual([])
})

test('LeastRanks ends a run at once that cannot have its ranks again', () => {
  const { ranks, received, ended } = watched(2)
  ranks.count(1, 0)
  expect(received).toEqual([])
  expect(ended).toMatchObject([
    {
      code: 'peer.lost',
      message:
        '--elastic: 1 of at least 2 ranks left, and no restart. Raise --max-restarts, or lower MIN.',
    },
  ])
})

test('Restarts gives as many as there are, three by default', () => {
  const restarts = new Restarts(2)
  expect([restarts.take(), restarts.take(), restarts.take()]).toEqual([
    'restart 1 of 2',
    'restart 2 of 2',
    null,
  ])
  expect(new Restarts(0).take()).toBeNull()
  expect(new Restarts().take()).toBe('restart 1 of 3')
})

test('failsAgain separates failures that a restart repeats from losses', () => {
  const fails = (codes: readonly ErrorCode[], hasTrained: boolean) =>
    codes.filter((code) => failsAgain(code, hasTrained))
  const settings = ['config.invalid', 'shape.mismatch'] as const
  const data = ['data.malformed', 'data.missing', 'data.checksum'] as const
  const always = ['train.nan', ...settings, ...data] as const
  const device = ['gpu.unavailable', 'gpu.limit'] as const
  const lost = ['peer.lost', 'worker.dead', 'gpu.lost', 'peer.timeout', 'peer.mismatch'] as const
  const all = [...always, ...device, ...lost]
  expect(fails(all, true)).toEqual(always)
  expect(fails(all, false)).toEqual([...always, ...device])
})
