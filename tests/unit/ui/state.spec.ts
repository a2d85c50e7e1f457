import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiment.ts'
import { noTimes } from '../../../src/graph/step-program.ts'
import { ratesOf, stepSamples } from '../../../src/ui/rates.ts'
import { last } from '../../../src/ui/series.ts'
import {
  canStart,
  goneRanks,
  isMaker,
  isRunning,
  isWaitingForNext,
  reduce,
  stoppedBy,
  stopReason,
} from '../../../src/ui/state.ts'
import { statusOf } from '../../../src/ui/status.ts'
import { troubleOf } from '../../../src/ui/trouble.ts'
import {
  assigned,
  inside,
  makeLobby,
  makeResult,
  makeSnapshot,
  makeStates,
  play,
  training,
} from '../../support/page-states.ts'

describe('the way into a room', () => {
  it('opens, enters, is inside', () => {
    const opening = makeSnapshot()
    expect(opening.stage).toBe('opening')
    expect(canStart(opening)).toBe(false)
    const there = inside(1)
    expect(there.stage).toBe('inside')
    expect(isMaker(there)).toBe(true)
    expect(canStart(there)).toBe(true)
  })

  it('only the maker may start', () => {
    expect(canStart(inside(3, 0))).toBe(true)
    expect(canStart(inside(3, 1))).toBe(false)
    expect(statusOf(inside(3, 1)).title).toContain('Waiting for Chrome on Linux a3f1')
  })

  it('keeps the first trouble', () => {
    const first = troubleOf(new Error('one'))
    const snapshot = play(
      inside(1),
      { type: 'outside', trouble: first },
      { type: 'outside', trouble: troubleOf(new Error('two')) },
    )
    expect(snapshot.trouble).toBe(first)
  })

  it('a tab that comes during a run waits for the next', () => {
    const late = inside(4, 3, 'running', 3)
    expect(isWaitingForNext(late)).toBe(true)
    expect(statusOf(late).title).toBe('A run is under way')
    const over = play(late, { type: 'lobby', lobby: makeLobby(4, 'finished'), ownId: late.ownId })
    expect(isWaitingForNext(over)).toBe(false)
    expect(statusOf(over).title).toContain('Waiting for')
  })

  it('nobody starts without a server', () => {
    expect(canStart(play(inside(2), { type: 'serverLost', text: 'gone' }))).toBe(false)
  })
})

