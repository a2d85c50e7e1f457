import { describe, expect, it } from 'vitest'
import { clockDifferences } from '../../../src/ui/live/clocks.ts'
import { pickRanks } from '../../../src/ui/live/few-ranks.tsx'
import { alignedLanes, lanesOf } from '../../../src/ui/live/lanes.ts'
import { linkUse, ratesOfLinks } from '../../../src/ui/live/links.ts'
import { bubbleWords } from '../../../src/ui/live/micro-batches.tsx'
import { samplesTrace } from '../../../src/ui/live/trace-file.ts'
import { note, useWords } from '../../../src/ui/ring/ring-words.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import { training } from '../../support/page-states.ts'
import { makeSamples } from '../../support/step-samples.ts'

const apart = () => false

describe('the clocks of ranks', () => {
  const skews = [0, 250, -3000, 0.4]

  it.each([0, 1, 2, 3])('from rank %i: the bounds hold the true differences', (own) => {
    const clocks = clockDifferences([makeSamples(4, 9, 1e12, skews)], own, apart)
    clocks.forEach(({ offsetMs, errorMs }, rank) => {
      const truth = skews[rank] - skews[own]
      expect(Math.abs(offsetMs - truth)).toBeLessThanOrEqual(errorMs + 1e-3)
      // A waiting rank and one that is waited for leave little between them.
      expect(errorMs).toBeLessThan(6)
    })
  })

  it('more samples give no wider bounds', () => {
    const one = clockDifferences([makeSamples(3, 9, 1e12, skews)], 0, apart)
    const two = [makeSamples(3, 8, 1e12 - 900, skews), makeSamples(3, 9, 1e12, skews)]
    clockDifferences(two, 0, apart).forEach(({ errorMs }, rank) => {
      expect(errorMs).toBeLessThanOrEqual(one[rank].errorMs)
    })
  })

  it('clocks of one browser count as equal, unless the samples contradict', () => {
    const same = clockDifferences([makeSamples(2, 9, 1e12, [0, 0])], 0, () => true)
    expect(same[1]).toEqual({ offsetMs: 0, errorMs: 0 })
    const other = clockDifferences([makeSamples(2, 9, 1e12, [0, 250])], 0, () => true)
    expect(other[1].offsetMs).toBeGreaterThan(200)
  })

  it('there is no bound without a collective that both have', () => {
    const set = makeSamples(2, 9, 1e12).map((sample) => ({ ...sample, spans: [] }))
    expect(clockDifferences([set], 0, apart)[1].errorMs).toBe(Number.POSITIVE_INFINITY)
    const { lanes } = alignedLanes(set, clockDifferences([set], 0, apart))
    expect(lanes[1].isRough).toBe(true)
    expect(lanes[0].isRough).toBe(false)
  })
})

describe('the lanes of a step', () => {
  it('lie on one clock, rows without overlap', () => {
    const { lanes, lengthMs } = lanesOf(training(3, 60).run!)!
    for (const { spans, rows } of lanes) {
      expect(rows).toBeGreaterThan(1)
      for (const span of spans) {
        expect(span.fromMs).toBeGreaterThanOrEqual(-1e-6)
        expect(span.toMs).toBeLessThanOrEqual(lengthMs + 1e-6)
        const beside = spans.filter(
          (other) => other !== span && other.row === span.row && span.row > 0 && span.row < 3,
        )
        for (const other of beside)
          expect(other.toMs <= span.fromMs + 0.02 || other.fromMs >= span.toMs - 0.02).toBe(true)
      }
    }
    // Rank 2 is in another browser.
    expect(lanes.map(({ isRough }) => isRough)).toEqual([false, false, true])
  })

  it('are there for a rank alone, and not before a sample', () => {
    expect(lanesOf(training(1, 60).run!)?.lanes).toHaveLength(1)
    expect(lanesOf(training(2, 2).run!)).toBeNull()
  })

  it('in a trace each rank is a process, and spans of a track are nested or apart', () => {
    const { sampledSteps } = training(3, 200).run!
    const { traceEvents } = JSON.parse(samplesTrace(sampledSteps, 0, () => true)) as {
      traceEvents: { ph: string; pid: number; tid: number; ts: number; dur: number; name: string }[]
    }
    const spans = traceEvents.filter(({ ph }) => ph === 'X')
    expect(new Set(spans.map(({ pid }) => pid)).size).toBe(3)
    expect(spans.every(({ ts, dur }) => ts >= 0 && dur >= 0)).toBe(true)
    const spansInSamples = sampledSteps.flat().flatMap((sample) => sample.spans).length
    expect(spans).toHaveLength(spansInSamples)
    // What follows by less than is measured is no overlap: one device is one thread.
    const [first] = sampledSteps.at(-1)!
    const close = [0, 1, 2, 3].map((i) => ({
      kind: 'backward' as const,
      part: i,
      fromMs: 2.504 * i,
      toMs: 2.504 * (i + 1) + 0.004,
    }))
    const one = JSON.parse(samplesTrace([[{ ...first, spans: close }]], 0, () => true)) as {
      traceEvents: { ph: string; tid: number }[]
    }
    const device = one.traceEvents.filter(({ ph }) => ph === 'X')
    expect(device).toHaveLength(4)
    expect(new Set(device.map(({ tid }) => tid)).size).toBe(1)
    const names = traceEvents.filter(({ name }) => name === 'thread_name').map(({ tid }) => tid)
    expect(new Set(names).size).toBe(names.length)
  })
})

