import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { EventLog } from '../../../node/event-log.ts'
import { protocolVersion } from '../../../src/peer/room/messages.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, keyProofOf, RendezvousWorld, roomA } from '../../support/rendezvous-world.ts'

/** What the owner of a server learns of its rooms. */

describe('events', () => {
  it('cover members and guests, with their ids and addresses', () => {
    const world = new RendezvousWorld()
    world.addressOf = (id) => `address of ${id}`
    world.create('ada')
    world.join('ben')
    world.join('guest', roomA, null)
    const [ada, ben, guest] = ['ada', 'ben', 'guest'].map((id) => world.last(id, 'welcome').id)
    world.say('ada', { type: 'remove', id: ben })
    world.say('ada', { type: 'bye' })
    world.server.lost('guest', 'closed')
    const [of, by] = ['ada', 'ben'].map((id) => ({ room: roomA, address: `address of ${id}` }))
    expect(world.events).toEqual([
      { event: 'made', ...of },
      { event: 'joined', ...of, member: ada },
      { event: 'joined', ...by, member: ben },
      { event: 'joined', room: roomA, member: guest, address: 'address of guest' },
      { event: 'removed', ...by, member: ben },
      { event: 'left', ...of, member: ada },
      { event: 'left', room: roomA, member: guest, address: 'address of guest' },
      { event: 'ended', ...of },
    ])
  })

  it('include refusals that keep someone out, and not a tab that tries to join before it creates', () => {
    const world = new RendezvousWorld({ rooms: 1 })
    world.join('first')
    world.create('ada')
    world.join('ben', roomA, infoOf('ben'), '02'.repeat(32))
    world.create('carl', 'cc'.repeat(16))
    world.server.receive('ada', '{')
    world.server.shutDown()
    const refused = world.events.filter(({ event }) => event === 'refused')
    const member = world.last('ada', 'welcome').id
    expect(refused).toEqual([
      { event: 'refused', address: 'ben', why: 'bad-proof' },
      { event: 'refused', address: 'carl', why: 'server-full' },
      { event: 'refused', room: roomA, member, address: 'ada', why: 'bad-message' },
    ])
  })

  it('hold no key, proof, token, name or settings', () => {
    const world = new RendezvousWorld({}, { roomKey: 'the room key' })
    world.open('ada')
    const keyProof = keyProofOf('the room key', roomA, world.last('ada', 'challenge').nonce)
    const token = 'ab'.repeat(16)
    const own = {
      version: protocolVersion,
      room: roomA,
      authKey,
      info: infoOf('her name'),
    } as const
    world.say('ada', { type: 'create', ...own, token, keyProof })
    world.say('ada', { type: 'start', settings: { secret: 'settings' } })
    world.server.receive('ada', JSON.stringify({ type: 'create', room: 'garbled', authKey }))
    expect(world.events.map(({ event }) => event)).toEqual([
      ...['made', 'joined', 'refused', 'left', 'ended'],
    ])
    const text = JSON.stringify(world.events)
    for (const secret of [authKey, keyProof, token, 'the room key', 'her name', 'settings'])
      expect(text).not.toContain(secret)
  })

  it('add up to counts', () => {
    const world = new RendezvousWorld({}, { hasRelay: true })
    world.create('ada')
    world.join('ben')
    world.join('guest', roomA, null)
    const counts = { rooms: 1, members: 2, guests: 1, relayedBytes: 0 }
    expect(world.server.status).toEqual(counts)
    world.server.lost('ben', 'closed')
    expect(world.server.status).toEqual({ ...counts, members: 1 })
  })
})

describe('the log', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tabring-log-'))
  })
  afterEach(() => rm(folder, { recursive: true }))

  it('is lines of JSON with their time, after those that are there, for its owner alone', async () => {
    const path = join(folder, 'rooms.log')
    for (const event of ['made', 'ended'] as const) {
      const log = EventLog.open(path, () => undefined)
      log.write({ event, room: roomA, address: '192.0.2.1' })
      log.close()
      log.write({ event, room: 'too late', address: '192.0.2.1' })
    }
    const lines = (await readFile(path, 'utf8')).trimEnd().split('\n')
    const [first, second] = lines.map((line) => JSON.parse(line))
    expect(lines).toHaveLength(2)
    expect(first).toEqual({
      ...{ time: expect.any(String), event: 'made' },
      ...{ room: roomA, address: '192.0.2.1' },
    })
    expect(second.event).toBe('ended')
    expect(Math.abs(Date.parse(first.time) - Date.now())).toBeLessThan(60_000)
    if (process.platform !== 'win32') expect((await stat(path)).mode & 0o777).toBe(0o600)
  })

  it('that cannot be written is refused, or reported once', () => {
    expect(() => EventLog.open(join(folder, 'none', 'rooms.log'), () => undefined)).toThrow(
      /^--log: cannot write .*rooms\.log: .*\. Name another file\./,
    )
    // Linux: a file on a disk that is always full.
    if (process.platform !== 'linux') return
    const received: string[] = []
    const log = EventLog.open('/dev/full', (line) => received.push(line))
    for (let at = 0; at < 3; at++) log.write({ event: 'made', room: roomA, address: 'x' })
    log.close()
    expect(received).toEqual([expect.stringMatching(/^--log: cannot write \/dev\/full any more: /)])
  })
})
