import { afterEach, describe, expect, test } from 'vitest'
import { encodeCrewMessage } from '../../../src/peer/crew/messages.ts'
import { Passing } from '../../../src/peer/crew/passing.ts'
import { EpochLinks } from '../../../src/peer/link/epoch-link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { roomEdges } from '../../../src/peer/room/edges.ts'
import {
  clearPlace,
  crash,
  link,
  type Member,
  member,
  namesOf,
  place,
} from '../../support/crew-members.ts'

// Members in a ring with chords, of whom few have links to each other: others pass their messages on.

afterEach(clearPlace)

const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-'

/** Members that begin a run, linked as a room's are. */
function ringOf(size: number): Member[] {
  const ids = [...letters.slice(0, size)]
  const all = ids.map((id) => member(id, { ballot: 1, members: ids }))
  for (const [from, to] of roomEdges(size)) link(all[from]!, all[to]!)
  return all
}

const rosterOf = async (all: readonly Member[]) => {
  const names = await Promise.all(all.map(({ crew }) => namesOf(crew.next())))
  expect(new Set(names).size).toBe(1)
  return names[0]!
}

describe('a message to members without a link', () => {
  /** Passings with links along these edges, and how often each link is used. */
  function netOf(size: number, edges: readonly (readonly [number, number])[]) {
    const heard: string[] = []
    const used = new Map<string, number>()
    const queue: (() => void)[] = []
    const ids = Array.from({ length: size }, (_, at) => `m${at}`)
    const near = ids.map((_, at) =>
      edges.flatMap(([a, b]) => (a === at ? [ids[b]!] : b === at ? [ids[a]!] : [])),
    )
    const gone = new Set<string>()
    const all: Passing[] = ids.map(
      (self, at) =>
        new Passing({
          self,
          get up() {
            return near[at]!.filter((id) => !gone.has(id))
          },
          send: (to, message) => {
            for (const id of to) {
              used.set(`${self} ${id}`, (used.get(`${self} ${id}`) ?? 0) + 1)
              queue.push(() => all[ids.indexOf(id)]!.take(self, message))
            }
          },
          heard: (from, { type }) => heard.push(`${self} < ${from} ${type}`),
        }),
    )
    const run = () => {
      for (const step of queue) step()
      queue.length = 0
      return heard.splice(0).sort()
    }
    return { all, ids, used, gone, run }
  }

  test('arrives once at each of 64, and no link carries it more than once each way', () => {
    const { all, ids, used, run } = netOf(64, roomEdges(64))
    const far = ids.slice(3, 61)
    all[0]!.send(far, { type: 'leave', ballot: 1 })
    expect(run()).toEqual(far.map((id) => `${id} < m0 leave`).sort())
    expect(Math.max(...used.values())).toBe(1)
  })

  test('is answered over the way on which it came, as long as that is up', () => {
    const { all, used, gone, run } = netOf(24, roomEdges(24))
    all[0]!.send(['m11'], { type: 'leave', ballot: 1 })
    run()
    used.clear()
    all[11]!.send(['m0'], { type: 'leave', ballot: 2 })
    expect(run()).toEqual(['m0 < m11 leave'])
    const way = [...used.keys()]
    expect(way.length).toBeLessThanOrEqual(3)
    gone.add(way[0]!.split(' ')[1]!)
    all[11]!.send(['m0'], { type: 'leave', ballot: 3 })
    expect(run()).toEqual(['m0 < m11 leave'])
  })

  test('arrives while any way is left', () => {
    const { all, ids, gone, run } = netOf(64, roomEdges(64))
    for (const [at, id] of ids.entries()) if (at % 2 === 1 && at !== 33) gone.add(id)
    all[0]!.send(['m33'], { type: 'leave', ballot: 1 })
    expect(run()).toEqual(['m33 < m0 leave'])
  })
})

describe('a ring of members', () => {
  test('of 64 has the next roster within half a second when one is lost', async () => {
    const all = ringOf(64)
    crash(all[20]!)
    const left = all.filter(({ id }) => id !== 'u')
    expect(await rosterOf(left)).toBe(letters.replace('u', ''))
    expect(place.world.now()).toBeLessThan(500)
    expect(left[0]!.crew.roster!.isRing).toBe(true)
  })

  test('of 24 has one roster when eight beside each other are lost at once', async () => {
    const all = ringOf(24)
    for (const one of all.slice(8, 16)) crash(one)
    const left = [...all.slice(0, 8), ...all.slice(16)]
    expect(await rosterOf(left)).toBe('abcdefghqrstuvwx')
  })

  test('of 24 has one roster when six leave within a second, the most senior ones first', async () => {
    const all = ringOf(24)
    const left = all.slice(6)
    const rosters = left.map(async ({ crew }) => {
      for (;;) {
        const { members } = await place.world.until(crew.next())
        if (members.length === 18) return members.join('')
      }
    })
    for (const one of all.slice(0, 6)) {
      one.crew.resign('the tab was closed')
      crash(one)
      await place.world.advance(150)
    }
    expect(new Set(await Promise.all(rosters))).toEqual(new Set(['ghijklmnopqrstuvwx']))
  })

  test('leaves out one of two that are beside each other now and cannot be linked', async () => {
    const all = ringOf(24)
    const [, , c, d, e, f] = all as Member[]
    for (const one of [d!, e!]) crash(one)
    c!.crew.presence.apart.add('f')
    const out = expect(place.world.until(f!.crew.next())).rejects.toThrow(/joins again/)
    const left = all.filter((one) => ![d, e, f].includes(one))
    expect(await rosterOf(left)).toBe('abcghijklmnopqrstuvwx')
    await out
  })

  test('passes nothing on for one that is not in it', async () => {
    const all = ringOf(24)
    const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
    const stranger = new EpochLinks(far)
    all[0]!.crew.add('x.1', near)
    const to = all.map(({ id }) => id)
    const body = { type: 'abort', why: 'the end' } as const
    stranger.control(encodeCrewMessage({ type: 'pass', from: 'b', number: 1, to, body }))
    await place.world.advance(1000)
    expect(all.flatMap(({ told }) => told)).toEqual([])
  })
})
