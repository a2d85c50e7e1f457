import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Transport } from '../../../src/peer/link/channel-transport.ts'
import type { LinkEnd } from '../../../src/peer/link/link.ts'
import { RelayLink } from '../../../src/peer/link/relay-link.ts'
import { limits } from '../../../src/peer/room/messages.ts'
import { newRoomUrl, parseRoomUrl } from '../../../src/peer/room/room-url.ts'
import { RoomSecret } from '../../../src/peer/room/secret.ts'
import { SignalClient } from '../../../src/peer/tab/signal.ts'
import { formLinks } from '../../../src/worker/page/connect.ts'
import { linkConformance } from '../../support/link-conformance.ts'
import { infoOf } from '../../support/member-info.ts'
import { type RelayServer, startRelay } from '../../support/relay-server.ts'
import { rawEnd, type Tamper, tapServer } from '../../support/relay-tap.ts'

let relay: RelayServer
let untap: () => void = () => undefined
beforeAll(async () => {
  // A message cut short is the ends' to find out here; the server's own look at lengths is in room-relay.spec.ts.
  relay = await startRelay({ limits: { relayWaitMs: 400, relayFrameMinBytes: 0 } })
})
afterAll(() => relay.close())
afterEach(() => untap())

linkConformance('WebSockets through the signaling server', {
  kind: 'relay',
  streamBytes: 32 * 2 ** 20,
  open: () => relay.open(),
})

const endOf = (link: RelayLink) =>
  new Promise<LinkEnd>((resolve) => {
    link.onend = resolve
  })
const mib = 2 ** 20

function tap(...tampers: Tamper[]): Buffer[] {
  const tapped = tapServer(relay.server.signaling, tampers)
  untap = tapped.untap
  return tapped.handled
}

describe('what the server sees', () => {
  it('is neither key nor plaintext', async () => {
    const handled = tap()
    const { near, far } = await relay.open()
    const secret = Buffer.from('a sentence that nobody else may read')
    const got = new Promise<Uint8Array>((resolve) => {
      far.onmessage = resolve
    })
    near.send(new Uint8Array(Buffer.concat(Array(1000).fill(secret))))
    const received = Buffer.from(await got)
    const all = Buffer.concat(handled)
    // The sentence did go through it, as the lengths say.
    expect(received.indexOf(secret)).toBe(0)
    expect(received.length).toBe(1000 * secret.length)
    expect(all.length).toBeGreaterThan(received.length)
    expect(all.indexOf(secret)).toBe(-1)
    expect(all.indexOf(secret.subarray(0, 6))).toBe(-1)
    const { key } = relay.address.link
    for (const form of [key, Buffer.from(key, 'base64url')]) expect(all.indexOf(form)).toBe(-1)
    // Equal messages look different.
    const frames = handled.filter((bytes) => bytes.length > 30_000)
    expect(frames).toHaveLength(1)
    const [frame] = frames
    expect(frame.subarray(12, 12 + secret.length)).not.toEqual(
      frame.subarray(12 + secret.length, 12 + 2 * secret.length),
    )
  })
})

