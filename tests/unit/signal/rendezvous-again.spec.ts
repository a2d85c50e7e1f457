import { beforeEach, describe, expect, it } from 'vitest'
import type { Again, RunNow } from '../../../src/peer/room/client-messages.ts'
import { limits, protocolVersion } from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, hmac, RendezvousWorld, roomA, tokenOf } from '../../support/rendezvous-world.ts'

/** Members whose connections ended, and which come back: to the server that they had, or to one that knows nothing. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld()
  newest = 4
})

const settings = { steps: 3 }
const ids = ['a', 'b', 'c'].map((digit) => digit.repeat(16))
const [a, b, c] = ids
const key = '9'.repeat(16)

/** The elastic run that members are in when their server goes. */
const now = (rest: Partial<RunNow> = {}): RunNow => ({
  key,
  run: 2,
  ballot: 7,
  ids,
  settings,
  ...rest,
})

/** The newest epoch that members know. */
let newest = 4

/** Of the tab that had this id. */
const ownToken = (id: string) =>
  tokenOf([...world.inboxes.keys()].find((name) => world.all(name, 'welcome')[0]?.id === id) ?? id)

/** `name` enters on a new connection, as one that was here before. */
function back(
  name: string,
  { epoch = newest, ...rest }: Omit<Again, 'epoch'> & { epoch?: number },
  token: string | undefined = ownToken(rest.id),
  how: 'create' | 'join' = 'join',
): void {
  world.open(name)
  const again = { epoch, ...rest }
  const info = infoOf(name)
  const entry = { version: protocolVersion, room: roomA, info, token, again } as const
  if (how === 'create') {
    world.say(name, { type: 'create', ...entry, authKey })
    return
  }
  const proof = hmac(authKey, proofText(roomA, world.last(name, 'challenge').nonce))
  world.say(name, { type: 'join', ...entry, proof })
}

/** t0 begins an elastic run; A and B come, which are in an older one with its number. */
function beginWithOlder(older: Partial<RunNow> = {}): void {
  world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
  world.say('t0', { type: 'start', settings, isElastic: true })
  world.say('t0', { type: 'ready', epoch: 1 })
  back('A', { id: a, run: now({ run: 1, ...older }) })
  back('B', { id: b, run: now({ run: 1, ...older }) })
}

/** Of the newest run that `name` was assigned to. */
const keyOf = (name: string) => world.last(name, 'assign').key!

const idOf = (name: string) => world.last(name, 'welcome').id

/** By the lobby: state, epoch, and the names of the ranks in order. */
async function received(name: string): Promise<[string, number, ...string[]]> {
  await world.tick()
  const { state, epoch, members } = world.last(name, 'lobby')
  const ranks = members.filter(({ rank }) => rank !== null).sort((x, y) => x.rank! - y.rank!)
  return [state, epoch, ...ranks.map((one) => one.name)]
}

it('a run that is newer than the epochs its member knows can be ended by its ranks', async () => {
  world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
  const host = idOf('t0')
  back('A', { id: a, epoch: 2, run: now({ run: 2 ** 30, ids: [a, host] }) })
  const [state, epoch] = await received('t0')
  expect([state, epoch]).toEqual(['running', 2 ** 30])
  await world.env.advance(limits.backMs)
  world.say('t0', { type: 'abort', epoch, text: 'enough' })
  expect((await received('t0'))[0]).toBe('failed')
})

