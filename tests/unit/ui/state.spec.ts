import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { noTimes } from '../../../src/graph/plan/step-program.ts'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { last } from '../../../src/ui/parts/series.ts'
import { ratesOf, sharesOf, stepSamples } from '../../../src/ui/state/rates.ts'
import { reduce } from '../../../src/ui/state/reduce.ts'
import {
  canManage,
  canStart,
  canStop,
  isInCharge,
  isMaker,
  isWaitingForNext,
  nameInCharge,
  settingsOfRoom,
} from '../../../src/ui/state/room-facts.ts'
import { goneRanks, isRunning, ranksApart } from '../../../src/ui/state/run-facts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { stoppedBy, stopReason } from '../../../src/ui/state/stop-words.ts'
import { troubleOf } from '../../../src/ui/state/trouble.ts'
import { asSentence } from '../../../src/ui/status/failure-words.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import {
  assigned,
  assignedGroup,
  inside,
  makeLobby,
  makeMember,
  makeResult,
  makeSnapshot,
  makeStates,
  play,
  training,
} from '../../support/page-states.ts'
import { queryOf } from '../../support/ui-with-experiments.ts'

describe('ranks of one tab with different models', () => {
  it('are those of the same tab, without an exchange alone', () => {
    const run = training(4, 5, 1, { config: { strategy: 'alone' } }).run!
    expect(ranksApart(run)).toEqual([])
    const tabs = ['ab', 'cd', 'cd', undefined].map((tab) => tab?.repeat(4))
    const members = run.members.map((member, rank) => ({ ...member, tab: tabs[rank] }))
    expect(ranksApart({ ...run, members })).toEqual([1, 2])
    expect(ranksApart({ ...run, members, rank: 0 })).toEqual([])
    expect(ranksApart({ ...run, members, rank: 3 })).toEqual([])
    const config = parseTrainConfig({ strategy: 'ddp' })
    expect(ranksApart({ ...run, members, config })).toEqual([])
    expect(ranksApart(null)).toEqual([])
  })
})

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
    expect(statusOf(late).title).toBe('A run is in progress')
    const over = play(late, { type: 'lobby', lobby: makeLobby(4, 'finished'), ownId: late.ownId })
    expect(isWaitingForNext(over)).toBe(false)
    expect(statusOf(over).title).toContain('Waiting for')
  })

  it('nobody starts without a server', () => {
    expect(canStart(play(inside(2), { type: 'serverLost', text: 'gone' }))).toBe(false)
  })

  it('the host of the old room neither starts nor removes members while its tab moves or waits to be let in', () => {
    const moving = play(inside(2), { type: 'moving', isMoving: true })
    expect([canStart(moving), canManage(moving)]).toEqual([false, false])
    const stayed = play(moving, { type: 'moving', isMoving: false })
    expect([canStart(stayed), canManage(stayed)]).toEqual([true, true])
    const waiting = play(inside(2), { type: 'asking', host: 'Ada' })
    expect(canStart(waiting)).toBe(false)
    const back = { type: 'lobby', lobby: waiting.lobby!, ownId: waiting.ownId } as const
    expect(canStart(play(waiting, back))).toBe(true)
  })
})