describe('tampering by the server, or on the way to it', () => {
  // Of an end's binary messages, number 0 is the random bytes and 1 is `ready`: frame n of the seal is number n + 1.
  const flip = (number: number, at: (length: number) => number): Tamper => {
    return (count, bytes) => {
      if (count === number) bytes[at(bytes.length)] ^= 1
      return [bytes]
    }
  }
  let held: Buffer | undefined
  const swap: Tamper = (count, bytes) => {
    if (count === 3) {
      held = bytes
      return []
    }
    return count === 4 ? [bytes, held!] : [bytes]
  }

  it.each<[string, Tamper, RegExp]>([
    [
      'a byte of the text',
      flip(3, () => 20),
      /expected sealed frame 2, .*does not decrypt: it was altered/,
    ],
    [
      'the last byte',
      flip(3, (length) => length - 1),
      /sealed frame 2, .*does not decrypt: it was altered/,
    ],
    [
      'the number',
      flip(3, () => 11),
      /expected sealed frame 2, got frame 3: the frames in between are lost/,
    ],
    ['the kind', flip(3, () => 3), /sealed frame 2, .*does not decrypt: it was altered/],
    ['a kind that is none', flip(3, () => 0), /sealed frame 2, .*got a frame of an unknown kind/],
    [
      'the end',
      (n, bytes) => [n === 3 ? bytes.subarray(0, -1) : bytes],
      /sealed frame 2, .*not decrypt/,
    ],
    ['all but some', (n, bytes) => [n === 3 ? bytes.subarray(0, 9) : bytes], /got 9 bytes/],
    ['left out', (n, bytes) => (n === 3 ? [] : [bytes]), /expected sealed frame 2, got frame 3/],
    [
      'doubled',
      (n, bytes) => (n === 3 ? [bytes, bytes] : [bytes]),
      /sealed frame 3, .*got frame 2 again/,
    ],
    [
      'moved',
      swap,
      /expected sealed frame 2, got frame 3: the frames in between are lost or delayed/,
    ],
  ])(
    '%s: the link ends with an error that names it, and no byte of it is taken',
    async (name, tamper, text) => {
      tap(tamper)
      const { near, far } = await relay.open()
      const messages: number[] = []
      far.onmessage = (message) => messages.push(message[0])
      const ended = [endOf(near), endOf(far)]
      for (let at = 0; at < 8; at++) near.send(Uint8Array.from({ length: 64 }, () => at))
      const [of, end] = await Promise.all(ended)
      expect(end.why).toBe('protocol')
      expect(end.detail).toMatch(text)
      expect(of).toMatchObject({
        why: 'closed',
        detail: expect.stringMatching(/other end is gone/),
      })
      // What came before it, and no more.
      expect(messages).toEqual(name === 'doubled' ? [0, 1] : [0])
    },
  )

  it('random bytes that were changed: the ends derive other keys, and no link opens', async () => {
    tap(flip(0, () => 5))
    const ends = [relay.end('hello', 0), relay.end('hello', 1)]
    const outcomes = await Promise.allSettled(ends.map((end) => end.opened))
    const reasons = outcomes.map((one) => String((one as PromiseRejectedResult).reason))
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(reasons.join()).toMatch(/expected sealed frame 0, .*or the other end has another key/)
  })

  it('frames of an earlier link do not open in the next one of the same name', async () => {
    const earlier: Buffer[] = []
    const record: Tamper = (_, bytes) => {
      earlier.push(bytes)
      return [bytes]
    }
    tap(record)
    const first = [relay.end('again', 0), relay.end('again', 1)]
    await Promise.all(first.map((end) => end.opened))
    const gone = endOf(first[1])
    first[0].close('the first is over')
    await gone
    untap()
    const hasRecord = earlier.length
    expect(hasRecord).toBeGreaterThan(1)
    tap((number, bytes) => [earlier[number] ?? bytes])
    const second = [relay.end('again', 0), relay.end('again', 1)]
    const outcomes = await Promise.allSettled(second.map((end) => end.opened))
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  })
})

