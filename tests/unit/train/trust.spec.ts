import { expect, test } from 'vitest'
import type { BoundHook, RingExchange } from '../../../src/ddp/data-parallel/ring-exchange.ts'
import { CpuRuntime } from '../../../src/graph/memory/runtime.ts'
import { startTask } from '../../support/task-ranks.ts'

const liar = 2

test('a run among strangers names a rank with wrong gradients on all ranks, and ends with one model', async () => {
  const config = { demo: 'playground', steps: 12, seed: 4, trust: 'strangers' } as const
  const { ranks, close } = await startTask(4, config, () => new CpuRuntime())
  try {
    const { trainer, until } = ranks[liar]!
    await until('step', ({ step }) => step === 4)
    const exchange = trainer.program!.prepared.trace.exchange as unknown as RingExchange
    const honest: BoundHook = exchange.hook!
    exchange.hook = (bucket) => {
      bucket.buffer().fill(Number.NaN)
      return honest(bucket)
    }
    const results = await Promise.all(ranks.map(({ end }) => end))
    expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
    for (const { loss } of results) expect(loss).toBeLessThan(2)
    const told = ranks.map(({ events }) =>
      events.flatMap((event) =>
        event.event === 'leftOut' ? [[event.ranks, event.notFinite]] : [],
      ),
    )
    expect(told[0]!.length).toBeGreaterThan(5)
    for (const own of told) expect(own).toEqual(told[0]!.map(() => [[liar], [liar]]))
  } finally {
    close()
  }
})

test('a run by the median trains, and its record says so', async () => {
  const config = { demo: 'playground', steps: 30, seed: 4, aggregation: 'median' } as const
  const { ranks, close } = await startTask(3, config, () => new CpuRuntime())
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
