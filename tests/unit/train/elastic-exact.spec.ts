import { afterEach, describe, expect, test, vi } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { task } from '../../../demos/playground/demo.ts'
import { getCheckpoint } from '../../../src/data/checkpoint-folder.ts'
import { load } from '../../../src/data/saved-tree.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { ExactOptimizer } from '../../../src/optim/exact/exact-optimizer.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { warmUp } from '../../../src/trainer/loop/warm-up.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { runLogIn } from '../../../src/trainer/watch/run-log.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import {
  enter,
  lettingIn,
  type Member,
  settings,
  trainAlone,
  warned,
} from '../../support/elastic-members.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { lossesOf, resultsOf, resumedOf, trainRanks } from '../../support/train-ranks.ts'

// Ranks come and go in an exact run, and it ends with the bits of one undisturbed rank.

afterEach(() => vi.restoreAllMocks())

test.each(['adamw', 'sgd'] as const)(
  'an exact run with %s ends with the bits of one rank, whichever ranks are lost and join',
  async (optimizer) => {
    warned()
    const input = { exact: true, optimizer, steps: 130, saves: 'auto' } as const
    const { result, events } = await trainAlone(input)
    const { paramHash } = result
    const room = new ElasticRoom(['a', 'b', 'c'])
    const folder = seenFolder()
    const checkpoints = { folder: async () => folder }
    const [a, b, c] = ['a', 'b', 'c'].map((name) => enter(room, name, input, { checkpoints }))
    await b.after(54)
    room.become(['a', 'c'])
    b.kill()
    // Of those that stay: one that is lost may be a step ahead.
    await c.after(103)
    // Kept long before, and kept again when the next group forms.
    expect(c.heldStep()).toBeGreaterThanOrEqual(103)
    room.become(['c', 'd', 'e', 'f'])
    a.kill()
    const newcomers = ['d', 'e', 'f'].map((name) =>
      enter(room, name, input, { joins: true, checkpoints }),
    )
    await newcomers[2].after(110)
    room.become(['f'])
    c.kill()
    for (const one of newcomers.slice(0, 2)) one.kill()
    const last = await newcomers[2].end
    expect(resultsOf([last])[0].paramHash).toBe(paramHash)
    // No step is lost: who has the newest sends it to the others.
    const steps = last.events.flatMap((event) => (event.event === 'regrouped' ? [event.step] : []))
    expect(steps[0]).toBeGreaterThanOrEqual(103)
    expect(steps[1]).toBeGreaterThanOrEqual(110)
    expect(lossesOf(last)).toEqual(lossesOf({ events }).slice(steps[0]))
    // Who joined has the log from the beginning.
    const { states, groups } = runLogIn(load((await getCheckpoint(folder, 'latest'))!).log)!
    expect(states.map(([step]) => step)).toEqual([...Array(130).keys()])
    const hashes = events.flatMap((event) => (event.event === 'step' ? [event.stateHash] : []))
    expect(states.map(([, hash]) => hash)).toEqual(hashes)
    expect(groups.map(({ members }) => members!.map(({ name }) => name.at(-1)).join(''))).toEqual([
      'abc',
      'ac',
      'cdef',
      'f',
    ])
    expect(groups.slice(2).map(({ step }) => step)).toEqual(steps)
    for (const { members } of groups)
      expect(members!.reduce((sum, { samples }) => sum + samples, 0)).toBe(24)
  },
)

