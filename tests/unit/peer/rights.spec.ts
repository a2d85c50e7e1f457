import { afterEach, describe, expect, test } from 'vitest'
import { maxGone } from '../../../src/peer/elastic/elastic-member.ts'
import {
  decodeElasticMessage,
  type ElasticMessage,
  encodeElasticMessage,
} from '../../../src/peer/elastic/messages.ts'
import { elasticTimes } from '../../../src/peer/elastic/options.ts'
import { type Role, rights } from '../../../src/peer/elastic/rights.ts'
import { EpochLinks, maxUnsentBytes } from '../../../src/peer/link/epoch-link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { lastBallot } from '../../../src/peer/room/ballots.ts'
import {
  clearPlace,
  crash,
  elasticMember,
  type Member,
  member,
  namesOf,
  place,
} from '../../support/elastic-peers.ts'

// What one tab can do to the others with messages that no build of this project sends.

afterEach(clearPlace)

type Heard = (message: ElasticMessage) => void

/** A tab that says what the test has it say, linked to members: of their roster if its id is in there. */
function liar(id: string, to: readonly Member[], heard: Heard = () => undefined) {
  const links = to.map(({ elastic }) => {
    const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
    const own = new EpochLinks(far)
    own.oncontrol = (payload) => heard(decodeElasticMessage(payload))
    elastic.links.add(near, elastic.roster ? id : null)
    return own
  })
  const send = (link: EpochLinks, message: ElasticMessage) =>
    link.control(encodeElasticMessage(message))
  return {
    links,
    say(message: ElasticMessage): void {
      for (const link of links) send(link, message)
    },
    sayTo(at: number, message: ElasticMessage): void {
      send(links[at]!, message)
    },
  }
}

const newest = { ballot: lastBallot, members: ['x'], before: [], isRing: false }
const report = {
  type: 'report',
  ballot: 1,
  roster: null,
  proved: 0,
  hasState: true,
  step: 0,
  linked: [],
  apart: [],
  former: null,
} as const

