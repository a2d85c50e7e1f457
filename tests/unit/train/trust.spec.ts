import { afterEach, expect, test, vi } from 'vitest'
import type { RingExchange } from '../../../src/ddp/data-parallel/ring-exchange.ts'
import { LeftOutRanks, type Limits } from '../../../src/ddp/hooks/left-out.ts'
import { hookReducer } from '../../../src/ddp/hooks/reducer.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { startTask } from '../../support/task-ranks.ts'

const liar = 2

afterEach(() => vi.restoreAllMocks())

/** By rank and attempt, in the order of their first steps: the limits before that step. */
function firstLimits(): Limits[] {
  const { judge } = LeftOutRanks.prototype
  const seen = new Map<LeftOutRanks, Limits>()
  const all: Limits[] = []
  vi.spyOn(LeftOutRanks.prototype, 'judge').mockImplementation(function (
    this: LeftOutRanks,
    ...of
  ) {
    if (!seen.has(this)) {
      seen.set(this, this.stateDict())
      all.push(this.stateDict())
    }
    return judge.apply(this, of)
  })
  return all
}

test('a run among strangers names a rank with wrong gradients on all ranks, and ends with one model', async () => {
  const config = { demo: 'playground', steps: 12, seed: 4, trust: 'strangers' } as const
  const { ranks, close } = await startTask(4, config, () => new ReferenceRuntime())
  try {
    const { trainer, until } = ranks[liar]!
    await until('step', ({ step }) => step === 4)
    const exchange = trainer.program!.prepared.trace.exchange as unknown as RingExchange
    const robust = exchange.robust!
    exchange.reducer = hookReducer((bucket) => {
      bucket.buffer().fill(Number.NaN)
      return robust.reduce(bucket)
    }, robust.sumBeside)
    const results = await Promise.all(ranks.map(({ end }) => end))
    expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
    for (const { loss } of results) expect(loss).toBeLessThan(2)
    const received = ranks.map(({ events }) =>
      events.flatMap((event) =>
        event.event === 'leftOut' ? [[event.ranks, event.notFinite]] : [],
      ),
    )
    expect(received[0]!.length).toBeGreaterThan(5)
    for (const own of received) expect(own).toEqual(received[0]!.map(() => [[liar], [liar]]))
  } finally {
    close()
  }
})

test('a run by the median trains, and its record names the median', async () => {
  const config = { demo: 'playground', steps: 30, seed: 4, aggregation: 'median' } as const
  const { ranks, close } = await startTask(3, config, () => new ReferenceRuntime())
  try {
    const results = await Promise.all(ranks.map(({ end }) => end))
    expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
    const losses = ranks[0]!.events.flatMap((event) => (event.event === 'step' ? [event.loss] : []))
    expect(losses.at(-1)).toBeLessThan(losses[0]! * 0.95)
    expect(results[0]!.record.config.aggregation).toBe('median')
  } finally {
    close()
  }
})

test('ranks of a group that follows, and of a run that is resumed, begin with the limits of those before', async () => {
  vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  const folder = seenFolder()
  const limits = firstLimits()
  const room = new ElasticRoom(['0', '1'])
  const config = { demo: 'playground', seed: 4, trust: 'strangers', checkpointEvery: 10 } as const
  const of = (rank: number) => ({
    checkpoints: { folder: async () => folder },
    isElastic: true,
    keepAfterMs: 0,
    groups: { after: () => room.next(String(rank)) },
  })
  const first = await startTask(3, { ...config, steps: 20 }, () => new ReferenceRuntime(), of)
  try {
    await first.ranks[0]!.until('step', ({ step }) => step === 4)
    first.ranks[2]!.group.destroy()
    await Promise.all(first.ranks.slice(0, 2).map(({ end }) => end))
  } finally {
    first.close()
  }
  expect(limits).toHaveLength(5)
  expect(limits.slice(0, 3)).toEqual([{}, {}, {}])
  const [, , , later] = limits
  expect(Object.values(later!).every((limit) => limit > 0)).toBe(true)
  expect(Object.keys(later!).length).toBeGreaterThan(0)
  expect(limits[4]).toEqual(later)

  const second = await startTask(
    2,
    { ...config, steps: 24, resume: 'latest' },
    () => new ReferenceRuntime(),
    of,
  )
  try {
    await Promise.all(second.ranks.map(({ end }) => end))
  } finally {
    second.close()
  }
  expect(limits).toHaveLength(7)
  for (const own of limits.slice(5))
    for (const [bucket, limit] of Object.entries(later!))
      expect(own[bucket]).toBeGreaterThanOrEqual(limit)
})
