import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { roomOfAuthKey } from '../../../node/room-of.ts'
import {
  attachSignaling,
  type SignalServer,
  type SignalServerOptions,
} from '../../../node/signal-server.ts'
import type { ClientMessage } from '../../../src/peer/room/client-messages.ts'
import { limits, protocolVersion, type ServerMessage } from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import { authKey, hmac, keyProofOf } from '../../support/rendezvous-world.ts'

/** What strangers may ask and cost of a server, over real sockets. */

let server: Server
let signaling: SignalServer
const sockets: WebSocket[] = []
const lines: string[] = []
/** Rooms, and the keys that they belong to. */
const keyB = '02'.repeat(32)
const [roomA, roomB] = [authKey, keyB].map(roomOfAuthKey)

async function start(options: SignalServerOptions = {}): Promise<void> {
  server = createServer()
  signaling = attachSignaling(server, { log: (line) => lines.push(line), ...options })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
}
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.terminate()
  lines.length = 0
  await signaling.close()
  server.close()
})

async function open(headers: IncomingHttpHeaders = {}) {
  const { port } = server.address() as AddressInfo
  const origin = `http://127.0.0.1:${port}`
  const socket = new WebSocket(`ws://127.0.0.1:${port}/signal`, { origin, headers })
  sockets.push(socket)
  const messages: ServerMessage[] = []
  const waiting: { type: string; resolve: (message: ServerMessage) => void }[] = []
  socket.on('message', (data, isBinary) => {
    if (isBinary) return
    const message: ServerMessage = JSON.parse(String(data))
    messages.push(message)
    for (const one of waiting) if (one.type === message.type) one.resolve(message)
  })
  socket.on('error', () => undefined)
  const closed = once(socket, 'close').then(([code, reason]) => ({ code, reason: String(reason) }))
  /** The first of that type, from now or before. */
  const received = <T extends ServerMessage['type']>(type: T) =>
    new Promise<Extract<ServerMessage, { type: T }>>((resolve) => {
      const found = messages.find((one) => one.type === type)
      const take = resolve as (message: ServerMessage) => void
      if (found) take(found)
      else waiting.push({ type, resolve: take })
    })
  const say = (message: ClientMessage) => socket.send(JSON.stringify(message))
  const { nonce } = await received('challenge')
  return {
    ...{ socket, closed, received, say },
    create: (room: string, roomKey?: string) => {
      const keyProof = roomKey === undefined ? undefined : keyProofOf(roomKey, room, nonce)
      const own = room === roomB ? keyB : authKey
      say({ type: 'create', version: protocolVersion, room, authKey: own, info: null, keyProof })
    },
    relay: (channel: string, side: 0 | 1) => {
      const proof = hmac(authKey, proofText(roomA, nonce))
      say({ type: 'relay', version: protocolVersion, room: roomA, proof, channel, side })
    },
  }
}

describe('an address', () => {
  it('behind a proxy is the one that the proxy reports, for rooms and for sockets', async () => {
    await start({ trustsProxy: true, limits: { roomsPerAddress: 1 }, maxConnectionsPerIp: 2 })
    const from = (address: string) => open({ 'x-forwarded-for': `203.0.113.9, ${address}` })
    const first = await from('198.51.100.1')
    first.create(roomA)
    await first.received('welcome')
    const second = await from('198.51.100.1')
    second.create(roomB)
    expect((await second.received('error')).text).toContain('198.51.100.1 has made 1 rooms')
    const other = await from('2001:db8::1')
    other.create(roomB)
    await other.received('welcome')
    await from('2001:db8::2')
    const { port } = server.address() as AddressInfo
    const third = new WebSocket(`ws://127.0.0.1:${port}/signal`, {
      origin: `http://127.0.0.1:${port}`,
      headers: { 'x-forwarded-for': '2001:db8::3' },
    })
    sockets.push(third)
    const [, reason] = await once(third, 'close')
    expect(String(reason)).toContain('at most 2 connections from 2001:db8:0:0::/64')
  })

  it('without a proxy is the socket’s, whatever a header says', async () => {
    await start({ limits: { roomsPerAddress: 1 } })
    const first = await open({ 'x-forwarded-for': '198.51.100.1' })
    first.create(roomA)
    await first.received('welcome')
    const second = await open({ 'x-forwarded-for': '198.51.100.2' })
    second.create(roomB)
    expect((await second.received('error')).text).toContain('127.0.0.1 has made 1 rooms')
  })
})

