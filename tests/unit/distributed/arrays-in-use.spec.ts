import { afterEach, expect, test } from 'vitest'
import * as distributed from '../../../src/entries/distributed.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { ringOf } from '../../support/process-ring.ts'

// One array in two calls at once: the second takes what the first leaves.

let groups: ProcessGroup[] = []
afterEach(() => {
  for (const group of groups) group.destroy()
})

/** What `work` gives on each of two ranks. */
async function onTwo<T>(work: (group: ProcessGroup, rank: number) => Promise<T>): Promise<T[]> {
  groups = await ringOf(2)
  return Promise.all(groups.map((group, rank) => work(group, rank)))
}

const both = <T>(value: T) => [value, value]

test('two sums of one array double it twice, by every algorithm', async () => {
  for (const algorithm of ['ring', 'direct', 'oneShot'] as const) {
    const sums = await onTwo(async (group) => {
      const array = Float32Array.of(1, 2, 3)
      await Promise.all([1, 2].map(() => group.allReduce(array, { algorithm })))
      return [...array]
    })
    expect(sums).toEqual(both([4, 8, 12]))
  }
})

test('arrays that overlap wait for each other, and their neighbours do not', async () => {
  const ends = await onTwo(async (group) => {
    const all = Float32Array.of(1, 1, 1, 1)
    const ended: number[] = []
    await Promise.all(
      [all.subarray(0, 2), all.subarray(1, 3), all.subarray(3)].map(async (part, i) => {
        await group.allReduce(part)
        ended.push(i)
      }),
    )
    return { all: [...all], last: ended.at(-1) }
  })
  expect(ends).toEqual(both({ all: [2, 4, 2, 2], last: 1 }))
})

test('a call that waits keeps its turn among the calls of ranks that do not wait', async () => {
  const ends = await onTwo(async (group, rank) => {
    const [array, other] = [Float32Array.of(1), Float32Array.of(5)]
    const calls = [array, array, other]
    if (rank === 0) await Promise.all(calls.map((one) => group.allReduce(one)))
    else for (const one of calls) await group.allReduce(one)
    return [array[0], other[0]]
  })
  expect(ends).toEqual(both([4, 10]))
})

test('two sums of one buffer of a module double it twice', async () => {
  const ends = await onTwo(async (group) => {
    const buffer = new ModuleBuffer([2], Float32Array.of(1, 2))
    const works = [1, 2].map(() => distributed.allReduce(buffer, { group, asyncOp: true }))
    await Promise.all(works.map((work) => work.wait()))
    return [...(await buffer.read())]
  })
  expect(ends).toEqual(both([4, 8]))
})

test('a sum of what is being gathered takes what was gathered', async () => {
  const ends = await onTwo(async (group, rank) => {
    const parts = [new Float32Array(1), new Float32Array(1)]
    await Promise.all([
      distributed.allGather(parts, Float32Array.of(rank + 1), { group }),
      distributed.allReduce(parts[1], { group }),
    ])
    return parts.map(([value]) => value)
  })
  expect(ends).toEqual(both([1, 4]))
})

test('a message goes into an array after the message before it', async () => {
  const [, got] = await onTwo(async (group, rank) => {
    const array = Float32Array.of(0)
    const seen: number[] = []
    const messages = [7, 8].map(async (value) => {
      if (rank === 0) return distributed.send(Float32Array.of(value), 1, { group })
      await distributed.recv(array, 0, { group })
      seen.push(array[0])
    })
    await Promise.all(messages)
    return seen
  })
  expect(got).toEqual([7, 8])
})

test('parts that a rank takes in place are sent as they were', async () => {
  const ends = await onTwo(async (group, rank) => {
    const all = Float32Array.of(10 * rank, 10 * rank + 1)
    await group.allToAll(all, all)
    const parts = Float32Array.of(5, 6)
    const own = rank === 1 ? parts.subarray(0, 1) : new Float32Array(1)
    await group.scatter(rank === 1 ? parts : undefined, own, 1)
    return [...all, ...own]
  })
  expect(ends).toEqual([
    [0, 10, 5],
    [1, 11, 6],
  ])
})

test('a failed call does not keep the next one from its error', async () => {
  const [ends] = await onTwo(async (group, rank) => {
    const array = Float32Array.of(1)
    if (rank === 1) {
      group.abort('of the test')
      return []
    }
    return Promise.allSettled([group.allReduce(array), group.allReduce(array)])
  })
  expect(ends.map(({ status }) => status)).toEqual(both('rejected'))
})

const wrong: [name: string, call: (group: ProcessGroup) => unknown, reason: string][] = [
  ['op', (group) => group.allReduce(one(), { op: 'mean' as never }), 'op must be one of'],
  [
    'algorithm',
    (group) => group.allReduce(one(), { algorithm: 5 as never }),
    'algorithm must be one of',
  ],
  ['alignment', (group) => group.allReduce(one(), { alignment: 0 }), 'alignment must be'],
  ['deadlineMs', (group) => group.allReduce(one(), { deadlineMs: Number.NaN }), 'deadlineMs must'],
  ['sequence', (group) => group.allReduce(one(), { sequence: -1 }), 'sequence must be'],
  ['name', (group) => group.broadcast(one(), 0, { Op: 'avg' } as never), 'got "Op"'],
  ['options', (group) => group.allReduce(one(), null as never), 'expected an object with options'],
  ['array', (group) => group.allReduce([1] as never), 'array must be a Float32Array'],
  ['no array', (group) => group.allGather(undefined as never), 'array must be a Float32Array'],
  ['input', (group) => group.allToAll(undefined as never, one()), 'array must be a Float32Array'],
  ['part', (group) => group.allGatherConcat([1] as never), 'array must be a Float32Array'],
  ['message', (group) => group.send([1] as never, 1), 'array must be a Float32Array'],
]
const one = () => Float32Array.of(1)

test.each(wrong)('a wrong %s is refused before anything is sent', async (_, call, reason) => {
  groups = await ringOf(2)
  const [group] = groups
  await expect(call(group)).rejects.toThrow(reason)
  expect(group.stats().inFlight.launched).toBe(0)
})

test('a deadline and a range that cannot be are refused', async () => {
  groups = await ringOf(1)
  const [group] = groups
  for (const value of [Number.NaN, 0, -1, 'long' as never]) {
    expect(() => {
      group.deadlineMs = value
    }).toThrow('deadlineMs must be above 0')
    expect(() => group.ownRange(4, value)).toThrow('ownRange: alignment must be')
  }
  expect(() => group.ownRange(Number.NaN)).toThrow('ownRange: length must be')
})