describe('an exact run in which a rank joins', () => {
  const input = { exact: true, virtualWorkers: 4, steps: 70, saves: 'auto' } as const

  /** Two ranks, then a third one that trains `given`, then two leave and a fourth one comes. */
  async function joined(given: Task) {
    warned()
    const folder = seenFolder()
    const checkpoints = { folder: async () => folder }
    const room = new ElasticRoom(['a', 'b'])
    const [a, b] = ['a', 'b'].map((name) => enter(room, name, input, { checkpoints }))
    await b.after(12)
    room.become(['a', 'b', 'c'])
    a.regroup()
    const c = enter(room, 'c', input, { task: given, joins: true, checkpoints })
    // A rank that seems slow gets a virtual worker once in 20 steps.
    await c.after(50)
    room.become(['a', 'd'])
    a.regroup()
    const d = enter(room, 'd', input, { joins: true, checkpoints })
    const results = resultsOf(await Promise.all([a.end, d.end]))
    expect(results[1].paramHash).toBe(results[0].paramHash)
    const log = runLogIn(load((await getCheckpoint(folder, 'latest'))!).log)!
    return { ranks: [a, c, d], ...log, hash: results[0].paramHash }
  }
  const unlikeOf = ({ events }: Member) => events.filter((event) => event.event === 'unlike')

  test.each([
    [
      'another version',
      { forward: (...args) => task.forward(...args).mul(1.001) },
      'computed bits',
    ],
    [
      'other data',
      { load: (source) => task.load({ ...source, config: { ...source.config, data: 'circles' } }) },
      'samples',
    ],
  ] as [string, Partial<Task>, string][])(
    'reports to all ranks, to later ones and in the log that it has %s',
    async (_, own, words) => {
      const { ranks, unlike, hash, groups, proof } = await joined({ ...(task as Task), ...own })
      const text = expect.stringMatching(
        new RegExp(
          `^on rank 2 \\(.+\\) the ${words} differ from those that the run began with, so its`,
        ),
      )
      const found = { event: 'unlike', step: expect.any(Number), text, isLasting: true }
      for (const [i, one] of ranks.slice(0, 2).entries())
        expect(unlikeOf(one)).toEqual([{ ...found, ranks: [2], rank: 2 * i }])
      expect(unlikeOf(ranks[2])).toEqual([{ ...found, ranks: [], rank: 1 }])
      const [{ step }] = unlikeOf(ranks[0])
      expect(step).toBeGreaterThanOrEqual(12)
      expect(unlike).toEqual([{ step, text, isLasting: true }])
      const others = groups.flatMap(({ members }) => members!.filter((one) => one.proof))
      expect(others).toEqual([expect.objectContaining({ id: 'c', name: 'tab c' })])
      expect(others[0].proof!.results).not.toBe(proof!.results)
      const { result } = await trainAlone(input)
      expect(hash).not.toBe(result.paramHash)
    },
  )

  test('reports nothing when all compute the same bits, and the log has their proof', async () => {
    const { ranks, unlike, proof, groups } = await joined(task as Task)
    for (const one of ranks) expect(unlikeOf(one)).toEqual([])
    expect(unlike).toEqual([])
    const hash = expect.stringMatching(/^[0-9a-f]{16}$/)
    expect(proof).toEqual({ samples: hash, parameters: hash, results: hash })
    expect(groups).toHaveLength(3)
    expect(groups.flatMap(({ members }) => members!.filter((one) => one.proof))).toEqual([])
  })
})