describe('a server that does not know the run', () => {
  it('takes it over: epochs, settings, ranks; newcomers are linked once all are back', async () => {
    back('B', { id: b, run: now() }, undefined, 'create')
    expect(idOf('B')).toBe(b)
    expect(await received('B')).toEqual(['running', 4, 'B'])
    world.join('late')
    expect(world.last('late', 'proposed').settings).toEqual(settings)
    await world.env.advance(5 * limits.joinMs)
    expect(world.all('late', 'assign')).toEqual([])
    back('A', { id: a, epoch: 3, run: now() })
    back('C', { id: c, run: now() })
    expect(await received('B')).toEqual(['running', 4, 'A', 'B', 'C'])
    await world.env.advance(limits.joinMs)
    const part = { epoch: 5, run: 2, key, joining: 1, worldSize: 4 }
    for (const name of ['A', 'B', 'C', 'late'])
      expect(world.last(name, 'assign')).toMatchObject(part)
    for (const name of ['A', 'B', 'C', 'late']) world.say(name, { type: 'ready', epoch: 5 })
    expect(world.last('late', 'start').settings).toEqual(settings)
    expect(await received('B')).toEqual(['running', 5, 'A', 'B', 'C', 'late'])
  })

  it('waits a limited time for ranks that do not come', async () => {
    back('A', { id: a, run: now() }, undefined, 'create')
    world.join('late')
    await world.env.advance(limits.backMs + limits.joinMs)
    expect(world.last('late', 'assign')).toMatchObject({ epoch: 5, worldSize: 2 })
  })

  it('does not end the run when the first rank says done', async () => {
    back('A', { id: a, run: now() }, undefined, 'create')
    world.say('A', { type: 'done', epoch: 2 })
    back('B', { id: b, epoch: 5, run: now() })
    world.say('B', { type: 'done', epoch: 5 })
    expect(world.all('A', 'finished')).toEqual([])
    back('C', { id: c, run: now() })
    world.say('C', { type: 'done', epoch: 2 })
    for (const name of ['A', 'B', 'C']) expect(world.last(name, 'finished').epoch).toBe(2)
    expect(await received('A')).toEqual(['finished', 5])
  })

  it('ends the run once it waits no more for ranks that do not come back', async () => {
    back('A', { id: a, run: now() }, undefined, 'create')
    world.say('A', { type: 'done', epoch: 2 })
    await world.env.advance(limits.backMs - 1)
    expect(world.all('A', 'finished')).toEqual([])
    await world.env.advance(1)
    expect(world.last('A', 'finished').epoch).toBe(2)
  })

  it('takes the ranks of the newest ballot, and links another member once it says out', async () => {
    back('B', { id: b, run: now({ ballot: 9, ids: [c, b] }) }, undefined, 'create')
    back('A', { id: a, run: now({ ballot: 6 }) })
    back('C', { id: c, run: now({ ballot: 8, ids: [a, c] }) })
    expect(await received('B')).toEqual(['running', 4, 'C', 'B'])
    await world.env.advance(10 * limits.joinMs)
    expect(world.all('A', 'assign')).toEqual([])
    world.say('A', { type: 'out', key })
    await world.env.advance(limits.joinMs)
    expect(world.last('A', 'assign')).toMatchObject({ rank: 2, joining: 1 })
  })

  it('takes the ranks of the newest ballot even when the first to report is none of them', async () => {
    back('A', { id: a, run: now({ ids: [a, b] }) }, undefined, 'create')
    back('C', { id: c, run: now({ ballot: 9, ids: [c] }) })
    expect(await received('C')).toEqual(['running', 4, 'C'])
  })

  it('does not take over a run that its member is no rank of', async () => {
    back('A', { id: a, run: now({ ids: [b, c] }) }, undefined, 'create')
    world.join('other', roomA, infoOf('other', { transport: 'port' }))
    expect(await received('A')).toEqual(['lobby', 0])
    back('B', { id: b, run: now({ ids: [b, c] }) })
    expect(await received('A')).toEqual(['running', 4, 'B'])
    expect(world.last('other', 'proposed').settings).toEqual(settings)
    // It has links to the ranks.
    await world.env.advance(limits.backMs + limits.joinMs)
    expect(world.all('A', 'assign')).toEqual([])
  })

  it('links one that has said out before the first rank came', async () => {
    back('A', { id: a, run: now({ ids: [b, c] }) }, undefined, 'create')
    world.say('A', { type: 'out', key })
    back('B', { id: b, run: now({ ids: [b] }) })
    await world.env.advance(limits.joinMs)
    expect(world.last('A', 'assign')).toMatchObject({ epoch: 5, rank: 1, joining: 1 })
  })

  it('gives a run that starts there a number that no member knows', async () => {
    back('A', { id: a }, undefined, 'create')
    world.say('A', { type: 'start', settings, isElastic: true })
    expect(world.last('A', 'assign')).toMatchObject({ epoch: 5, run: 5 })
  })

  it('keeps its own run, also where another had its number', async () => {
    world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
    world.say('t0', { type: 'start', settings, isElastic: true })
    back('A', { id: a, run: now() })
    world.say('t0', { type: 'ready', epoch: 1 })
    const other = now({ run: 1 })
    back('B', { id: b, run: other })
    await world.env.advance(10 * limits.joinMs)
    for (const name of ['A', 'B']) expect(world.all(name, 'assign')).toEqual([])
    const said = { ballot: 70_001, ids: [a, b] }
    world.say('B', { type: 'ranks', key: other.key, ...said })
    // Not even by the key of the room's run: it has no links there.
    world.say('B', { type: 'ranks', key: keyOf('t0'), ...said })
    const lives = [`${b}.1`]
    world.say('B', { type: 'half', key: other.key, ballot: 1, alive: lives, lives })
    expect(world.all('B', 'error').map(({ code }) => code)).toEqual(Array(3).fill('wrong-epoch'))
    expect(world.all('B', 'half')).toEqual([])
    expect(await received('t0')).toEqual(['running', 1, 't0'])
    world.join('late')
    await world.env.advance(limits.joinMs)
    const names = world.last('late', 'assign').members.map(({ name }) => name)
    expect(names).toEqual(['t0', 'late'])
  })

  it.each([
    ['done', { type: 'done', epoch: 1 }],
    ['abort', { type: 'abort', epoch: 1, text: 'stopped by a person' }],
    ['out', { type: 'out', key }],
  ] as const)(
    'links a member of another run with the same number once that run has ended on it, by %s',
    async (_, message) => {
      beginWithOlder({ ids: [a, b], ballot: 70_000 })
      world.say('A', message)
      await world.env.advance(limits.joinMs)
      const part = { epoch: 5, run: 1, key: keyOf('t0'), joining: 1, worldSize: 2 }
      for (const name of ['t0', 'A']) expect(world.last(name, 'assign')).toMatchObject(part)
      expect(world.all('B', 'assign')).toEqual([])
      for (const name of ['t0', 'A']) world.say(name, { type: 'ready', epoch: 5 })
      expect(await received('t0')).toEqual(['running', 5, 't0', 'A'])
      // The run that it is in now.
      world.say('A', { type: 'done', epoch: 1 })
      world.say('t0', { type: 'done', epoch: 1 })
      expect(world.last('A', 'finished').epoch).toBe(1)
      for (const name of ['t0', 'A']) expect(world.all(name, 'abort')).toEqual([])
      expect(world.all('B', 'finished')).toEqual([])
    },
  )

  it('links one that comes back without another run, and starts a run with one that is in another', async () => {
    beginWithOlder()
    world.server.lost('A', 'closed')
    back('A again', { id: a })
    await world.env.advance(limits.joinMs)
    expect(world.last('A again', 'assign')).toMatchObject({ epoch: 5, joining: 1, worldSize: 2 })
    world.say('t0', { type: 'done', epoch: 1 })
    expect(world.last('t0', 'finished').epoch).toBe(1)
    world.say('t0', { type: 'start', settings, isElastic: true })
    const names = ['t0', 'B', 'A again']
    for (const name of names) world.say(name, { type: 'ready', epoch: 6 })
    expect(await received('B')).toEqual(['running', 6, ...names])
  })

  it('does not report a goodbye as certain to a member of another run', async () => {
    beginWithOlder()
    world.say('B', { type: 'bye' })
    expect(world.last('A', 'gone')).toMatchObject({ name: 'B', hasLeft: false })
    expect(world.last('t0', 'gone')).toMatchObject({ name: 'B', hasLeft: true })
  })

  it('gives no rank to a member that is in another run, though others name it', async () => {
    back('A', { id: a, run: now({ ids: [a, b] }) }, undefined, 'create')
    back('B', { id: b, run: now({ key: '8'.repeat(16), run: 3, ids: [b] }) })
    expect(await received('A')).toEqual(['running', 4, 'A'])
    world.say('A', { type: 'ranks', key, ballot: 9, ids: [b, a] })
    expect(await received('A')).toEqual(['running', 4, 'A'])
    world.say('B', { type: 'done', epoch: 3 })
    await world.env.advance(limits.joinMs)
    expect(world.last('B', 'assign')).toMatchObject({ epoch: 5, run: 2, rank: 1, joining: 1 })
  })

  it('takes it over from one that was alone, while another waits in the room', async () => {
    world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
    world.say('t0', { type: 'start', settings, isElastic: true })
    world.say('t0', { type: 'ready', epoch: 1 })
    world.join('late')
    world.server.lost('t0', 'closed')
    expect(await received('late')).toEqual(['failed', 1])
    const id = idOf('t0')
    back('again', { id, epoch: 1, run: now({ key: keyOf('t0'), run: 1, ids: [id] }) })
    expect(await received('late')).toEqual(['running', 1, 'again'])
  })

  it('takes it over from one that was alone in a room that a guest keeps', async () => {
    const [t0] = await world.fill(1)
    await world.run([t0])
    world.say(t0, { type: 'done', epoch: 1 })
    world.join('guest', roomA, null)
    world.say(t0, { type: 'start', settings, isElastic: true })
    world.say(t0, { type: 'ready', epoch: 2 })
    const id = idOf(t0)
    world.server.lost(t0, 'closed')
    back('again', { id, epoch: 2, run: now({ key: keyOf(t0), ids: [id] }) })
    expect(await received('again')).toEqual(['running', 2, 'again'])
  })
})

