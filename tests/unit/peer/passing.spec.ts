import { afterEach, describe, expect, test } from 'vitest'
import {
  decodeElasticMessage,
  encodeElasticMessage,
  inOrder,
  signedText,
} from '../../../src/peer/elastic/messages.ts'
import { burst, maxOrigins, Passing } from '../../../src/peer/elastic/passing.ts'
import { EpochLinks } from '../../../src/peer/link/epoch-link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { roomEdges } from '../../../src/peer/room/edges.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { cheapSigner, signedBy } from '../../support/cheap-signer.ts'
import {
  clearPlace,
  crash,
  link,
  type Member,
  member,
  namesOf,
  place,
} from '../../support/elastic-peers.ts'

// Members in a ring with chords, of whom few have links to each other: others pass their messages on.

afterEach(clearPlace)

const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-'

/** Members that begin a run, linked as a room's are, without that one. */
function ringOf(size: number, without?: string): Member[] {
  const ids = [...letters.slice(0, size)]
  const all = ids.map((id) => member(id, { ballot: 1, members: ids }))
  for (const [from, to] of roomEdges(size)) link(all[from]!, all[to]!)
  return all.filter(({ id }) => id !== without)
}

const rosterOf = async (all: readonly Member[]) => {
  const names = await Promise.all(all.map(({ elastic }) => namesOf(elastic.next())))
  expect(new Set(names).size).toBe(1)
  return names[0]!
}

test('texts of others become one line without control characters, also when signed', () => {
  const why = 'gone\u001b]0;title\u0007\nfor good'
  const body = inOrder({ type: 'bye', entered: 1, isDone: false, why })
  const received = { type: 'pass', from: 'a', number: 1, to: ['c'], body } as const
  const sent = { ...received, ...signedBy('a', signedText(received)) }
  const heard = decodeElasticMessage(encodeElasticMessage(sent))
  expect(heard).toEqual({ ...sent, body: { ...body, why: 'gone ]0;title for good' } })
  expect(decodeElasticMessage(encodeElasticMessage({ type: 'abort', why }))).toEqual({
    type: 'abort',
    why: 'gone ]0;title for good',
  })
})