describe('an exact run continues from the newest step', () => {
  const input = { exact: true, virtualWorkers: 4, steps: 60, evaluateEvery: 10 } as const

  test('when a rank is lost while all test, and tests then', async () => {
    const alone = await trainAlone(input)
    warned()
    const room = new ElasticRoom(['a', 'b', 'c'])
    const [a, c] = ['a', 'c'].map((name) => enter(room, name, input))
    let step = 0
    const b: Member = enter(room, 'b', input, {
      onEvent: (event) => {
        if (event.event === 'step') step = event.step
        if (step !== 40 || event.event !== 'phase' || event.phase !== 'evaluate') return
        room.become(['a', 'c'])
        b.kill()
      },
    })
    const ends = await Promise.all([a.end, c.end])
    await b.end
    for (const [i, { result, events }] of ends.entries()) {
      expect(result?.paramHash).toBe(alone.result.paramHash)
      expect(events.filter(({ event }) => event === 'regrouped')).toMatchObject([
        { step: 40, worldSize: 2, rank: i },
      ])
      const tested = (all: readonly RunEvent[]) =>
        all.flatMap((event) => (event.event === 'evaluation' ? [event.step] : []))
      expect(tested(events)).toEqual(tested(alone.events))
    }
  })

  test('when a rank loses its device', async () => {
    const alone = await trainAlone(input)
    warned()
    const room = new ElasticRoom(['a', 'b'])
    const groups: ProcessGroup[] = []
    const regroup = async () => {
      const next = await room.next('b')
      groups.push(next)
      return next
    }
    const a = enter(room, 'a', input)
    const b = enter(room, 'b', input, { group: await regroup(), groups: { after: regroup } })
    await a.after(44)
    groups[0].abort(new PeerError('gpu.lost', 'rank 1 lost its device.'))
    const ends = await Promise.all([a.end, b.end])
    for (const { events, result } of ends) {
      const [{ step }] = events.flatMap((event) => (event.event === 'regrouped' ? [event] : []))
      expect(step).toBeGreaterThanOrEqual(44)
      const text = 'rank 1 lost its device and opened another'
      expect(events).toContainEqual(expect.objectContaining({ event: 'unlike', step, text }))
      expect(result?.paramHash).toBe(alone.result.paramHash)
    }
  })
})

describe('an exact run whose device is lost again and again', () => {
  const input = { exact: true, virtualWorkers: 4, steps: 49 } as const

  /** The ends of two ranks, of which the second loses its device after steps that `isLost` picks, each once. */
  async function losing(isLost: (step: number) => boolean) {
    warned()
    const room = new ElasticRoom(['a', 'b'])
    let group: ProcessGroup | undefined
    const regroup = async () => {
      group = await room.next('b')
      return group
    }
    const a = enter(room, 'a', input)
    const first = regroup()
    const b = enter(room, 'b', input, {
      group: await first,
      groups: { after: regroup },
      onEvent: (event) => {
        if (event.event === 'step' && isLost(event.step))
          group?.abort(new PeerError('gpu.lost', 'rank 1 lost its device.'))
      },
    })
    return Promise.all([a.end, b.end])
  }

  test('continues where some steps ended in between', async () => {
    const ends = await losing((step) => step % 10 === 5)
    for (const { events, result } of ends) {
      expect(events.filter(({ event }) => event === 'regrouped')).toHaveLength(5)
      expect(result).toMatchObject({ steps: 49 })
    }
  })

  test('ends with gpu.lost on all ranks when it is lost in every step', async () => {
    const ends = await losing((step) => step >= 5)
    for (const { reason, events } of ends) {
      expect(reason).toMatchObject({
        code: 'gpu.lost',
        message: expect.stringMatching(/went back 4 times without progress in training/),
      })
      expect(lossesOf({ events }).length).toBeLessThan(12)
    }
  })
})