describe('a newcomer with the link alone', () => {
  const attacks: [string, ElasticMessage][] = [
    [
      'calls in place of its hello',
      { type: 'call', ballot: lastBallot, entered: lastBallot, isPlanned: false },
    ],
    ['calls a little above', { type: 'call', ballot: 2 ** 17, entered: 1, isPlanned: false }],
    [
      'has promised the last ballot',
      { type: 'refuse', ballot: 1, promised: lastBallot, outside: null },
    ],
    ['says that all are outside', { type: 'refuse', ballot: 0, promised: 0, outside: lastBallot }],
    ['sends a roster', { type: 'roster', roster: newest }],
    ['tells all to leave', { type: 'leave', ballot: 1 }],
    ['ends the run', { type: 'abort', why: 'the end' }],
    ['leaves from the last roster', { type: 'bye', entered: lastBallot, isDone: false, why: '' }],
    ['reports the last roster', { ...report, roster: newest }],
    ['measures', { type: 'probe', round: 1, fill: '' }],
    ['says that another one waits', { type: 'wait', id: 'a', why: '', isSlow: true, members: [] }],
  ]

  test.each(attacks)(
    '%s: no member stops, and the others continue without one that is lost then',
    async (_, lie) => {
      const all = elasticMember('abcd')
      liar('x', all).say(lie)
      await place.world.advance(5000)
      expect(all.map(({ received }) => received.filter((one) => one !== 'wish'))).toEqual([
        [],
        [],
        [],
        [],
      ])
      crash(all[3]!)
      const next = all.slice(0, 3).map(({ elastic }) => namesOf(elastic.next()))
      for (const names of await Promise.all(next)) expect(names.replace('x', '')).toBe('abc')
    },
  )

  test('invents a roster, a former life and a state in its answers: the leader decides as without it', async () => {
    const all = elasticMember('abcd')
    const tab = liar('x', all, (message) => {
      if (message.type !== 'call') return
      const { ballot } = message
      const roster = { ballot: ballot - 1, members: ['x'], before: [], isRing: false }
      tab.say({ ...report, ballot, roster, proved: ballot - 1, step: 99 })
      tab.say({ ...report, ballot, former: { id: 'b', entered: ballot } })
    })
    crash(all[3]!)
    const next = all.slice(0, 3).map(({ elastic }) => namesOf(elastic.next()))
    expect(await Promise.all(next)).toEqual(['abc', 'abc', 'abc'])
  })

  test('claims a later step, and links to lost members: the question to a person has neither', async () => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    const tab = liar('x', [a], (message) => {
      if (message.type !== 'call') return
      tab.say({ ...report, ballot: message.ballot, step: 10 ** 6, linked: ['a', 'b'] })
    })
    a.step = 7
    crash(b)
    a.elastic.next().catch(() => undefined)
    await place.world.advance(elasticTimes.answerMs + 100)
    expect(a.abouts).toEqual([{ missing: ['b'], hadMore: false, step: 7 }])
  })

  test('sends false rosters to members one by one after a loss: they have one group', async () => {
    const all = elasticMember('abcde')
    const four = all.slice(0, 4)
    const tab = liar('x', four)
    crash(all[4]!)
    for (const [at, { id }] of four.entries()) {
      const roster = { ballot: 2 ** 17, members: [id], before: [], isRing: false }
      tab.sayTo(at, { type: 'roster', roster })
    }
    const next = four.map(({ elastic }) => namesOf(elastic.next()))
    expect(await Promise.all(next)).toEqual(['abcd', 'abcd', 'abcd', 'abcd'])
  })

  test.each([
    [
      'says that it leaves a later roster',
      { type: 'bye', entered: 2 ** 20, isDone: false, why: '' },
    ],
    [
      'names a former life in a later roster',
      { ...report, ballot: 2 ** 20, former: { id: 'x.1', entered: 2 ** 20 } },
    ],
  ] as [string, ElasticMessage][])(
    '%s: the server decides as without it when half of the members are lost',
    async (_, lie) => {
      const all = elasticMember('abcd', async (_ballot, _alive, lives) => lives)
      const tab = liar('x.2', all, (message) => {
        if (message.type === 'call')
          tab.say('ballot' in lie ? { ...lie, ballot: message.ballot } : lie)
      })
      for (const one of all.slice(2)) crash(one)
      const next = all.slice(0, 2).map(({ elastic }) => namesOf(elastic.next()))
      for (const names of await Promise.all(next)) expect(names.replace('x.2', '')).toBe('ab')
      for (const { received } of all.slice(0, 2)) expect(received.join()).not.toContain('undecided')
    },
  )

  test('that measures its link gets no answer', async () => {
    const heard: string[] = []
    const tab = liar('x', elasticMember('ab'), ({ type }) => heard.push(type))
    tab.say({ type: 'probe', round: 1, fill: 'x' })
    tab.say({ type: 'ping' })
    await place.world.advance(100)
    expect(heard).toEqual(['hello', 'hello', 'pong', 'pong'])
  })

  test('that comes and goes as another one each time is forgotten', async () => {
    const all = elasticMember('ab')
    for (let life = 0; life < 3 * maxGone; life++) {
      const tab = liar(`x.${life}`, all)
      tab.say({ type: 'hello', id: `x.${life}` })
      tab.say({ type: 'bye', entered: 0, isDone: life % 2 === 0, why: '' })
      await place.world.advance(5)
      for (const one of tab.links) one.close('it was closed')
      await place.world.advance(5)
    }
    for (const { elastic } of all) {
      expect(elastic.links.known.length).toBeLessThanOrEqual(maxGone + 1)
      expect(elastic.presence.dead.size).toBeLessThanOrEqual(maxGone + 1)
    }
  })

  test('that repeats its hello is let in once', async () => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    const tab = liar('x', [a, b])
    for (let i = 0; i < 50; i++) tab.say({ type: 'hello', id: 'x' })
    await place.world.advance(1000)
    expect(a.received).toEqual(['wish'])
  })
})

