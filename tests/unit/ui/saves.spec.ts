import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { longerThan } from '../../../src/ui/checkpoints/checkpoint-acts.ts'
import { stopRun } from '../../../src/ui/room/stop-run.ts'
import { fileWords, whyUnsaved } from '../../../src/ui/settings/checkpoint-words.ts'
import { lostByReset } from '../../../src/ui/state/reset-facts.ts'
import { canSave, continued, isSaved, startsFrom } from '../../../src/ui/state/save-facts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { Store, type Surface } from '../../../src/ui/state/store.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import {
  assigned,
  failedSaved,
  inside,
  makeLobby,
  makeResult,
  play,
  saved,
  savedByHand,
  shownRunId,
  training,
} from '../../support/page-states.ts'

/** Saving a run when a person wants to, and going on with one. */

/** Nobody looks. */
const pageless: Surface = {
  isHidden: () => true,
  frame: () => undefined,
  after: () => undefined,
  painted: () => undefined,
  now: () => 0,
}

const paused = { event: 'paused', step: 260, by: [0], rank: 0 } as const
const finish = {
  type: 'finished',
  result: { ...makeResult(3), steps: 540 },
  bytesSent: 0,
} as const

describe('a stop', () => {
  /** What is asked of the member, and the time passed by hand. */
  function stopping(first: Snapshot) {
    const asked: string[] = []
    const store = new Store(first, pageless, () => undefined)
    const timers: (() => void)[] = []
    stopRun({
      store,
      member: { pause: () => asked.push('pause'), stop: () => asked.push('stop') },
      after: (_, callback) => timers.push(callback),
    })
    return { asked, store, passTime: () => timers.forEach((timer) => void timer()) }
  }
  const auto = { config: { saves: 'auto' } } as const

  it('pauses a run that saves itself, and ends it after that pause', () => {
    const { asked, store, passTime } = stopping(training(3, 260, 0, auto))
    expect(asked).toEqual(['pause'])
    store.dispatch(saved(260))
    expect(asked).toEqual(['pause'])
    store.dispatch({ type: 'event', event: paused, atMs: 0 })
    expect(asked).toEqual(['pause', 'stop'])
    expect(store.snapshot.run?.isStopping).toBe(true)
    passTime()
    expect(asked).toEqual(['pause', 'stop'])
  })

  it('does not wait for a run that takes no step, nor end one that has ended', () => {
    const stuck = stopping(training(3, 260, 0, auto))
    stuck.passTime()
    expect(stuck.asked).toEqual(['pause', 'stop'])
    const ended = stopping(training(3, 260, 0, auto))
    ended.store.dispatch({ type: 'failed', code: 'peer.lost', text: 'rank 1 is gone' })
    ended.passTime()
    expect(ended.asked).toEqual(['pause'])
  })

  it('is immediate when nothing is to be saved, it is saved already, or no step is made', () => {
    const inPause = play(training(3, 260, 0, auto), { type: 'event', event: paused, atMs: 0 })
    const event = {
      event: 'undecided',
      missing: ['1.1'],
      hadMore: false,
      step: 8,
      rank: 0,
    } as const
    const inDoubt = play(training(3, 260, 0, auto), { type: 'event', event, atMs: 0 })
    for (const first of [
      inPause,
      inDoubt,
      assigned(3),
      training(3, 260, 1, auto),
      training(3, 260, 0, { config: { saves: 'asked' } }),
      training(3, 260, 0, { config: { saves: 'auto', strategy: 'alone' } }),
    ])
      expect(stopping(first).asked).toEqual(['stop'])
  })
})

describe('the next start', () => {
  it('says where it begins, where that is a checkpoint', () => {
    const files = [{ name: 'a.safetensors', step: 90 }].map((file) => ({
      ...file,
      place: 'page-digits-mlp',
      sizeBytes: 1,
      isBest: false,
      isLatest: true,
      isKept: false,
      savedAtMs: null,
      about: '',
      score: null,
    }))
    const chosen = (resume: string) =>
      play(
        inside(3),
        { type: 'checkpoints', files },
        { type: 'setting', key: 'resume', value: resume },
      )
    expect(startsFrom(chosen(''))).toBeNull()
    expect(statusOf(chosen('a.safetensors')).text).toContain('resumes from step 90')
    expect(startsFrom(chosen('step-120.safetensors'))).toBe('step 120')
    // The second file of that step.
    expect(startsFrom(chosen('step-120-2.safetensors'))).toBe('step 120')
    expect(startsFrom(chosen('best'))).toBe('the best checkpoint')
  })
})

