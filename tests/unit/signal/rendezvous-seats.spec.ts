import { beforeEach, describe, expect, it } from 'vitest'
import { ballotStep } from '../../../src/peer/room/ballots.ts'
import type { MessageOf, RunNow } from '../../../src/peer/room/client-messages.ts'
import { type Limits, limits } from '../../../src/peer/server/limits.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, RendezvousWorld, roomA, tokenOf } from '../../support/rendezvous-world.ts'

/** What members say of an elastic run that they are not in, or claim to be in: it counts nothing. */

const settings = { steps: 3 }
let world: RendezvousWorld
let key: string
/** Of t0, t1, t2: ranks of a run that is on. */
let ids: string[]

async function begin(custom: Partial<Limits> = {}): Promise<void> {
  world = new RendezvousWorld(custom)
  const names = await world.fill(3)
  world.say('t0', { type: 'start', settings, isElastic: true })
  for (const name of names) world.say(name, { type: 'ready', epoch: 1 })
  key = world.last('t0', 'assign').key!
  ids = names.map(idOf)
}
beforeEach(() => begin())

const idOf = (name: string) => world.last(name, 'welcome').id
const max = 2 ** 32 - 1

/** `name` comes as the member `id` of the run, whose ranks are `run.ids`. */
function back(name: string, id: string, run: Partial<RunNow>, token = tokenOf(name)): void {
  const now = { key, run: 1, ballot: 1, ids, settings, ...run }
  const again = { id, epoch: 1, run: now }
  world.join(name, roomA, infoOf(name), authKey, token, { again })
}
const say = (name: string, message: Omit<MessageOf<'ranks'>, 'type' | 'key'>) =>
  world.say(name, { type: 'ranks', key, ...message })
const half = (name: string, lives: string[], ballot = 1) => {
  const asked = { key, ballot, alive: ids.map((id) => `${id}.1`), lives }
  world.say(name, { type: 'half', ...asked })
  return world.last(name, 'half').first
}
async function received(name = 't0'): Promise<string[]> {
  await world.tick()
  const { state, members } = world.last(name, 'lobby')
  const ranks = members.filter(({ rank }) => rank !== null).sort((a, b) => a.rank! - b.rank!)
  return [state, ...ranks.map(({ name }) => name)]
}

it("a rank's seat is kept while its connection is away, for its token alone", async () => {
  world.server.lost('t1', 'offline')
  back('thief', ids[1], {})
  expect(idOf('thief')).not.toBe(ids[1])
  world.say('thief', { type: 'abort', epoch: 1, text: 'ended' })
  expect(world.refusal('thief')).toBe('wrong-epoch')
  back('again', ids[1], {}, tokenOf('t1'))
  expect(idOf('again')).toBe(ids[1])
  expect(await received()).toEqual(['running', 't0', 'again', 't2'])
})

it('messages of a removed rank about the run are refused', async () => {
  world.say('t0', { type: 'remove', id: ids[1] })
  back('again', ids[1], { ballot: max, ids: [ids[1]] }, tokenOf('t1'))
  expect(await received()).toEqual(['running', 't0', 't2'])
  say('again', { ballot: 2, ids: [idOf('again')] })
  expect(world.refusal('again')).toBe('wrong-epoch')
  world.say('again', { type: 'bye' })
  expect(await received()).toEqual(['running', 't0', 't2'])
})

it("a member that was never in the run is no rank, even with the run's key", async () => {
  back('liar', 'f'.repeat(16), { ballot: 9, ids: ['f'.repeat(16)] })
  expect(await received()).toEqual(['running', 't0', 't1', 't2'])
  say('liar', { ballot: 9, ids: [idOf('liar')] })
  expect(world.refusal('liar')).toBe('wrong-epoch')
  expect(half('liar', [`${idOf('liar')}.1`])).toBeNull()
  expect(half('t0', [`${ids[0]}.1`, `${ids[1]}.1`])).toEqual([`${ids[0]}.1`, `${ids[1]}.1`])
})

it('a rank cannot make a rank of a member without links', async () => {
  world.join('late')
  say('t0', { ballot: 9, ids: [...ids, idOf('late')] })
  expect(await received()).toEqual(['running', 't0', 't1', 't2'])
})

it('a run whose ranks were all away comes back only by one of them', async () => {
  world.join('host')
  for (const name of ['t0', 't1', 't2']) world.server.lost(name, 'offline')
  expect(await received('host')).toEqual(['failed'])
  back('liar', 'f'.repeat(16), { ids: ['f'.repeat(16)] })
  back('thief', ids[0], {})
  expect(idOf('thief')).not.toBe(ids[0])
  expect(await received('host')).toEqual(['failed'])
  back('again', ids[0], {}, tokenOf('t0'))
  expect(await received('host')).toEqual(['running', 'again'])
})

