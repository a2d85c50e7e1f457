import { describe, expect, it } from 'vitest'
import { protocolVersion } from '../../../src/peer/room/messages.ts'
import { proveRoomKey } from '../../../src/peer/room/room-key.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { type Limits, limits } from '../../../src/peer/server/limits.ts'
import { infoOf } from '../../support/member-info.ts'
import {
  authKey,
  keyProofOf,
  RendezvousWorld,
  roomA,
  roomB,
} from '../../support/rendezvous-world.ts'
import { SignalWorld } from '../../support/signal-world.ts'

/** A server that makes rooms only for people who have its key. */

const roomKey = 'the key of this server'

function keyed(custom: Partial<Limits> = {}) {
  const world = new RendezvousWorld(custom, { roomKey })
  world.addressOf = (id) => id.replace(/\d+$/, '')
  const create = (id: string, key: string, room = roomA, nonceOf = id) => {
    world.open(id)
    const { nonce } = world.last(nonceOf, 'challenge')
    const keyProof = keyProofOf(key, room, nonce)
    const own = { version: protocolVersion, room, authKey, info: infoOf(id) } as const
    world.say(id, { type: 'create', ...own, keyProof })
  }
  return { world, create }
}

describe('a server with a room key', () => {
  it('makes a room for one who proves the key, and lets anyone with the link join', () => {
    const { world, create } = keyed()
    create('ada', roomKey)
    expect(world.last('ada', 'welcome').room).toBe(roomA)
    world.join('ben')
    expect(world.last('ben', 'welcome').room).toBe(roomA)
  })

  it('answers a client without a key with what to do, and the connection may still join', () => {
    const { world, create } = keyed()
    world.create('ben')
    expect(world.last('ben', 'error')).toMatchObject({ code: 'no-key', isFatal: false })
    expect(world.last('ben', 'error').text).toMatch(/Give the key, or ask for the link/)
    expect(world.server.counts.rooms).toBe(0)
    create('ada', roomKey)
    world.join('ben2')
    expect(world.last('ben2', 'welcome').room).toBe(roomA)
  })

  it('closes the connection of a wrong key, and of a proof for another room or connection', () => {
    const { world, create } = keyed()
    create('a', 'another key')
    create('b', roomKey, roomB, 'a')
    world.open('c')
    const { nonce } = world.last('c', 'challenge')
    const own = { version: protocolVersion, room: roomA, authKey, info: infoOf('c') } as const
    world.say('c', { type: 'create', ...own, keyProof: keyProofOf(roomKey, roomB, nonce) })
    for (const id of ['a', 'b', 'c']) {
      expect(world.refusal(id)).toBe('wrong-key')
      expect(world.closed.get(id)).toMatch(/Ask the person who runs the server/)
    }
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
  })

  it('counts wrong keys by address, for the newest addresses', () => {
    const { world, create } = keyed({ addressesKept: 2, wrongKeyBurst: 1 })
    for (const name of ['a1', 'b1', 'a2', 'c1', 'a3', 'b2'])
      create(name, name.endsWith('1') ? 'wrong' : roomKey)
    const refused = ['a2', 'a3'].map((name) => world.refusal(name))
    expect(refused).toEqual(['too-many', 'too-many'])
    expect(world.last('b2', 'welcome').room).toBe(roomA)
  })

  it('takes 10 guesses of an address, then one a minute; the right key waits too', async () => {
    const { world, create } = keyed()
    for (let at = 0; at < limits.wrongKeyBurst; at++) create(`guess${at}`, `key ${at}`)
    create('guess90', roomKey)
    expect(world.last('guess90', 'error')).toMatchObject({
      code: 'too-many',
      text: 'too many wrong room keys came from guess. Try again in 60 s.',
    })
    create('other', roomKey)
    expect(world.last('other', 'welcome').room).toBe(roomA)
    await world.env.advance(60_000)
    create('guess91', roomKey, roomB)
    expect(world.last('guess91', 'welcome').room).toBe(roomB)
    create('guess92', 'again wrong', 'cc'.repeat(16))
    create('guess93', roomKey, 'cc'.repeat(16))
    expect([world.refusal('guess92'), world.refusal('guess93')]).toEqual(['wrong-key', 'too-many'])
  })
})

describe('SignalClient', () => {
  const worldWithKey = () => new SignalWorld(roomKey)

  it('creates a room with the key; others join without one', async () => {
    const world = worldWithKey()
    const link = newRoomLink()
    const maker = world.client(link, 'maker', { roomKey }).client
    await world.settled(maker.open())
    const other = world.client(link, 'other').client
    await world.settled(other.open())
    expect(world.server!.counts).toEqual({ rooms: 1, connections: 2 })
  })

  it.each([
    [undefined, 'no-key'],
    ['a wrong key', 'wrong-key'],
  ])('with the key %j learns why it has no room', async (own, refusal) => {
    const world = worldWithKey()
    const { client } = world.client(undefined, 'tab', { roomKey: own, reconnects: true })
    await expect(world.settled(client.open())).rejects.toMatchObject({ refusal })
  })

  it('without the key comes back once its maker has made the room on a new server', async () => {
    const world = worldWithKey()
    const link = newRoomLink()
    const maker = world.client(link, 'maker', { roomKey, reconnects: true })
    await world.settled(maker.client.open())
    const other = world.client(link, 'other', { reconnects: true })
    await world.settled(other.client.open())
    world.kill()
    world.restart()
    // The proof of the key is made off the virtual clock.
    await world.until(() => world.server!.counts.rooms === 1 && other.has('back').length === 1)
    expect(world.server!.counts).toEqual({ rooms: 1, connections: 2 })
    expect(other.has('lost')).toEqual([])
  })
})

it('proveRoomKey is the HMAC that Node makes', async () => {
  const nonce = 'ab'.repeat(16)
  expect(await proveRoomKey('Schlüssel', roomA, nonce)).toBe(keyProofOf('Schlüssel', roomA, nonce))
})
