import { afterEach, describe, expect, test, vi } from 'vitest'
import { Assignment } from '../../../src/ddp/exact/assignment.ts'
import {
  AuditDraw,
  digestOf,
  meanStepsBetweenAudits,
  stepsBetweenAudits,
} from '../../../src/ddp/exact/audit.ts'
import { getNumThreads, setNumThreads } from '../../../src/gpu/num-threads.ts'
import { openWasm } from '../../../src/gpu/wasm/open.ts'
import { Pool } from '../../../src/graph/memory/pool.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import { enter, warned } from '../../support/elastic-members.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { resultsOf } from '../../support/train-ranks.ts'

// On the device cpu ranks of an exact run compute each other's gradients again.

afterEach(() => vi.restoreAllMocks())

const { readInto } = Pool.prototype

/** Changes what a rank reads of its gradients' sums, in place. */
type Lie = (sums: Int32Array, first: Int32Array) => void

const begin = 8
const steps = begin + stepsBetweenAudits.max + 4
const input = { exact: true, virtualWorkers: 6, steps, hashEvery: 1000 } as const

/** Ranks of which some lie from step `begin` on, each on its device. */
async function trained(names: readonly string[], lies: Readonly<Record<string, Lie>>) {
  warned()
  // Each rank has virtual workers to lie about, however slow it is on a busy machine.
  vi.spyOn(Assignment.prototype, 'begin').mockReturnValue()
  vi.spyOn(Assignment.prototype, 'take').mockReturnValue(false)
  const runtimes = new Map<string, Runtime>()
  const threads = getNumThreads()
  setNumThreads(1)
  for (const name of names) runtimes.set(name, new Runtime(await openWasm()))
  setNumThreads(threads)
  const lieOf = new Map(Object.entries(lies).map(([name, lie]) => [runtimes.get(name)!.gpu, lie]))
  const firsts = new Map<unknown, Int32Array>()
  let isLying = false
  vi.spyOn(Pool.prototype, 'readInto').mockImplementation(async function (this: Pool, target) {
    await readInto.call(this, target)
    const lie = lieOf.get(this.memory as never)
    if (!lie) return
    const sums = target as Int32Array
    if (!firsts.has(this)) firsts.set(this, sums.slice())
    if (isLying) lie(sums, firsts.get(this)!)
  })
  const room = new ElasticRoom(names)
  const onEvicted = (ranks: readonly number[]) =>
    room.become(names.filter((_, rank) => !ranks.includes(rank)))
  const members = names.map((name) =>
    enter(room, name, input, { runtime: runtimes.get(name)!, onEvicted }),
  )
  void members[0].after(begin).then(() => {
    isLying = true
  })
  const ends = await Promise.all(members.map(({ end }) => end))
  for (const { gpu } of runtimes.values()) gpu.device.destroy()
  return ends
}

const stepsOf = ({ events }: { events: readonly { event: string }[] }) =>
  events.filter(({ event }) => event === 'step').length

describe('a rank of an exact run on the device cpu', () => {
  test.each<[string, Lie]>([
    ['reverses its gradients', (sums) => sums.set(sums.map((sum) => -sum))],
    ['sends those of its first step', (sums, first) => sums.set(first)],
    ['sends numbers that do not fit', (sums) => sums.fill(2 ** 31 - 1)],
    ['adds 1 to a single number', (sums) => void sums[5]++],
  ])('is named and evicted within 50 steps when it %s', async (_, lie) => {
    const ends = await trained(['a', 'b', 'c'], { c: lie })
    const [a, b, liar] = ends
    expect(liar.reason).toMatchObject({
      code: 'train.diverged',
      message: expect.stringMatching(
        /^step \d+: the gradients of rank 2 are not those of its samples, which other ranks computed again\. Reload/,
      ),
    })
    const lasted = stepsOf(liar)
    expect(lasted).toBeGreaterThanOrEqual(begin)
    expect(lasted).toBeLessThanOrEqual(begin + 50)
    const results = resultsOf([a, b])
    for (const { paramHash, steps } of results) {
      expect(steps).toBe(input.steps)
      expect(paramHash).toBe(results[0].paramHash)
    }
  })

  test('that lies beside one other ends the run, since nothing says which of two is right', async () => {
    const ends = await trained(['a', 'b'], { b: (sums) => sums.fill(0) })
    for (const { reason } of ends)
      expect(reason).toMatchObject({
        code: 'train.diverged',
        message: expect.stringMatching(/^step \d+: the gradients of ranks 0 and 1 are not those/),
      })
  })

  test('that changes the sums on their way is not named, and all receive a report', async () => {
    const { allReduce } = CollectiveGroup.prototype
    let calls = 0
    vi.spyOn(CollectiveGroup.prototype, 'allReduce').mockImplementation(function (
      this: CollectiveGroup,
      data,
      options,
    ) {
      if (this.rank === 1 && data instanceof Int32Array && ++calls > begin) data[5]++
      return allReduce.call(this, data, options)
    })
    const ends = await trained(['a', 'b', 'c'], {})
    expect(resultsOf(ends)).toHaveLength(3)
    const text = /^the sums of step \d+ are not those of the ranks' gradients: a rank changes what/
    for (const { events } of ends) {
      const received = events.filter(({ event }) => event === 'unlike')
      expect(received.length).toBeGreaterThan(0)
      for (const one of received)
        expect(one).toMatchObject({ text: expect.stringMatching(text), isLasting: true })
    }
  })

  test('changes no bit by computing those of others again', async () => {
    const results = resultsOf([
      ...(await trained(['a', 'b', 'c'], {})),
      ...(await trained(['a'], {})),
    ])
    expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  })
})

test('AuditDraw draws gaps of 13 to 50 steps that differ when many are drawn', () => {
  const draw = new AuditDraw()
  const steps: number[] = []
  let seed = 7
  for (let step = 0; steps.length < 400; step++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
    if (draw.take([seed >>> 4, step]) !== undefined) steps.push(step)
  }
  const gaps = steps.slice(1).map((step, i) => step - steps[i])
  expect([Math.min(...gaps), Math.max(...gaps)]).toEqual([
    stepsBetweenAudits.min,
    stepsBetweenAudits.max,
  ])
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length
  expect(Math.abs(mean / meanStepsBetweenAudits - 1)).toBeLessThan(0.1)
  expect(steps[0]).toBeLessThan(stepsBetweenAudits.max)
})

test('the digest of a sum is the sum of the digests, and a changed number changes it', () => {
  const one = Int32Array.from({ length: 1000 }, (_, i) => Math.imul(i, 0x9e3779b1))
  const other = Int32Array.from({ length: 1000 }, (_, i) => Math.imul(i ^ 77, 0x85ebca6b))
  const sum = one.map((word, i) => (word + other[i]) | 0)
  const [a, b, both] = [one, other, sum].map((words) => digestOf(words, 12345))
  expect(both).toEqual([(a[0] + b[0]) >>> 0, (a[1] + b[1]) >>> 0])
  sum[500] ^= 1
  expect(digestOf(sum, 12345)).not.toEqual(both)
})