describe('where the states of an exact run differ', () => {
  /** The ends of ranks of which rank 1 finds a bit of its optimizer state flipped in those of its updates, and the hash of an undisturbed run. */
  async function flipped(size: number, at: readonly number[]) {
    const warn = warned()
    const input = { exact: true, virtualWorkers: 4, steps: 70 } as const
    const { result } = await trainAlone(input)
    const models = new Set<unknown>()
    const poor = {
      ...task,
      model: (...args) => {
        const made = (task as Task).model(...args)
        models.add(made.parameters()[0])
        return made
      },
    } as Task
    const left = [...at]
    let step = 0
    const { update } = ExactOptimizer.prototype
    vi.spyOn(ExactOptimizer.prototype, 'update').mockImplementation(function (
      this: ExactOptimizer,
      ...args
    ) {
      if (args[0] === 0 && models.has(this.parameters[0]) && ++step === left[0]) {
        left.shift()
        const [moment] = this.moments
        new Uint32Array(moment.buffer, moment.byteOffset)[0] ^= 1 << 29
      }
      update.apply(this, args)
    })
    const names = ['a', 'b', 'c', 'd'].slice(0, size)
    const room = new ElasticRoom(names)
    const onEvicted = (ranks: readonly number[]) => {
      expect(ranks).toEqual([1])
      room.become(names.filter((name) => name !== 'b'))
    }
    const members = names.map((name) =>
      enter(room, name, input, name === 'b' ? { task: poor } : { onEvicted }),
    )
    const ends = await Promise.all(members.map(({ end }) => end))
    const received = ends.map(({ events }) => events.filter(({ event }) => event === 'unlike'))
    const texts = warn.mock.calls.map(([text]) => String(text))
    const alone = members.map((one) => one.leavesAlone())
    return { ends, received, texts, alone, paramHash: result.paramHash }
  }

  test('the minority takes the state of the majority, and the run ends with the bits of one rank', async () => {
    const { ends, received, texts, paramHash } = await flipped(3, [61])
    for (const result of resultsOf(ends)) expect(result.paramHash).toBe(paramHash)
    const text = 'the state of rank 1 differed from that of ranks 0 and 2, and is replaced by it'
    for (const [rank, own] of received.entries())
      expect(own).toEqual([{ event: 'unlike', step: 61, ranks: [1], text, isLasting: false, rank }])
    expect(texts).toEqual(received.map(() => `tabring: ${text}. Training resumes from step 61.`))
    for (const { events } of ends) {
      expect(events.filter(({ event }) => event === 'lost')).toEqual([])
      expect(events.filter(({ event }) => event === 'step')).toHaveLength(70)
    }
  })

  test('a difference in a compared step costs no step', async () => {
    const { ends, received, paramHash } = await flipped(3, [50])
    for (const result of resultsOf(ends)) expect(result.paramHash).toBe(paramHash)
    for (const own of received) expect(own).toMatchObject([{ step: 50, ranks: [1] }])
  })

  test('two ranks go back to the newest state in which they agree', async () => {
    const { ends, received, paramHash } = await flipped(2, [61])
    for (const result of resultsOf(ends)) expect(result.paramHash).toBe(paramHash)
    for (const own of received) expect(own).toMatchObject([{ step: 50, isLasting: false }])
  })

  test('two ranks that have kept no state in which they agree take that of rank 0, and report it', async () => {
    const { ends, received } = await flipped(2, [21])
    const [first, second] = resultsOf(ends)
    expect(second.paramHash).toBe(first.paramHash)
    for (const own of received) expect(own).toMatchObject([{ step: 21, isLasting: true }])
  })

  test('two ranks that go back to the same state again and again end the run', async () => {
    // Each time in the eleventh step after it.
    const { ends } = await flipped(2, [61, 73, 85, 97, 109])
    for (const { reason } of ends)
      expect(reason).toMatchObject({
        code: 'train.diverged',
        message: expect.stringMatching(/^recovery: the 2 ranks went back 4 times without progress/),
      })
  })

  test('a rank whose bits flip repeatedly is evicted, and the others end with the bits of one rank', async () => {
    const { ends, alone, paramHash } = await flipped(3, [51, 52, 53, 54, 55, 56])
    expect(alone).toEqual([false, true, false])
    const [a, b, c] = ends
    for (const result of resultsOf([a, c])) expect(result.paramHash).toBe(paramHash)
    expect(b.reason).toMatchObject({
      code: 'train.diverged',
      message: expect.stringMatching(
        /^recovery: the 3 ranks went back 4 times without progress in training, .* continue without rank 1\./,
      ),
    })
  })
})