describe('a run', () => {
  it('goes through its phases and collects steps', () => {
    expect(assigned(3).run).toMatchObject({ phase: 'connect', rank: 0, worldSize: 3 })
    const snapshot = training(3, 200)
    const run = snapshot.run!
    expect(isRunning(snapshot)).toBe(true)
    expect(run.phase).toBe('train')
    expect(run.step).toBe(200)
    expect(run.loss.length).toBe(200)
    expect(run.samples).toBe(200 * 22)
    expect(run.accuracy.length).toBe(1)
    expect(last(run.accuracy)).toBeGreaterThan(0.9)
  })

  it('older snapshots stay as they were', () => {
    const before = training(2, 300)
    const event = {
      event: 'evaluation',
      step: 300,
      epoch: 1,
      metric: 'accuracy',
      value: 0.5,
      rank: 0,
    } as const
    const after = reduce(before, { type: 'event', atMs: 0, event })
    expect(before.run!.accuracy.length).toBe(1)
    expect(after.run!.accuracy.length).toBe(2)
  })

  it('measures its own rate and derives the others from their shares', () => {
    // 64 samples on 3 ranks: 22, 21, 21 rows; a step every 40 ms.
    const rates = ratesOf(training(3, 200, 1).run!)
    expect(rates.stepsPerSec).toBeCloseTo(25, 6)
    expect(rates.ownSamplesPerSec).toBeCloseTo(21 * 25, 6)
    expect(rates.samplesPerSec.map(Math.round)).toEqual([550, 525, 525])
    expect(rates.totalSamplesPerSec).toBeCloseTo(1600, 6)
    expect(rates.secondsLeft).toBeCloseTo(340 / 25, 6)
    expect(rates.bytesPerSec).toBeCloseTo((4 / 3) * 814_000 * 25, 0)
  })

  it('counts the samples of a step against those of a rank, with the ranks of the run', () => {
    const told = (ranks: number) => stepSamples(training(ranks, 1))
    expect(told(1)).toEqual({ total: 64, words: 'one rank' })
    expect(told(4)).toEqual({ total: 64, words: '4 ranks × 16' })
    expect(told(3)).toEqual({ total: 64, words: '3 ranks: 22 + 2\u00a0×\u00a021' })
    expect(told(5)).toEqual({ total: 64, words: '5 ranks: 4\u00a0×\u00a013 + 12' })
  })

  it('before a run counts with the tabs that are in the room, for who may start it', () => {
    const maker = inside(3)
    expect(stepSamples(maker).words).toBe('3 ranks: 22 + 2\u00a0×\u00a021')
    const fourth = play(maker, { type: 'lobby', lobby: makeLobby(4), ownId: maker.ownId })
    expect(stepSamples(fourth).words).toBe('4 ranks × 16')
    const larger = play(fourth, { type: 'setting', key: 'batchSize', value: '256' })
    expect(stepSamples(larger)).toEqual({ total: 256, words: '4 ranks × 64' })
    expect(stepSamples(inside(3, 1)).total).toBeNaN()
    expect(
      stepSamples(play(larger, { type: 'setting', key: 'batchSize', value: '-' })).total,
    ).toBeNaN()
  })

  it('keeps few marks, also when steps are fast or longer than the window', () => {
    const step = (snapshot: ReturnType<typeof training>, number: number, atMs: number) =>
      reduce(snapshot, {
        type: 'event',
        atMs,
        event: {
          event: 'step',
          step: number,
          totalSteps: 9999,
          epoch: 0,
          loss: 1,
          rank: 0,
          samples: 64,
          globalSamples: 64,
          times: { data: 0, ...noTimes, total: 1 },
          bytesSent: 0,
        },
      })
    let fast = training(1, 1)
    for (let i = 2; i < 5000; i++) fast = step(fast, i, 1000 + 2 * i)
    expect(fast.run!.recent.length).toBeLessThan(40)
    expect(ratesOf(fast.run!).stepsPerSec).toBeCloseTo(500, 0)

    let slow = training(1, 1)
    for (let i = 2; i < 6; i++) slow = step(slow, i, 10_000 * i)
    expect(ratesOf(slow.run!).stepsPerSec).toBeCloseTo(0.1, 6)
  })

  it('a test between epochs does not count as slow steps', () => {
    const before = training(1, 179)
    const paused = play(before, {
      type: 'event',
      atMs: 0,
      event: { event: 'phase', phase: 'evaluate', rank: 0 },
    })
    const event = {
      event: 'step',
      step: 180,
      totalSteps: 540,
      epoch: 0,
      loss: 1,
      rank: 0,
      samples: 64,
      globalSamples: 64,
      times: { data: 0, ...noTimes, total: 1 },
      bytesSent: 0,
    } as const
    const resumed = play(
      paused,
      { type: 'event', atMs: 60_000, event },
      { type: 'event', atMs: 60_040, event: { ...event, step: 181 } },
    )
    expect(resumed.run!.phase).toBe('train')
    expect(ratesOf(resumed.run!).stepsPerSec).toBeCloseTo(25, 6)
  })

  it('the time of a pause is none of the run', () => {
    const before = training(1, 10)
    const step = {
      event: 'step',
      step: 11,
      totalSteps: 540,
      epoch: 0,
      loss: 1,
      rank: 0,
      samples: 64,
      globalSamples: 64,
      times: { data: 0, ...noTimes, total: 1 },
      bytesSent: 0,
    } as const
    const after = play(
      before,
      { type: 'event', atMs: 1400, event: { event: 'paused', step: 10, by: [0], rank: 0 } },
      {
        type: 'event',
        atMs: 61_400,
        event: { event: 'continued', step: 10, pausedMs: 60_000, rank: 0 },
      },
      { type: 'event', atMs: 61_440, event: step },
    )
    expect(last(before.run!.seconds)).toBeCloseTo(0.4, 9)
    expect(last(after.run!.seconds)).toBeCloseTo(0.44, 9)
  })

  it('given data is told as it goes', () => {
    const given = (doneBytes: number) =>
      play(
        assigned(2),
        { type: 'config', config: parseTrainConfig({ data: 'given' }) },
        {
          type: 'event',
          atMs: 0,
          event: { event: 'given', doneBytes, totalBytes: 4 << 20, rank: 0 },
        },
      )
    expect(statusOf(given(1 << 20)).text).toBe(
      'The data that one rank was given goes to all: 1.00 MiB of 4.00 MiB.',
    )
    expect(statusOf(given(4 << 20)).text).toContain('All ranks have the data')
  })

  it('says which checkpoint it went on from, and by what its bits are others', () => {
    const event = {
      event: 'resumed',
      step: 128,
      epoch: 2,
      best: 0.9,
      rank: 0,
      stepsLeft: 9,
    } as const
    const goOn = (differences: string[]) =>
      play(
        assigned(3),
        { type: 'event', atMs: 0, event: { ...event, differences } },
        { type: 'event', atMs: 1, event: { event: 'phase', phase: 'train', rank: 0 } },
      )
    expect(goOn([]).run).toMatchObject({ step: 128, dataEpoch: 2 })
    expect(statusOf(goOn([])).text).toMatch(
      /every step\. It went on from the checkpoint of step 128\.$/,
    )
    expect(statusOf(goOn(['ranks 2, now 3', 'buckets'])).text).toContain(
      'No longer bit for bit the run that was saved: ranks 2, now 3; buckets.',
    )
    expect(statusOf(training(1, 1)).text).not.toContain('checkpoint')
  })

  it('ends well, can be started again, and the new run begins empty', () => {
    const done = play(
      training(3, 540),
      { type: 'finished', result: makeResult(3), bytesSent: 1 },
      { type: 'lobby', lobby: makeLobby(3, 'finished'), ownId: makeLobby(1).maker },
    )
    expect(statusOf(done)).toMatchObject({ tone: 'good', title: 'Finished' })
    expect(canStart(done)).toBe(true)
    expect(assigned(3).run!.loss.length).toBe(0)
  })

  it('keeps the first end', () => {
    const snapshot = play(
      training(2, 10),
      { type: 'failed', code: 'peer.lost', text: 'rank 1 is gone' },
      { type: 'failed', code: 'peer.aborted', text: 'later' },
    )
    expect(snapshot.run!.end).toMatchObject({ kind: 'failed', text: 'rank 1 is gone' })
    expect(statusOf(snapshot)).toMatchObject({ tone: 'bad', text: 'rank 1 is gone' })
  })

  it('tells a stop from a failure, and who it was', () => {
    const text = `epoch 1: rank 0 (Ada): ${stopReason('Ada')}`
    const snapshot = play(training(2, 10), { type: 'failed', code: 'peer.aborted', text })
    expect(snapshot.run!.end!.kind).toBe('stopped')
    expect(stoppedBy(text)).toBe('Ada')
    expect(statusOf(snapshot).title).toBe('Stopped')
  })

  it('knows which ranks are gone', () => {
    const before = training(3, 10)
    const lobby = makeLobby(3, 'failed')
    const members = lobby.members.filter((_, index) => index !== 1)
    const after = play(before, {
      type: 'lobby',
      lobby: { ...lobby, members },
      ownId: before.ownId,
    })
    expect(goneRanks(before)).toEqual([])
    expect(goneRanks(after)).toEqual([1])
  })

  it('goes on without the server', () => {
    const snapshot = play(training(3, 10), { type: 'serverLost', text: 'gone' })
    expect(isRunning(snapshot)).toBe(true)
    expect(statusOf(snapshot).text).toContain('goes on without it')
  })
})

describe('every state', () => {
  it.each(Object.entries(makeStates()))('%s has a title and a sentence', (_, snapshot) => {
    const { title, text } = statusOf(snapshot)
    expect(title.length).toBeGreaterThan(3)
    expect(text).toMatch(/[.?…]$/)
    expect(`${title} ${text}`).not.toMatch(/undefined|NaN|null/)
  })
})