describe('which half asked first', () => {
  const lives = ids.map((id) => `${id}.2`)
  const asks = (name: string) => {
    const half = { key, ballot: 7, alive: lives.slice(0, 2), lives: [lives[1]] } as const
    world.say(name, { type: 'half', ...half, alive: [...half.alive], lives: [...half.lives] })
    return world.last(name, 'half').first
  }

  it('a new server decides once all have reported in which roster they are', async () => {
    back('B', { id: b, run: now({ ids: [a, b] }) }, undefined, 'create')
    expect(asks('B')).toBeNull()
    back('A', { id: a, run: now({ ids: [a, b] }) })
    expect(asks('B')).toEqual([lives[1]])
  })

  it('it does not know while one of them may be ahead', async () => {
    back('B', { id: b, run: now({ ids: [a, b] }) }, undefined, 'create')
    back('A', { id: a, run: now({ ids: [a, b], mayBeAhead: true }) })
    expect(asks('B')).toBeNull()
    world.say('A', { type: 'ranks', key, ballot: 9, ids: [a] })
    expect(asks('B')).toBeNull()
  })
})

describe('the server that a member had', () => {
  beforeEach(() => {
    newest = 1
  })

  /** An elastic run of t0, t1, t2, which has begun; t1's connection has ended. */
  async function cut(): Promise<string[]> {
    const names = await world.fill(3)
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of names) world.say(name, { type: 'ready', epoch: 1 })
    world.server.lost('t1', 'closed')
    expect(await received('t0')).toEqual(['running', 1, 't0', 't2'])
    return names.map(idOf)
  }
  const nowOf = (known: string[], ballot = 1): RunNow =>
    now({ key: keyOf('t0'), run: 1, ballot, ids: known })

  it('gives it its id and its rank again', async () => {
    const known = await cut()
    back('again', { id: known[1], run: nowOf(known) })
    expect(idOf('again')).toBe(known[1])
    expect(await received('t0')).toEqual(['running', 1, 't0', 'again', 't2'])
    await world.env.advance(10 * limits.joinMs)
    expect(world.all('again', 'assign')).toEqual([])
  })

  it('gives it no rank where the members continue without it, and its id to nobody else', async () => {
    const known = await cut()
    world.say('t0', { type: 'ranks', key: keyOf('t0'), ballot: 5, ids: [known[0], known[2]] })
    back('again', { id: known[1], run: nowOf(known, 4) })
    expect(await received('t0')).toEqual(['running', 1, 't0', 't2'])
    back('other', { id: known[1], run: nowOf(known, 4) }, tokenOf('other'))
    expect(idOf('other')).not.toBe(known[1])
    await world.env.advance(10 * limits.joinMs)
    expect(world.all('again', 'assign')).toEqual([])
  })

  it('gives it no rank after it said bye: it is a newcomer', async () => {
    const known = await cut()
    world.say('t2', { type: 'bye' })
    back('again', { id: known[2] })
    await world.env.advance(limits.joinMs)
    expect(world.last('again', 'assign')).toMatchObject({ joining: 1, rank: 1 })
  })

  it('reports how the run ended meanwhile', async () => {
    const known = await cut()
    const first = nowOf(known)
    for (const name of ['t0', 't2']) world.say(name, { type: 'done', epoch: 1 })
    back('again', { id: known[1], run: first })
    expect(world.last('again', 'finished').epoch).toBe(1)
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of ['t0', 't2', 'again']) world.say(name, { type: 'ready', epoch: 2 })
    world.server.lost('again', 'closed')
    back('late', { id: a, run: { ...first, ids: [a, known[0]] } })
    expect(world.last('late', 'finished').epoch).toBe(1)
    world.say('t2', { type: 'abort', epoch: 2, text: 'out of memory' })
    back('once more', { id: known[1], run: { ...nowOf(known), run: 2 } })
    expect(world.last('once more', 'abort').text).toContain('out of memory')
    expect((await received('t0'))[0]).toBe('failed')
  })

  it('takes over a run of others that had the number of one which ended here', async () => {
    const names = await world.fill(2)
    world.join('guest', roomA, null)
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of names) world.say(name, { type: 'ready', epoch: 1 })
    for (const name of names) world.say(name, { type: 'done', epoch: 1 })
    for (const name of names) world.say(name, { type: 'bye' })
    back('A', { id: a, run: now({ run: 1, ids: [a, b] }) })
    expect(await received('A')).toEqual(['running', 1, 'A'])
  })

  it('links it after it has said out, even when the next to come back names it as a rank', async () => {
    await world.fill(2)
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of ['t0', 't1']) world.say(name, { type: 'ready', epoch: 1 })
    const known = ['t0', 't1'].map(idOf)
    world.say('t1', { type: 'out', key: keyOf('t1') })
    world.server.lost('t0', 'closed')
    expect((await received('t1'))[0]).toBe('failed')
    back('again', { id: known[0], run: nowOf(known) })
    expect(await received('t1')).toEqual(['running', 1, 'again'])
    await world.env.advance(limits.joinMs)
    expect(world.last('t1', 'assign')).toMatchObject({ rank: 1, joining: 1 })
  })

  it('ends its old connection when it comes back with its token', async () => {
    const token = '5'.repeat(32)
    world.create('t0', roomA, infoOf('t0'), token)
    world.join('t1')
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of ['t0', 't1']) world.say(name, { type: 'ready', epoch: 1 })
    const known = ['t0', 't1'].map(idOf)
    back('thief', { id: known[0], run: nowOf(known) }, '6'.repeat(32))
    expect(idOf('thief')).not.toBe(known[0])
    expect(world.closed.has('t0')).toBe(false)
    back('again', { id: known[0], run: nowOf(known) }, token)
    expect(idOf('again')).toBe(known[0])
    expect(world.closed.get('t0')).toBe('it has come back on another connection')
    expect(world.last('t1', 'gone')).toMatchObject({ name: 't0', hasLeft: false })
    expect(await received('t1')).toEqual(['running', 1, 'again', 't1'])
  })

  it('ends its old connection also when it was alone: it makes the room once more', async () => {
    const token = '5'.repeat(32)
    world.create('t0', roomA, infoOf('t0'), token)
    const id = idOf('t0')
    back('again', { id }, token)
    expect(world.refusal('again')).toBe('unknown-room')
    back('once more', { id }, token, 'create')
    expect(idOf('once more')).toBe(id)
    world.join('t1')
    expect(world.server.counts).toEqual({ rooms: 1, connections: 3 })
    await world.tick()
    expect(world.last('t1', 'lobby').members.map(({ name }) => name)).toEqual(['once more', 't1'])
  })

  it('keeps the seat of a rank without a token from who knows its id', async () => {
    const names = await world.fill(1)
    world.join('t1')
    await world.run([...names, 't1'])
    const id = idOf('t1')
    world.server.lost('t1', 'closed')
    back('thief', { id }, tokenOf('thief'))
    expect(idOf('thief')).not.toBe(id)
    expect(await received('t0')).toEqual(['running', 1, 't0', 't1'])
  })

  it('of a run that is not elastic: attaches it to its rank, while the run is on', async () => {
    const token = '5'.repeat(32)
    world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
    world.join('t1', roomA, infoOf('t1'), authKey, token)
    await world.run(['t0', 't1'])
    const id = idOf('t1')
    world.server.lost('t1', 'closed')
    back('thief', { id }, '6'.repeat(32))
    expect(await received('t0')).toEqual(['running', 1, 't0', 't1'])
    back('again', { id }, token)
    expect(await received('t0')).toEqual(['running', 1, 't0', 'again'])
    expect(world.last('t0', 'lobby').members.map(({ attached }) => attached)).toEqual([
      true,
      true,
      true,
    ])
    world.say('t0', { type: 'done', epoch: 1 })
    expect(world.all('t0', 'finished')).toEqual([])
    world.say('again', { type: 'done', epoch: 1 })
    expect(world.last('again', 'finished').epoch).toBe(1)
    world.server.lost('again', 'closed')
    back('later', { id })
    expect(idOf('later')).toBe(id)
    expect(await received('t0')).toEqual(['finished', 1])
  })
})

