import { afterEach, describe, expect, test, vi } from 'vitest'
import { task } from '../../../demos/playground/demo.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { ReferenceProgram } from '../../../src/graph/run/reference-program.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import { systemEnv } from '../../../src/util/env.ts'
import { DataError, endFactsOf, GpuError, TabringError } from '../../../src/util/errors.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { enter, lettingIn, points, settings, warned } from '../../support/elastic-members.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { meshOf } from '../../support/process-ring.ts'
import { lossesOf, resultsOf, trainRanks } from '../../support/train-ranks.ts'

// A run continues with the ranks that are left, and with those that come, from the newest state that one of them has kept.

afterEach(() => vi.restoreAllMocks())

/** The losses of `steps` steps, the last ten of them on `size` ranks that continue from a checkpoint of `before`. */
async function expected(before: number, size: number, steps: number) {
  const folder = seenFolder()
  const own = (run: number, input: TrainConfigInput) =>
    trainRanks(
      run,
      { ...settings, ...input },
      () => new ReferenceRuntime(),
      () => ({ folder: async () => folder }),
      task as Task,
    )
  const first = await own(before, { steps: 50, checkpointEvery: 50 })
  const second = await own(size, { steps, checkpointEvery: 0, resume: 'latest' })
  resultsOf(first)
  const [{ paramHash }] = resultsOf(second)
  return { losses: [...lossesOf(first[0]), ...lossesOf(second[0])], paramHash }
}

test('a lost rank does not end the run: the others continue from the newest kept state', async () => {
  const wanted = await expected(3, 2, 60)
  const warn = warned()
  const room = new ElasticRoom(['a', 'b', 'c'])
  const [a, b, c] = ['a', 'b', 'c'].map((name) => enter(room, name, { steps: 60 }))
  await b.after(54)
  room.become(['a', 'c'])
  b.kill()
  expect((await b.end).reason).toBeDefined()
  const ends = [await a.end, await c.end]
  for (const { paramHash, steps } of resultsOf(ends)) {
    expect(steps).toBe(60)
    expect(paramHash).toBe(wanted.paramHash)
  }
  // A step that is repeated is not reported again; its loss may have other roundings.
  const losses = lossesOf(ends[0])
  expect(losses).toHaveLength(60)
  expect(losses.slice(0, 50)).toEqual(wanted.losses.slice(0, 50))
  expect(losses.slice(-4)).toEqual(wanted.losses.slice(-4))
  const received = warn.mock.calls.map(([text]) => String(text))
  expect(received).toEqual([
    expect.stringMatching(
      /^tabring: rank [02] lost rank 1: [^.]*\. Training resumes from step 50\.$/,
    ),
    expect.stringMatching(
      /^tabring: rank [02] lost rank 1: [^.]*\. Training resumes from step 50\.$/,
    ),
  ])
})

test('a pause outlasts the rank that asked for it: no step is lost, and another rank ends it', async () => {
  warned()
  const room = new ElasticRoom(['a', 'b', 'c'])
  const [a, b, c] = ['a', 'b', 'c'].map((name) => enter(room, name, { steps: 60 }))
  const pauses = ({ events }: Pick<typeof a, 'events'>) =>
    events.flatMap((event) => (event.event === 'paused' ? [event] : []))
  await a.after(20)
  a.pause()
  await expect.poll(() => [a, b, c].map((one) => pauses(one).length)).toEqual([1, 1, 1])
  const [{ step }] = pauses(b)
  room.become(['b', 'c'])
  a.kill()
  await expect.poll(() => pauses(c).length).toBe(2)
  for (const one of [b, c]) {
    expect(pauses(one)[1]).toMatchObject({ step, by: [] })
    expect(one.events.filter(({ event }) => event === 'step')).toHaveLength(step)
  }
  b.goOn()
  for (const { steps } of resultsOf([await b.end, await c.end])) expect(steps).toBe(60)
  expect(pauses(b)).toHaveLength(2)
})

