import { beforeEach, describe, expect, it } from 'vitest'
import type { MessageOf } from '../../../src/peer/room/client-messages.ts'
import { limits } from '../../../src/peer/server/limits.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, RendezvousWorld, roomA, roomB } from '../../support/rendezvous-world.ts'

/** A server whose makers let each newcomer in. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld({}, { asks: true, hasRelay: true })
  world.create('t0', roomA, infoOf('t0'), host)
})

const host = '0'.repeat(32)
const one = '1'.repeat(32)
const enter = (
  name: string,
  token?: string,
  rest: Pick<MessageOf<'join'>, 'isFurther' | 'again'> = {},
  info = infoOf(name),
) => world.join(name, roomA, info, authKey, token, rest)
const idOf = (name: string) => world.last(name, 'welcome').id
/** Who waits, by the last message to the maker. */
const asks = (maker = 't0') => world.last(maker, 'asks').asks
const answer = (isLetIn: boolean, at = 0, maker = 't0') =>
  world.say(maker, { type: 'letIn', id: asks(maker)[at].id, isLetIn })
const has = (tab: string, type: string) => world.inboxes.get(tab)!.some((one) => one.type === type)
async function names(): Promise<string[]> {
  await world.tick()
  return world.last('t0', 'lobby').members.map(({ name }) => name)
}

describe('a newcomer', () => {
  it('waits outside until the maker lets it in', async () => {
    enter('t1')
    expect(world.last('t1', 'asking')).toEqual({ type: 'asking', host: 't0' })
    expect(asks().map(({ name }) => name)).toEqual(['t1'])
    expect(await names()).toEqual(['t0'])
    expect(has('t1', 'lobby')).toBe(false)
    world.say('t1', { type: 'start', settings: null })
    expect(world.refusal('t1')).toBe('not-in-a-room')
    answer(true)
    expect(await names()).toEqual(['t0', 't1'])
    expect(asks()).toEqual([])
    expect(world.last('t1', 'welcome').room).toBe(roomA)
  })

  it('gets a refusal and loses its connection when the maker declines it', async () => {
    enter('t1')
    answer(false)
    expect(world.refusal('t1')).toBe('declined')
    expect(world.closed.has('t1')).toBe(true)
    expect(await names()).toEqual(['t0'])
  })

  it('leaves the list when it waits too long, or goes', async () => {
    enter('t1')
    enter('t2')
    world.say('t2', { type: 'bye' })
    expect(asks().map(({ name }) => name)).toEqual(['t1'])
    await world.env.advance(limits.askMs + 1)
    expect(world.refusal('t1')).toBe('declined')
    expect(asks()).toEqual([])
  })

  it('is answered by the maker alone, and once', async () => {
    enter('t1')
    answer(true)
    enter('t2')
    const { id } = asks()[0]
    world.say('t1', { type: 'letIn', id, isLetIn: true })
    expect(world.refusal('t1')).toBe('not-the-host')
    answer(true)
    world.say('t0', { type: 'letIn', id, isLetIn: true })
    expect(world.refusal('t0')).toBe('unknown-member')
  })

  it('is refused where 20 wait already', () => {
    for (let i = 1; i <= limits.asksPerRoom; i++) enter(`t${i}`)
    enter('late')
    expect(world.refusal('late')).toBe('too-many')
    expect(asks()).toHaveLength(limits.asksPerRoom)
  })

  it('of another address takes the newest place of the one that waits most', () => {
    world.addressOf = (id) => id.replace(/\d+$/, '')
    for (let at = 0; at < limits.asksPerRoom; at++) enter(`crowd${at}`)
    enter('stranger')
    expect(asks().map(({ name }) => name)).toEqual([
      ...Array.from({ length: limits.asksPerRoom - 1 }, (_, at) => `crowd${at}`),
      'stranger',
    ])
    expect(world.last('crowd19', 'error')).toMatchObject({ code: 'too-many', isFatal: true })
    enter('crowd90')
    expect(world.refusal('crowd90')).toBe('too-many')
    expect(asks()).toHaveLength(limits.asksPerRoom)
  })

  it('of an address that was declined asks again later each time, and hears when', async () => {
    world.addressOf = () => '192.0.2.1'
    const waits = async (seconds: number) => {
      const [early, due] = [`early${seconds}`, `due${seconds}`]
      expect(world.refusal(early)).toBe('declined')
      expect(world.last(early, 'error').text).toContain(`in ${seconds} s`)
      expect(asks()).toEqual([])
      await world.env.advance(1000 * seconds)
      enter(due)
      expect(asks().map(({ name }) => name)).toEqual([due])
    }
    enter('t1')
    for (const seconds of [5, 10, 20]) {
      answer(false)
      enter(`early${seconds}`)
      await waits(seconds)
    }
    answer(true)
    enter('next')
    answer(false)
    expect(world.last('next', 'error').text).toContain('in 5 s')
    world.addressOf = () => '192.0.2.2'
    enter('other')
    expect(asks().map(({ name }) => name)).toEqual(['other'])
  })

  it('waits no longer than a limit, and its wait is forgotten after those of enough other addresses', async () => {
    world = new RendezvousWorld({ askAgainMaxMs: 15_000, declinesPerRoom: 2 }, { asks: true })
    world.create('t0')
    world.addressOf = (id) => id.replace(/\d+$/, '')
    const wait = async (name: string) => {
      enter(name)
      answer(false)
      await world.env.advance(15_000)
      return /in (\d+) s/.exec(world.last(name, 'error').text)![1]
    }
    expect([await wait('a1'), await wait('a2'), await wait('a3')]).toEqual(['5', '10', '15'])
    await wait('b1')
    expect(await wait('a4')).toBe('15')
    for (const name of ['b2', 'c1']) await wait(name)
    expect(await wait('a5')).toBe('5')
  })

  it('does not take the room over when its host reloads the page', () => {
    enter('t1')
    world.say('t0', { type: 'bye' })
    expect(world.refusal('t1')).toBe('declined')
    expect(world.closed.has('t1')).toBe(true)
    expect(world.server.counts.rooms).toBe(0)
    world.create('host', roomA, infoOf('host'), host)
    expect(has('host', 'welcome')).toBe(true)
  })

  it('is shown to the member that is the maker after the first one', async () => {
    enter('t1', one)
    answer(true)
    enter('t2')
    world.say('t0', { type: 'bye' })
    await world.tick()
    expect(asks('t1').map(({ name }) => name)).toEqual(['t2'])
    answer(true, 0, 't1')
    await world.tick()
    expect(world.last('t1', 'lobby').members).toHaveLength(2)
  })
})

