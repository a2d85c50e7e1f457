import { describe, expect, it } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld, roomA } from '../../support/rendezvous-world.ts'

/** How many rooms one address may fill a server with, and for how long. */

const roomOf = (number: number) => number.toString(16).padStart(32, '0')

describe('rooms of one address', () => {
  function worldOf(address: (id: string) => string) {
    const world = new RendezvousWorld()
    world.addressOf = address
    for (let at = 0; at < limits.roomsPerAddress; at++) world.create(`own${at}`, roomOf(at))
    return world
  }

  it('are 8: the next is refused with what to do, and may join one of them', () => {
    const world = worldOf(() => '192.0.2.1')
    world.create('ninth', roomOf(9))
    expect(world.last('ninth', 'error')).toMatchObject({
      code: 'too-many',
      text: '192.0.2.1 has made 8 rooms that are still open, as many as this server allows. Join one of them, or close all tabs of one and try again.',
      isFatal: false,
    })
    world.join('guest', roomOf(0))
    expect(world.last('guest', 'welcome').room).toBe(roomOf(0))
    expect(world.server.counts.rooms).toBe(8)
  })

  it('are counted by address', () => {
    const world = worldOf((id) => (id.startsWith('own') ? '192.0.2.1' : '192.0.2.2'))
    world.create('other', roomOf(9))
    expect(world.last('other', 'welcome').room).toBe(roomOf(9))
  })

  it('count until the last member has left', () => {
    const world = worldOf((id) => (id === 'friend' ? '192.0.2.2' : '192.0.2.1'))
    world.join('friend', roomOf(0))
    world.say('own0', { type: 'bye' })
    world.create('early', roomOf(9))
    expect(world.refusal('early')).toBe('too-many')
    world.say('friend', { type: 'bye' })
    world.create('late', roomOf(9))
    expect(world.last('late', 'welcome').room).toBe(roomOf(9))
  })
})

describe('a room without news', () => {
  it('of one member ends after an hour, and says why to the member', async () => {
    const world = new RendezvousWorld()
    await world.fill(1)
    await world.env.advance(limits.idleMs - 2 * limits.lobbyDelayMs)
    expect(world.closed.has('t0')).toBe(false)
    await world.env.advance(2 * limits.lobbyDelayMs)
    expect(world.last('t0', 'error')).toMatchObject({
      code: 'idle',
      text: 'this room had one member and no news for 60 minutes, so the server ended it. Open its link again.',
      isFatal: true,
    })
    expect(world.closed.has('t0')).toBe(true)
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
    expect(world.env.timers).toBe(0)
  })

  it.each<[string, (world: RendezvousWorld) => void]>([
    ['chosen settings', (world) => world.say('t0', { type: 'propose', settings: { steps: 4 } })],
    ['a new name', (world) => world.say('t0', { type: 'update', info: infoOf('new') })],
    [
      'a tab in the background',
      (world) => world.say('t0', { type: 'update', info: infoOf('t0', { hidden: true }) }),
    ],
    [
      'a visitor',
      (world) => {
        world.join('t1')
        world.say('t1', { type: 'bye' })
      },
    ],
  ])('has another hour after %s', async (_, news) => {
    const world = new RendezvousWorld()
    await world.fill(1)
    await world.env.advance(limits.idleMs - 1000)
    news(world)
    await world.env.advance(limits.idleMs - 1000)
    expect(world.closed.has('t0')).toBe(false)
    await world.env.advance(2000)
    expect(world.refusal('t0')).toBe('idle')
  })

  it('ends even when its tab sends new measurements all the time', async () => {
    const world = new RendezvousWorld()
    await world.fill(1)
    for (let minute = 0; minute < 61; minute++) {
      const measured = { serverUs: minute }
      world.say('t0', { type: 'update', info: infoOf('t0', { measured }) })
      await world.env.advance(60_000)
    }
    expect(world.refusal('t0')).toBe('idle')
  })

  it('stays for two members, for a guest, and for a run', async () => {
    const pair = new RendezvousWorld()
    await pair.fill(2)
    const visited = new RendezvousWorld()
    await visited.fill(1)
    visited.join('guest', roomA, null)
    const guest = new RendezvousWorld()
    guest.create('t0', roomA, null)
    const running = new RendezvousWorld()
    const epoch = await running.run(await running.fill(1))
    for (const world of [pair, visited, guest, running]) {
      await world.env.advance(3 * limits.idleMs)
      expect(world.closed.size).toBe(0)
    }
    running.say('t0', { type: 'done', epoch })
    visited.say('guest', { type: 'bye' })
    for (const world of [running, visited]) {
      await world.env.advance(limits.idleMs + limits.lobbyDelayMs)
      expect(world.refusal('t0')).toBe('idle')
    }
  })
})