describe('saving', () => {
  it('is for every member, while steps are made, in a pause and after the end', () => {
    const run = training(3, 260)
    expect(canSave(run)).toBe(true)
    expect(canSave(training(3, 260, 2))).toBe(true)
    expect(canSave(play(run, { type: 'event', event: paused, atMs: 0 }))).toBe(true)
    expect(canSave(play(run, finish))).toBe(true)
    for (const not of [
      inside(3),
      assigned(3),
      play(run, { type: 'stopping' }),
      play(run, { type: 'failed', code: 'peer.lost', text: 'gone' }),
      training(3, 5, 0, { config: { saves: 'none' } }),
      training(3, 5, 0, { config: { strategy: 'alone' } }),
    ])
      expect(canSave(not)).toBe(false)
  })

  it('is done once for a state that stays, and again for the next', () => {
    const run = training(3, 260)
    const inPause = play(run, { type: 'event', event: paused, atMs: 0 })
    expect(isSaved(play(inPause, saved(260)))).toBe(false)
    const kept = play(inPause, savedByHand(260))
    expect(isSaved(kept)).toBe(true)
    expect(
      isSaved(
        play(kept, {
          type: 'event',
          event: { event: 'continued', step: 260, pausedMs: 9, rank: 0 },
          atMs: 0,
        }),
      ),
    ).toBe(false)
    expect(isSaved(play(run, finish, savedByHand(540)))).toBe(true)
  })

  it('that fails during a run is reported among the checkpoints', () => {
    const received = play(training(3, 5), {
      type: 'event',
      event: { event: 'unsaved', step: 5, code: '', text: 'the disk is full.', rank: 0 },
      atMs: 0,
    })
    expect(received.checkpointNote).toEqual({
      text: 'Saving this run failed, and will be tried again: the disk is full.',
      isError: true,
    })
    const file = { step: 9, name: 'step-9.safetensors', isBest: false, rank: 0 }
    const saved = play(received, {
      type: 'event',
      event: { event: 'checkpoint', ...file },
      atMs: 0,
    })
    expect(saved.checkpointNote).toBeNull()
  })
})