describe('a member that lies', () => {
  /** `a` to `d`, and `m`, which is senior to `c` and `d`. */
  function withLiar(heard?: Heard) {
    const honest = elasticMember('abmcd', undefined, 'm')
    return { honest, tab: liar('m', honest, heard) }
  }
  const first = { ballot: 1, members: ['a', 'b', 'm', 'c', 'd'] }
  const settle = async (honest: readonly Member[]) => {
    const next = honest.map(({ elastic }) => namesOf(elastic.next()))
    const names = await Promise.all(next)
    expect(new Set(names).size).toBe(1)
    expect(names[0]!.replace('m', '')).toBe('abcd')
    for (const { received } of honest) expect(received.join()).not.toMatch(/out|undecided/)
  }

  test.each([
    [
      'calls with the last ballot',
      { type: 'call', ballot: lastBallot, entered: 1, isPlanned: false },
    ],
    [
      'has promised the last ballot',
      { type: 'refuse', ballot: 1, promised: lastBallot, outside: null },
    ],
    [
      'says that all are outside',
      { type: 'refuse', ballot: 1, promised: 2 ** 17, outside: 2 ** 17 },
    ],
    [
      'sends a roster without a call',
      { type: 'roster', roster: { ballot: 2 ** 17, members: ['m'], before: [], isRing: false } },
    ],
    ['tells all to leave', { type: 'leave', ballot: 1 }],
    ['leaves from the last roster', { type: 'bye', entered: lastBallot, isDone: false, why: '' }],
    ['leaves from the next roster', { type: 'bye', entered: 2 ** 17, isDone: false, why: '' }],
  ] as [string, ElasticMessage][])(
    '%s: the others have one group, and wait for no person',
    async (_, lie) => {
      const { honest, tab } = withLiar()
      tab.say(lie)
      await place.world.advance(100)
      await settle(honest)
    },
  )

  test('calls, and sends each of four another roster: none enters it', async () => {
    let isCalled = false
    const { honest, tab } = withLiar((message) => {
      if (message.type !== 'report' || isCalled) return
      isCalled = true
      for (const [at, { id }] of honest.entries()) {
        const before = [{ ballot: 1, members: ['a', 'b', 'm', 'c', 'd'] }]
        const roster = { ballot: 2 ** 17, members: ['m', id], before, isRing: false }
        tab.sayTo(at, { type: 'roster', roster })
      }
    })
    tab.say({ type: 'call', ballot: 2 ** 17, entered: 1, isPlanned: false })
    await settle(honest)
  })

  test('refuses each call: the others continue without its answer', async () => {
    const { honest, tab } = withLiar((message) => {
      if (message.type !== 'call') return
      const { ballot } = message
      tab.say({ type: 'refuse', ballot, promised: ballot, outside: null })
    })
    await settle(honest)
    const { answerMs } = elasticTimes
    expect(place.world.now()).toBeLessThan(5 * answerMs)
  })

  test('refuses alternate calls of each leader, and another one the rest: the others continue without their answers', async () => {
    const honest = elasticMember('abcdmn', undefined, 'mn')
    for (const [turn, id] of ['m', 'n'].entries()) {
      const calls = new Map<number, number>()
      const tab = liar(id, honest, (message) => {
        if (message.type !== 'call') return
        const { ballot } = message
        const leader = ballot % 2 ** 16
        const count = calls.get(leader) ?? 0
        calls.set(leader, count + 1)
        if (count % 2 === turn) tab.say({ type: 'refuse', ballot, promised: ballot, outside: null })
      })
    }
    const next = honest.map(({ elastic }) => namesOf(elastic.next()))
    expect(await Promise.all(next)).toEqual(['abcd', 'abcd', 'abcd', 'abcd'])
    expect(place.world.now()).toBeLessThan(60_000)
  })

  test.each([0, 3])(
    'obeys no removal, answers every call and ping, and calls itself each second: once the host, member %i, has removed it, all links to it end',
    async (at) => {
      const { honest, tab } = withLiar((message) => {
        const roster = { ballot: 1, members: ['a', 'b', 'm', 'c', 'd'], before: [], isRing: false }
        const linked = ['a', 'b', 'c', 'd']
        if (message.type === 'ping') tab.say({ type: 'pong' })
        else if (message.type === 'call')
          tab.say({ ...report, ballot: message.ballot, roster, proved: 1, linked })
      })
      const ended = tab.links.map(() => false)
      for (const [link, one] of tab.links.entries()) one.onend = () => (ended[link] = true)
      for (const count of [1, 2, 3, 4, 5])
        place.world.after(count * 1000, () => {
          const ballot = (count + 1) * 2 ** 16 + 2
          tab.say({ type: 'call', ballot, entered: 1, isPlanned: false })
        })
      await place.world.advance(2500)
      honest[at]!.elastic.remove('m')
      const next = honest.map(({ elastic }) => namesOf(elastic.next()))
      expect(await Promise.all(next)).toEqual(['abcd', 'abcd', 'abcd', 'abcd'])
      expect(place.world.now()).toBeLessThan(10_000)
      await place.world.advance(10)
      expect(ended).toEqual([true, true, true, true])
    },
  )

  test('reports a former life under the id of another member: that member stays', async () => {
    const { honest, tab } = withLiar((message) => {
      if (message.type !== 'call') return
      const roster = { ballot: 1, members: ['a', 'b', 'm', 'c', 'd'], before: [], isRing: false }
      const former = { id: 'd', entered: message.ballot }
      tab.say({ ...report, ballot: message.ballot, roster, proved: 1, former })
    })
    await settle(honest)
  })

  test.each([
    ['of others', 'mpqr'],
    ['with the leader in it', 'ampqr'],
  ])('reports a roster %s that nobody has decided: no person is asked', async (_, ids) => {
    const { honest, tab } = withLiar((message) => {
      if (message.type !== 'call') return
      const { ballot } = message
      const roster = {
        ballot: ballot - 1,
        members: ids.split(''),
        before: [first],
        isRing: false,
      }
      tab.say({ ...report, ballot, roster, proved: 1, linked: ['a', 'b', 'c', 'd'] })
    })
    await settle(honest)
  })

  test('reports a roster of two to a member that lost its links to the others: only the others train on', async () => {
    const { honest, tab } = withLiar()
    const [a, ...others] = honest as [Member, ...Member[]]
    for (const [at, link] of tab.links.entries())
      link.oncontrol = (payload) => {
        const message = decodeElasticMessage(payload)
        if (message.type !== 'call') return
        const { ballot } = message
        const alone = { ballot: ballot - 1, members: ['a', 'm'], before: [], isRing: false }
        const roster = at === 0 ? alone : { ...first, before: [], isRing: false }
        const linked = ['a', 'b', 'c', 'd']
        tab.sayTo(at, { ...report, ballot, roster, proved: roster.ballot, linked })
      }
    for (const { id } of others) a.links.get(id)!.close('it was cut')
    let rosters = 0
    void a.elastic.next().then(
      () => rosters++,
      () => undefined,
    )
    const next = others.map(({ elastic }) => namesOf(elastic.next()))
    expect(new Set(await Promise.all(next)).size).toBe(1)
    await place.world.advance(30_000)
    expect(rosters).toBe(0)
  })

  const strangers = [...'efghijk']
  test.each([
    ['after another one of its invention', [], [{ ballot: 2 ** 17 - 1, members: ['m', 'p', 'q'] }]],
    ['with members that are not there', strangers, []],
  ])('leads to a roster %s, and goes: no person is asked', async (_, added, between) => {
    const all = [...first.members, ...added]
    let reports = 0
    const { honest, tab } = withLiar((message) => {
      if (message.type !== 'report' || ++reports < 4) return
      const before = [...between, first]
      tab.say({ type: 'roster', roster: { ballot: 2 ** 17, members: all, before, isRing: true } })
    })
    tab.say({ type: 'call', ballot: 2 ** 17, entered: 1, isPlanned: false })
    await place.world.advance(100)
    for (const one of tab.links) one.close('it has gone')
    const last = honest.map(async ({ elastic }) => {
      for (;;) {
        const { members } = await elastic.next()
        if (!members.includes('m')) return members.join('')
      }
    })
    expect(await place.world.until(Promise.all(last))).toEqual(['abcd', 'abcd', 'abcd', 'abcd'])
  })

  test('repeats that the others train elsewhere: they continue without it', async () => {
    const honest = elasticMember('mabcd', undefined, 'm')
    const tab = liar('m', honest)
    await place.world.advance(10)
    crash(honest[3]!)
    const names: string[] = []
    for (const { elastic } of honest.slice(0, 3))
      void elastic.next().then(({ members }) => names.push(members.join('')))
    for (let i = 0; i < 30; i++) {
      tab.say({ type: 'refuse', ballot: 1, promised: 2 ** 17, outside: 2 ** 17 })
      await place.world.advance(500)
    }
    expect(names).toEqual(['abc', 'abc', 'abc'])
  })

  test('raises the ballots call by call: its link ends before they are used up', async () => {
    const { honest, tab } = withLiar()
    for (let number = 50; number < 65_000; number += 50) {
      tab.say({ type: 'call', ballot: number * 2 ** 16, entered: 1, isPlanned: false })
      await place.world.advance(10)
    }
    expect(tab.links.map(({ isUp }) => isUp)).toEqual([false, false, false, false])
    await settle(honest)
  })
})

