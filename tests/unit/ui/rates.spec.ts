import { describe, expect, it } from 'vitest'
import { noTimes } from '../../../src/graph/plan/step-program.ts'
import type { StepSample } from '../../../src/trainer/watch/step-sample.ts'
import { rankWork, slowestRank, waitingMs } from '../../../src/ui/live/rank-work.ts'
import { longTestMs, watchTests } from '../../../src/ui/room/long-tests.ts'
import { allRuns } from '../../../src/ui/state/kept-runs.ts'
import { ratesOf } from '../../../src/ui/state/rates.ts'
import type { Run } from '../../../src/ui/state/run.ts'
import { makesSteps } from '../../../src/ui/state/run-facts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { Store } from '../../../src/ui/state/store.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import type { RunEvent } from '../../../src/worker/api.ts'
import { assigned, makeResult, makeStates, play, training } from '../../support/page-states.ts'
import { makeSamples } from '../../support/step-samples.ts'

/** Ranks whose steps take 40 ms, with a test of `testMs` every `testEvery` steps. */
function tested(count: number, steps: number, testEvery: number, testMs: number, from = 0) {
  let snapshot = training(count, 0)
  let atMs = 1000
  const take = (event: RunEvent) => {
    snapshot = play(snapshot, { type: 'event', atMs, event })
  }
  for (let step = from + 1; step <= from + steps; step++) {
    atMs += 40
    take({
      event: 'step',
      step,
      totalSteps: 540,
      epoch: 0,
      loss: 1,
      value: 1,
      rank: 0,
      samples: Math.ceil(64 / count),
      globalSamples: 64,
      times: { data: 0, ...noTimes, total: 40 },
      bytesSent: 0,
    })
    if (step % testEvery !== 0 && step !== 540) continue
    take({ event: 'phase', phase: 'evaluate', rank: 0 })
    atMs += testMs
    take({ event: 'evaluation', step, epoch: 0, loss: 1, metric: 'accuracy', value: 0.5, rank: 0 })
  }
  return { snapshot, atMs }
}
const runOf = ({ run }: Snapshot): Run => run!

describe('rates during a run', () => {
  it('are those of the last seconds, in all and of this rank', () => {
    // 64 samples on 3 ranks: 22, 21, 21 rows; a step every 40 ms.
    const rates = ratesOf(runOf(training(3, 170, 1)))
    expect(rates.stepsPerSec).toBeCloseTo(25, 6)
    expect(rates.ownSamplesPerSec).toBeCloseTo(21 * 25, 6)
    expect(rates.totalSamplesPerSec).toBeCloseTo(1600, 6)
    expect(rates.secondsLeft).toBeCloseTo(370 / 25, 6)
  })

  it('follow a rank that becomes slower within seconds', () => {
    const { snapshot, atMs } = tested(1, 200, 1000, 0)
    let slow = snapshot
    for (let i = 1; i <= 40; i++) {
      const event = {
        event: 'step',
        step: 200 + i,
        totalSteps: 540,
        epoch: 0,
        loss: 1,
        value: 1,
      } as const
      const rest = { rank: 0, samples: 64, globalSamples: 64, bytesSent: 0 }
      const times = { data: 0, ...noTimes, total: 100 }
      slow = play(slow, {
        type: 'event',
        atMs: atMs + 100 * i,
        event: { ...event, ...rest, times },
      })
    }
    expect(ratesOf(runOf(slow)).stepsPerSec).toBeCloseTo(10, 1)
  })

  it.each([
    // Tests shorter than a step, as long as many, and seldom: in each, step and test together.
    [5, 20],
    [20, 1000],
    [150, 6000],
  ])('count the tests: one every %i steps, %i ms long', (every, testMs) => {
    const perStepMs = 40 + testMs / every
    for (const steps of [every, 310, 329]) {
      const { snapshot } = tested(2, steps, every, testMs)
      const rates = ratesOf(runOf(snapshot))
      expect(rates.stepsPerSec).toBeCloseTo(1000 / perStepMs, 6)
      expect(rates.totalSamplesPerSec).toBeCloseTo(64_000 / perStepMs, 4)
      expect(rates.ownSamplesPerSec).toBeCloseTo(32_000 / perStepMs, 4)
      // What the rest of this run takes, were it played to its end.
      const whole = tested(2, 540, every, testMs)
      const left = (whole.atMs - tested(2, steps, every, testMs).atMs) / 1000
      expect(Math.abs(rates.secondsLeft - left)).toBeLessThanOrEqual(testMs / 1000 + 1e-6)
    }
  })

  it('before the first test there is nothing to go by', () => {
    const { snapshot } = tested(1, 99, 100, 5000)
    expect(ratesOf(runOf(snapshot)).secondsLeft).toBeCloseTo(441 * 0.04, 6)
    expect(runOf(snapshot).tests).toEqual([])
  })

  it.each<RunEvent>([
    { event: 'paused', step: 329, by: [0], rank: 0 },
    { event: 'silent', who: 1, isSilent: true, rank: 0 },
    { event: 'lost', text: 'rank 1 is lost', who: 1, rank: 0 },
    { event: 'undecided', missing: ['b.1'], hadMore: false, step: 300, rank: 0 },
    { event: 'phase', phase: 'compile', rank: 0 },
  ])('there are none while all wait: after $event', (event) => {
    const { snapshot, atMs } = tested(2, 329, 150, 600)
    const nan = Number.NaN
    expect(ratesOf(runOf(play(snapshot, { type: 'event', event, atMs })))).toEqual({
      stepsPerSec: nan,
      ownSamplesPerSec: nan,
      totalSamplesPerSec: nan,
      secondsLeft: nan,
    })
  })

  it('the time of a pause is left out', () => {
    const { snapshot, atMs } = tested(1, 50, 1000, 0)
    const step = { event: 'step', totalSteps: 540, epoch: 0, loss: 1, value: 1, rank: 0 } as const
    const rest = { samples: 64, globalSamples: 64, bytesSent: 0 }
    const times = { data: 0, ...noTimes, total: 40 }
    const after = play(
      snapshot,
      { type: 'event', atMs, event: { event: 'paused', step: 50, by: [0], rank: 0 } },
      {
        type: 'event',
        atMs: atMs + 60_000,
        event: { event: 'continued', step: 50, pausedMs: 60_000, rank: 0 },
      },
      { type: 'event', atMs: atMs + 60_040, event: { ...step, ...rest, step: 51, times } },
    )
    expect(ratesOf(runOf(after)).stepsPerSec).toBeCloseTo(25, 6)
  })
})