describe('what a slow end costs the server', () => {
  it('no more than the window when the sender keeps to it', async () => {
    const { near, far } = await relay.open()
    let peakBytes = 0
    const { rendezvous } = relay.server.signaling
    const message = new Uint8Array(near.maxMessageBytes)
    let receivedBytes = 0
    far.onmessage = ({ length }) => {
      receivedBytes += length
      peakBytes = Math.max(peakBytes, rendezvous.relayBytes)
    }
    let sentBytes = 0
    const isDone = new Promise<void>((resolve) => {
      const pump = () => {
        while (near.room() > 0 && sentBytes < 16 * mib) {
          near.send(message)
          sentBytes += message.length
        }
        if (sentBytes >= 16 * mib) resolve()
      }
      near.onroom = pump
      pump()
    })
    await isDone
    await expect.poll(() => receivedBytes).toBe(16 * mib)
    expect(peakBytes).toBeLessThan(1.5 * mib)
    await expect.poll(() => rendezvous.relayBytes).toBe(0)
  })

  it('no more than its limit when nobody reads and the sender does not stop', {
    timeout: 30_000,
  }, async () => {
    const { address, server } = relay
    const { rendezvous } = server.signaling
    const [slow, rude] = await Promise.all(
      ([0, 1] as const).map((side) => rawEnd(address, server.origin, { channel: 'rude', side })),
    )
    await Promise.all([slow.relayed, rude.relayed])
    let receivedBytes = 0
    slow.socket.on('message', (data: Buffer, isBinary: boolean) => {
      if (isBinary) receivedBytes += data.length
    })
    slow.socket.pause()
    let peakBytes = 0
    const { receiveBytes } = rendezvous
    rendezvous.receiveBytes = (id, bytes) => {
      receiveBytes.call(rendezvous, id, bytes)
      peakBytes = Math.max(peakBytes, rendezvous.relayBytes)
    }
    untap = () => {
      rendezvous.receiveBytes = receiveBytes
    }
    const message = Buffer.alloc(64 * 1024, 7)
    const totalBytes = 64 * mib
    for (let sent = 0; sent < totalBytes; sent += message.length) rude.socket.send(message)
    // The queues between are full: what is left stays with the sender.
    let before = Number.NaN
    await expect
      .poll(
        () => {
          const now = rude.socket.bufferedAmount
          const isStill = now === before
          before = now
          return isStill && rendezvous.relayBytes >= limits.relayQueueBytes
        },
        { interval: 200, timeout: 10_000 },
      )
      .toBe(true)
    expect(rude.socket.bufferedAmount).toBeGreaterThan(totalBytes / 2)
    slow.socket.resume()
    await expect.poll(() => receivedBytes, { timeout: 15_000 }).toBe(totalBytes)
    // The limit, the message that reached it, and what one read of a socket had brought besides.
    expect(peakBytes).toBeLessThanOrEqual(limits.relayQueueBytes + 4 * message.length)
    expect(peakBytes).toBeGreaterThanOrEqual(limits.relayQueueBytes)
    rude.socket.terminate()
    expect(await slow.closed).toMatch(/^1008: relay: the other end is gone/)
  })

  it('tiny messages fill the queue by what each costs, not by their bytes', async () => {
    const { address, server } = relay
    const [rude, slow] = await Promise.all(
      ([0, 1] as const).map((side) => rawEnd(address, server.origin, { channel: 'tiny', side })),
    )
    await Promise.all([rude.relayed, slow.relayed])
    slow.socket.pause()
    const { rendezvous } = server.signaling
    // What the sockets on the way hold, in few messages.
    const fill = Buffer.alloc(64 * 1024, 7)
    for (let isFull = false; !isFull; ) {
      rude.socket.send(fill)
      await new Promise((resolve) => setTimeout(resolve, 5))
      const before = rendezvous.relayBytes
      await new Promise((resolve) => setTimeout(resolve, before > 0 ? 100 : 0))
      isFull = before > 0 && rendezvous.relayBytes === before
    }
    let peakBytes = 0
    let taken = 0
    const { receiveBytes } = rendezvous
    rendezvous.receiveBytes = (id, bytes) => {
      receiveBytes.call(rendezvous, id, bytes)
      taken++
      peakBytes = Math.max(peakBytes, rendezvous.relayBytes)
    }
    untap = () => {
      rendezvous.receiveBytes = receiveBytes
    }
    const message = Buffer.alloc(limits.relayFrameMinBytes, 7)
    const sent = 40_000
    for (let at = 0; at < sent; at++) rude.socket.send(message)
    await expect
      .poll(() => peakBytes, { timeout: 10_000 })
      .toBeGreaterThanOrEqual(limits.relayQueueBytes)
    let before = Number.NaN
    await expect
      .poll(
        () => {
          const isStill = taken === before
          before = taken
          return isStill
        },
        { interval: 200, timeout: 10_000 },
      )
      .toBe(true)
    // Besides the limit, what one read of the socket brought: 64 KiB of messages with 6 bytes of framing.
    const perMessage = limits.relayFrameCostBytes + message.length
    const oneRead = ((64 * 1024) / (message.length + 6)) * perMessage
    expect(peakBytes).toBeLessThanOrEqual(limits.relayQueueBytes + 2 * oneRead)
    expect(taken * perMessage).toBeLessThanOrEqual(limits.relayQueueBytes + 2 * oneRead)
    expect(taken).toBeLessThan(sent / 2)
    rude.socket.terminate()
    slow.socket.terminate()
  })

  it('a message that is too large, or before its time, ends its sender', async () => {
    const { address, server } = relay
    const early = await rawEnd(address, server.origin, { channel: 'early', side: 0 })
    early.socket.send(Buffer.alloc(32))
    expect(await early.closed).toMatch(/1008: relay: received a message to relay before/)
    const [one, two] = await Promise.all(
      ([0, 1] as const).map((side) => rawEnd(address, server.origin, { channel: 'large', side })),
    )
    await Promise.all([one.relayed, two.relayed])
    one.socket.send(Buffer.alloc(limits.relayFrameBytes + 1))
    expect(await one.closed).toMatch(/^1008: relay: expected a relayed message of at most 65564/)
    expect(await two.closed).toMatch(/the other end is gone/)
  })
})