test('a broken link does not end the run, unless it breaks without progress again and again', async () => {
  const warn = warned()
  const room = new ElasticRoom(['a', 'b'])
  const ranks = ['a', 'b'].map((name) => enter(room, name, { steps: 60 }))
  await ranks[1].after(54)
  ranks[1].breakLink()
  for (const { steps } of resultsOf([await ranks[0].end, await ranks[1].end]))
    expect(steps).toBe(60)
  expect(String(warn.mock.calls[0])).toMatch(/a frame is lost\. Training resumes from step 50/)

  const other = new ElasticRoom(['a', 'b'])
  const [a, b] = ['a', 'b'].map((name) =>
    enter(
      other,
      name,
      { steps: 60 },
      { onEvent: (one) => one.event === 'step' && one.step > 10 && name === 'b' && b.breakLink() },
    ),
  )
  for (const { end } of [a, b])
    expect((await end).reason).toMatchObject({
      code: 'peer.protocol',
      message: expect.stringMatching(
        /went back 4 times without progress.* Start again without one of these two ranks/,
      ),
    })
})

describe.each([false, true])('exact: %s', (exact) => {
  test('a rank whose first group ended before it was in it joins the others, and gives them its points', async () => {
    warned()
    const input = { exact, data: 'given', steps: 20 } as const
    const room = new ElasticRoom(['a', 'b'])
    const [group, lost] = await meshOf(2, 99)
    const a = enter(room, 'a', input, { group })
    const b = enter(room, 'b', input, { synchronizesFirst: true, given: points })
    lost.destroy()
    const ends = [await a.end, await b.end]
    const plain = new ElasticRoom(['a', 'b'])
    const undisturbed = [
      enter(plain, 'a', input),
      enter(plain, 'b', input, { given: points }),
    ] as const
    const [{ paramHash }] = resultsOf([await undisturbed[0].end, await undisturbed[1].end])
    expect(resultsOf(ends).map((one) => one.paramHash)).toEqual([paramHash, paramHash])
    expect(lossesOf(ends[1])).toHaveLength(20)
  })
})

test('states are kept by the clock too, so a lost rank costs few slow steps', async () => {
  warned()
  const room = new ElasticRoom(['a', 'b'])
  const options = { keepAfterMs: 0 }
  const [a, b] = ['a', 'b'].map((name) => enter(room, name, { steps: 40 }, options))
  await b.after(35)
  room.become(['a'])
  b.kill()
  const end = await a.end
  resultsOf([end])
  const [step] = end.events.flatMap((event) => (event.event === 'regrouped' ? [event.step] : []))
  expect(step).toBeGreaterThan(0)
  expect(step).toBeLessThanOrEqual(36)
})

test('a rank that comes takes the state from those that stayed, and the points that a person gave', async () => {
  warned()
  const input = { data: 'given', steps: 70 } as const
  const room = new ElasticRoom(['a', 'b'])
  const a = enter(room, 'a', input, { given: points })
  const b = enter(room, 'b', input)
  await a.after(52)
  room.become(['b', 'c', 'd'])
  a.kill()
  const c = enter(room, 'c', input, { joins: true })
  const d = enter(room, 'd', input, { joins: true })
  const ends = await Promise.all([b.end, c.end, d.end])
  const results = resultsOf(ends)
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  expect(lossesOf(ends[1])).toHaveLength(20)
  expect(lossesOf(ends[1]).slice(-10)).toEqual(lossesOf(ends[0]).slice(-10))
})

test('where the one that a person gave points is lost before the others have them, all end in the same words', async () => {
  warned()
  const input = { data: 'given', steps: 20 } as const
  const room = new ElasticRoom(['a', 'b', 'c'])
  const a = enter(room, 'a', input, {
    given: points,
    onEvent: ({ event }) => {
      if (event !== 'phase') return
      room.become(['b', 'c'])
      a.kill()
    },
  })
  const ends = await Promise.all(['b', 'c'].map((name) => enter(room, name, input).end))
  const lost =
    /^data: no rank has points .*, or the one who did was lost before the others had it\. Supply it again/
  for (const { reason } of ends)
    expect(reason).toMatchObject({ code: 'data.missing', message: expect.stringMatching(lost) })
})