describe('a message to members without a link', () => {
  /** Passings with links along these edges, and how often each link is used. */
  function netOf(size: number, edges: readonly (readonly [number, number])[]) {
    const env = new VirtualEnv(1)
    const heard: string[] = []
    const forgers: string[] = []
    const used = new Map<string, number>()
    const ids = Array.from({ length: size }, (_, at) => `m${at}`)
    const near = ids.map((_, at) =>
      edges.flatMap(([a, b]) => (a === at ? [ids[b]!] : b === at ? [ids[a]!] : [])),
    )
    const gone = new Set<string>()
    const all: Passing[] = ids.map(
      (self, at) =>
        new Passing({
          ...{ env, self, signer: cheapSigner(self, env) },
          get up() {
            return near[at]!.filter((id) => !gone.has(id))
          },
          mayPass: (id) => ids.includes(id),
          send: (to, message) => {
            for (const id of to) {
              used.set(`${self} ${id}`, (used.get(`${self} ${id}`) ?? 0) + 1)
              env.after(1, () => void all[ids.indexOf(id)]!.take(self, message))
            }
          },
          heard: (from, { type }) => heard.push(`${self} < ${from} ${type}`),
          forged: (by) => forgers.push(`${self}: ${by}`),
        }),
    )
    const run = async () => {
      await env.advance(1000)
      return heard.splice(0).sort()
    }
    return { env, all, ids, used, gone, forgers, run }
  }

  test('arrives once at each of 64, and no link carries it more than once each way', async () => {
    const { all, ids, used, forgers, run } = netOf(64, roomEdges(64))
    const far = ids.slice(3, 61)
    all[0]!.send(far, { type: 'leave', ballot: 1 })
    expect(await run()).toEqual(far.map((id) => `${id} < m0 leave`).sort())
    expect(Math.max(...used.values())).toBe(1)
    expect(forgers).toEqual([])
  })

  test('is answered over the way on which it came, as long as that is up', async () => {
    const { all, used, gone, run } = netOf(24, roomEdges(24))
    all[0]!.send(['m11'], { type: 'leave', ballot: 1 })
    await run()
    used.clear()
    all[11]!.send(['m0'], { type: 'leave', ballot: 2 })
    expect(await run()).toEqual(['m0 < m11 leave'])
    const way = [...used.keys()]
    expect(way.length).toBeLessThanOrEqual(3)
    gone.add(way[0]!.split(' ')[1]!)
    all[11]!.send(['m0'], { type: 'leave', ballot: 3 })
    expect(await run()).toEqual(['m0 < m11 leave'])
  })

  /** What `m0` would send, had it said so. */
  const invented = (number: number, to: readonly string[]) => {
    const lie = {
      type: 'pass',
      from: 'm0',
      number,
      to,
      body: { type: 'leave', ballot: 1 },
    } as const
    return { ...lie, ...signedBy('m4', signedText(lie)) }
  }

  test('is dropped when a neighbour has invented it, and the next true one arrives', async () => {
    const { all, ids, forgers, run } = netOf(24, roomEdges(24))
    for (const number of [1, Number.MAX_SAFE_INTEGER])
      void all[5]!.take('m4', invented(number, ids))
    expect(await run()).toEqual([])
    expect(forgers).toEqual(['m5: m4', 'm5: m4'])
    all[0]!.send(['m5', 'm11'], { type: 'leave', ballot: 1 })
    expect(await run()).toEqual(['m11 < m0 leave', 'm5 < m0 leave'])
  })

  test.each([
    ['its recipients', { to: ['m5', 'm7'] }],
    ['its number', { number: 9 }],
    ['its origin', { from: 'm1' }],
    ['its text', { body: { type: 'leave', ballot: 2 } }],
  ] as const)('that a neighbour has changed (%s) is dropped', async (_, change) => {
    const { all, forgers, run } = netOf(24, roomEdges(24))
    const said = { type: 'pass', from: 'm0', number: 1, to: ['m5'] } as const
    const message = { ...said, body: { type: 'leave', ballot: 1 } } as const
    const signed = { ...message, ...signedBy('m0', signedText(message)) }
    void all[5]!.take('m4', { ...signed, ...change })
    expect(await run()).toEqual([])
    expect(forgers).toEqual(['m5: m4'])
    void all[5]!.take('m4', signed)
    expect(await run()).toEqual(['m5 < m0 leave'])
  })

  test('is limited in number for each member, and those of others still arrive', async () => {
    const { env, all, used, run } = netOf(24, roomEdges(24))
    for (let count = 0; count < 4000; count++) all[0]!.send(['m11'], { type: 'leave', ballot: 1 })
    all[5]!.send(['m18'], { type: 'leave', ballot: 1 })
    await env.advance(5000)
    const heard = await run()
    expect(heard).toContain('m18 < m5 leave')
    expect(heard.length).toBeGreaterThan(burst)
    expect(heard.length).toBeLessThan(burst + 300)
    expect(used.get('m9 m11')).toBeLessThan(burst + 300)
  })

  test('is delivered once, even after many newer ones of its origin', async () => {
    const { all, run } = netOf(24, roomEdges(24))
    const take = (number: number) => {
      const body = { type: 'leave', ballot: 1 } as const
      const message = { type: 'pass', from: 'm0', number, to: ['m5'], body } as const
      void all[5]!.take('m4', { ...message, ...signedBy('m0', signedText(message)) })
    }
    for (let number = 1; number <= 100; number++) take(number)
    expect(await run()).toHaveLength(100)
    for (const number of [1, 36, 37, 100]) take(number)
    expect(await run()).toEqual([])
  })

  test('is delivered once, even after many messages of strangers', async () => {
    const { all, run } = netOf(24, roomEdges(24))
    const from = (id: string) => {
      const body = { type: 'leave', ballot: 1 } as const
      const message = { type: 'pass', from: id, number: 1, to: ['m5'], body } as const
      void all[5]!.take('m4', { ...message, ...signedBy(id, signedText(message)) })
    }
    from('m0')
    for (let at = 0; at < 2 * maxOrigins; at++) from(`x${at}`)
    from('m0')
    from('x0')
    const heard = await run()
    expect(heard.filter((one) => one === 'm5 < m0 leave')).toHaveLength(1)
    expect(heard.filter((one) => one === 'm5 < x0 leave')).toHaveLength(2)
  })

  test('is sent before the links may be closed', async () => {
    const { all, used, run } = netOf(24, roomEdges(24))
    all[0]!.send(['m11'], { type: 'leave', ballot: 1 })
    let count = 0
    all[0]!.whenSent(() => {
      count = used.size
    })
    await run()
    expect(count).toBeGreaterThan(0)
  })

  test('arrives as long as any way is left', async () => {
    const { all, ids, gone, run } = netOf(64, roomEdges(64))
    for (const [at, id] of ids.entries()) if (at % 2 === 1 && at !== 33) gone.add(id)
    all[0]!.send(['m33'], { type: 'leave', ballot: 1 })
    expect(await run()).toEqual(['m33 < m0 leave'])
  })
})