describe('whose channel it is', () => {
  it('a channel belongs to its room: an end in another room with the same name does not join it', async () => {
    const { address, server } = relay
    const otherUrl = newRoomUrl(server.address)
    await server.open(otherUrl)
    const other = parseRoomUrl('the spec', otherUrl)
    const ends = [
      relay.end('ours', 0, { timeoutMs: 5000 }),
      relay.end('ours', 1, { address: other, timeoutMs: 5000 }),
    ]
    for (const end of ends)
      await expect(end.opened).rejects.toMatchObject({
        code: 'peer.unreachable',
        message: expect.stringMatching(
          /too-slow: relay: the other end .* did not connect within 400 ms/,
        ),
      })
    // With the other room's key a proof for this room is wrong.
    const intruder = await rawEnd(other, server.origin, {
      ...{ channel: 'ours', side: 1, room: (await RoomSecret.derive(address.link)).room },
    })
    expect(await intruder.closed).toMatch(/1008: the room's key is wrong/)
  })

  it('two ends only: a third is refused, and the two stay connected', async () => {
    const first = [relay.end('mine', 0), relay.end('mine', 1)]
    await Promise.all(first.map((end) => end.opened))
    await expect(relay.end('mine', 1).opened).rejects.toThrow(
      /channel-taken: relay: end 1 of this channel is already connected/,
    )
    const got = new Promise<Uint8Array>((resolve) => {
      first[1].onmessage = resolve
    })
    first[0].send(Uint8Array.of(4))
    expect(await got).toEqual(Uint8Array.of(4))
  })

  it('nobody is in the room: it is unknown', async () => {
    const address = parseRoomUrl('the spec', newRoomUrl(relay.server.address))
    await expect(relay.end('none', 0, { address }).opened).rejects.toThrow(/unknown-room/)
  })
})

it('comes up between members that were let in, by their tokens, and not without one', async () => {
  const own = await startRelay({ asks: true })
  const { WebSocket } = own
  const { server: url, link } = own.address
  const clients = ['a', 'b'].map(
    (name) =>
      new SignalClient({ url, link, info: infoOf(name, { transport: 'relay' }), WebSocket }),
  )
  const [maker, other] = clients
  maker.on('asks', (asks) => {
    for (const { id } of asks) maker.letIn(id, true)
  })
  await maker.open()
  await other.open()
  const linked = clients.map(
    (client) =>
      new Promise<void>((resolve, reject) =>
        client.on('assign', (assignment) => {
          const addLink = (_: number, __: number, transport: Transport) => {
            if (transport.kind !== 'relay') throw new Error(`got a ${transport.kind}`)
            return new RelayLink({ ...transport.relay, WebSocket }).opened
          }
          formLinks({ client, assignment, ports: null, addLink }).connected.then(resolve, reject)
        }),
      ),
  )
  maker.start(null)
  await Promise.all(linked)
  await expect(own.end('stranger', 0).opened).rejects.toThrow(
    'declined: relay: the host has not let this tab into the room',
  )
  for (const client of clients) client.bye()
  await own.close()
})

describe('how a link ends', () => {
  it('the other tab dies: the link ends at once, with a reason that is no goodbye', async () => {
    const { address, server } = relay
    const dying = await rawEnd(address, server.origin, { channel: 'dies', side: 1 })
    const link = relay.end('dies', 0)
    await dying.relayed
    const failed = expect(link.opened).rejects.toThrow(/other-end-gone: relay: the other end/)
    dying.socket.terminate()
    await failed

    const { near, far } = await relay.open()
    const end = endOf(near)
    // As a crash: the socket ends, and nothing is sent before.
    ;(far as unknown as { socket: { terminate(): void } }).socket.terminate()
    expect(await end).toMatchObject({
      why: 'closed',
      detail: expect.stringMatching(/other-end-gone: relay: the other end is gone: its signaling/),
    })
  })

  it('the server stops: both ends close with a reason', async () => {
    const own = await startRelay()
    const { near, far } = await own.open()
    const ends = [endOf(near), endOf(far)]
    await own.server.close()
    for (const end of await Promise.all(ends)) {
      expect(end.why).toBe('closed')
      expect(end.detail).toMatch(
        /shutting-down: the signaling server was stopped|other end is gone/,
      )
    }
    await expect(own.end('late', 0).opened).rejects.toThrow(
      /link to rank 1 \(the other\): no connection through the relay of ws:.* ended \(1006\)/,
    )
  })

  it('a server without a relay, as by default: says how to have one', async () => {
    const own = await startRelay({ relay: false })
    await expect(own.end('off', 0).opened).rejects.toThrow(
      /no-relay: this server has no relay\. Start it with --relay/,
    )
    await own.close()
  })

  it('a relayed link keeps its room, and leaves nothing behind', async () => {
    const own = await startRelay()
    const { near, far } = await own.open()
    own.server.closeStores()
    await expect.poll(() => own.server.signaling.rendezvous.counts.connections).toBe(2)
    const got = new Promise<Uint8Array>((resolve) => {
      far.onmessage = resolve
    })
    near.send(Uint8Array.of(9))
    expect(await got).toEqual(Uint8Array.of(9))
    near.close('enough')
    await expect
      .poll(() => own.server.signaling.rendezvous.counts)
      .toEqual({ rooms: 0, connections: 0 })
    await own.close()
  })
})
