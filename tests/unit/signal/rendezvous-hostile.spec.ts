import { beforeEach, describe, expect, it } from 'vitest'
import type { ClientMessage } from '../../../src/peer/room/client-messages.ts'
import { limits } from '../../../src/peer/room/messages.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, RendezvousWorld, roomA, roomB, tokenOf } from '../../support/rendezvous-world.ts'

/** Clients that send nonsense, too much or nothing: each is refused, and no one else notices. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld()
})

describe('hostile clients', () => {
  const hostile: [string, string, string][] = [
    ['no JSON', '{', 'bad-message'],
    ['nothing', '', 'bad-message'],
    ['null', 'null', 'bad-message'],
    ['an array', '[]', 'bad-message'],
    ['no type', '{}', 'bad-message'],
    ['an unknown type', '{"type":"shutdown"}', 'bad-message'],
    ['a field of Object', '{"type":"__proto__"}', 'bad-message'],
    ['a server message', '{"type":"abort","epoch":1,"rank":0,"text":"x"}', 'bad-message'],
    ['a negative epoch', '{"type":"ready","epoch":-1}', 'bad-message'],
    ['half an epoch', '{"type":"ready","epoch":1.5}', 'bad-message'],
    ['control characters', '{"type":"abort","epoch":1,"text":"\\u001b[2J"}', 'bad-message'],
    [
      'settings that are too large',
      JSON.stringify({ type: 'start', settings: 'é'.repeat(9_000) }),
      'bad-message',
    ],
    [
      'settings nested 20,000 deep',
      `{"type":"start","settings":${'['.repeat(20_000)}${']'.repeat(20_000)}}`,
      'bad-message',
    ],
    ['no settings', '{"type":"start"}', 'bad-message'],
    ['a removal of nobody', '{"type":"remove"}', 'bad-message'],
    ['a removal by name', '{"type":"remove","id":"t1"}', 'bad-message'],
    ['a removal of two', `{"type":"remove","id":["${'ab'.repeat(8)}"]}`, 'bad-message'],
    [
      'a room handed over with its token',
      `{"type":"handOver","id":"${'ab'.repeat(8)}","token":"${'ab'.repeat(16)}"}`,
      'bad-message',
    ],
    ['too many characters', JSON.stringify({ type: 'x'.repeat(70_000) }), 'too-large'],
    ['too many bytes', JSON.stringify({ type: '€'.repeat(30_000) }), 'too-large'],
  ]
  it.each(hostile)('%s: a clear error to that client alone', async (_, raw, code) => {
    const victims = await world.fill(2)
    const epoch = await world.run(victims)
    await world.fill(2, roomB, 'u')
    const before = victims.map((id) => world.inboxes.get(id)!.length)
    world.server.receive('u1', raw)
    expect(world.refusal('u1')).toBe(code)
    expect(world.last('u1', 'error').text.length).toBeGreaterThan(10)
    expect(world.closed.has('u1')).toBe(true)
    await world.tick()
    expect(world.last('u0', 'lobby').members.map((one) => one.name)).toEqual(['u0'])
    expect(victims.map((id) => world.inboxes.get(id)!.length)).toEqual(before)
    for (const id of victims) world.say(id, { type: 'done', epoch })
    expect(await world.state('t0')).toBe('finished')
  })

  it('a member of another version is refused with that reason', async () => {
    world.open('old')
    const info = infoOf('old')
    const message = { type: 'create', version: 0, room: roomA, authKey, info }
    world.server.receive('old', JSON.stringify(message))
    expect(world.refusal('old')).toBe('wrong-version')
    expect(world.last('old', 'error').text).toContain('Reload')
  })

  it('the mark of another tab is not shown, when a tab comes with it or takes it later', async () => {
    const tab = 'ab'.repeat(4)
    world.create('host', roomA, infoOf('host', { tab }), tokenOf('host'))
    world.join('rank', roomA, infoOf('rank', { tab }), authKey, tokenOf('host'))
    world.join('early', roomA, infoOf('early', { tab }), authKey, tokenOf('early'))
    world.join('late', roomA, infoOf('late'), authKey, tokenOf('late'))
    world.say('late', { type: 'update', info: infoOf('late', { tab }) })
    await world.tick()
    const { members } = world.last('host', 'lobby')
    expect(members.filter((one) => one.tab === tab).map(({ name }) => name)).toEqual([
      'host',
      'rank',
    ])
    expect(members).toHaveLength(4)
  })

  it.each([
    ['lobby', false],
    ['asks', true],
  ] as const)(
    'those who come and go all the time have the others sent a bounded number of messages: %s',
    async (type, asks) => {
      world = new RendezvousWorld({}, { asks })
      world.create('host', roomA, infoOf('host'), tokenOf('host'))
      const { newsBurst, newsPerSec } = limits
      const seconds = 20
      for (let count = 0; count < 25 * seconds; count++) {
        world.join(`x${count}`)
        await world.env.advance(40)
        world.server.lost(`x${count}`, 'it has gone')
      }
      await world.env.advance(1000)
      expect(world.all('host', type).length).toBeGreaterThan(newsBurst / 2)
      expect(world.all('host', type).length).toBeLessThan(newsBurst + newsPerSec * (seconds + 4))
      expect(JSON.stringify(world.last('host', type))).not.toContain('x')
    },
  )

  it('anything but create and join is refused outside a room', async () => {
    world.open('a')
    world.say('a', { type: 'ready', epoch: 1 })
    expect(world.refusal('a')).toBe('not-in-a-room')
    world.say('a', { type: 'update', info: infoOf('a') })
    expect(world.all('a', 'error')).toHaveLength(2)
  })

  it('a flood is cut off; a burst and 20 a second are not', async () => {
    await world.fill(2)
    await world.env.advance(7_500)
    const hi = () => world.say('t1', { type: 'update', info: infoOf('t1') })
    for (let i = 0; i < limits.messageBurst; i++) hi()
    for (let second = 0; second < 4; second++) {
      await world.env.advance(1000)
      for (let i = 0; i < limits.messagesPerSec - 1; i++) hi() // one for a pong
    }
    expect(world.all('t1', 'error')).toEqual([])
    for (let i = 0; i < limits.messagesPerSec; i++) hi()
    expect(world.refusal('t1')).toBe('too-fast')
    expect(world.closed.has('t1')).toBe(true)
    expect(world.all('t1', 'error')).toHaveLength(1)
    await world.tick()
    expect(world.last('t0', 'lobby').members).toHaveLength(1)
  })

  it.each([3, 16])(
    'trickled candidates of all links of %s ranks, with two attempts and eight lanes each, fit the burst',
    async (size) => {
      const ids = await world.fill(size)
      const epoch = world.assign(ids)
      for (const { peerRank: to } of world.last('t1', 'assign').links) {
        // The first connection twice, and seven lanes.
        for (const attempt of [1, 2, 2, 2, 2, 2, 2, 2, 2]) {
          for (let i = 0; i < 6; i++)
            world.say('t1', { type: 'signal', epoch, to, attempt, box: 'x'.repeat(1500) })
        }
      }
      expect(world.all('t1', 'error')).toEqual([])
      expect(world.all('t2', 'signal')).toHaveLength(54)
    },
  )

  it('a silent client is gone after 15 s', async () => {
    await world.fill(2)
    world.deaf.add('t1')
    await world.env.advance(limits.goneMs - 1000)
    expect(world.closed.has('t1')).toBe(false)
    await world.env.advance(1000 + limits.pingMs)
    expect(world.closed.get('t1')).toContain('heard nothing')
    expect(world.last('t0', 'gone').name).toBe('t1')
    expect(world.closed.has('t0')).toBe(false)
  })

  it('no client is gone because the server stood still', async () => {
    await world.fill(2)
    const { env } = world
    const now = env.now.bind(env)
    env.now = () => now() + 37_000
    await env.advance(limits.pingMs)
    expect([...world.closed]).toEqual([])
    world.deaf.add('t1')
    await env.advance(limits.goneMs + limits.pingMs)
    expect([...world.closed.keys()]).toEqual(['t1'])
  })

  it('messages of a closed connection are ignored', async () => {
    await world.fill(2)
    world.say('t1', { type: 'bye' })
    world.say('t1', { type: 'abort', epoch: 1, text: 'x' })
    world.server.lost('t1', 'again')
    world.server.lost('nobody', 'never there')
    expect(await world.state('t0')).toBe('lobby')
  })

  it('random bytes and random edits of good messages never throw nor reach another room', async () => {
    const env = new VirtualEnv(20261121)
    const victims = await world.fill(2)
    await world.run(victims)
    const good: ClientMessage[] = [
      { type: 'start', settings: { a: 1 } },
      { type: 'signal', epoch: 1, to: 1, attempt: 1, box: 'abc' },
      { type: 'linkDown', epoch: 1, peerRank: 1, text: 'x' },
      { type: 'update', info: infoOf('x') },
      { type: 'remove', id: 'ab'.repeat(8) },
      { type: 'handOver', id: 'ab'.repeat(8) },
    ]
    const before = victims.map((id) => world.inboxes.get(id)!.length)
    let refused = 0
    for (let round = 0; round < 400; round++) {
      const id = `fuzz${round}`
      if (round % 2) world.open(id)
      else world.create(id, roomB)
      const bytes = env.random(4)
      const text = [...JSON.stringify(good[bytes[0] % good.length])]
      const at = bytes[1] % text.length
      text.splice(at, 1 + (bytes[2] % 3), String.fromCharCode(bytes[3]))
      world.server.receive(id, round % 5 ? text.join('') : String.fromCharCode(...env.random(40)))
      refused += world.all(id, 'error').length
      world.server.lost(id, 'end')
    }
    expect(refused).toBeGreaterThan(350)
    expect(victims.map((id) => world.inboxes.get(id)!.length)).toEqual(before)
    expect(world.server.counts).toEqual({ rooms: 1, connections: 2 })
  })

  it('a server that stops sends everyone a refusal', async () => {
    const ids = await world.fill(3)
    world.server.shutDown()
    for (const id of ids) expect(world.refusal(id)).toBe('shutting-down')
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
  })
})