it('a member whose run has ended for it is a newcomer when that run comes back', async () => {
  world.server.lost('t1', 'offline')
  say('t0', { ballot: 5, ids: [ids[1]] })
  expect(world.last('t2', 'abort').text).toContain('the run has ended without this tab')
  back('again', ids[1], { ballot: 5, ids: [ids[1]] }, tokenOf('t1'))
  expect(await received()).toEqual(['running', 'again'])
  await world.env.advance(limits.joinMs)
  expect(world.last('t2', 'assign')).toMatchObject({ joining: 2, worldSize: 3 })
})

describe('a ballot', () => {
  const above = 1 + limits.rostersAhead * ballotStep

  it('far above the newest is refused', async () => {
    say('t0', { ballot: above + ballotStep, ids: [ids[0]] })
    expect(world.refusal('t0')).toBe('wrong-epoch')
    expect(half('t0', [`${ids[0]}.1`], above + ballotStep)).toBeNull()
    back('again', ids[1], { ballot: above + ballotStep, ids: [ids[1]] }, tokenOf('t1'))
    expect(await received()).toEqual(['running', 't0', 'again', 't2'])
  })

  it('is accepted once enough time has passed for it', async () => {
    say('t0', { ballot: above, ids: [ids[0], ids[2]] })
    expect(await received()).toEqual(['running', 't0', 't2'])
    await world.env.advance(1000)
    say('t0', { ballot: above * 2 + ballotStep - 1, ids: [ids[0]] })
    expect(await received()).toEqual(['running', 't0'])
  })

  it('of a run that a new server takes over leaves numbers for those that follow', async () => {
    world = new RendezvousWorld()
    world.create('t0', roomA, infoOf('t0'), tokenOf('t0'))
    back('liar', ids[1], { ballot: max, ids: [ids[1]] })
    back('again', ids[2], { ballot: 9, ids: [ids[2]] }, tokenOf('t2'))
    expect(await received()).toEqual(['running', 'again'])
  })
})

describe('a bounded number are kept, and the newest of them:', () => {
  it('seats of ranks that are away', async () => {
    await begin({ seatsPerRun: 3 })
    world.server.lost('t1', 'offline')
    world.join('late')
    await world.env.advance(limits.joinMs)
    for (const name of ['t0', 't2', 'late']) world.say(name, { type: 'ready', epoch: 2 })
    expect(await received()).toEqual(['running', 't0', 't2', 'late'])
    back('again', ids[1], {}, tokenOf('t1'))
    expect(await received()).toEqual(['running', 't0', 't2', 'late'])
  })

  it('seats of a run with more ranks: the run ends when the kept one is away', async () => {
    world = new RendezvousWorld({ seatsPerRun: 1 })
    world.create('t0')
    back('again', ids[1], { ids: [ids[1], ids[2]] }, tokenOf('t1'))
    expect(world.all('again', 'error')).toEqual([])
    expect(await received()).toEqual(['failed'])
  })

  it('newcomers that are left out', async () => {
    await begin({ leftOutPerRun: 1 })
    for (const [at, name] of ['a', 'b'].entries()) {
      world.join(name)
      await world.env.advance(limits.joinMs)
      world.say(name, { type: 'abort', epoch: 2 + at, text: 'no' })
    }
    await world.env.advance(limits.joinMs)
    expect(world.last('a', 'assign').epoch).toBe(4)
    expect(world.last('b', 'assign').epoch).toBe(3)
  })

  it('rosters of which a half has asked', async () => {
    await begin({ halvesPerRun: 1 })
    const lives = ids.slice(0, 2).map((id) => `${id}.1`)
    for (const ballot of [1, 2]) expect(half('t0', lives, ballot)).toEqual(lives)
    expect(half('t0', lives, 1)).toBeNull()
    expect(half('t0', lives, 2)).toEqual(lives)
  })

  it('runs that have ended', async () => {
    await begin({ endedRunsPerRoom: 1 })
    const [first] = [key]
    for (const name of ['t0', 't1', 't2']) world.say(name, { type: 'done', epoch: 1 })
    world.say('t0', { type: 'start', settings, isElastic: true })
    for (const name of ['t0', 't1', 't2']) world.say(name, { type: 'ready', epoch: 2 })
    const second = world.last('t0', 'assign').key!
    for (const name of ['t0', 't1', 't2']) world.say(name, { type: 'done', epoch: 2 })
    world.server.lost('t1', 'offline')
    back('old', ids[1], { key: first }, tokenOf('t1'))
    expect(world.all('old', 'finished')).toEqual([])
    world.server.lost('old', 'offline')
    back('new', ids[1], { key: second, run: 2 }, tokenOf('t1'))
    expect(world.last('new', 'finished').epoch).toBe(2)
  })
})