test('a planned call costs no wait when its caller is gone at the end of the step', async () => {
  const [a, b] = elasticMember('abm', undefined, 'm') as [Member, Member]
  const tab = liar('m', [a, b])
  tab.say({ type: 'call', ballot: 2 ** 17, entered: 1, isPlanned: true })
  await place.world.advance(10)
  for (const one of tab.links) one.close('it was closed')
  await place.world.advance(10)
  const next = [a, b].map(({ elastic }) => elastic.next())
  const beganMs = place.world.now()
  expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
  expect(place.world.now() - beganMs).toBeLessThan(elasticTimes.leadMs)
})

test('a planned call without a roster is waited for as any other when the group has failed', async () => {
  const [a, b] = elasticMember('abm', undefined, 'm') as [Member, Member]
  const tab = liar('m', [a, b])
  tab.say({ type: 'call', ballot: 2 ** 17, entered: 1, isPlanned: true })
  await place.world.advance(10)
  const next = [a, b].map(({ elastic }) => elastic.next())
  expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
  const { leadMs, answerMs } = elasticTimes
  expect(place.world.now()).toBeLessThan(leadMs + answerMs + 100)
})

test('a newcomer that is sent a roster with others to whom it has no link joins again', async () => {
  const joiner = member('x', null)
  const next = joiner.elastic.next()
  const tab = liar('m', [joiner])
  tab.say({ type: 'hello', id: 'm' })
  tab.say({ type: 'call', ballot: 2 ** 17, entered: 1, isPlanned: true })
  const before = [{ ballot: 1, members: ['m'] }]
  tab.say({
    type: 'roster',
    roster: { ballot: 2 ** 17, members: ['m', 'n', 'x'], before, isRing: false },
  })
  const refused = expect(next).rejects.toThrow(/it has lost a link\. It joins again/)
  await place.world.advance(100)
  await refused
})