describe('a pipeline', () => {
  it('says how much of forward and backward its stages idle, beside what the schedule has', () => {
    const [like] = training(1, 60).run!.sampledSteps.at(-1)!
    const span = (kind: 'forward' | 'backward', part: number, fromMs: number, toMs: number) => ({
      kind,
      part,
      fromMs,
      toMs,
    })
    // Stages of 1 ms forward and 2 ms backward, two micro-batches; the device of each idles for 3 ms of 9.
    const set = [
      [
        span('forward', 0, 5, 6),
        span('forward', 1, 6, 7),
        span('backward', 0, 9, 11),
        span('backward', 1, 12, 14),
      ],
      [
        span('forward', 0, 6, 7),
        span('backward', 0, 7, 9),
        span('forward', 1, 9, 10),
        span('backward', 1, 10, 12),
      ],
    ].map((spans) => ({ ...like, spans, totalMs: 15 }))
    const same = { offsetMs: 0, errorMs: 0 }
    const { lanes } = alignedLanes(set, [same, same])
    expect(bubbleWords(lanes, 2)).toBe(
      'Bubble: a stage idles for 33 % of forward and backward. 2 stages of equal cost idle for 33 % with 2 micro-batches.',
    )
    expect(bubbleWords([], 2)).toBe('')
  })
})

describe('the links', () => {
  it('by the counters of the rank that sends', () => {
    const { run } = training(3, 60)
    const uses = linkUse(run!)
    // A sample every 25 steps of 40 ms.
    uses.forEach(({ bytesPerSec }, rank) => {
      expect(bytesPerSec).toBeCloseTo((1_085_000 + 4000 * rank) * 25, -1)
    })
    expect(uses.map(({ chunks }) => chunks)).toEqual([2, 3, 4])
    expect(uses[0].fill).toBeCloseTo(120_000 / 524_288, 6)
  })

  it('have no chunks to show where the exchange is off: what travels are reports', () => {
    const snapshot = training(3, 60)
    const run = snapshot.run!
    const off = { ...run, config: { ...run.config!, strategy: 'alone' as const } }
    expect(linkUse(off).map(({ chunks }) => chunks)).toEqual([0, 0, 0])
    expect(linkUse(off)[0].bytesPerSec).toBeGreaterThan(0)
    expect(useWords(linkUse(off)[0])).not.toContain('chunks')
    expect(useWords(linkUse(run)[0])).toContain('at most 2 chunks in flight')
    expect(note(3, new Set(['port'] as const), true, true)).toContain('ranks send no gradients')
    expect(note(3, new Set(['port'] as const), true, false)).toContain('peak number of chunks')
    // Where no dots are drawn none are mentioned.
    expect(note(9, new Set(['port'] as const), true, false)).not.toContain('dot')
    // And no word says that the ranks share one model.
    expect(statusOf({ ...snapshot, run: off }).text).toMatch(
      /^3 ranks, each with its own model, share the 64 samples of every step\./,
    )
    expect(statusOf(snapshot).text).toContain('3 ranks share the 64 samples')
  })

  it('by rank and rank, beside the ring too', () => {
    const { run } = training(4, 60)
    const rates = ratesOfLinks(run!)
    expect(rates.map((row) => row.length)).toEqual([4, 4, 4, 4])
    rates.forEach((row, from) => {
      expect(row[from]).toBeNaN()
      expect(row[(from + 1) % 4]).toBeCloseTo((1_085_000 + 4000 * from) * 25, -1)
      expect(row[(from + 2) % 4]).toBeCloseTo((9000 + 4000 * from) * 25, -1)
    })
    expect(ratesOfLinks(training(3, 10).run!).flat()).toEqual(Array(9).fill(Number.NaN))
  })

  it('are not known before two samples, nor when counting began again', () => {
    expect(linkUse(training(3, 10).run!)[0].bytesPerSec).toBeNaN()
    const { run } = training(3, 60)
    const [first, second] = run!.sampledSteps.slice(-2)
    expect(linkUse({ ...run!, sampledSteps: [second, first] })[0].bytesPerSec).toBeNaN()
  })
})

describe('a room of many', () => {
  it('lists of more than ten ranks have the eight that stand out, and this tab', () => {
    expect(pickRanks(Array(10).fill(1), 3)).toHaveLength(10)
    const weights = Array.from({ length: 30 }, (_, rank) => (rank % 3 === 0 ? 100 + rank : rank))
    expect(pickRanks(weights, 1)).toEqual([1, 6, 9, 12, 15, 18, 21, 24, 27])
    expect(pickRanks(weights, 27)).toEqual([3, 6, 9, 12, 15, 18, 21, 24, 27])
    // What is not known yet does not stand out.
    expect(pickRanks(Array(30).fill(Number.NaN), 29)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 29])
  })
})