it('a room is not made under another key than its own', async () => {
  await start()
  const [thief, owner] = [await open(), await open()]
  const made = { type: 'create', version: protocolVersion, room: roomA, info: null } as const
  thief.say({ ...made, authKey: keyB })
  expect((await thief.received('error')).code).toBe('bad-proof')
  owner.say({ ...made, authKey })
  expect((await owner.received('welcome')).room).toBe(roomA)
})

describe('a server with a room key', () => {
  it('makes rooms for who has it', async () => {
    await start({ roomKey: 'Schlüssel' })
    const [none, wrong, right] = [await open(), await open(), await open()]
    none.create(roomA)
    expect((await none.received('error')).code).toBe('no-key')
    wrong.create(roomA, 'Schluessel')
    expect((await wrong.received('error')).code).toBe('wrong-key')
    expect((await wrong.closed).code).toBe(1008)
    right.create(roomA, 'Schlüssel')
    await right.received('welcome')
  })
})

describe('bytes that wait', () => {
  it('above the limit of all sockets: the one with most is closed, and others hear why', async () => {
    const maxWaitingBytes = 4 * 1024 * 1024
    await start({
      relay: true,
      maxWaitingBytes,
      // Each socket alone is below its own.
      limits: { relayQueueBytes: 1024 * 1024 * 1024 },
    })
    const guest = await open()
    guest.create(roomA)
    await guest.received('welcome')
    const [reads, sends, sleeps] = [await open(), await open(), await open()]
    sends.relay('slow', 0)
    sleeps.relay('slow', 1)
    await Promise.all([sends.received('relayed'), sleeps.received('relayed')])
    reads.relay('other', 0)
    sleeps.socket.pause()
    const frame = Buffer.alloc(limits.relayFrameBytes)
    let isOpen = true
    const ended = sends.received('error')
    void ended.then(() => {
      isOpen = false
    })
    // The kernel's own buffers take some of it.
    for (let sent = 0; isOpen && sent < 16 * maxWaitingBytes; sent += frame.length)
      await new Promise((resolve) => sends.socket.send(frame, resolve))
    const { code, text } = await ended
    expect(code).toBe('other-end-gone')
    expect(text).toMatch(/bytes wait for this tab, the most of \d+ on this server/)
    expect(lines.join()).toMatch(/closed: \d+ bytes wait/)
    // Who reads what comes has its connection still.
    expect(reads.socket.readyState).toBe(WebSocket.OPEN)
    sleeps.socket.resume()
    const end = await sleeps.closed
    expect(end.reason).toMatch(/^\d+ bytes wait for this tab/)
  }, 30_000)
})

describe('messages in pieces', () => {
  it('of more than 256 fragments end the connection', async () => {
    await start()
    const { socket, closed } = await open()
    for (let at = 0; at < 400; at++) socket.send(' ', { fin: false })
    expect((await closed).code).toBe(1008)
    expect(lines.join()).toContain('Too many message fragments')
  })

  it('of 256 fragments are read', async () => {
    await start()
    const { socket, received } = await open()
    const text = JSON.stringify({
      type: 'create',
      ...{ version: protocolVersion, room: roomA, authKey, info: null },
    }).padEnd(256)
    for (let at = 0; at < 256; at++) socket.send(text[at], { fin: at === 255 })
    await received('welcome')
  })
})