describe('rates after a run', () => {
  it.each([
    ['finished', { type: 'finished', result: makeResult(3), bytesSent: 1 }],
    ['stopped', { type: 'failed', code: 'peer.aborted', text: 'x: stopped by Ada.' }],
  ] as const)('%s: those of the whole run, as its row in the run table has them', (_, end) => {
    const { snapshot } = tested(3, 540, 90, 700)
    const over = play(snapshot, end)
    const rates = ratesOf(runOf(over))
    const [row] = allRuns(over)
    expect(rates.totalSamplesPerSec).toBe(row.samplesPerSec)
    expect(row.samplesPerSec).toBeCloseTo((540 * 64) / row.seconds, 6)
    // 540 steps of 40 ms and five tests between them; the sixth after the last step.
    expect(row.seconds).toBeGreaterThanOrEqual(540 * 0.04 + 5 * 0.7)
    // And before its end the row said the same, as far as the run had come.
    const [before] = allRuns(snapshot)
    expect(before.samplesPerSec).toBeCloseTo((540 * 64) / (540 * 0.04 + 5 * 0.7), 6)
  })
})

describe('tests', () => {
  const nothing = () => undefined

  /** A store without a page, and the timer of `watchTests`. */
  function watching(first: Snapshot) {
    const timers: { delayMs: number; run: () => void; isCancelled: boolean }[] = []
    const surface = {
      isHidden: () => true,
      frame: nothing,
      after: nothing,
      painted: nothing,
      now: () => 0,
    }
    const store = new Store(first, surface, () => undefined)
    watchTests(store, (delayMs, run) => {
      const timer = { delayMs, run, isCancelled: false }
      timers.push(timer)
      return () => {
        timer.isCancelled = true
      }
    })
    const seen: string[] = []
    store.onChange((snapshot) => {
      const { title } = statusOf(snapshot)
      const run = snapshot.run!
      const said = `${title}, ${run.phase}, ${makesSteps(run) ? 'pause' : 'no pause'}`
      if (seen.at(-1) !== said) seen.push(said)
    })
    return { store, timers, seen }
  }
  const begin = { event: 'phase', phase: 'evaluate', rank: 0 } as const
  const value = {
    event: 'evaluation',
    step: 5,
    epoch: 0,
    loss: 1,
    metric: 'x',
    value: 1,
    rank: 0,
  } as const
  const step = {
    event: 'step',
    totalSteps: 540,
    epoch: 0,
    loss: 1,
    value: 1,
    rank: 0,
    samples: 1,
    globalSamples: 1,
    times: { data: 0, ...noTimes, total: 1 },
    bytesSent: 0,
  } as const

  it('short ones leave title, phase and Pause as they are', () => {
    const { store, timers, seen } = watching(training(2, 4))
    for (let i = 0; i < 50; i++) {
      const atMs = 2000 + 100 * i
      store.dispatch({ type: 'event', atMs, event: { ...step, step: 5 + i } })
      store.dispatch({ type: 'event', atMs: atMs + 1, event: begin })
      store.dispatch({ type: 'event', atMs: atMs + 80, event: value })
    }
    expect(seen).toEqual(['Training, train, pause'])
    expect(timers).toHaveLength(50)
    expect(timers.every(({ isCancelled }) => isCancelled)).toBe(true)
  })

  it('one that lasts is shown in the sentence and not in the title, until the next step', () => {
    const { store, timers, seen } = watching(training(2, 4))
    store.dispatch({ type: 'event', atMs: 2000, event: begin })
    expect(timers.map(({ delayMs }) => delayMs)).toEqual([longTestMs])
    timers[0].run()
    expect(statusOf(store.snapshot).text).toContain('Testing on held-out samples')
    store.dispatch({ type: 'event', atMs: 5000, event: value })
    store.dispatch({ type: 'event', atMs: 5040, event: { ...step, step: 6 } })
    expect(seen).toEqual([
      'Training, train, pause',
      'Training, evaluate, pause',
      'Training, train, pause',
    ])
    // Too late: the test is over, and nothing is drawn again.
    const before = store.snapshot
    timers[0].run()
    expect(store.snapshot).toBe(before)
  })

  it('the timer of a test does not change a run that has ended', () => {
    const { store, timers } = watching(training(2, 4))
    store.dispatch({ type: 'event', atMs: 2000, event: begin })
    store.dispatch({ type: 'failed', code: 'peer.lost', text: 'gone' })
    expect(timers[0].isCancelled).toBe(true)
    timers[0].run()
    expect(store.snapshot.run!.phase).toBe('train')
  })

  it('Pause is there during a long test', () => {
    expect(makesSteps(makeStates()['training-testing'].run!)).toBe(true)
    expect(makesSteps(assigned(2).run!)).toBe(false)
  })
})

