import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect as connectTcp } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { attachSignaling, type SignalServer } from '../../../node/signal-server.ts'
import { limits } from '../../../src/peer/room/messages.ts'
import { newRoomLink, RoomSecret } from '../../../src/peer/room/secret.ts'
import {
  SignalClient,
  type SignalEvents,
  type SignalOptions,
} from '../../../src/peer/tab/signal.ts'
import type { JsonValue } from '../../../src/util/json-value.ts'
import { infoOf } from '../../support/member-info.ts'
import { socketFrom } from '../../support/signal-socket.ts'

/** Signaling over real sockets: clients of one server on a port of this machine. */

const info = (name: string) => infoOf(name, { adapter: { vendor: 'test' } })

function next<K extends keyof SignalEvents>(
  client: SignalClient,
  event: K,
  isIt: (value: SignalEvents[K]) => boolean = () => true,
): Promise<SignalEvents[K]> {
  return new Promise((resolve) => {
    const off = client.on(event, (value) => {
      if (!isIt(value)) return
      off()
      resolve(value)
    })
  })
}

/** The raw server: one JSON message after another. */
async function raw(port: number, origin = `http://127.0.0.1:${port}`) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/signal`, { origin })
  const messages: { type: string; code?: string; text?: string }[] = []
  socket.on('message', (data) => messages.push(JSON.parse(String(data))))
  socket.on('error', () => undefined)
  const closed = once(socket, 'close').then(([code, reason]) => ({ code, reason: String(reason) }))
  await once(socket, 'open')
  return { socket, messages, closed }
}

describe('the server on a port', () => {
  let server: Server
  let signaling: SignalServer
  let port: number
  const clients: SignalClient[] = []

  beforeAll(async () => {
    server = createServer()
    signaling = attachSignaling(server, {
      allowedOrigins: ['https://page.example'],
      maxConnectionsPerIp: 6,
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  })
  afterEach(async () => {
    for (const client of clients.splice(0)) client.bye()
    await expect.poll(() => signaling.rendezvous.counts.connections).toBe(0)
  })
  afterAll(async () => {
    await signaling.close()
    server.close()
  })

  const make = (options: Partial<SignalOptions> & Pick<SignalOptions, 'link'>, name = 'tab') => {
    const client = new SignalClient({
      url: `ws://127.0.0.1:${port}/signal`,
      info: info(name),
      WebSocket: socketFrom(`http://127.0.0.1:${port}`),
      ...options,
    })
    clients.push(client)
    return client
  }

  it('three clients: lobby, start, sealed signals in order, ready, start, done', async () => {
    const link = newRoomLink()
    const tabs = ['a', 'b', 'c'].map((name) => make({ link }, name))
    const full = next(tabs[0], 'lobby', (lobby) => lobby.members.length === 3)
    for (const tab of tabs) await tab.open()
    await full
    expect(tabs.map((tab) => tab.isMaker)).toEqual([true, false, false])

    const assigned = Promise.all(tabs.map((tab) => next(tab, 'assign')))
    tabs[0].start({ steps: 2 })
    const assignments = await assigned
    const epoch = assignments[0].epoch
    expect(assignments.map((one) => one.rank)).toEqual([0, 1, 2])

    for (let i = 0; i < 20; i++) tabs[0].signal(epoch, 1, 1, { i })
    const seen: unknown[] = []
    await new Promise<void>((resolve) => {
      // Late: what came before is kept.
      tabs[1].on('signal', ({ from, data }) => {
        expect(from).toBe(0)
        if (seen.push((data as { i: number }).i) === 20) resolve()
      })
    })
    expect(seen).toEqual([...Array(20).keys()])

    const started = Promise.all(tabs.map((tab) => next(tab, 'start')))
    for (const tab of tabs) tab.ready(epoch)
    expect((await started).map((one) => one.settings)).toEqual(Array(3).fill({ steps: 2 }))
    const finished = Promise.all(tabs.map((tab) => next(tab, 'finished')))
    for (const tab of tabs) tab.done(epoch)
    await finished
  })

  it('a bye in a run reaches the others as an abort that names the rank', async () => {
    const link = newRoomLink()
    const tabs = [make({ link }, 'a'), make({ link }, 'b')]
    const full = next(tabs[0], 'lobby', (lobby) => lobby.members.length === 2)
    for (const tab of tabs) await tab.open()
    await full
    const assigned = next(tabs[0], 'assign')
    tabs[0].start(null)
    await assigned
    const abort = next(tabs[0], 'abort')
    tabs[1].bye()
    expect((await abort).text).toContain('rank 1 (b) is gone: left')
  })

  it('two that enter an empty room at once: one creates, one joins', async () => {
    const link = newRoomLink()
    const tabs = [make({ link }), make({ link })]
    const full = next(tabs[1], 'lobby', (lobby) => lobby.members.length === 2)
    await Promise.all(tabs.map((tab) => tab.open()))
    await full
  })

  it('an unknown room, a wrong key, a taken room', async () => {
    const link = newRoomLink()
    await expect(make({ link, mode: 'join' }).open()).rejects.toMatchObject({
      refusal: 'unknown-room',
      code: 'signal.refused',
    })
    await make({ link, mode: 'create' }).open()
    await expect(make({ link, mode: 'create' }).open()).rejects.toThrow(/room-exists/)
    const { room } = await RoomSecret.derive(link)
    await expect(make({ link: { room, key: newRoomLink().key } }).open()).rejects.toThrow(
      /^room link: .* was changed/,
    )
  })

  it('a refused start comes as an event, and the connection stays', async () => {
    const link = newRoomLink()
    const [maker, other] = [make({ link }), make({ link })]
    await maker.open()
    await other.open()
    const refused = next(other, 'refused')
    other.start(null)
    expect(await refused).toMatchObject({ refusal: 'not-the-host' })
    const tooMuch = next(maker, 'lost')
    maker.start('x'.repeat(limits.settingsBytes) as JsonValue)
    expect((await tooMuch).message).toContain('settings')
  })

  it('foreign, missing, near-miss and null origins get the reason, an allowed one enters', async () => {
    const link = newRoomLink()
    for (const origin of [
      'https://evil.example',
      `https://127.0.0.1:${port}`,
      `http://127.0.0.1:${port}0`,
      `http://127.0.0.1:${port}.evil.example`,
      `http://localhost:${port}`,
      'null',
      undefined,
    ]) {
      const client = make({ link, WebSocket: socketFrom(origin) })
      await expect(client.open()).rejects.toMatchObject({ refusal: 'foreign-origin' })
    }
    await make({ link, WebSocket: socketFrom('https://page.example') }).open()
  })

  it('an oversized message, a huge one, a binary one: refused, nobody else notices', async () => {
    const link = newRoomLink()
    const witness = make({ link })
    const alone = next(witness, 'lobby')
    await witness.open()
    await alone

    const big = await raw(port)
    big.socket.send(JSON.stringify({ type: 'x'.repeat(limits.messageBytes) }))
    expect((await big.closed).code).toBe(1008)
    expect(big.messages.at(-1)).toMatchObject({ type: 'error', code: 'too-large' })

    const huge = await raw(port)
    huge.socket.send('x'.repeat(4 * limits.messageBytes))
    expect((await huge.closed).code).toBe(1009)

    const other = make({ link: newRoomLink() })
    await other.open()
    const lost = next(other, 'lost')
    other.start('x'.repeat(4 * limits.messageBytes))
    expect((await lost).message).toContain('1009: a message was too large for the server')

    const binary = await raw(port)
    binary.socket.send(Buffer.from('{"type":"pong"}'), { binary: true })
    expect((await binary.closed).code).toBe(1008)
    expect(binary.messages.at(-1)).toMatchObject({ code: 'bad-message' })

    const changed = next(witness, 'lobby')
    witness.update(info('still here'))
    expect((await changed).members.map((one) => one.name)).toEqual(['still here'])
  })

  it('a socket too many from one address is refused with the limit', async () => {
    const open = await Promise.all(Array.from({ length: 6 }, () => raw(port)))
    const extra = await raw(port)
    expect((await extra.closed).reason).toContain('at most 6 connections')
    expect(extra.messages.at(-1)).toMatchObject({ code: 'too-many' })
    for (const one of open) one.socket.terminate()
  })

  it('leaves upgrades of other paths to others', async () => {
    const socket = connectTcp(port, '127.0.0.1')
    socket.write(
      'GET /other HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    )
    await once(socket, 'connect')
    // Asked after it, answered: so the first was seen and left alone.
    const link = newRoomLink()
    await make({ link }).open()
    expect(socket.bytesRead).toBe(0)
    socket.destroy()
  })

  it('without a server opening fails with signal.lost', async () => {
    const client = make({ link: newRoomLink(), url: 'ws://127.0.0.1:9/signal' })
    await expect(client.open()).rejects.toMatchObject({ code: 'signal.lost' })
  })

  it('clients get the reason when the server stops', async () => {
    const other = createServer()
    const its = attachSignaling(other)
    other.listen(0, '127.0.0.1')
    await once(other, 'listening')
    const { port: itsPort } = other.address() as AddressInfo
    const client = make({
      link: newRoomLink(),
      url: `ws://127.0.0.1:${itsPort}/signal`,
      WebSocket: socketFrom(`http://127.0.0.1:${itsPort}`),
    })
    await client.open()
    const lost = next(client, 'lost')
    await its.close()
    expect((await lost).message).toContain('stopped')
    other.close()
    await once(other, 'close')
  })
})