test('a link that the other end does not read holds a bounded number of bytes', async () => {
  const joiner = member('x', null)
  const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
  joiner.elastic.links.add(near, null)
  const rank = new EpochLinks(far)
  rank.control(encodeElasticMessage({ type: 'hello', id: 'a' }))
  await place.world.advance(10)
  // From now on the end of the newcomer has no room.
  near.room = () => 0
  let answered = 0
  for (; answered < 20_000 && rank.isUp; answered++) {
    rank.control(encodeElasticMessage({ type: 'probe', round: 1, fill: 'x'.repeat(2 ** 15) }))
    await place.world.advance(2)
  }
  expect(rank.isUp).toBe(false)
  expect(answered * 2 ** 15).toBeLessThan(maxUnsentBytes * 1.1)
})

test('a link that the other end does not read holds a bounded number of answers', async () => {
  const [a] = elasticMember('ab') as [Member, Member]
  const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
  near.room = () => 0
  a.elastic.links.add(near, 'x')
  const rank = new EpochLinks(far)
  let asked = 0
  for (; asked < 10_000 && rank.isUp; asked++) {
    rank.control(encodeElasticMessage({ type: 'ping' }))
    if (asked % 100 === 0) await place.world.advance(2)
  }
  expect(rank.isUp).toBe(false)
})

test('one that joins remembers a bounded number of ranks that others report', async () => {
  const joiner = member('x', null)
  void joiner.elastic.next().catch(() => undefined)
  const tab = liar('m', [joiner])
  tab.say({ type: 'hello', id: 'm' })
  const members = Array.from({ length: 64 }, (_, rank) => `n${rank}`)
  for (let received = 0; received < 100; received++) {
    tab.say({
      ...{ type: 'wait', id: 'x', why: '', isSlow: false },
      members: members.map((id) => `${id}.${received}`),
    })
    await place.world.advance(2)
  }
  // It lets ranks measure their links to it.
  const answersOf = async (id: string) => {
    const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
    joiner.elastic.links.add(near, id)
    const heard: string[] = []
    const one = new EpochLinks(far)
    one.oncontrol = (payload) => heard.push(decodeElasticMessage(payload).type)
    one.control(encodeElasticMessage({ type: 'probe', round: 1, fill: '' }))
    await place.world.advance(10)
    return heard
  }
  expect(await answersOf('n0.99')).toEqual(['hello', 'probed'])
  expect(await answersOf('n0.0')).toEqual(['hello'])
})

test('a rank that says it is another member than the server has named loses its link', async () => {
  const joiner = member('x.2', null)
  const [near, far] = memoryPair(place.world, { delayMs: () => 1 })
  joiner.elastic.links.add(near, null, 'a')
  const rank = new EpochLinks(far)
  rank.control(encodeElasticMessage({ type: 'hello', id: 'b.1' }))
  await place.world.advance(10)
  expect(rank.isUp).toBe(false)
})

test('newcomers may answer and leave; what decides is for members, and rosters for the leader', () => {
  const may = (role: Role) =>
    Object.entries(rights).flatMap(([type, { from }]) => (from.includes(role) ? [type] : []))
  expect(may('newcomer')).toEqual(['hello', 'report', 'ping', 'pong', 'probed', 'bye'])
  expect(may('member')).toEqual(
    [
      ...new Set([
        ...may('newcomer'),
        'call',
        'refuse',
        'abort',
        'probe',
        'wait',
        'signal',
        'pass',
      ]),
    ].sort((a, b) => Object.keys(rights).indexOf(a) - Object.keys(rights).indexOf(b)),
  )
  expect(may('leader')).toEqual(Object.keys(rights))
})