describe('only the host starts a run:', () => {
  const theirs = { steps: 666, trust: 'members' }
  /** The room waits, as the host sees it, and the host can start. */
  async function waits(host = 't0'): Promise<void> {
    const before = world.all(host, 'assign').length
    await world.env.advance(3 * limits.backMs)
    const [state, , ...ranks] = await received(host)
    expect(['lobby', 'finished', 'failed']).toContain(state)
    expect(ranks).toEqual([])
    expect(world.all(host, 'assign')).toHaveLength(before)
    world.say(host, { type: 'start', settings, isElastic: true })
    expect(world.all(host, 'error')).toEqual([])
    expect(world.all(host, 'assign')).toHaveLength(before + 1)
  }

  it('a run that another member brings changes nothing, once the server is no more new', async () => {
    await world.fill(2)
    world.say('t0', { type: 'propose', settings })
    await world.env.advance(limits.backMs)
    back('attacker', { id: a, run: now({ ids: [a], settings: theirs }) })
    expect(await received('t0')).toEqual(['lobby', 0])
    expect(world.last('t1', 'proposed').settings).toEqual(settings)
    await waits()
  })

  it.each([
    [limits.backMs - 1, 'running'],
    [limits.backMs, 'lobby'],
  ])(
    'a new server takes a run from any member for so long: after %i ms it is %s',
    async (ms, state) => {
      world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
      await world.env.advance(ms)
      back('A', { id: a, run: now({ ids: [a] }) })
      expect((await received('t0'))[0]).toBe(state)
    },
  )

  it('a new server takes none once the host has started one', async () => {
    const names = await world.fill(1)
    await world.run(names)
    world.say('t0', { type: 'done', epoch: 1 })
    back('attacker', { id: a, run: now({ ids: [a], settings: theirs }) })
    await waits()
  })

  it('the host itself brings one at any time, and others of that run with it', async () => {
    await world.env.advance(10 * limits.backMs)
    back('A', { id: a, run: now({ ids: [b, c] }) }, undefined, 'create')
    world.join('other')
    back('B', { id: b, run: now({ ids: [b, c] }) })
    expect(await received('A')).toEqual(['running', 4, 'B'])
    world.say('A', { type: 'bye' })
    world.say('other', { type: 'bye' })
    world.say('B', { type: 'bye' })
    back('C', { id: c, run: now({ ids: [b, c] }) }, undefined, 'create')
    expect(await received('C')).toEqual(['running', 4, 'C'])
  })

  /** An elastic run of t0 and t1, which t0 leaves; it is the host that waits then, with t2. */
  async function leftToOne(): Promise<RunNow> {
    const token = '5'.repeat(32)
    world.create('t0', roomA, infoOf('t0'), token)
    world.join('t1', roomA, infoOf('t1'), authKey, tokenOf('t1'))
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of ['t0', 't1']) world.say(name, { type: 'ready', epoch: 1 })
    world.say('t0', { type: 'bye' })
    world.join('host', roomA, infoOf('host'), authKey, token)
    await world.env.advance(limits.backMs)
    return now({ key: keyOf('t1'), run: 77, ids: [idOf('t1')], settings: theirs })
  }

  it('a run whose ranks were all away comes back as the host has started it', async () => {
    const run = await leftToOne()
    world.server.lost('t1', 'closed')
    expect((await received('host'))[0]).toBe('failed')
    back('again', { id: run.ids[0], epoch: 2, run })
    expect(await received('host')).toEqual(['running', 2, 'again'])
    expect(world.last('again', 'proposed').settings).toEqual(settings)
    await world.env.advance(limits.backMs)
    for (const name of ['again', 'host']) world.say(name, { type: 'ready', epoch: 3 })
    expect(world.last('host', 'assign')).toMatchObject({ epoch: 3, run: 1 })
    expect(world.last('host', 'start').settings).toEqual(settings)
  })

  it('it does not come back by the rank that the host has removed', async () => {
    const run = await leftToOne()
    world.server.lost('t1', 'closed')
    back('again', { id: run.ids[0], epoch: 2, run })
    world.say('host', { type: 'remove', id: run.ids[0] })
    expect(world.refusal('again')).toBe('removed')
    back('once more', { id: run.ids[0], epoch: 2, run })
    await waits('host')
  })

  it.each(['abort', 'late'])('a start that has failed does not come back: %s', async (how) => {
    await world.fill(2)
    world.say('t0', { type: 'start', settings, isElastic: true })
    if (how === 'abort') world.say('t1', { type: 'abort', epoch: 1, text: 'no' })
    await world.env.advance(limits.readyMs)
    const key = keyOf('t1')
    back('attacker', { id: a, epoch: 1, run: now({ key, run: 1, ids: [a], settings: theirs }) })
    await waits()
  })
})