describe('going on with a run that ended early', () => {
  const failed = failedSaved(3, 180)

  it('is offered from its newest checkpoint here, with its own settings', () => {
    expect(continued(failed)).toEqual({
      step: 180,
      config: { ...failed.run!.config, resume: 'step-180.safetensors' },
    })
    expect(statusOf(failed).text).toMatch(
      /back\. It was saved at step 180 and can resume from there\.$/,
    )
    const stopped = play(training(3, 203), saved(180), saved(200), {
      type: 'failed',
      code: 'peer.aborted',
      text: 'stopped by Ada.',
    })
    const over = play(stopped, {
      type: 'lobby',
      lobby: makeLobby(3, 'failed'),
      ownId: stopped.ownId,
    })
    expect(continued(over)?.step).toBe(200)
    expect(statusOf(over)).toMatchObject({
      title: 'Stopped',
      text: 'Ada stopped the run at step 203. Resume from step 200, or start again from the beginning.',
    })
  })

  it('is not offered to others, after a good end, without a checkpoint, or to more ranks than the batch has samples', () => {
    const { lobby } = failed
    for (const not of [
      { ...failed, ownId: lobby!.members[1].id },
      { ...failed, run: { ...failed.run!, saved: null } },
      { ...failed, run: { ...failed.run!, config: parseTrainConfig({ batchSize: 2 }) } },
      play(training(3, 540), saved(540), finish, {
        type: 'lobby',
        lobby: makeLobby(3, 'finished'),
        ownId: failed.ownId,
      }),
      training(3, 200),
    ])
      expect(continued(not)).toBeNull()
    expect(statusOf({ ...failed, run: { ...failed.run!, saved: null } }).text).not.toContain(
      'Resume',
    )
  })

  it('ends when the file is deleted: one of another model with that name does not count', () => {
    const file = {
      place: 'page-digits-mlp',
      name: 'step-180.safetensors',
      step: 180,
      sizeBytes: 1,
      isBest: false,
      isLatest: true,
      isKept: false,
      savedAtMs: null,
      about: '',
      score: null,
    }
    const deleted = (place: string) =>
      continued(play(failed, { type: 'checkpointDeleted', file: { ...file, place } }))
    expect(deleted('page-digits-mlp')).toBeNull()
    expect(deleted('page-digits-cnn')?.step).toBe(180)
  })

  it('is also possible from the checkpoint that the run itself resumed; the next start is from the beginning', () => {
    const chosen = play(inside(3), { type: 'setting', key: 'resume', value: 'step-90.safetensors' })
    expect(chosen.draft.resume).toBe('step-90.safetensors')
    const resumed = play(
      training(3, 0, 0, { config: { resume: 'step-90.safetensors' } }),
      { type: 'setting', key: 'resume', value: 'step-90.safetensors' },
      {
        type: 'event',
        event: {
          event: 'resumed',
          step: 90,
          epoch: 0,
          best: 0,
          rank: 0,
          stepsLeft: 450,
          differences: [],
        },
        atMs: 0,
      },
    )
    expect(resumed.draft.resume).toBe('')
    const lost = play(
      resumed,
      { type: 'failed', code: 'peer.lost', text: 'gone' },
      { type: 'lobby', lobby: makeLobby(3, 'failed'), ownId: resumed.ownId },
    )
    expect(continued(lost)).toMatchObject({ step: 90, config: { resume: 'step-90.safetensors' } })
    // That file is with rank 0.
    expect(continued({ ...lost, run: { ...lost.run!, rank: 1 } })).toBeNull()
  })

  it('events that come late count for their own run', () => {
    const first = play(
      training(1, 540),
      { type: 'finished', result: makeResult(1), bytesSent: 0 },
      { type: 'lobby', lobby: makeLobby(1), ownId: makeLobby(1).maker },
    )
    const { members } = first.run!
    const assignment = { epoch: 2, rank: 0, worldSize: 1, members, links: [] }
    const from = play(first, { type: 'assigned', assignment, startedAtMs: 5 })
    const second = training(1, 10, 0, { from })
    const late = play(second, savedByHand(540), {
      type: 'download',
      runId: shownRunId,
      download: { is: 'done' },
    })
    expect(late.run).toBe(second.run)
  })
})

describe('a reset', () => {
  const run = training(3, 203)
  const stop = { type: 'failed', code: 'peer.aborted', text: 'stopped by Ada.' } as const
  it.each([
    [play(run, stop), 'You will lose the trained model, which is not saved.'],
    [
      play(run, saved(180), stop),
      'You will lose what the model learned after step 180, its last save.',
    ],
    [play(run, saved(203), stop), null],
    [play(run, finish), 'You will lose the trained model, which is not saved.'],
    [play(run, finish, savedByHand(540)), null],
    [play(run, saved(540), finish), null],
  ])('says what is lost with it (%#)', (snapshot, words) => {
    expect(lostByReset(snapshot)).toBe(words)
  })
})

it('a finished run trains on for as long again, unless the form says further', () => {
  // 100 samples are 7 steps of 16.
  const found = { name: 'step-14.safetensors', samples: 100, step: 14 }
  const longer = (form: object, step = 14) => {
    const config = parseTrainConfig({ batchSize: 16, ...form })
    return longerThan({ ...found, step, config }, config)
  }
  expect(longer({ epochs: 2 })).toEqual(['epochs', '4'])
  expect(longer({ epochs: 2 }, 15)).toEqual(['epochs', '5'])
  expect(longer({ epochs: 3 })).toBeNull()
  expect(longer({ steps: 14 })).toEqual(['steps', '28'])
  expect(longer({ steps: 15 })).toBeNull()
})

it('a file without a run in it is named for what it is', () => {
  expect(fileWords('mlp.safetensors', 'weights')).toMatch(
    /^mlp.safetensors holds only a model’s weights/,
  )
  expect(fileWords('cat.png', 'other')).toMatch(/^cat.png is not a checkpoint/)
  expect(whyUnsaved('file.unwritable', 'x')).toMatch(/^this browser stores no files/)
})