describe('nobody is asked about', () => {
  it('a member that comes back with its token', async () => {
    enter('t1', one)
    answer(true)
    world.server.lost('t1', 'reloaded')
    enter('again', one)
    expect(await names()).toEqual(['t0', 'again'])
  })

  it('further ranks of a tab that is in the room, at first and when they come back', async () => {
    enter('t1', one)
    answer(true)
    enter('t2', one, { isFurther: true })
    expect(await names()).toEqual(['t0', 't1', 't2'])
    const again = { id: idOf('t2'), epoch: 0 }
    for (const name of ['t1', 't2']) world.server.lost(name, 'offline')
    enter('again', one, { isFurther: true, again })
    expect(await names()).toEqual(['t0', 'again'])
    expect(idOf('again')).toBe(again.id)
  })

  it('the other ranks of a tab that waits, once one of them is let in', async () => {
    enter('t2', one, { isFurther: true })
    enter('t1', one)
    enter('t3', '3'.repeat(32))
    answer(true)
    expect(await names()).toEqual(['t0', 't2', 't1'])
    expect(asks().map(({ name }) => name)).toEqual(['t3'])
  })

  it('the host, where a further rank of its tab has come into the empty room first', async () => {
    world.say('t0', { type: 'bye' })
    world.create('h2', roomA, infoOf('h2'), host, true)
    enter('t1', one)
    enter('h1', host)
    await world.tick()
    expect(world.last('h1', 'lobby').maker).toBe(idOf('h1'))
    expect(asks('h1').map(({ name }) => name)).toEqual(['t1'])
  })

  it('the guests of a room without members', () => {
    world.create('g0', roomB, null)
    world.join('g1', roomB, null)
    expect(has('g1', 'welcome')).toBe(true)
  })
})

