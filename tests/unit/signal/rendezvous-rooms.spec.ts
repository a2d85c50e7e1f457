import { beforeEach, describe, expect, it } from 'vitest'
import { edgesBySize, meshLimit, ringEdges, roomEdges } from '../../../src/peer/room/edges.ts'
import type { MemberInfo } from '../../../src/peer/room/messages.ts'
import { limits, protocolVersion } from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import { linkKind } from '../../../src/peer/server/rendezvous.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, hmac, RendezvousWorld, roomA, roomB } from '../../support/rendezvous-world.ts'

/** Rooms of the rendezvous server: who enters, what the lobby has, who is linked to whom. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld()
})

describe('a server for some rooms alone', () => {
  it('a refused create does not count as a room, and leaves nothing of it', () => {
    const asked: [string, string][] = []
    const own = new RendezvousWorld(
      { rooms: 1 },
      {
        mayCreate: (room, key) => {
          asked.push([room, key])
          return room === roomA && key === authKey
        },
      },
    )
    for (const id of ['s0', 's1', 's2']) {
      own.create(id, roomB)
      expect(own.refusal(id)).toBe('bad-proof')
      expect(own.closed.get(id)).toMatch(/not that of its key, or none of those/)
      own.server.lost(id, 'closed')
    }
    expect(own.server.counts).toEqual({ rooms: 0, connections: 0 })
    own.join('s3', roomB)
    expect(own.refusal('s3')).toBe('unknown-room')
    own.server.lost('s3', 'closed')
    // The one place is there for the one room that may be made.
    own.create('t0', roomA)
    expect(own.last('t0', 'welcome').room).toBe(roomA)
    expect(own.server.counts).toEqual({ rooms: 1, connections: 1 })
    own.create('s4', roomB)
    expect(own.refusal('s4')).toBe('bad-proof')
    expect(asked.map(([room]) => room)).toEqual([roomB, roomB, roomB, roomA, roomB])
  })
})

describe('entering a room', () => {
  it('challenges, welcomes, and lists members in order of joining', async () => {
    await world.fill(3)
    const lobby = world.last('t1', 'lobby')
    expect(lobby.members.map((one) => one.name)).toEqual(['t0', 't1', 't2'])
    expect(lobby.maker).toBe(world.last('t0', 'welcome').id)
    expect(lobby).toMatchObject({ state: 'lobby', epoch: 0 })
    expect(lobby.members.every((one) => one.rank === null && one.attached)).toBe(true)
  })

  it('sends several changes of a lobby in one message', async () => {
    await world.fill(5)
    expect(world.all('t0', 'lobby')).toHaveLength(1)
  })

  it('lets a member change what it says about itself', async () => {
    await world.fill(2)
    const info = infoOf('Laptop', { hidden: true, adapter: { vendor: 'intel' } })
    world.say('t1', { type: 'update', info })
    await world.tick()
    expect(world.last('t0', 'lobby').members[1]).toMatchObject(info)
  })

  it('sends changes of members at once, then at most once a second', async () => {
    const ids = await world.fill(4)
    const received = () => world.all('t0', 'lobby').length
    const before = received()
    const change = (hidden: boolean) => {
      for (const id of ids) world.say(id, { type: 'update', info: infoOf(id, { hidden }) })
    }
    change(true)
    await world.tick()
    expect(received()).toBe(before + 1)
    for (let i = 0; i < 9; i++) {
      change(i % 2 === 1)
      await world.env.advance(100)
    }
    expect(received()).toBe(before + 1)
    await world.env.advance(limits.lobbyUpdateMs)
    expect(received()).toBe(before + 2)
    expect(world.last('t3', 'lobby').members.every((one) => !one.hidden)).toBe(true)
    // Who comes is not kept waiting by that, and brings what is due along.
    world.say('t1', { type: 'update', info: infoOf('new name') })
    world.join('late')
    await world.tick()
    expect(world.last('t0', 'lobby').members.map((one) => one.name)).toContain('new name')
    expect(world.last('t0', 'lobby').members).toHaveLength(5)
    await world.env.advance(2 * limits.lobbyUpdateMs)
    expect(received()).toBe(before + 3)
  })

  it.each([
    ['\u202eadA', 'that is written from right to left'],
    ['Ada\u200b', 'with a character of no width'],
    ['\u3164', 'of a blank letter'],
    ['', 'that is empty'],
    ['Ada\nBen', 'of two lines'],
  ])('refuses the name %j, %s', (name) => {
    world.create('t0', roomA, infoOf(name))
    expect(world.refusal('t0')).toBe('bad-message')
  })

  it('sends no message above the limit, whatever 64 members say of themselves', async () => {
    // Three bytes for one of 40 places, and nothing that a name may hold takes more.
    const toNext = { id: 'f'.repeat(16), us: 6e7 }
    const rest = { adapter: 'x'.repeat(limits.adapterBytes - 2), hostTag: 'cd'.repeat(16) }
    const info = infoOf('\u754c'.repeat(limits.nameChars), {
      ...rest,
      transport: 'fallback',
      tab: 'ab'.repeat(4),
      measured: { megaflops: 1e9, serverUs: 6e7, linkUs: [6e7, 6e7], toNext },
    })
    const ids = Array.from({ length: limits.membersPerRoom }, (_, i) => `t${i}`)
    ids.forEach((id, i) => {
      if (i === 0) world.create(id, roomA, info)
      else world.join(id, roomA, info)
    })
    await world.tick()
    await world.run(ids)
    expect(world.last('t63', 'lobby').members).toHaveLength(64)
    const sizes = world.inboxes.get('t63')!.map((one) => Buffer.byteLength(JSON.stringify(one)))
    expect(Math.max(...sizes)).toBeLessThanOrEqual(limits.messageBytes)
    const tooLarge = { ...info, adapter: 'x'.repeat(limits.adapterBytes - 1) }
    world.say('t63', { type: 'update', info: tooLarge })
    expect(world.refusal('t63')).toBe('bad-message')
  })

  it('refuses an unknown room, and lets the same connection create it', async () => {
    world.join('a')
    expect(world.refusal('a')).toBe('unknown-room')
    world.say('a', {
      type: 'create',
      version: protocolVersion,
      room: roomA,
      authKey,
      info: infoOf('a'),
    })
    expect(world.last('a', 'welcome').room).toBe(roomA)
  })

  it('refuses to create a room that is there', async () => {
    await world.fill(1)
    world.create('b')
    expect(world.refusal('b')).toBe('room-exists')
    expect(world.closed.has('b')).toBe(false)
  })

  it('refuses and closes a wrong proof', async () => {
    await world.fill(1)
    world.join('b', roomA, infoOf('b'), '02'.repeat(32))
    expect(world.refusal('b')).toBe('bad-proof')
    expect(world.closed.has('b')).toBe(true)
    expect(await world.state('t0')).toBe('lobby')
  })

  it('refuses a proof made for another nonce', async () => {
    await world.fill(1)
    world.open('spy')
    world.open('b')
    const proof = hmac(authKey, proofText(roomA, world.last('spy', 'challenge').nonce))
    world.say('b', {
      type: 'join',
      version: protocolVersion,
      room: roomA,
      proof,
      info: infoOf('b'),
    })
    expect(world.refusal('b')).toBe('bad-proof')
  })

  it('refuses a second room on one connection', async () => {
    await world.fill(1)
    world.say('t0', {
      type: 'create',
      version: protocolVersion,
      room: roomB,
      authKey,
      info: infoOf('t0'),
    })
    expect(world.refusal('t0')).toBe('already-in-a-room')
  })

  it('takes 64 members and refuses the 65th', async () => {
    const ids = await world.fill(64)
    expect(world.last(ids[63], 'lobby').members).toHaveLength(64)
    world.join('one-too-many')
    expect(world.refusal('one-too-many')).toBe('room-full')
  })

  it('refuses a room too many', async () => {
    world = new RendezvousWorld({ rooms: 1 })
    await world.fill(1)
    world.create('b', roomB)
    expect(world.refusal('b')).toBe('server-full')
  })

  it('closes a connection that enters no room in 10 s', async () => {
    world.open('slow')
    await world.env.advance(limits.authenticateMs - 1)
    expect(world.closed.has('slow')).toBe(false)
    await world.env.advance(1)
    expect(world.refusal('slow')).toBe('too-slow')
    expect(world.closed.has('slow')).toBe(true)
  })

  it('forgets a room when its last member leaves', async () => {
    await world.fill(2)
    world.say('t0', { type: 'bye' })
    world.server.lost('t1', 'closed')
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
    world.join('late')
    expect(world.refusal('late')).toBe('unknown-room')
  })

  it('makes the next in order of joining the maker', async () => {
    await world.fill(3)
    world.say('t0', { type: 'bye' })
    await world.tick()
    expect(world.last('t2', 'lobby').maker).toBe(world.last('t1', 'welcome').id)
    expect(world.last('t2', 'gone')).toMatchObject({ name: 't0', rank: null, text: 'left' })
    world.say('t1', { type: 'start', settings: null })
    expect(world.last('t1', 'assign')).toMatchObject({ rank: 0, worldSize: 2 })
  })
})

describe('how two members are joined', () => {
  const tag = 'cd'.repeat(16)
  const other = 'ef'.repeat(16)
  it.each([
    ['auto', tag, 'auto', tag, 'port'],
    ['auto', tag, 'auto', other, 'webrtc'],
    ['auto', '', 'auto', '', 'webrtc'],
    ['webrtc', tag, 'auto', tag, 'webrtc'],
    ['webrtc', tag, 'webrtc', tag, 'webrtc'],
    ['port', tag, 'auto', tag, 'port'],
    ['port', tag, 'auto', other, null],
    ['port', tag, 'webrtc', tag, null],
    ['relay', tag, 'auto', tag, 'relay'],
    ['relay', tag, 'relay', other, 'relay'],
    ['relay', tag, 'port', tag, null],
    ['relay', tag, 'webrtc', tag, null],
    ['fallback', tag, 'fallback', tag, 'port'],
    ['fallback', tag, 'fallback', other, 'webrtc'],
    ['fallback', tag, 'auto', other, 'webrtc'],
    ['fallback', tag, 'webrtc', tag, 'webrtc'],
    ['fallback', tag, 'port', tag, 'port'],
    ['fallback', tag, 'port', other, null],
    ['fallback', tag, 'relay', tag, 'relay'],
  ] as const)('%s/%s with %s/%s: %s', (choice, hostTag, otherChoice, otherTag, kind) => {
    const a = infoOf('a', { transport: choice, hostTag })
    const b = infoOf('b', { transport: otherChoice, hostTag: otherTag })
    expect(linkKind(a, b)).toBe(kind)
    expect(linkKind(b, a)).toBe(kind)
  })

  it('an impossible start is refused to the host, and the room keeps waiting', async () => {
    world.create('t0', roomA, infoOf('t0', { transport: 'port', hostTag: tag }))
    world.join('t1', roomA, infoOf('t1', { transport: 'port', hostTag: other }))
    world.say('t0', { type: 'start', settings: null })
    expect(world.refusal('t0')).toBe('no-transport')
    expect(await world.state('t1')).toBe('lobby')
    expect(world.last('t1', 'lobby').epoch).toBe(0)
  })

  it.each(['relay', 'port'] as const)(
    'a member whose transport %s keeps the others from a start is named to the host',
    async (transport) => {
      await world.fill(2)
      world.join('odd', roomA, infoOf('Odd', { transport }))
      world.say('t0', { type: 'start', settings: null, isElastic: true })
      expect(world.last('t0', 'error').text).toMatch(/requested by Odd.*emove that member/)
    },
  )

  it('the relay is assigned by a server that has one, and else refused with what to do', async () => {
    for (const hasRelay of [true, false]) {
      const own = new RendezvousWorld({}, { hasRelay })
      for (const id of ['t0', 't1']) {
        const info = infoOf(id, { transport: 'relay' })
        if (id === 't0') own.create(id, roomA, info)
        else own.join(id, roomA, info)
      }
      own.say('t0', { type: 'start', settings: null })
      if (hasRelay) {
        const [link] = own.last('t1', 'assign').links
        expect(link).toEqual({ peerRank: 0, initiator: false, kind: 'relay' })
      } else {
        const { code, text } = own.last('t0', 'error')
        expect(code).toBe('no-relay')
        expect(text).toMatch(
          /transport "relay" was requested by t0, t1, but .* Start it with --relay/,
        )
      }
    }
  })

  it('a link may fall back to the relay where the server has one and both sides ask for it', async () => {
    const start = (hasRelay: boolean, transports: readonly MemberInfo['transport'][]) => {
      const own = new RendezvousWorld({}, { hasRelay })
      for (const [at, transport] of transports.entries()) {
        const info = infoOf(`t${at}`, { transport })
        if (at === 0) own.create('t0', roomA, info)
        else own.join(`t${at}`, roomA, info)
      }
      own.say('t0', { type: 'start', settings: null })
      return own
    }
    const webrtc = { initiator: true, kind: 'webrtc' }
    const linksOf = (...given: Parameters<typeof start>) =>
      start(...given).last('t0', 'assign').links
    expect(linksOf(true, ['fallback', 'fallback'])).toEqual([
      { peerRank: 1, ...webrtc, canRelay: true },
    ])
    expect(linksOf(false, ['fallback', 'fallback'])).toEqual([{ peerRank: 1, ...webrtc }])
    expect(linksOf(true, ['fallback', 'auto', 'fallback'])).toEqual([
      { peerRank: 1, ...webrtc },
      { peerRank: 2, ...webrtc, canRelay: true },
    ])
    // Such links may take both ways' time, one after the other.
    for (const [hasRelay, expected] of [
      [false, 'failed'],
      [true, 'assigned'],
    ] as const) {
      const own = start(hasRelay, ['fallback', 'fallback'])
      await own.env.advance(limits.readyMs + 1)
      expect(await own.state('t0')).toBe(expected)
      await own.env.advance(limits.relayWaitMs)
      expect(await own.state('t0')).toBe('failed')
    }
  })

  it('all pairs are linked up to 16 ranks, and those of a ring beyond', async () => {
    expect(edgesBySize(1)).toEqual([])
    expect(edgesBySize(2)).toEqual([[0, 1]])
    expect(edgesBySize(3)).toEqual([
      [0, 1],
      [0, 2],
      [1, 2],
    ])
    const all = edgesBySize(meshLimit)
    expect(new Set(all.map(([from, to]) => `${from} ${to}`)).size).toBe((16 * 15) / 2)
    for (const [from, to] of all) expect(from).toBeLessThan(to)
    expect(edgesBySize(17)).toEqual(
      Array.from({ length: 17 }, (_, rank) => [rank, (rank + 1) % 17]),
    )
  })

  it.each([
    [17, 8, 2],
    [24, 8, 3],
    [64, 11, 3],
  ])(
    '%i tabs form a ring with %i links each, and reach each other in %i hops',
    (size, degree, hops) => {
      const edges = roomEdges(size)
      expect(edges).toEqual(expect.arrayContaining(ringEdges(size)))
      const others = Array.from({ length: size }, (_, rank) =>
        edges.flatMap(([a, b]) => (a === rank ? [b] : b === rank ? [a] : [])),
      )
      for (const own of others) expect(new Set(own).size).toBe(degree)
      let reached = new Set([0])
      for (let hop = 0; hop < hops; hop++)
        reached = new Set([...reached].flatMap((rank) => [rank, ...others[rank]!]))
      expect(reached.size).toBe(size)
    },
  )
})