describe('a ring of members', () => {
  test('of 64 has the next roster within half a second when one is lost', async () => {
    const all = ringOf(64)
    crash(all[20]!)
    const left = all.filter(({ id }) => id !== 'u')
    expect(await rosterOf(left)).toBe(letters.replace('u', ''))
    expect(place.world.now()).toBeLessThan(500)
    expect(left[0]!.elastic.roster!.isRing).toBe(true)
  })

  test('has one roster in all members when its leader falls silent after it decided', async () => {
    const all = ringOf(24)
    const [a] = all as [Member, ...Member[]]
    let lastMs = Number.POSITIVE_INFINITY
    for (const link of a.links.values()) {
      const { send } = link
      link.send = (message) => {
        const nowMs = place.world.now()
        if (new TextDecoder().decode(message).includes('"type":"roster"'))
          lastMs = Math.min(lastMs, nowMs)
        if (nowMs <= lastMs) send.call(link, message)
      }
    }
    const [lost] = all.splice(20, 1)
    crash(lost!)
    expect(await rosterOf(all)).toBe(all.map(({ id }) => id).join(''))
    expect(place.world.now()).toBeLessThan(500)
  })

  test('of 24 has one roster when eight in a row are lost at once', async () => {
    const all = ringOf(24)
    for (const one of all.slice(8, 16)) crash(one)
    const left = [...all.slice(0, 8), ...all.slice(16)]
    expect(await rosterOf(left)).toBe('abcdefghqrstuvwx')
  })

  test('of 24 has one roster when six leave within a second, the most senior ones first', async () => {
    const all = ringOf(24)
    const left = all.slice(6)
    const rosters = left.map(async ({ elastic }) => {
      for (;;) {
        const { members } = await elastic.next()
        if (members.length === 18) return members.join('')
      }
    })
    for (const one of all.slice(0, 6)) {
      one.elastic.resign('the tab was closed')
      crash(one)
      await place.world.advance(150)
    }
    const names = await place.world.until(Promise.all(rosters))
    expect(new Set(names)).toEqual(new Set(['ghijklmnopqrstuvwx']))
  })

  test('leaves out one of two that became neighbours and cannot be linked', async () => {
    const all = ringOf(24)
    const [, , c, d, e, f] = all as Member[]
    for (const one of [d!, e!]) crash(one)
    c!.elastic.presence.apart.add('f')
    const out = expect(place.world.until(f!.elastic.next())).rejects.toThrow(/joins again/)
    const left = all.filter((one) => ![d, e, f].includes(one))
    expect(await rosterOf(left)).toBe('abcghijklmnopqrstuvwx')
    await out
  })

  test('ends its links to a member that forges a message of another, names it, and ignores the message', async () => {
    const all = ringOf(24, 'm')
    const ids = [...letters.slice(0, 24)]
    const body = { type: 'abort', why: 'the end' } as const
    const lie = { type: 'pass', from: 'c', number: 1, to: ids, body } as const
    const near = all.filter(({ links }) => links.has('m'))
    for (const one of near) {
      const [there, back] = memoryPair(place.world, { delayMs: () => 1 })
      one.elastic.links.add(there, 'm')
      const signed = signedBy('m', signedText(lie))
      new EpochLinks(back).control(encodeElasticMessage({ ...lie, ...signed }))
    }
    await place.world.advance(20)
    expect(near.length).toBe(8)
    for (const { broke } of near)
      expect(broke).toEqual(['m passed on what another one has not said'])
    expect(all.flatMap(({ elastic }) => elastic.links.isUp('m'))).not.toContain(true)
    expect(await rosterOf(all)).toBe(letters.slice(0, 24).replace('m', ''))
  })

  test('admits none of the members that one of them invents, even with new keys', async () => {
    const all = ringOf(24, 'm')
    const report = { roster: null, proved: 0, hasState: false, step: 0, linked: [], apart: [] }
    for (const one of all.filter(({ links }) => links.has('m'))) {
      const [there, back] = memoryPair(place.world, { delayMs: () => 1 })
      one.elastic.links.add(there, 'm')
      const own = new EpochLinks(back)
      own.oncontrol = (payload) => {
        const said = decodeElasticMessage(payload)
        if (said.type !== 'pass' || said.body.type !== 'call') return
        const { ballot } = said.body
        const body = inOrder({ type: 'report', ballot, ...report, former: null })
        for (let at = 0; at < 30; at++) {
          const from = `x${at}`
          const pass = { type: 'pass', from, number: 1, to: [said.from], body } as const
          own.control(encodeElasticMessage({ ...pass, ...signedBy(from, signedText(pass)) }))
        }
      }
    }
    const [lost] = all.splice(20, 1)
    crash(lost!)
    expect(await rosterOf(all)).toBe(all.map(({ id }) => id).join(''))
  })

  test('that has lost most members waits for a person, even when one invents that they came again', async () => {
    const all = ringOf(24, 'm')
    const lost = all.slice(-14)
    for (const one of all.filter(({ links }) => links.has('m'))) {
      const [there, back] = memoryPair(place.world, { delayMs: () => 1 })
      one.elastic.links.add(there, 'm')
      const own = new EpochLinks(back)
      const report = { roster: null, proved: 0, hasState: false, step: 0, linked: [], apart: [] }
      own.oncontrol = (payload) => {
        const said = decodeElasticMessage(payload)
        const call = said.type === 'pass' ? said.body : said
        if (call.type !== 'call') return
        const { ballot } = call
        for (const { id } of lost) {
          const from = `${id}.9`
          const body = inOrder({ type: 'report', ballot, ...report, former: { id, entered: 1 } })
          const pass = { type: 'pass', from, number: ballot, to: ['a'], body } as const
          own.control(encodeElasticMessage({ ...pass, ...signedBy(from, signedText(pass)) }))
        }
      }
    }
    for (const one of lost) crash(one)
    const left = all.slice(0, -14)
    const next = left.map(({ elastic }) => elastic.next().catch(() => null))
    const none = place.world.advance(20_000).then(() => 'none')
    expect(await Promise.race([...next, none])).toBe('none')
    const [{ missing }] = left[0]!.abouts
    expect(missing).toEqual(expect.arrayContaining(lost.map(({ id }) => id)))
  })

  test('remembers a bounded number of goodbyes of those that one of them invents', async () => {
    const { elastic } = member('a', { ballot: 1, members: [...letters.slice(0, 17)] })
    const [there, back] = memoryPair(place.world, { delayMs: () => 1 })
    elastic.links.add(there, 'm')
    const own = new EpochLinks(back)
    const body = inOrder({ type: 'bye', entered: 1, isDone: false, why: '' })
    for (let at = 0; at < 400; at++) {
      const pass = { type: 'pass', from: `x${at}`, number: 1, to: ['a'], body } as const
      own.control(encodeElasticMessage({ ...pass, ...signedBy(`x${at}`, signedText(pass)) }))
    }
    await place.world.advance(1000)
    expect(elastic.presence.dead.size).toBeGreaterThan(0)
    expect(elastic.presence.dead.size).toBeLessThan(300)
  })

  test('passes no message on for a member that is not in it', async () => {
    const all = ringOf(24)
    const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
    const stranger = new EpochLinks(far)
    all[0]!.elastic.links.add(near, 'x.1')
    const to = all.map(({ id }) => id)
    const body = { type: 'abort', why: 'the end' } as const
    const signed = { key: 'b', signature: '' }
    const lie = { type: 'pass', from: 'b', number: 1, to, body, ...signed } as const
    stranger.control(encodeElasticMessage(lie))
    await place.world.advance(1000)
    expect(all.flatMap(({ received }) => received)).toEqual([])
  })
})
