import { createHmac } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { limits, type MemberInfo, parseServerMessage } from '../../../src/peer/room/messages.ts'
import type { SocketLike } from '../../../src/peer/room/room-options.ts'
import { newRoomLink, proofText } from '../../../src/peer/room/secret.ts'
import { Rendezvous } from '../../../src/peer/server/rendezvous.ts'
import { SignalClient, type SignalEvents } from '../../../src/peer/tab/signal.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

/** Clients and the server's state machine in one process, without sockets, on a virtual clock. */
class World {
  readonly env = new VirtualEnv(11)
  readonly sockets = new Map<string, FakeSocket>()
  /** Runs over what the server sends; undefined loses it. */
  tamper: (text: string) => string | undefined = (text) => text
  readonly server = new Rendezvous(this.env, {
    send: (id, message) => {
      const text = this.tamper(JSON.stringify(message))
      if (text !== undefined) this.env.after(1, () => this.sockets.get(id)?.take(text))
    },
    close: (id, text) => {
      if (this.tamper('') === undefined) return // nothing gets through
      this.env.after(1, () => this.sockets.get(id)?.end(1008, text))
    },
    verify: (key, room, nonce, proof) =>
      createHmac('sha256', Buffer.from(key, 'hex')).update(proofText(room, nonce)).digest('hex') ===
      proof,
  })

  /** Waits for what needs WebCrypto, which works off the virtual clock: `stepMs` of it for each real millisecond. */
  async settled<T>(promise: Promise<T>, stepMs = 1): Promise<T> {
    let isSettled = false
    const settle = () => {
      isSettled = true
    }
    promise.then(settle, settle)
    while (!isSettled) {
      await this.env.advance(stepMs)
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    return promise
  }

  client(link = newRoomLink(), name = 'tab', hostToken?: string) {
    const world = this
    const info: MemberInfo = { name, adapter: null, hostTag: '', hidden: false, transport: 'auto' }
    const client = new SignalClient({
      url: 'ws://test/signal',
      link,
      info,
      hostToken,
      env: this.env,
      WebSocket: class extends FakeSocket {
        constructor() {
          super(world)
        }
      },
    })
    const events: { what: keyof SignalEvents; value: unknown }[] = []
    for (const what of ['lobby', 'assign', 'start', 'abort', 'refused', 'lost'] as const) {
      client.on(what, (value) => void events.push({ what, value }))
    }
    const has = (what: keyof SignalEvents) => events.filter((one) => one.what === what)
    return { client, has }
  }
}

let count = 0
class FakeSocket implements SocketLike {
  readyState = 0
  onmessage: ((event: { data: string }) => void) | null = null
  onclose: ((event: { code: number; reason: string }) => void) | null = null
  onerror: SocketLike['onerror'] = null
  readonly id = `c${count++}`
  constructor(private readonly world: World) {
    world.sockets.set(this.id, this)
    world.env.after(1, () => {
      this.readyState = 1
      world.server.open(this.id)
    })
  }
  send(text: string): void {
    this.world.env.after(1, () => this.world.server.receive(this.id, text))
  }
  take(text: string): void {
    if (this.readyState === 1) this.onmessage?.({ data: text })
  }
  close(): void {
    this.world.env.after(1, () => this.world.server.lost(this.id, 'closed'))
    this.end(1000, '')
  }
  end(code: number, reason: string): void {
    if (this.readyState === 3) return
    this.readyState = 3
    this.world.env.after(0, () => this.onclose?.({ code, reason }))
  }
}

describe('SignalClient', () => {
  it('answers pings for an hour, and is still in the room', async () => {
    const world = new World()
    const { client, has } = world.client()
    await world.settled(client.open())
    await world.env.advance(3_600_000)
    expect(has('lost')).toHaveLength(0)
    expect(client.isMaker).toBe(true)
    expect(world.server.counts.connections).toBe(1)
  })

  it('a server that falls silent is lost after 15 s, told once', async () => {
    const world = new World()
    const { client, has } = world.client()
    await world.settled(client.open())
    await world.env.advance(1000)
    world.tamper = () => undefined
    await world.env.advance(limits.goneMs + limits.pingMs)
    expect(has('lost')).toHaveLength(1)
    expect(String(has('lost')[0].value)).toContain('Is it still running?')
  })

  it('a server that never speaks rejects open', async () => {
    const world = new World()
    world.tamper = () => undefined
    const { client } = world.client()
    await expect(world.settled(client.open(), 100)).rejects.toMatchObject({ code: 'signal.lost' })
  })

  it('a server that talks nonsense is left', async () => {
    const world = new World()
    const { client, has } = world.client()
    await world.settled(client.open())
    world.tamper = () => '{"type":"assign","rank":"0"}'
    await world.env.advance(limits.pingMs + 10)
    expect(String(has('lost')[0].value)).toContain('Reload the page')
  })

  it.each(['signal', 'reach'] as const)(
    'a box (%s) that the server changed is refused, and the next one still arrives',
    async (type) => {
      const world = new World()
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

  it('a maker that comes back with its token is the maker; whom it removes learns that from its end', async () => {
    const world = new World()
    const link = newRoomLink()
    const token = 'ab'.repeat(16)
    const first = world.client(link, 'first', token).client
    const other = world.client(link, 'other')
    await world.settled(first.open())
    await world.settled(other.client.open())
    first.bye()
    await world.env.advance(100)
    expect(other.client.isMaker).toBe(true)
    const again = world.client(link, 'again', token).client
    await world.settled(again.open())
    await world.env.advance(100)
    expect([again.isMaker, other.client.isMaker]).toEqual([true, false])
    again.remove(other.client.id)
    await world.env.advance(100)
    const lost = other.has('lost').map(({ value }) => value)
    expect(lost).toHaveLength(1)
    expect(lost[0]).toMatchObject({ code: 'signal.refused', refusal: 'removed' })
    expect(String(lost[0])).toContain('removed by again')
    expect(again.lobby?.members).toHaveLength(1)
  })

  it('bye before the room is entered rejects open and leaves nothing behind', async () => {
    const world = new World()
    const { client } = world.client()
    const opening = client.open()
    opening.catch(() => undefined)
    client.bye()
    client.bye()
    await expect(opening).rejects.toMatchObject({ code: 'signal.lost' })
    await world.env.advance(limits.authenticateMs + limits.goneMs)
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
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
