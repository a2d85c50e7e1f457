import { describe, expect, it } from 'vitest'
import { limits, parseServerMessage } from '../../../src/peer/room/messages.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { infoOf } from '../../support/member-info.ts'
import { SignalWorld } from '../../support/signal-world.ts'

describe('SignalClient', () => {
  it('answers pings for 59 minutes, and is still in the room', async () => {
    const world = new SignalWorld()
    const { client, has } = world.client()
    await world.settled(client.open())
    await world.env.advance(59 * 60_000)
    expect(has('lost')).toHaveLength(0)
    expect(client.isMaker).toBe(true)
    expect(world.server!.counts.connections).toBe(1)
  })

  it('alone for an hour: hears that the room has ended, and does not come back', async () => {
    const world = new SignalWorld()
    const { client, has } = world.client(undefined, 'tab', { reconnects: true })
    await world.settled(client.open())
    await world.env.advance(2 * 3_600_000)
    expect(has('lost').map(({ value }) => value)).toEqual([
      expect.objectContaining({ refusal: 'idle' }),
    ])
    expect(has('away')).toEqual([])
    expect(world.server!.counts).toEqual({ rooms: 0, connections: 0 })
  })

  it('the connection is lost once when the server is silent for 15 s', async () => {
    const world = new SignalWorld()
    const { client, has } = world.client()
    await world.settled(client.open())
    await world.env.advance(1000)
    world.tamper = () => undefined
    await world.env.advance(limits.goneMs + limits.pingMs)
    expect(has('lost')).toHaveLength(1)
    expect(String(has('lost')[0].value)).toContain('Is it still running?')
  })

  it('a server that never speaks rejects open', async () => {
    const world = new SignalWorld()
    world.tamper = () => undefined
    const { client } = world.client()
    await expect(world.settled(client.open(), 100)).rejects.toMatchObject({ code: 'signal.lost' })
  })

  it('a connection that is refused rejects open at once, also by the socket of Node 20, which says no more', async () => {
    const world = new SignalWorld()
    class Refused {
      readonly readyState = 0
      onerror: ((event: never) => void) | null = null
      onmessage = null
      onclose = null
      readonly send = () => undefined
      readonly close = () => undefined
      constructor() {
        queueMicrotask(() => this.onerror?.({} as never))
      }
    }
    const { client } = world.client(undefined, 'tab', { WebSocket: Refused })
    await expect(client.open()).rejects.toMatchObject({
      code: 'signal.lost',
      message: expect.stringContaining('Is the server running'),
    })
    expect(world.env.now()).toBe(0)
  })

  describe('a tab that cannot load the code of runs', () => {
    const withoutCode = {
      loadRuns: async () => {
        throw new Error('Training in a room could not be loaded.')
      },
    }

    it('ends the run that it is assigned to, for all, with the reason', async () => {
      const world = new SignalWorld()
      const link = newRoomLink()
      const [a, b] = [world.client(link, 'a'), world.client(link, 'b', withoutCode)]
      await world.settled(a.client.open())
      await world.settled(b.client.open())
      a.client.start(null)
      await world.until(() => a.has('abort').length > 0)
      expect(a.has('abort')[0].value).toMatchObject({
        text: expect.stringContaining('Training in a room could not be loaded.'),
      })
      expect(b.has('assign')).toEqual([])
    })

    it('does not join an elastic run, which trains on', async () => {
      const world = new SignalWorld()
      const link = newRoomLink()
      const a = world.client(link, 'a')
      await world.settled(a.client.open())
      a.client.start(null, true)
      await world.until(() => a.has('assign').length > 0)
      a.client.ready(1)
      await world.until(() => a.has('start').length > 0)
      const b = world.client(link, 'b', withoutCode)
      await world.settled(b.client.open())
      await world.until(() => a.has('abort').length > 0)
      expect(a.has('abort')).toMatchObject([{ value: { epoch: 2, ranks: [] } }])
      expect(String(b.has('refused')[0].value)).toContain('could not be loaded')
      expect(a.client.lobby).toMatchObject({
        state: 'running',
        members: [{ rank: 0 }, { rank: null }],
      })
    })
  })

  it('a server that talks nonsense is left', async () => {
    const world = new SignalWorld()
    const { client, has } = world.client()
    await world.settled(client.open())
    world.tamper = () => '{"type":"assign","rank":"0"}'
    await world.env.advance(limits.pingMs + 10)
    expect(String(has('lost')[0].value)).toContain('Reload the page')
  })

  it.each(['signal', 'reach'] as const)(
    'a box (%s) that the server changed is refused, and the next one still arrives',
    async (type) => {
      const world = new SignalWorld()
      const link = newRoomLink()
      const [a, b] = [world.client(link, 'a'), world.client(link, 'b')]
      await world.settled(a.client.open())
      await world.settled(b.client.open())
      if (type === 'signal') a.client.start(null)
      await world.env.advance(100)
      expect(b.has('assign')).toHaveLength(type === 'signal' ? 1 : 0)
      const say = (data: string) =>
        type === 'signal' ? a.client.signal(1, 1, 1, data) : a.client.reach(b.client.id, data)
      const seen: unknown[] = []
      b.client.on(type, ({ data }: { data: unknown }) => void seen.push(data))
      world.tamper = (text) =>
        text.includes(`"${type}"`) ? text.replace(/"box":"..../, '"box":"AAAA') : text
      say('tampered')
      await expect
        .poll(async () => {
          await world.env.advance(1)
          return b.has('refused').length
        })
        .toBe(1)
      world.tamper = (text) => text
      say('clean')
      say('and in order')
      await expect
        .poll(async () => {
          await world.env.advance(1)
          return seen
        })
        .toEqual(['clean', 'and in order'])
      expect(b.has('refused')[0].value).toMatchObject({ code: 'peer.protocol' })
    },
  )

  it('a host that comes back with its token is the host; a member that it removes gets that as its end', async () => {
    const world = new SignalWorld()
    const link = newRoomLink()
    const token = 'ab'.repeat(16)
    const first = world.client(link, 'first', { hostToken: token }).client
    const other = world.client(link, 'other')
    await world.settled(first.open())
    await world.settled(other.client.open())
    first.bye()
    await world.env.advance(100)
    // Its colour is kept for it.
    const guest = world.client(link, 'guest').client
    await world.settled(guest.open())
    expect(other.client.isMaker).toBe(true)
    const again = world.client(link, 'again', { hostToken: token }).client
    await world.settled(again.open())
    await world.env.advance(100)
    expect([again.isMaker, other.client.isMaker]).toEqual([true, false])
    const hueOf = ({ id }: { id: string }) => again.lobby?.members.find((one) => one.id === id)?.hue
    expect([again, other.client, guest].map(hueOf)).toEqual([0, 1, 2])
    guest.bye()
    await world.env.advance(100)
    again.remove(other.client.id)
    await world.env.advance(100)
    const lost = other.has('lost').map(({ value }) => value)
    expect(lost).toHaveLength(1)
    expect(lost[0]).toMatchObject({ code: 'signal.refused', refusal: 'removed' })
    expect(String(lost[0])).toContain('removed by again')
    expect(again.lobby?.members).toHaveLength(1)
  })

  it('a host that removes a member sends the others a message, and the removed one none', async () => {
    const world = new SignalWorld()
    const link = newRoomLink()
    const clients = ['a', 'b', 'c', 'd'].map((name) => world.client(link, name))
    const [maker, gone, stays, onlooker] = clients
    for (const { client } of clients) await world.settled(client.open())
    await world.until(() => maker.client.lobby?.members.length === 4)
    onlooker.client.update(infoOf('d', { watches: true }))
    await world.until(() => maker.client.lobby?.watchers?.length === 1)
    await world.settled(maker.client.removeAndTell([gone.client.id], { key: 'k' }))
    for (const one of [stays, onlooker]) {
      await world.until(() => one.has('moved').length > 0)
      expect(one.has('moved')).toMatchObject([{ value: { data: { key: 'k' } } }])
    }
    expect(gone.has('moved')).toEqual([])
    expect(gone.has('lost')).toMatchObject([{ value: { refusal: 'removed', by: 'a' } }])
  })

  it('a removal that the server refuses, or that the connection does not outlast, is an error', async () => {
    const world = new SignalWorld()
    const link = newRoomLink()
    const [maker, other, last] = ['a', 'b', 'c'].map((name) => world.client(link, name))
    for (const { client } of [maker, other, last]) await world.settled(client.open())
    await world.until(() => maker.client.lobby?.members.length === 3)
    await expect(
      world.settled(other.client.removeAndTell([maker.client.id], { key: 'k' })),
    ).rejects.toMatchObject({ refusal: 'not-the-host' })
    expect(last.has('moved')).toEqual([])

    const { id } = last.client
    last.client.bye()
    await world.settled(maker.client.removeAndTell([id], { key: 'k' }))
    await world.until(() => other.has('moved').length > 0)

    const removing = maker.client.removeAndTell([other.client.id], { key: 'k' })
    removing.catch(() => undefined)
    await Promise.resolve()
    world.kill()
    await expect(world.settled(removing)).rejects.toMatchObject({ code: 'signal.lost' })
    await expect(
      world.settled(maker.client.removeAndTell([other.client.id], { key: 'k' })),
    ).rejects.toMatchObject({ code: 'signal.lost' })
  })

  it('a removal succeeds when a member sends a box that does not open, and when the connection ends after it', async () => {
    const world = new SignalWorld()
    const link = newRoomLink()
    const maker = world.client(link, 'a', { reconnects: true })
    const others = ['b', 'c', 'd'].map((name) => world.client(link, name))
    for (const { client } of [maker, ...others]) await world.settled(client.open())
    await world.until(() => maker.client.lobby?.members.length === 4)
    const [gone, next] = others
    const seen: string[] = []
    world.tamper = (text) => {
      const { type } = JSON.parse(text || '{}')
      seen.push(type)
      return type === 'pong'
        ? JSON.stringify({ type: 'reach', from: next.client.id, box: 'A'.repeat(64) })
        : text
    }
    const removing = maker.client.removeAndTell([gone.client.id], { key: 'k' })
    let isDone = false
    removing.then(
      () => {
        isDone = true
      },
      () => undefined,
    )
    await world.until(() => maker.has('refused').length > 0)
    expect([seen.includes('moved'), isDone]).toEqual([true, false])
    world.tamper = (text) => text
    maker.cut()
    await world.settled(removing)
    expect(maker.has('back')).toHaveLength(1)
    expect(maker.client.lobby?.members).toHaveLength(3)
  })

  it('bye before the room is entered rejects open and leaves nothing behind', async () => {
    const world = new SignalWorld()
    const { client } = world.client()
    const opening = client.open()
    opening.catch(() => undefined)
    client.bye()
    client.bye()
    await expect(opening).rejects.toMatchObject({ code: 'signal.lost' })
    await world.env.advance(limits.authenticateMs + limits.goneMs)
    expect(world.server!.counts).toEqual({ rooms: 0, connections: 0 })
  })
})

describe('server messages', () => {
  it.each(['', '[]', '{"type":"nothing"}', '{"type":"lobby","members":7}', '{"type":"start"}'])(
    'refuses %s in words',
    (raw) => {
      const parsed = parseServerMessage(raw)
      expect(parsed.ok).toBe(false)
      if (!parsed.ok) expect(parsed.text).toContain('expected')
    },
  )
})