describe('a rank that fails after its first step', () => {
  /** The ends of three ranks, of which the second fails in step 16, before its program runs or in it. */
  async function failing(error: TabringError, isInProgram = false) {
    warned()
    // With `exact` no program exchanges gradients.
    const input = { exact: !isInProgram, virtualWorkers: 4, steps: 30 } as const
    const room = new ElasticRoom(['a', 'b', 'c'])
    let fills = 0
    const fail = () => {
      room.become(['a', 'c'])
      throw error
    }
    const fill: Task['fill'] = (...args) => {
      if (++fills > 15 && !isInProgram) fail()
      return (task as Task).fill(...args)
    }
    const { run } = ReferenceProgram.prototype
    vi.spyOn(ReferenceProgram.prototype, 'run').mockImplementation(async function (
      this: ReferenceProgram,
      ...args
    ) {
      if (fills > 15 && this === b.program()) fail()
      return run.apply(this, args)
    })
    const [a, c] = ['a', 'c'].map((name) => enter(room, name, input))
    const b = enter(room, 'b', input, { task: { ...(task as Task), fill } })
    const { reason } = await b.end
    const ends = await Promise.all([a.end, c.end])
    return { reason, ends, leavesAlone: b.leavesAlone() }
  }

  test.each([
    new GpuError('gpu.unavailable', 'device: no adapter came up.'),
    new DataError('data.checksum', 'a file has changed.'),
  ])('by $code leaves the others training', async (error) => {
    const { reason, leavesAlone, ends } = await failing(error)
    expect(reason).toBe(error)
    expect(leavesAlone).toBe(true)
    for (const { result } of ends) expect(result).toMatchObject({ steps: 30 })
  })

  test('in its program leaves the others training, too', async () => {
    const error = new GpuError('gpu.limit', 'device: out of memory.')
    const { reason, leavesAlone, ends } = await failing(error, true)
    expect(reason).toBe(error)
    expect(leavesAlone).toBe(true)
    for (const { result } of ends) expect(result).toMatchObject({ steps: 30 })
  })

  test('by wrong settings ends the run for all', async () => {
    const error = new TabringError('config.invalid', 'lr: wrong.')
    const { reason, ends } = await failing(error)
    expect(reason).toBe(error)
    for (const end of ends) expect(end.reason).toMatchObject({ code: 'config.invalid' })
  })
})

test('a resumed run continues with a rank that takes the place of a lost one', async () => {
  warned()
  const folder = seenFolder()
  const checkpoints = { folder: async () => folder }
  const place = () => checkpoints
  const first = { ...settings, steps: 10, checkpointEvery: 10 }
  resultsOf(await trainRanks(2, first, () => new ReferenceRuntime(), place, task as Task))
  const room = new ElasticRoom(['a', 'b'])
  const input = { steps: 80, checkpointEvery: 0, resume: 'latest' } as const
  const [a, b] = ['a', 'b'].map((name) => enter(room, name, input, { checkpoints }))
  await a.after(60)
  room.become(['a', 'c'])
  b.kill()
  const c = enter(room, 'c', input, { checkpoints, joins: true })
  const results = resultsOf([await a.end, await c.end])
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
})

test('a rank that fails before its first step ends the run for itself alone', async () => {
  warned()
  const { room, a, b } = await lettingIn({ steps: 90 })
  const poor = { ...task, load: () => Promise.reject(new Error('no data here')) } as Task
  const c = enter(room, 'c', { steps: 90 }, { task: poor, joins: true })
  expect((await c.end).reason).toMatchObject({ message: 'no data here' })
  room.become(['a', 'b'])
  resultsOf([await a.end, await b.end])
})

test('a rank that comes and gets the state too slowly leaves, and the others train on', async () => {
  warned()
  const { room, a, b } = await lettingIn({ steps: 90 })
  const group = await room.next('c')
  // Nothing of the state arrives, and the time for it is over at once.
  const newGroup = group.newGroup.bind(group)
  vi.spyOn(group, 'newGroup').mockImplementation(async (ranks) => {
    const both = (await newGroup(ranks)) as CollectiveGroup
    vi.spyOn(both, 'broadcast').mockReturnValue(new Promise(() => undefined))
    vi.spyOn(both, 'env', 'get').mockReturnValue({
      ...systemEnv,
      after: (_ms, run) => systemEnv.after(0, run),
    })
    return both
  })
  const c = enter(room, 'c', { steps: 90 }, { joins: true, group })
  const { reason } = await c.end
  expect(reason).toMatchObject({ code: 'peer.timeout' })
  expect(endFactsOf(reason)).toEqual({ leftOut: 'again' })
  room.become(['a', 'b'])
  const ends = [await a.end, await b.end]
  resultsOf(ends)
  expect(lossesOf(ends[0])).toHaveLength(90)
})

test('more ranks than the batch has samples may join', async () => {
  warned()
  const input = { steps: 80, batchSize: 2 } as const
  const { room, a, b } = await lettingIn(input)
  const c = enter(room, 'c', input, { joins: true })
  const results = resultsOf([await a.end, await b.end, await c.end])
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
})