it('a guest of a room with members is refused', () => {
  world.join('guest', roomA, null)
  expect(world.refusal('guest')).toBe('declined')
})

it('a tab that was removed is asked about, although its ranks have its token', async () => {
  enter('t1', one)
  answer(true)
  enter('t2', one, { isFurther: true })
  const again = { id: idOf('t2'), epoch: 0 }
  for (const name of ['t1', 't2']) world.say('t0', { type: 'remove', id: idOf(name) })
  enter('again', one, { isFurther: true, again })
  expect(asks().map(({ name }) => name)).toEqual(['again'])
})

it("removing another rank of the host's tab leaves the host its way back", async () => {
  enter('h2', host, { isFurther: true })
  enter('t1', one)
  answer(true)
  world.say('t0', { type: 'remove', id: idOf('h2') })
  world.say('t0', { type: 'bye' })
  enter('again', host)
  await world.tick()
  expect(world.last('again', 'lobby').maker).toBe(idOf('again'))
})

describe('what all members see lets nobody in:', () => {
  it('the id of a member that has no token', async () => {
    enter('t1')
    answer(true)
    enter('thief', undefined, { again: { id: idOf('t1'), epoch: 0 } })
    expect(asks().map(({ name }) => name)).toEqual(['thief'])
    expect(await names()).toEqual(['t0', 't1'])
  })

  it('the tab of a member, from the same address', async () => {
    world.addressOf = () => 'one'
    const tab = 'ab'.repeat(4)
    enter('t1', one, {}, infoOf('t1', { tab }))
    answer(true)
    enter('thief', '2'.repeat(32), { isFurther: true }, infoOf('thief', { tab }))
    expect(asks().map(({ name }) => name)).toEqual(['thief'])
    expect(await names()).toEqual(['t0', 't1'])
  })
})

describe('an end of a relayed link', () => {
  const refusal = (name: string) => world.all(name, 'error').at(-1)?.code
  const relay = (name: string, token?: string) => world.relay(name, 0, name, roomA, token)

  it('comes from a member that was let in', () => {
    enter('t1', one)
    relay('early', one)
    answer(true)
    relay('late', one)
    relay('host', host)
    expect(['early', 'late', 'host'].map(refusal)).toEqual(['declined', undefined, undefined])
    expect(world.closed.has('early')).toBe(true)
  })

  it('does not come from who only has the key, or was removed', () => {
    enter('t1', one)
    answer(true)
    world.say('t0', { type: 'remove', id: idOf('t1') })
    relay('removed', one)
    relay('nobody')
    relay('stranger', '9'.repeat(32))
    expect(['removed', 'nobody', 'stranger'].map(refusal)).toEqual(Array(3).fill('declined'))
  })

  it('comes from who has the key where programs are alone in the room', () => {
    world.create('g0', roomB, null)
    world.relay('end', 0, 'c', roomB)
    expect(refusal('end')).toBeUndefined()
  })

  it('comes from a member that many have come after', async () => {
    enter('t1', one)
    answer(true)
    for (let at = 0; at < 2 * limits.membersPerRoom + 1; at++) {
      await world.env.advance(2000)
      enter(`x${at}`, `9${at.toString(16).padStart(31, '0')}`)
      answer(true)
      world.say(`x${at}`, { type: 'bye' })
    }
    relay('end', one)
    expect(refusal('end')).toBeUndefined()
  })
})

it('a member that was removed is asked about, although it has its token', async () => {
  enter('t1', one)
  answer(true)
  await world.tick()
  world.say('t0', { type: 'remove', id: world.last('t1', 'welcome').id })
  enter('again', one)
  expect(asks().map(({ name }) => name)).toEqual(['again'])
  expect(await names()).toEqual(['t0'])
})
