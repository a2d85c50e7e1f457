import { afterEach, describe, expect, test } from 'vitest'
import { decodeElasticMessage, encodeElasticMessage } from '../../../src/peer/elastic/messages.ts'
import { type ElasticMemberOptions, elasticTimes } from '../../../src/peer/elastic/options.ts'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { EpochLinks } from '../../../src/peer/link/epoch-link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import {
  clearPlace,
  crash,
  elasticMember,
  founding,
  join,
  link,
  type Member,
  member,
  namesOf,
  place,
  silence,
} from '../../support/elastic-peers.ts'

// Members over memory links on a virtual clock. tests/unit/peer/elastic-simulation.spec.ts has them in whole worlds.

afterEach(clearPlace)

describe('a lost member', () => {
  test('the others have the next roster within half a second', async () => {
    const [a, b, c] = elasticMember('abc')
    crash(b!)
    const next = [a!.elastic.next(), c!.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ac', 'ac'])
    expect(place.world.now()).toBeLessThan(500)
    expect(a!.received).toEqual(['stop'])
    expect(c!.received).toEqual(['stop'])
    expect(a!.elastic.roster).toEqual(c!.elastic.roster)
    expect(a!.elastic.roster!.before).toEqual([founding('abc')])
    a!.elastic.proved()
    expect(a!.elastic.roster!.before).toEqual([])
  })

  test('the others have the next roster within 200 ms when it says bye', async () => {
    const [a, b, c] = elasticMember('abc')
    b!.elastic.resign('the tab was closed')
    const next = [a!.elastic.next(), c!.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ac', 'ac'])
    expect(place.world.now()).toBeLessThan(200)
  })

  test('the others have the next roster within half a second when its process ends but its links seem up', async () => {
    const all = elasticMember('abc') as [Member, Member, Member]
    const [a, b, c] = all
    silence(b, all)
    for (const { elastic } of [a, c]) elastic.presence.isDead('b')
    const next = [a.elastic.next(), c.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ac', 'ac'])
    expect(place.world.now()).toBeLessThan(500)
  })

  test('the others hear after 3 seconds that a member is silent, and have the next roster after 8', async () => {
    const all = elasticMember('abc') as [Member, Member, Member]
    const [, b] = all
    const groups = all.map(
      ({ elastic }, rank) =>
        new ProcessGroup({
          ...{ rank, size: 3, epoch: 1, env: place.world },
          links: elastic.links.open(1, ['a', 'b', 'c']),
        }),
    )
    await place.world.until(Promise.all(groups.map((group) => group.ready())))
    const beganMs = place.world.now()
    silence(b, all)
    const shownMs: number[] = []
    const lostMs: number[] = []
    const next = [0, 2].map((rank) => {
      const group = groups[rank]!
      group.onsuspect = () => shownMs.push(place.world.now() - beganMs)
      const failed = group.barrier().catch(() => lostMs.push(place.world.now() - beganMs))
      return failed.then(() => all[rank]!.elastic.next())
    })
    expect(await Promise.all(next.map(namesOf))).toEqual(['ac', 'ac'])
    const { pingMs, suspectMs, deadMs } = sessionDefaults
    expect([suspectMs, deadMs]).toEqual([3000, 8000])
    // Counted from the last ping, and looked at twice in the time between two.
    for (const [received, ms] of [
      [shownMs, suspectMs],
      [lostMs, deadMs],
    ] as const) {
      expect(received).toHaveLength(2)
      expect(Math.min(...received)).toBeGreaterThan(ms - pingMs)
      expect(Math.max(...received)).toBeLessThanOrEqual(ms + pingMs)
    }
    expect(place.world.now() - beganMs).toBeLessThan(deadMs + pingMs + elasticTimes.answerMs)
    for (const group of groups) group.destroy()
  })

  test('counts as dead at once when it says bye', async () => {
    const [a, b, c] = elasticMember('abc')
    b!.elastic.resign('the tab was closed')
    c!.elastic.resign('the tab was closed')
    expect(await namesOf(a!.elastic.next())).toBe('a')
  })

  test('a survivor names those that it misses when most are lost without a goodbye', async () => {
    const [a, b, c] = elasticMember('abc')
    crash(b!)
    crash(c!)
    const next = a!.elastic.next()
    await place.world.advance(60_000)
    expect(a!.received).toEqual(['stop', 'undecided b c'])
    a!.elastic.continueWithout()
    expect(await namesOf(next)).toBe('a')
    expect(a!.received.at(-1)).toBe('decided')
  })

  test('the next member leads when the most senior one falls silent', async () => {
    const all = elasticMember('abc')
    const [a, b, c] = all as [Member, Member, Member]
    silence(a, all)
    const next = [b.elastic.next(), c.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['bc', 'bc'])
    const { leadMs, answerMs } = elasticTimes
    expect(place.world.now()).toBeGreaterThan(leadMs)
    expect(place.world.now()).toBeLessThan(leadMs * 1.5 + answerMs + 100)
  })
})

test('the last of 64 members calls within 30 s when nobody else does', async () => {
  const ids = Array.from({ length: 64 }, (_, at) => `m${at}`)
  const last = member('m63', { ballot: 1, members: ids })
  const heard: string[] = []
  const [lost, left] = ['m61', 'm62'].map((id) => {
    const [near, far] = memoryPair(place.world)
    const other = new EpochLinks(far)
    other.oncontrol = (payload) => heard.push(decodeElasticMessage(payload).type)
    last.elastic.links.add(near, id)
    return other
  })
  lost!.close('the tab was closed')
  await place.world.advance(9 * elasticTimes.leadMs)
  expect(left!.isUp).toBe(true)
  expect(heard).toContain('call')
})

describe('an end that a person asks for', () => {
  test('reaches members while they form their next group, and newcomers of one of them', async () => {
    const [a, b, c] = elasticMember('abc') as [Member, Member, Member]
    const joiner = join('x', [c])
    await place.world.advance(100)
    crash(b)
    const ended = [a, c, joiner].map(({ elastic }) =>
      expect(elastic.next()).rejects.toThrow(/^membership: stopped by Ada\.$/),
    )
    a.elastic.abort('stopped by Ada.')
    await place.world.advance(100)
    await Promise.all(ended)
    expect(a.elastic.roster!.ballot).toBe(1)
  })

  test('ends the group of a member that has entered the next roster already', async () => {
    const [a, b, c] = elasticMember('abc') as [Member, Member, Member]
    crash(b)
    const next = [a.elastic.next(), c.elastic.next()]
    await Promise.all(next.map(namesOf))
    expect(c.received).toEqual(['stop'])
    a.elastic.abort('stopped by Ada.')
    await place.world.advance(100)
    expect(c.received).toEqual(['stop', 'stop'])
    await expect(c.elastic.next()).rejects.toThrow(/^membership: stopped by Ada\.$/)
  })
})

describe('a planned change', () => {
  test('lets a joiner in after a step, and stops no group', async () => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    const joiner = join('x', [a, b])
    const joined = joiner.elastic.next()
    await place.world.advance(100)
    expect([a.received, b.received]).toEqual([['wish'], []])
    expect(a.elastic.roster!.members).toEqual(['a', 'b'])
    // `b` ends the step later: the call waits for it.
    const first = a.elastic.next(true)
    await place.world.advance(3000)
    expect(b.received).toEqual([])
    const second = b.elastic.next(true)
    expect(await Promise.all([first, second, joined].map(namesOf))).toEqual(['abx', 'abx', 'abx'])
    expect([a.received, b.received]).toEqual([['wish'], []])
    const { ballot, members } = joiner.elastic.roster!
    expect([...joiner.elastic.links.open(ballot, members).keys()]).toEqual([0, 1])
  })

  test('a joiner that lacks a link to one member is not let in', async () => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    const joiner = join('x', [a])
    const refused = expect(joiner.elastic.next()).rejects.toThrow(/membership: .*It joins again/)
    const next = [a.elastic.next(true), b.elastic.next(true)]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
    await place.world.advance(elasticTimes.joinMs + 1)
    await refused
    expect(joiner.received).toEqual(['out'])
  })
})

describe('half of the members', () => {
  const lose = async (firstHalf?: NonNullable<ElasticMemberOptions['firstHalf']>) => {
    const [a, b] = elasticMember('ab', firstHalf) as [Member, Member]
    const cut = a.links.get('b')!
    cut.close('the connection failed')
    const next = [a.elastic.next(), b.elastic.next()]
    for (const one of next) one.catch(() => undefined)
    await place.world.advance(10_000)
    return { a, b, next }
  }

  test('the half that reaches the server first continues, the other waits', async () => {
    const stored = new Map<number, readonly string[]>()
    const firstHalf = async (ballot: number, _: unknown, lives: readonly string[]) => {
      if (!stored.has(ballot)) stored.set(ballot, lives)
      return stored.get(ballot)!
    }
    const { a, b, next } = await lose(firstHalf)
    expect(stored.get(1)).toEqual(['a'])
    expect(await namesOf(next[0]!)).toBe('a')
    expect(b.received).toEqual(['stop', 'undecided a'])
    expect(b.elastic.roster!.ballot).toBe(1)
    b.elastic.leftOut('the others continue without this member')
    expect(b.received).toEqual(['stop', 'undecided a', 'decided', 'out'])
    await expect(next[1]).rejects.toThrow(/the others continue without this member/)
    expect(a.received).toEqual(['stop'])
  })

  test('the rest is more than half when a death becomes known while the server is asked', async () => {
    let answer: (lives: readonly string[]) => void = () => undefined
    const firstHalf = () =>
      new Promise<readonly string[]>((resolve) => {
        answer = resolve
      })
    const all = elasticMember('abcd', firstHalf)
    const [a, b, c, d] = all as [Member, Member, Member, Member]
    crash(c)
    silence(d, all)
    const next = [a.elastic.next(), b.elastic.next()]
    await place.world.advance(elasticTimes.answerMs + 100)
    a.elastic.presence.isDead('d', 1)
    answer(['c', 'd'])
    expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
    expect(a.received).toEqual(['stop'])
  })

  test('a member asks the server and continues at once when its only other member said bye', async () => {
    const asked: unknown[] = []
    const [a, b] = elasticMember('ab', async (...half) => {
      asked.push(half)
      return half[2]
    }) as [Member, Member]
    b.elastic.resign('it has left the run')
    const next = a.elastic.next()
    await place.world.advance(10)
    expect(await namesOf(next)).toBe('a')
    expect([asked, a.received]).toEqual([[[1, ['a'], ['a']]], ['stop']])
  })

  test.each([[['b']], [null]])(
    'one whose only other member said bye waits while the server says %j, until that one has left the room',
    async (first) => {
      const [a, b] = elasticMember('ab', async () => first) as [Member, Member]
      b.elastic.resign('it has left the run')
      const next = a.elastic.next()
      await place.world.advance(100)
      expect([a.received, a.elastic.roster!.ballot]).toEqual([['stop', 'undecided b'], 1])
      a.elastic.presence.isDead('b', 1)
      expect(await namesOf(next)).toBe('a')
      expect(a.received).toEqual(['stop', 'undecided b', 'decided'])
    },
  )

  test('one whose only other member won the half, said bye and comes again in another life continues with it', async () => {
    const [a, b] = elasticMember('ab', async () => ['b']) as [Member, Member]
    b.elastic.resign('it joins again')
    const next = a.elastic.next()
    await place.world.advance(100)
    expect(a.received).toEqual(['stop', 'undecided b'])
    const again = join('b.2', [a], { id: 'b', entered: 1 })
    const joined = again.elastic.next()
    expect(await Promise.all([next, joined].map(namesOf))).toEqual(['ab.2', 'ab.2'])
    expect(a.received).toEqual(['stop', 'undecided b', 'decided'])
  })

  test('a member without a link has to leave when the server cannot know the half', async () => {
    const [a, b, c] = elasticMember('abcd', async () => null, 'd') as [Member, Member, Member]
    b.links.get('c')!.close('the connection failed')
    const refused = expect(c.elastic.next()).rejects.toThrow(/lost links to other members/)
    for (const one of [a, b]) one.elastic.next().catch(() => undefined)
    await place.world.advance(elasticTimes.answerMs + 100)
    await refused
  })

  test('a member continues alone when the other member of the half that won says bye', async () => {
    const all = elasticMember('abcd', async (ballot) =>
      ballot === 1 ? ['a', 'b'] : ['a'],
    ) as Member[]
    const [a, b, c, d] = all as [Member, Member, Member, Member]
    for (const one of [c, d]) silence(one, all)
    const next = [a.elastic.next(), b.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
    for (const one of [c, d]) a.elastic.presence.isDead(one.id, 1)
    b.elastic.resign('it has left the run')
    const alone = a.elastic.next()
    await place.world.advance(100)
    expect(await namesOf(alone)).toBe('a')
  })

  test('the first of two members of a winning half continues when they lose each other', async () => {
    const halves = new Map([[1, ['a', 'b']]])
    const all = elasticMember('abcd', async (ballot, _, lives) => {
      if (!halves.has(ballot)) halves.set(ballot, [...lives])
      return halves.get(ballot)!
    })
    const [a, b, c, d] = all as [Member, Member, Member, Member]
    for (const one of [c, d]) silence(one, all)
    const next = [a.elastic.next(), b.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
    for (const one of [a, b]) for (const { id } of [c, d]) one.elastic.presence.isDead(id, 1)
    a.links.get('b')!.close('the connection failed')
    const alone = a.elastic.next()
    b.elastic.next().catch(() => undefined)
    await place.world.advance(10_000)
    expect(await namesOf(alone)).toBe('a')
    expect(b.elastic.roster!.members).toEqual(['a', 'b'])
  })

  test('neither half continues without a server until a person decides', async () => {
    const { a, b, next } = await lose()
    expect([a.received, b.received]).toEqual([
      ['stop', 'undecided b'],
      ['stop', 'undecided a'],
    ])
    b.elastic.continueWithout()
    expect(await namesOf(next[1]!)).toBe('b')
    expect(a.elastic.roster!.ballot).toBe(1)
  })

  test('a person decides when the server cannot be reached', async () => {
    const { a } = await lose(() => Promise.reject(new Error('the server is not there')))
    expect(a.received).toEqual(['stop', 'undecided b'])
  })
})

describe('a member that may not decide', () => {
  test('reports the newest step of those that answered, at each call', async () => {
    const [a, b, ...others] = elasticMember('abcde') as [Member, Member, ...Member[]]
    a.step = 8
    b.step = 12
    for (const one of others) {
      one.step = 20
      crash(one)
    }
    for (const one of [a, b]) one.elastic.next().catch(() => undefined)
    await place.world.advance(elasticTimes.answerMs)
    const about = { missing: ['c', 'd', 'e'], hadMore: false }
    expect(a.abouts).toEqual([{ ...about, step: 12 }])
    // It has ended its step meanwhile.
    b.step = 13
    await place.world.advance(2 * elasticTimes.leadMs)
    expect(b.abouts).toEqual([{ ...about, step: 13 }])
  })

  test('reports the newest step here when a dead member had newer ones', async () => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    a.step = 8
    b.elastic.resign('the tab was closed')
    a.elastic.presence.isDead('b', 99)
    a.elastic.next().catch(() => undefined)
    await place.world.advance(elasticTimes.answerMs)
    expect(a.abouts).toEqual([{ missing: ['b'], hadMore: true, step: 8 }])
  })

  test('reports when nobody here has the state of the run', async () => {
    const [a] = elasticMember('a') as [Member]
    const x = join('x', [a])
    await place.world.advance(100)
    const next = [a.elastic.next(true), x.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ax', 'ax'])
    a.elastic.resign('the tab was closed')
    x.elastic.next().catch(() => undefined)
    await place.world.advance(elasticTimes.answerMs)
    expect(x.abouts).toEqual([{ missing: ['a'], hadMore: true, step: null }])
  })
})

describe('a member that is left out', () => {
  test('is informed by the leader that it has answered', async () => {
    const [a, b, c] = elasticMember('abc') as [Member, Member, Member]
    b.links.get('c')!.close('the connection failed')
    const refused = expect(c.elastic.next()).rejects.toThrow(
      /the others continue without this member/,
    )
    const next = [a.elastic.next(), b.elastic.next()]
    expect(await Promise.all(next.map(namesOf))).toEqual(['ab', 'ab'])
    await place.world.advance(100)
    await refused
    expect(c.received).toEqual(['stop', 'out'])
    // It says bye, and the others are where they were.
    expect([a.received, b.received]).toEqual([['stop'], ['stop']])
  })

  test('informs those that wait for it, which join again too', async () => {
    const [a, b, c, d, e] = elasticMember('abcde') as Member[]
    for (const one of [d!, e!])
      for (const { id } of [a!, b!, c!]) one.links.get(id)!.close('the connection failed')
    const next = [a!, b!, c!].map(({ elastic }) => namesOf(elastic.next()))
    const out = [d!, e!].map(({ elastic }) => expect(elastic.next()).rejects.toThrow(/joins again/))
    expect(await Promise.all(next)).toEqual(['abc', 'abc', 'abc'])
    await place.world.advance(4 * elasticTimes.leadMs)
    expect(d!.received).toEqual(['stop', 'undecided a b c'])
    d!.elastic.leftOut('the others continue')
    await place.world.advance(100)
    await Promise.all(out)
    expect(e!.received).toEqual(['stop', 'out'])
  })

  test('is informed by a member of a newer roster that it calls', async () => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    const late = member('c', founding('abc'))
    b.elastic.resign('the tab was closed')
    expect(await namesOf(a.elastic.next())).toBe('a')
    link(a, late)
    late.elastic.next().catch(() => undefined)
    await place.world.advance(2 * elasticTimes.leadMs + 100)
    expect(late.received).toEqual(['stop', 'out'])
    expect(a.elastic.roster!.members).toEqual(['a'])
  })
})

test('members that have finished do not stop the others', async () => {
  const [a, b, c] = elasticMember('abc') as [Member, Member, Member]
  a.elastic.resign('its run is over', true)
  await place.world.advance(100)
  a.elastic.links.closeAll('its run is over')
  await place.world.advance(30_000)
  expect([b.received, c.received]).toEqual([[], []])
  // One that is lost before its own end: those that are done are not needed.
  crash(c)
  const next = b.elastic.next()
  await place.world.advance(30_000)
  expect(b.received).toEqual(['stop', 'undecided c'])
  b.elastic.continueWithout()
  expect(await namesOf(next)).toBe('b')
})

test('a member whose connection to the server has ended is lost unless it answers', async () => {
  const [a, b, c] = elasticMember('abc') as [Member, Member, Member]
  c.elastic.presence.doubt('b')
  await place.world.advance(2 * elasticTimes.doubtMs)
  expect(a.received).toEqual([])
  silence(b, [a, b, c])
  a.elastic.presence.doubt('b')
  await place.world.advance(elasticTimes.doubtMs + 100)
  expect(a.elastic.roster?.members).toEqual(['a', 'c'])
})

test('a member of which the server says that it has left is lost unless it answers', async () => {
  const [a, b, c] = elasticMember('abc') as [Member, Member, Member]
  a.elastic.presence.hasLeft('b', 1)
  c.elastic.presence.hasLeft('b', 1)
  await place.world.advance(2 * elasticTimes.doubtMs)
  expect([a.received, a.elastic.links.up, c.elastic.links.up]).toEqual([[], ['b', 'c'], ['a', 'b']])
  for (const one of [b, c]) silence(one, [a, b, c])
  for (const id of ['b', 'c']) a.elastic.presence.hasLeft(id, 1)
  await place.world.advance(elasticTimes.doubtMs + 100)
  expect(a.elastic.roster?.members).toEqual(['a'])
})

test('a member stays when a newcomer comes as the next life of its tab', async () => {
  const all = elasticMember('abc') as [Member, Member, Member]
  const tab = join('b.9', all, { id: 'b', entered: 1 })
  await place.world.advance(50)
  const next = [...all.map(({ elastic }) => elastic.next(true)), tab.elastic.next()]
  expect(await Promise.all(next.map(namesOf))).toEqual(Array(4).fill('abcb.9'))
})

test('a member still names those that it misses when newcomers refuse its call', async () => {
  const alone = member('a', founding('abc'))
  const [near, far] = memoryPair(place.world)
  const newcomer = new EpochLinks(far)
  let calls = 0
  newcomer.oncontrol = (payload) => {
    const said = decodeElasticMessage(payload)
    if (said.type !== 'call') return
    calls++
    const { ballot } = said
    const refuse = { type: 'refuse', ballot, promised: ballot + 1, outside: null } as const
    newcomer.control(encodeElasticMessage(refuse))
  }
  alone.elastic.links.add(near, 'x')
  alone.elastic.next().catch(() => undefined)
  await place.world.advance(elasticTimes.answerMs + elasticTimes.againMs / 2)
  expect(calls).toBe(1)
  expect(alone.received).toContain('undecided b c')
})

describe('what a link carries', () => {
  const control = (text: string) => {
    const [near, far] = memoryPair(place.world)
    const other = new EpochLinks(far)
    other.oncontrol = () => undefined
    return { near, say: () => other.control(new TextEncoder().encode(text)), other }
  }

  test.each([
    ['no JSON', 'no'],
    ['another type', '{"type":"dance"}'],
    ['a field more', '{"type":"leave","ballot":1,"why":""}'],
    ['a ballot that is none', '{"type":"leave","ballot":-1}'],
  ])('%s: the link closes, and the others are not disturbed', async (_, text) => {
    const [a, b] = elasticMember('ab') as [Member, Member]
    const { near, say, other } = control(text)
    a.elastic.links.add(near, 'x')
    await place.world.advance(10)
    say()
    await place.world.advance(1000)
    expect(other.isUp).toBe(false)
    expect([a.received.filter((one) => one !== 'wish'), b.received]).toEqual([[], []])
    expect(a.elastic.roster!.members).toEqual(['a', 'b'])
  })

  test('a newcomer closes a link when its first message does not say who is at the other end', async () => {
    const joiner = member('x', null)
    const good = control('{"type":"hello","id":"a"}')
    const bad = control('{"type":"leave","ballot":1}')
    joiner.elastic.links.add(good.near, null)
    joiner.elastic.links.add(bad.near, null)
    good.say()
    bad.say()
    await place.world.advance(1000)
    expect([good.other.isUp, bad.other.isUp]).toEqual([true, false])
  })

  test('a newcomer gives up after a while when nobody lets it in', async () => {
    const joiner = member('x', null)
    const refused = expect(joiner.elastic.next()).rejects.toThrow(/nobody has let it in/)
    await place.world.advance(elasticTimes.joinMs)
    await refused
    expect(joiner.received).toEqual(['out'])
    await expect(joiner.elastic.next()).rejects.toThrow(/nobody has let it in/)
  })
})

test.each([
  ['nab', ''],
  ['anb', ''],
  ['abn', ''],
  ['abn', ', and has said that it is done'],
])(
  'the others train on without a rank that the host, a, removes and that does not obey: %s%s',
  async (ids, andSaid) => {
    const all = elasticMember(ids)
    const [a, b] = ['a', 'b'].map((id) => all.find((one) => one.id === id)!) as [Member, Member]
    const removed = all.find((one) => one !== a && one !== b)!
    if (andSaid !== '')
      removed.elastic.links.send(['a', 'b'], { type: 'bye', entered: 1, isDone: true, why: '' })
    await place.world.advance(10)
    a.elastic.remove(removed.id)
    removed.elastic.next().catch(() => undefined)
    const next = [a, b].map(({ elastic }) => namesOf(elastic.next()))
    expect(await Promise.all(next)).toEqual(['ab', 'ab'])
    await place.world.advance(10_000)
    for (const { elastic, received } of [a, b]) {
      expect(elastic.links.up).not.toContain(removed.id)
      expect(received).not.toContain('out')
    }
  },
)