describe('no claim uses the epochs up:', () => {
  /** A run of t0 in a room where somebody has claimed to know `epoch`; returns the run. */
  function runAfter(epoch: number): RunNow {
    world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
    back('attacker', { id: a, epoch })
    world.say('attacker', { type: 'bye' })
    world.say('t0', { type: 'start', settings, isElastic: true })
    const { run, key } = world.last('t0', 'assign')
    world.say('t0', { type: 'ready', epoch: run! })
    return now({ key, run, ids: [idOf('t0')] })
  }

  it.each([2 ** 29, 2 ** 29 + 1, 2 ** 30, 2 ** 31])(
    'after one of %i a member comes back, to that server and to a new one, and the epochs of its run grow',
    async (claimed) => {
      const run = runAfter(claimed)
      const [id] = run.ids
      world.server.lost('t0', 'closed')
      back('again', { id, epoch: run.run, run }, undefined, 'create')
      expect(await received('again')).toEqual(['running', run.run, 'again'])
      world = new RendezvousWorld()
      back('attacker', { id: a, epoch: claimed }, undefined, 'create')
      back('t0', { id, epoch: run.run, run })
      await world.env.advance(limits.joinMs)
      expect(world.last('attacker', 'assign').epoch).toBeGreaterThan(run.run)
      expect(world.all('t0', 'error')).toEqual([])
    },
  )

  it('one of a member of the run, to a new server, leaves numbers for newcomers and the next run', async () => {
    const run = runAfter(0)
    const [id] = run.ids
    world = new RendezvousWorld()
    back('t0', { id, epoch: run.run, run }, undefined, 'create')
    for (const [name, epoch] of [
      ['A', 2 ** 30],
      ['B', 2 ** 31],
    ] as const) {
      back(name, { id: name === 'A' ? a : b, epoch, run })
      expect(await received('t0')).toEqual(['running', 2 ** 30, 't0'])
    }
    world.join('late')
    await world.env.advance(limits.backMs)
    expect(world.last('late', 'assign').epoch).toBe(2 ** 30 + 1)
    back('late again', { id: c, epoch: 2 ** 30 + 1 })
    expect(world.all('late again', 'error')).toEqual([])
  })

  it('a new server takes over no run that began with one of the last numbers', async () => {
    back('A', { id: a, run: now({ run: 2 ** 31 }) }, undefined, 'create')
    expect(await received('A')).toEqual(['lobby', 0])
    world.say('A', { type: 'start', settings, isElastic: true })
    expect(world.last('A', 'assign').epoch).toBe(5)
  })
})