test('an exact run that resumes with other data or bits reports it', async () => {
  const folder = seenFolder()
  const run = (steps: number, resume: 'latest' | undefined, own: Partial<Task> = {}) => {
    const input = {
      ...settings,
      exact: true,
      steps,
      checkpointEvery: resume ? undefined : 0,
      resume,
    }
    const place = () => ({ folder: async () => folder })
    return trainRanks(1, input, () => new ReferenceRuntime(), place, { ...(task as Task), ...own })
  }
  resultsOf(await run(5, undefined))
  const differences = async (own: Partial<Task>) => {
    const ends = await run(8, 'latest', own)
    resultsOf(ends)
    return resumedOf(ends[0])[0].differences
  }
  expect(await differences({})).toEqual([])
  const load: Task['load'] = (source) =>
    task.load({ ...source, config: { ...source.config, data: 'circles' } })
  expect(await differences({ load })).toEqual(['samples'])
  const forward: Task['forward'] = (...args) => task.forward(...args).mul(1.001)
  expect(await differences({ forward })).toEqual(['kernels', 'computed bits'])
})

test('an exact rank keeps its compiled step when another joins, which keeps that of its warm-up', async () => {
  warned()
  const input = { steps: 90, exact: true, virtualWorkers: 3 } as const
  const { room, a, b } = await lettingIn(input)
  const before = [a.program(), b.program()]
  const runtime = new ReferenceRuntime()
  const config = parseTrainConfig({ ...settings, ...input })
  const baseUrl = 'https://data.example/'
  const onPhase = () => undefined
  const warm = await warmUp({ config, task: task as Task, runtime, baseUrl, onPhase })
  const c = enter(room, 'c', input, { joins: true, runtime, warm })
  await c.after(85)
  expect(before[0]).toBeDefined()
  expect([a.program(), b.program()]).toEqual(before)
  expect(c.program()).toBe(warm?.setup?.step)
  const results = resultsOf([await a.end, await b.end, await c.end])
  const alone = await trainAlone(input)
  const hashes = [...results, alone.result].map(({ paramHash }) => paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('an exact run asks of a newcomer as fast a link as a plain one of the same step time', async () => {
  const bytesOf = async (exact: boolean) => {
    const one = enter(new ElasticRoom(['a']), 'a', { exact, steps: 60 })
    await one.after(30)
    const pace = one.pace()
    resultsOf([await one.end])
    return pace?.bytes
  }
  const [plain, exact] = await Promise.all([bytesOf(false), bytesOf(true)])
  // 2 x 8, 8 x 8 and 8 x 2 weights, and biases: twice, of 4 bytes.
  expect(plain).toBe(8 * (16 + 64 + 16 + 18))
  expect(exact).toBe(plain)
})

test('ranks of an exact run that form a group again share the batch by their speeds at once', async () => {
  warned()
  const input = { exact: true, virtualWorkers: 8, steps: 90 } as const
  const room = new ElasticRoom(['a', 'b'])
  /** Groups of a rank whose device takes 100 times as long, by its clock. */
  const slow = (name: string) => async () => {
    const group = await room.next(name)
    const { env } = group
    vi.spyOn(group, 'env', 'get').mockReturnValue({ ...env, now: () => 100 * env.now() })
    return group
  }
  const a = enter(room, 'a', input)
  const b = enter(room, 'b', input, { group: await slow('b')(), groups: { after: slow('b') } })
  await a.after(52)
  room.become(['a', 'b', 'c'])
  a.regroup()
  const [group, after] = [await slow('c')(), slow('c')]
  const c = enter(room, 'c', input, { joins: true, group, groups: { after } })
  const ends = await Promise.all([a.end, b.end, c.end])
  const shares = ends.map(({ events }) =>
    events.flatMap((one) => (one.event === 'group' ? [one.members.map((m) => m.samples)] : [])),
  )
  // The newcomer is known by the proof of its bits.
  const [together, joined] = [
    [12, 12],
    [24, 0, 0],
  ]
  expect(shares).toEqual([[together, joined], [together, joined], [joined]])
  const { paramHash } = (await trainAlone(input)).result
  for (const result of resultsOf(ends)) expect(result.paramHash).toBe(paramHash)
})