describe('the speed of each rank', () => {
  it('counts what it waits for others apart: a slow one is slow and does not wait', () => {
    const run = runOf(training(3, 60))
    const work = rankWork(run)
    // Rank 1 computes for 20 ms where the others need 15; the exchange takes all the same time.
    const busy = makeSamples(3, 53, 0).map((set) => set.totalMs - waitingMs(set))
    work.forEach(({ samplesPerSec }, rank) => {
      expect(samplesPerSec).toBeCloseTo((1000 * (rank === 0 ? 22 : 21)) / busy[rank], 6)
    })
    expect(work[1].samplesPerSec).toBeLessThan(0.9 * work[2].samplesPerSec)
    expect(work[1].waitShare).toBeLessThan(work[0].waitShare)
    expect(work[0].waitShare).toBeCloseTo(work[2].waitShare, 6)
  })

  it('waiting that computing covers does not count', () => {
    const span = (kind: 'wait' | 'backward' | 'reduceScatter', fromMs: number, toMs: number) => ({
      kind,
      part: 0,
      fromMs,
      toMs,
    })
    const spans = [
      span('wait', 2, 9),
      span('backward', 0, 5),
      span('wait', 4, 6),
      span('reduceScatter', 8, 12),
      span('wait', 14, 30),
    ]
    // From 5 to 9, and from 14 to the step's end; an exchange of another bucket does not count as work.
    expect(waitingMs({ spans, totalMs: 20 })).toBeCloseTo(10, 9)
    expect(waitingMs({ spans: [], totalMs: 20 })).toBe(0)
  })

  it('takes full batches alone, and is not known before one', () => {
    const run = runOf(training(2, 60))
    const short = { ...run, fullestStep: 100 }
    expect(rankWork(short).map(({ samplesPerSec }) => samplesPerSec)).toEqual([
      Number.NaN,
      Number.NaN,
    ])
    expect(rankWork(runOf(training(2, 2)))[0].waitShare).toBeNaN()
    expect(rankWork(runOf(training(1, 60)))[0]).toMatchObject({ waitShare: 0 })
  })

  it('names the rank that others wait for where it is clear', () => {
    const work = (...waits: number[]) => waits.map((waitShare) => ({ samplesPerSec: 1, waitShare }))
    expect(slowestRank(work(0.4, 0.02, 0.35))).toBe(1)
    expect(slowestRank(work(0.05, 0.02, 0.35))).toBeNull()
    expect(slowestRank(work(0))).toBeNull()
    expect(slowestRank(work(0.4, Number.NaN))).toBeNull()
  })

  it('takes the spans of ranks in any order', () => {
    const [set] = makeSamples(2, 9, 0)
    const turned: StepSample = { ...set, spans: [...set.spans].reverse() }
    expect(waitingMs(turned)).toBeCloseTo(waitingMs(set), 9)
  })
})