describe('what the maker proposes', () => {
  const config = parseTrainConfig({
    demo: 'playground',
    data: 'moons',
    seed: 5,
    lr: 0.02,
    saves: 'auto',
    maxStepsPerSec: 60,
  })
  const guest = play(inside(3, 1), { type: 'proposed', config })
  const leave = (snapshot: Snapshot) => {
    const lobby = makeLobby(3)
    const members = lobby.members.slice(1)
    return play(snapshot, {
      type: 'lobby',
      lobby: { ...lobby, maker: members[0].id, members },
      ownId: snapshot.ownId,
    })
  }

  it('is what the others show, before a run and after one', () => {
    expect(settingsOfRoom(guest)).toBe(config)
    const running = play(training(3, 5, 1), { type: 'proposed', config })
    expect(settingsOfRoom(running)).toBe(running.run!.config)
    expect(settingsOfRoom(play(running, { type: 'failed', code: 'x', text: 'y' }))).toBe(config)
  })

  it('become the settings of the next host', () => {
    const next = leave(guest)
    expect(isMaker(next)).toBe(true)
    expect(queryOf(next.draft)).toBe('?demo=playground&data=moons&lr=0.02&seed=5')
    expect(next.proposed).toBeNull()
    expect(leave(inside(3, 1)).draft).toBe(inside(3, 1).draft)
  })

  it('but for what only the former host had: given data, checkpoints', () => {
    const given = parseTrainConfig({ ...config, data: 'given', resume: 'latest', seed: 5 })
    const next = leave(play(inside(3, 1), { type: 'proposed', config: given }))
    expect(queryOf(next.draft)).toBe('?demo=playground&lr=0.02&seed=5')
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
      loss: 0.4,
      metric: 'accuracy',
      value: 0.5,
      rank: 0,
    } as const
    const after = reduce(before, { type: 'event', atMs: 0, event })
    expect(before.run!.accuracy.length).toBe(1)
    expect(after.run!.accuracy.length).toBe(2)
  })

  it('counts the samples of a step against those of a rank, with the ranks of the run', () => {
    const received = (ranks: number) => stepSamples(training(ranks, 1))
    expect(received(1)).toEqual({ total: 64, words: 'one rank' })
    expect(received(4)).toEqual({ total: 64, words: '4 ranks × 16' })
    expect(received(3)).toEqual({ total: 64, words: '3 ranks: 22 + 2\u00a0×\u00a021' })
    expect(received(5)).toEqual({ total: 64, words: '5 ranks: 4\u00a0×\u00a013 + 12' })
    const snapshot = training(4, 1)
    const run = { ...snapshot.run!, config: { ...snapshot.run!.config!, parallel: 'pp=2' } }
    expect(stepSamples({ ...snapshot, run })).toEqual({
      total: 64,
      words: '2 pipelines of 2 ranks',
    })
    const asked = (ranks: number) =>
      play(inside(ranks), { type: 'setting', key: 'parallel', value: 'pp=2' })
    expect(stepSamples(asked(2))).toEqual({ total: 64, words: 'a pipeline of 2 ranks' })
    expect(stepSamples(asked(1))).toEqual({ total: Number.NaN, words: 'all ranks' })
  })

  it('counts the samples of whole virtual workers for each rank of an exact run', () => {
    const shares = (worldSize: number, fullestStep = 0, virtualWorkers = 8) => {
      const config = parseTrainConfig({ exact: true, virtualWorkers })
      return sharesOf({ config, worldSize, fullestStep, assigned: null })
    }
    expect(shares(3)).toEqual([16, 24, 24])
    // Of the last virtual worker 4 rows count, and 1.
    expect(shares(2, 60)).toEqual([32, 28])
    expect(shares(4, 9)).toEqual([2, 2, 2, 3])
    expect(shares(3, 0, 2)).toEqual([0, 32, 32])
    const maker = play(inside(3), { type: 'setting', key: 'exact', value: 'true' })
    expect(stepSamples(maker)).toEqual({ total: 64, words: '3 ranks: 16 + 2\u00a0×\u00a024' })
    const unset = play(maker, { type: 'setting', key: 'virtualWorkers', value: '' })
    expect(stepSamples(unset)).toEqual(stepSamples(maker))
  })

  it('says that the others train while this tab gets ready to join them', () => {
    const assignment = { ...assignedGroup(2), epoch: 3, run: 1 }
    const joins = play(inside(2), { type: 'assigned', assignment, startedAtMs: 0 })
    const inPhase = (phase: 'load' | 'compile') =>
      play(joins, { type: 'event', event: { event: 'phase', phase, rank: 0 }, atMs: 0 })
    for (const phase of ['load', 'compile'] as const)
      expect(statusOf(inPhase(phase)).text).toContain(
        'The others train; this tab joins them once it is ready.',
      )
    const event = { event: 'regrouped', step: 7, worldSize: 2, rank: 0 } as const
    const joined = play(inPhase('compile'), { type: 'event', event, atMs: 0 })
    expect(statusOf(joined).text).not.toContain('The others train')
  })

  it('counts the shares that ranks were assigned, until the run has other ranks', () => {
    const event = { event: 'assigned', step: 2, samples: [40, 24, 0], rank: 0 } as const
    const assigned = play(training(3, 2), { type: 'event', event, atMs: 0 })
    expect(stepSamples(assigned)).toEqual({ total: 64, words: '3 ranks: 40 + 24 + 0' })
    const members = assigned.run!.members.slice(0, 2)
    const assignment = { epoch: 2, rank: 0, worldSize: 2, members, links: [] }
    const { run } = play(assigned, { type: 'regrouped', assignment })
    expect(sharesOf(run!)).toEqual([32, 32])
  })

  it('counts the shares with which a group begins', () => {
    const received = [40, 24, 0].map((samples, rank) => ({
      id: `${rank}`,
      name: `t${rank}`,
      samples,
    }))
    const proof = { samples: 'a', parameters: 'b', results: 'c' }
    const event = { event: 'group', step: 2, members: received, proof, rank: 0 } as const
    const assigned = play(training(3, 2), { type: 'event', event, atMs: 0 })
    expect(sharesOf(assigned.run!)).toEqual([40, 24, 0])
  })

  it('counts what steps really take where the data is smaller than the batch', () => {
    const run = training(3, 2).run!
    const small = (steps: number) => ({
      ...training(3, 2),
      run: { ...run, config: { ...run.config!, batchSize: 150 }, fullestStep: steps },
    })
    expect(stepSamples(small(64))).toEqual({ total: 64, words: '3 ranks: 22 + 2\u00a0×\u00a021' })
    expect(statusOf(small(64)).text).toContain('3 ranks share the 64 samples of every step.')
    expect(stepSamples(small(0)).total).toBe(150)
    expect(run.fullestStep).toBe(64)
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
          value: 0.5,
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

  it("the time of a pause is not part of the run's", () => {
    const before = training(1, 10)
    const step = {
      event: 'step',
      step: 11,
      totalSteps: 540,
      epoch: 0,
      loss: 1,
      value: 0.5,
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

  it('given data shows its progress', () => {
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
      'One rank is sending the user-supplied data to all: 1.00 MiB of 4.00 MiB.',
    )
    expect(statusOf(given(4 << 20)).text).toContain('All ranks have received the data')
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
      /every step\. Resumed from the checkpoint of step 128\.$/,
    )
    const held = { ...event, holders: 2, differences: [] }
    expect(
      statusOf(
        play(
          assigned(3),
          { type: 'event', atMs: 0, event: held },
          { type: 'event', atMs: 1, event: { event: 'phase', phase: 'train', rank: 0 } },
        ),
      ).text,
    ).toMatch(/the checkpoint of step 128, which 2 of 3 ranks have\.$/)
    const others = statusOf(goOn(['ranks 2, now 3', 'buckets']))
    expect(others.text).toContain(
      'The checkpoint was saved with 2 ranks and resumes with 3, so the results may differ',
    )
    expect(others.more).toEqual({ summary: 'What differs', text: 'ranks 2, now 3; buckets' })
    expect(statusOf(goOn(['kernels'])).text).toContain('Something has changed since')
    expect(statusOf(goOn([])).more).toBeUndefined()
    expect(statusOf(training(1, 1)).text).not.toContain('checkpoint')
  })

  it('keeps the groups of the run in the log that it saves', () => {
    const proof = { samples: 'a', parameters: 'b', results: 'c' }
    const members = [0, 1, 2].map((rank) => {
      return { id: makeMember(rank).id, name: makeMember(rank).name, samples: 20 }
    })
    const event = { event: 'group', step: 0, members, proof, rank: 1 } as const
    const { logged } = play(training(3, 60), { type: 'event', atMs: 2, event }).run!
    expect(logged.at(-1)).toEqual(event)
  })

  it('has the settings of the next step once ranks have changed one', () => {
    const change = {
      event: 'changed',
      step: 61,
      key: 'lr',
      from: 0.02,
      to: 0.1,
      by: 1,
      rank: 0,
    } as const
    const { run } = play(training(3, 60), { type: 'event', atMs: 2, event: change })
    expect(run).toMatchObject({
      changed: { lr: { step: 61, by: run!.members[1].name } },
      config: { lr: 0.1 },
    })
    expect(run!.logged.at(-1)).toEqual(change)
  })

  it('says that the weights depend on who trains, by name, once a tab with other bits has joined', () => {
    const text = 'on rank 1 (acme one) the computed bits differ from those that the run began with'
    const found = { event: 'unlike', step: 50, ranks: [1], text, isLasting: true, rank: 0 } as const
    const hear = (...events: RunEvent[]) =>
      play(training(3, 60), ...events.map((event) => ({ type: 'event', atMs: 2, event }) as const))
    const received = hear(found)
    const { name } = received.run!.members[1]
    const words = `All tabs hold the same weights, but since step 50 not those of a run without ${name}.`
    expect(statusOf(received).text).toContain(words)
    expect(statusOf(received).more).toEqual({
      summary: 'What differs',
      text: `after step 50: ${text}`,
    })
    expect(received.run!.logged.at(-1)).toEqual(found)
    const ended = play(received, { type: 'finished', result: makeResult(3), bytesSent: 1 })
    expect(statusOf(ended).text).toContain(words)
    expect(statusOf(ended).more).toEqual(statusOf(received).more)
    expect(statusOf(hear({ ...found, ranks: [] })).text).toContain('of a run in other tabs.')
    const mended = hear(
      { event: 'regrouped', step: 50, worldSize: 3, rank: 0 },
      { ...found, text: 'the state of rank 1 differed', isLasting: false },
    )
    const { text: mending, more } = statusOf(mended)
    expect(mending).toMatch(/every step\. After step 50 the state of rank 1 differed\.$/)
    expect(more).toBeUndefined()
  })

  it('says in how many steps the gradients of a tab did not count, once for all buckets of a step', () => {
    const leftOut = { event: 'leftOut', ranks: [1], notFinite: [1], rank: 0 } as const
    const hear = (run: Snapshot) =>
      play(run, ...[1, 2].map((atMs) => ({ type: 'event', atMs, event: leftOut }) as const))
    const once = hear(training(3, 60))
    const { name } = once.run!.members[1]
    expect(statusOf(once).text).toContain(
      ` The gradients of ${name} did not count in 1 step, last in step 61: they were not numbers, or far larger than those of the others.`,
    )
  })

  it('names a tab in it whose name is a property of all objects', () => {
    const run = training(3, 60)
    const members = run.run!.members.map((member, at) => ({
      ...member,
      name: ['constructor', '__proto__', 'c'][at]!,
    }))
    const event = { event: 'leftOut', ranks: [0, 1], notFinite: [], rank: 2 } as const
    const { text } = statusOf(
      play({ ...run, run: { ...run.run!, members } }, { type: 'event', atMs: 1, event }),
    )
    for (const name of ['constructor', '__proto__'])
      expect(text).toContain(` The gradients of ${name} did not count in 1 step,`)
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

  it('keeps the first end when another comes', () => {
    const snapshot = play(
      training(2, 10),
      { type: 'failed', code: 'peer.lost', text: 'rank 1 is gone' },
      { type: 'failed', code: 'peer.aborted', text: 'later' },
    )
    expect(snapshot.run!.end).toMatchObject({ kind: 'failed', text: 'rank 1 is gone' })
    expect(statusOf(snapshot)).toMatchObject({ tone: 'bad', text: 'rank 1 is gone' })
  })

  it('a loss that is not finite is explained in plain words, with the error behind them', () => {
    const text =
      'epoch 1: rank 0: step 3: expected finite arguments, but parameter "0.weight" has values that are not finite.'
    const { text: said, more } = statusOf(
      play(training(2, 10), { type: 'failed', code: 'train.nan', text }),
    )
    expect(said).toMatch(/^Training became unstable after step 10: .+learning rate is too high\./)
    expect(more).toEqual({ summary: 'Error details', text: text.replace('epoch 1', 'run 1') })
  })

  it("the protocol's epochs are runs on the page", () => {
    const said = (text: string) =>
      statusOf(play(training(2, 10), { type: 'failed', code: 'internal', text })).text
    expect(said('epoch 1: rank 1 (Ada) is gone: left.')).toBe('run 1: rank 1 (Ada) is gone: left.')
    expect(said('the room is running (epoch 2), not waiting.')).toContain('running (run 2), not')
    expect(said('3 frames of another membership came, last of membership 2')).toBe(
      '3 frames of another run came, last of run 2',
    )
    expect(asSentence('rank 1 is gone.')).toBe('Rank 1 is gone.')
    expect(asSentence('https://a/b: expected a file.')).toBe('https://a/b: expected a file.')
    expect(said('rank 0 lost rank 1: its tab closed.')).toBe('rank 0 lost rank 1: its tab closed.')
    // A pass over the data has its name.
    expect(said('Lower the epochs or steps.')).toBe('Lower the epochs or steps.')
  })

  it('distinguishes a stop from a failure, and names who stopped', () => {
    const text = `epoch 1: rank 0 (Ada): ${stopReason('Ada')}`
    const snapshot = play(training(2, 10), { type: 'failed', code: 'peer.aborted', text })
    expect(snapshot.run!.end!.kind).toBe('stopped')
    expect(stoppedBy(text)).toBe('Ada')
    expect(statusOf(snapshot).title).toBe('Stopped')
  })

  it('names the rank that ended a run, even after members leave or come back', () => {
    const before = training(4, 10)
    const lobby = makeLobby(4, 'failed')
    const without = (from: Snapshot, ...ranks: number[]) =>
      play(from, {
        type: 'lobby',
        lobby: { ...lobby, members: lobby.members.filter((_, rank) => !ranks.includes(rank)) },
        ownId: from.ownId,
      })
    expect(goneRanks(before)).toEqual([])
    // During the run: who is not there.
    expect(goneRanks(without(before, 1))).toEqual([1])
    const name = before.run!.members[3].name
    for (const text of [
      `epoch 1: rank 3 (${name}) is gone: left.`,
      'rank 0 lost rank 3: its tab or worker closed. (allReduce #4)',
    ]) {
      const ended = play(before, { type: 'failed', code: 'peer.lost', ranks: [3], text })
      expect(goneRanks(ended)).toEqual([3])
      const later = without(without(ended, 3, 1), 1)
      expect(goneRanks(later)).toEqual([3])
      const { title, text: said, more } = statusOf(later)
      expect(title).toBe(`Rank 3 (${name}) was lost`)
      expect(said).toMatch(
        /the run ended at step 10\. Start again without it, or once it is back\.$/,
      )
      expect(more!.text).toBe(text.replace('epoch', 'run'))
      const guest = { ...later, ownId: later.lobby!.members.at(-1)!.id }
      expect(statusOf(guest).text).toMatch(/ended at step 10\. Waiting for .+ to start again\.$/)
    }
    // Where no rank is named: who is not there at the end, or from then on.
    const unnamed = play(before, { type: 'failed', code: 'peer.timeout', text: 'No answer.' })
    expect(goneRanks(unnamed)).toEqual([])
    expect(goneRanks(without(without(unnamed, 2), 1))).toEqual([2])
    // A run that finished has lost nobody.
    const done = play(before, { type: 'finished', result: makeResult(4), bytesSent: 0 })
    expect(goneRanks(without(done, 1))).toEqual([])
  })

  it('names the members without which it cannot be sure to be the only run, until that is decided', () => {
    const undecided = (
      missing: readonly string[] | null,
      hadMore = false,
      step: number | null = 8,
    ) =>
      ({
        type: 'event',
        event: { event: 'undecided', missing, hadMore, step, rank: 0 },
        atMs: 0,
      }) as const
    const before = training(3, 10)
    const [, second] = before.run!.members
    const waiting = play(before, undecided([`${second.id}.1`]))
    expect(statusOf(waiting).title).toBe('Waiting')
    expect(statusOf(waiting).text).toContain(
      `${second.name} has not answered. Without it the run continues from step 8. If`,
    )
    const lost = play(before, undecided([`${second.id}.1`], true))
    expect(statusOf(lost).text).toContain(
      `${second.name} had newer steps than any tab here, and has left or not answered. Without it the run continues from step 8: its later steps are lost, and computed again. If`,
    )
    const nobody = play(before, undecided([`${second.id}.1`], true, null))
    expect(statusOf(nobody).text).toContain('No tab here has the state of the run: without it')
    expect(statusOf(play(waiting, undecided(null))).title).toBe('Training')
  })

  it('names a lost rank as the group that has lost it numbers its ranks, until the next group begins', () => {
    const event = (event: RunEvent) => ({ type: 'event', event, atMs: 0 }) as const
    const before = training(3, 10)
    const { epoch, members, links } = assignedGroup(3, 0)
    const isSilent = play(before, event({ event: 'silent', who: 2, isSilent: true, rank: 0 }))
    expect(statusOf(isSilent).text).toContain(`No answer from rank 2 (${members[2].name})`)
    const text = 'rank 0 lost rank 2: its tab or worker closed.'
    const lost = play(isSilent, event({ event: 'lost', text, who: 2, rank: 0 }))
    const worldSize = 2
    const assignment = { epoch, links, members: members.slice(0, 2), worldSize, rank: 0 }
    const decided = play(lost, { type: 'regrouped', assignment })
    for (const snapshot of [lost, decided])
      expect(statusOf(snapshot).text).toContain(`Rank 2 (${members[2].name}) was lost.`)
    const received = { event: 'regrouped', step: 10, worldSize, rank: 0 } as const
    const { text: said } = statusOf(play(decided, event(received)))
    expect(said).toContain(`${members[2].name} left: the run continued from step 10.`)
    expect(said).not.toContain('No answer')
  })

  it('names a tab once where several of its ranks have left', () => {
    const before = training(3, 10)
    const regrouped = { step: 10, worldSize: 3 }
    const changes = [{ left: ['Ada', 'Ada · 2', 'Grace'], came: ['Emmy · 2', 'Emmy · 3'] }]
    expect(statusOf({ ...before, run: { ...before.run!, regrouped, changes } }).text).toContain(
      'Ada (2 ranks), Grace left; Emmy (2 ranks) joined: the run continued from step 10.',
    )
  })

  it('says that this tab joined when its other ranks come after its first', () => {
    const before = training(3, 10)
    const regrouped = { step: 10, worldSize: 3 }
    const { name } = before.run!.members[before.run!.rank]
    const words = (came: string[]) =>
      statusOf({ ...before, run: { ...before.run!, regrouped, changes: [{ left: [], came }] } })
        .text
    expect(words([`${name} · 2`])).toContain('This tab joined after step 10.')
    expect(words([`${name} · 2`, 'Emmy'])).toContain('Emmy joined: the run continued from step 10.')
  })

  it('names a tab once where several of its ranks are not linked yet', () => {
    const before = training(3, 10)
    const { members } = before.run!
    const run = {
      ...before.run!,
      phase: 'connect' as const,
      peers: [1, 2],
      ways: {},
      members: members.map((one, rank) => ({ ...one, name: ['Ada', 'Grace', 'Grace · 2'][rank] })),
    }
    expect(statusOf({ ...before, run }).text).toContain('This tab is waiting for Grace (2 ranks).')
  })

  it('says why a newcomer waits, until who trains is decided again', () => {
    const waits = (why: string | null) =>
      ({ type: 'event', event: { event: 'waits', who: '9.2', why, rank: 0 }, atMs: 0 }) as const
    const before = training(3, 10)
    const outside = play(before, waits('its connection is slow.'))
    expect(statusOf(outside)).toMatchObject({
      title: 'Training',
      text: expect.stringContaining(' A new tab waits: its connection is slow.'),
    })
    expect(statusOf(play(outside, waits(null)))).toEqual(statusOf(before))
    const known = play(before, { type: 'lobby', lobby: makeLobby(3), ownId: before.ownId })
    const { id, name } = known.lobby!.members[2]!
    const event = { event: 'waits', who: `${id}.2`, why: 'it is slow.', rank: 0 } as const
    const named = play(known, { type: 'event', event, atMs: 0 })
    expect(statusOf(named).text).toContain(` ${name} waits: it is slow.`)
    const roster = { event: 'roster', ballot: 9, members: [], rank: 0 } as const
    const next = play(outside, { type: 'event', event: roster, atMs: 0 })
    expect(statusOf(next)).toEqual(statusOf(before))
    const newcomer = { ...before, run: { ...before.run!, joins: true } }
    expect(statusOf(play(newcomer, waits('the run is paused.')))).toMatchObject({
      title: 'Waiting',
      text: 'This tab waits: the run is paused.',
    })
  })

  it('says whose connection holds up the run, until none does', () => {
    const holdsUp = (who: string | null, why: string | null) =>
      ({ type: 'event', event: { event: 'holdsUp', who, why, rank: 0 }, atMs: 0 }) as const
    const why = "it carries a step's gradients in 20 s, and without that a step takes 0.3 s."
    const before = training(3, 10)
    const { members } = before.run!
    const wordsOf = (who: string, snapshot = before) =>
      statusOf(play(snapshot, holdsUp(`${members[Number(who)].id}.1`, why))).text
    expect(wordsOf('2')).toContain(` The connection of ${members[2].name} holds up the run: ${why}`)
    expect(wordsOf('0')).toContain(' The connection of this tab holds up the run, or those of all')
    const two = training(2, 10)
    expect(wordsOf('0', two)).toContain(' The connection between the two ranks holds up the run: ')
    const named = play(before, holdsUp(`${members[2].id}.1`, why))
    expect(statusOf(play(named, holdsUp(null, null)))).toEqual(statusOf(before))
  })

  it('says whose link has ended for what it sent', () => {
    const event = { event: 'broke', who: '9.2', name: 'Grace', what: 'called', rank: 0 } as const
    expect(statusOf(play(training(3, 10), { type: 'event', event, atMs: 0 })).text).toContain(
      ' Grace sent what this program never sends: it called. The link to it has ended.',
    )
  })

  it('says how much of the state a newcomer has, there and here', () => {
    const state = (doneBytes: number) =>
      ({
        type: 'event',
        event: { event: 'state', doneBytes, totalBytes: 3 << 20, rank: 0 },
        atMs: 0,
      }) as const
    const words = " A new tab gets the run's state: 1.00 MiB of 3.00 MiB."
    const before = training(3, 10)
    expect(statusOf(play(before, state(1 << 20))).text).toContain(words)
    expect(statusOf(play(before, state(3 << 20)))).toEqual(statusOf(before))
    const newcomer = { ...before, run: { ...before.run!, joins: true, phase: 'load' } } as const
    expect(statusOf(play(newcomer, state(1 << 20))).text).toContain(words)
    // The newcomer left before it had all.
    const lost = { event: 'lost', text: 'rank 0 lost rank 2: it left.', who: 2, rank: 0 } as const
    const regrouped = { event: 'regrouped', step: 10, worldSize: 2, rank: 0 } as const
    const after = play(
      play(before, state(1 << 20)),
      { type: 'event', event: lost, atMs: 0 },
      { type: 'event', event: regrouped, atMs: 0 },
    )
    expect(statusOf(after).text).not.toContain('A new tab')
  })

  it('is paused and stopped by the first rank when the maker has left it', () => {
    const may = (snapshot: Snapshot) => [isInCharge(snapshot), canStop(snapshot)]
    const [maker, second, third] = [0, 1, 2].map((rank) => training(3, 10, rank))
    expect([maker, second, third].map(may)).toEqual([
      [true, true],
      [false, false],
      [false, false],
    ])
    expect(nameInCharge(third)).toBe(makeMember(0).name)
    // The room still names it, as there is no server.
    const left = (snapshot: Snapshot, rank: number) => {
      const { members, links, epoch } = assignedGroup(3, rank)
      return play(
        snapshot,
        { type: 'serverLost', text: 'gone' },
        {
          type: 'regrouped',
          assignment: {
            epoch,
            links,
            members: members.slice(1),
            worldSize: 2,
            rank: rank - 1,
          },
        },
      )
    }
    expect(may(left(second, 1))).toEqual([true, true])
    expect(may(left(third, 2))).toEqual([false, false])
    expect(nameInCharge(left(third, 2))).toBe(makeMember(1).name)
  })

  it('is stopped by any tab when that waits for a person', () => {
    const received = (missing: readonly string[] | null) =>
      ({
        type: 'event',
        event: { event: 'undecided', missing, hadMore: false, step: 8, rank: 2 },
        atMs: 0,
      }) as const
    const waiting = play(training(3, 10, 2), received([`${makeMember(0).id}.1`]))
    expect([isInCharge(waiting), canStop(waiting)]).toEqual([false, true])
    expect(canStop(play(waiting, received(null)))).toBe(false)
  })

  it('names who stopped it even when the server is gone', () => {
    const stopped = play(
      training(3, 10),
      { type: 'serverLost', text: 'gone' },
      { type: 'failed', code: 'peer.aborted', text: stopReason('Ada') },
    )
    expect(statusOf(stopped)).toMatchObject({
      title: 'The server is gone',
      text: expect.stringMatching(
        /^Ada stopped the run at step 10\. No run can start without it\./,
      ),
    })
  })

  it('says first which rank was lost, then that the server is gone', () => {
    const failed = play(
      training(3, 10),
      { type: 'serverLost', text: 'gone' },
      {
        type: 'failed',
        code: 'peer.lost',
        text: 'epoch 1: rank 0 lost rank 2: its tab was closed.',
        ranks: [2],
      },
    )
    expect(statusOf(failed)).toMatchObject({
      title: `Rank 2 (${makeMember(2).name}) was lost`,
      text: expect.stringMatching(
        /the run ended at step 10\..* The server is gone, too: no run can start until/,
      ),
    })
  })

  it('says that this tab stood still when the others gave it up for that', () => {
    const text = 'rank 0 stood still for 20 s, and the others gave it up: its machine slept.'
    const failed = play(training(3, 10), { type: 'failed', code: 'peer.lost', text, ranks: [0] })
    expect(statusOf(failed)).toMatchObject({
      title: 'This tab stood still',
      text: expect.stringMatching(/stood still for 20 s/),
    })
  })

  it('says that the run was over before this tab had joined it', () => {
    const { title, text } = statusOf(makeStates()['failed-joining'])
    expect(title).toBe('The run is over')
    expect(text).toMatch(/before this tab had joined it\. Waiting for .* to start again\.$/)
  })

  it.each([
    ['finished', { value: 0.89, seconds: 6 }, 'Finished', '89.00 % of the test samples are right'],
    ['finished', undefined, 'Finished', 'By the other tabs.'],
    ['failed', undefined, 'The run is over', 'It ended without this tab.'],
  ] as const)('says that it %s with %o while this tab was away', (state, reached, title, what) => {
    const text = 'epoch 1: the run has ended without this tab.'
    const lobby = { ...makeLobby(3, state), reached }
    const back = play(
      training(3, 10),
      { type: 'failed', code: 'peer.aborted', text },
      { type: 'lobby', lobby, ownId: makeMember(0).id },
    )
    const received = statusOf(back)
    expect(received).toMatchObject({ tone: 'idle', title })
    expect(received.text).toContain(what)
    expect(received.text).toContain(' This tab was away, and has the weights after step 10.')
  })

  it('continues without the server', () => {
    const snapshot = play(training(3, 10), { type: 'serverLost', text: 'gone' })
    expect(isRunning(snapshot)).toBe(true)
    expect(statusOf(snapshot).text).toContain('continues without it')
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

describe('one step in a pause', () => {
  const received = (event: 'paused' | 'continued', step: number) =>
    ({
      type: 'event',
      atMs: 0,
      event:
        event === 'paused'
          ? { event, step, by: [0], rank: 0 }
          : { event, step, pausedMs: 9, rank: 0 },
    }) as const
  const paused = play(training(3, 260), received('paused', 260))
  const stepping = play(paused, { type: 'stepping', isStepping: true })

  it('looks like a pause until the next pause begins', () => {
    const between = play(stepping, received('continued', 260))
    expect(between.run).toMatchObject({ paused: { step: 260 }, isStepping: true })
    expect(play(between, received('paused', 261)).run).toMatchObject({
      paused: { step: 261 },
      isStepping: false,
    })
  })

  it('one that a person ends by continuing shows the run again', () => {
    const between = play(stepping, received('continued', 260))
    const on = play(between, { type: 'stepping', isStepping: false })
    expect(on.run).toMatchObject({ paused: null, isStepping: false })
  })

  it('is nothing where there is no pause', () => {
    const run = play(training(3, 260), { type: 'stepping', isStepping: true })
    expect(run.run?.isStepping).toBe(false)
  })
})
