import { clipped } from '../../util/clipped.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import {
  limits,
  parseServerMessage,
  protocolVersion,
  type ServerMessage,
} from '../room/messages.ts'
import { ownSocket } from '../room/own-socket.ts'
import { SignalError } from '../room/refusals.ts'
import type { BinarySocket, BinarySocketConstructor } from '../room/room-options.ts'
import type { RoomAddress } from '../room/room-url.ts'
import { RoomSecret } from '../room/secret.ts'
import {
  type FrameKind,
  FrameSeal,
  type OpenedFrame,
  relayHelloBytes,
  relaySealBytes,
} from './frame-seal.ts'
import type { LinkEnd, LinkKind } from './link.ts'
import { LinkBase } from './link-base.ts'
import { shownText } from './wire.ts'

export interface RelayLinkOptions {
  /** The server, and the room whose key seals the link. */
  address: RoomAddress
  /** The same on both sides, and no other link's of the room. At most 200 characters. */
  channel: string
  /** One side is 0, the other 1. */
  side: 0 | 1
  /** Of this side's member, for a server whose hosts let each newcomer in. */
  token?: string | undefined
  /** For error texts: `rank 2 (Laptop)`. */
  peerName: string
  WebSocket: BinarySocketConstructor
  env?: Env
  /** How long the other side may take. Default 25 s, a little more than the server's own patience. */
  timeoutMs?: number
  /** Largest message, bytes. Default 64 KiB, which is also what servers take. */
  maxMessageBytes?: number
  /** Bytes that may be under way to the other side; the most that an honest end makes the server hold. Default 1 MiB. */
  windowBytes?: number
}

/** Fields that a relayed link needs where it opens the platform's own WebSocket. */
export type RelayPlace = Pick<
  RelayLinkOptions,
  'address' | 'token' | 'channel' | 'side' | 'peerName'
>

/** A link there with the platform's own WebSocket, by which its room was entered. */
export const relayOver = (place: RelayPlace): RelayLink =>
  new RelayLink({ ...place, WebSocket: ownSocket()! })

/** Messages of 128 and 256 KiB were no faster between two tabs (Chromium 156, loopback), and a slow network takes longer over one. */
export const relayDefaults = {
  maxMessageBytes: limits.relayFrameBytes - relaySealBytes,
  windowBytes: 1024 * 1024,
  timeoutMs: 25_000,
} as const

const maxGoodbyeChars = 200

/** Share of the window after which taken bytes are acknowledged. */
const takenShare = 1 / 8

/**
 * A link through the signaling server, on a page or in a worker: a WebSocket, whose other end the server joins with that of the other side.
 *
 * Messages are sealed from end to end (frame-seal.ts). Each side acknowledges how much it has taken, so that no more than the window is under way: a
 * browser's WebSocket reports neither when its queue is short again nor that nobody reads. A frame that was lost, doubled, moved or altered ends the link.
 *
 *   tab                            server
 *    <- challenge, relay ->          the proof of the room's key, and the channel's name
 *    <- relayed                      the other side is there; from now on all binary messages are its
 *    32 random bytes <->             the keys are made of them
 *    ready <->                       sealed: the other side has the same keys, and the link is up
 *    data, taken <->, goodbye ->
 */
export class RelayLink extends LinkBase {
  readonly kind: LinkKind = 'relay'
  readonly maxMessageBytes: number
  /** Resolves when the link is up. errors: `peer.unreachable` with the reason; `peer.protocol` where the other side has another key. */
  readonly opened: Promise<void>
  private settle!: { resolve: () => void; reject: (error: Error) => void }
  private readonly windowBytes: number
  private readonly env: Env
  private readonly hello: Uint8Array<ArrayBuffer>
  private readonly cancelTimeout: () => void
  private socket: BinarySocket | undefined
  private nonce = ''
  private seal: Promise<FrameSeal> | undefined
  /** The same, once it is there. */
  private readySeal: FrameSeal | undefined
  private isUp = false
  private inbox: Promise<void> = Promise.resolve()
  private outbox: Promise<void> = Promise.resolve()
  /** Of all messages, in bytes: sent, of these acknowledged by the other side, received, and of these acknowledged. */
  private sentBytes = 0
  private takenBytes = 0
  private receivedBytes = 0
  private acknowledgedBytes = 0

  constructor(private readonly options: RelayLinkOptions) {
    super()
    const { maxMessageBytes, windowBytes, timeoutMs } = { ...relayDefaults, ...options }
    this.maxMessageBytes = maxMessageBytes
    this.windowBytes = windowBytes
    this.env = options.env ?? systemEnv
    this.hello = new Uint8Array(this.env.random(relayHelloBytes))
    this.opened = new Promise((resolve, reject) => {
      this.settle = { resolve, reject }
    })
    this.opened.catch(() => undefined) // its owner may look at the end alone
    this.cancelTimeout = this.env.after(timeoutMs, () =>
      this.fail(
        'timeout',
        this.unreachable(`the other side did not connect within ${timeoutMs} ms`),
      ),
    )
    this.open().catch((thrown) => this.fail('failed', this.unreachable(messageOf(thrown))))
  }

  room(): number {
    if (this.ended || !this.isUp) return 0
    return this.windowBytes - (this.sentBytes - this.takenBytes)
  }

  protected transmit(message: Uint8Array<ArrayBuffer>): void {
    if (!this.isUp) {
      this.fail('failed', this.unreachable('a message was sent before the link was up'))
      return
    }
    this.sentBytes += message.length
    this.sendSealed('data', message)
  }

  protected shut(detail: string): void {
    if (this.isUp) this.sendSealed('goodbye', utf8.encode(detail.slice(0, maxGoodbyeChars)))
    this.settle.reject(this.unreachable('closed on this side'))
    this.release()
  }

  private async open(): Promise<void> {
    const { address, WebSocket } = this.options
    const secret = await RoomSecret.derive(address.link)
    if (this.ended) return
    const socket = new WebSocket(address.server)
    this.socket = socket
    socket.binaryType = 'arraybuffer'
    socket.onmessage = ({ data }: { data: unknown }) => {
      if (this.ended) return
      if (data instanceof ArrayBuffer) this.takeBytes(new Uint8Array(data))
      else this.takeText(String(data), secret)
    }
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      const why = reason ? `${code}: ${reason}` : String(code)
      const detail = `the connection to the signaling server's relay ended (${why})`
      // Behind what came before it.
      this.inbox = this.inbox.then(() => this.fail('closed', this.unreachable(detail), detail))
    }
    socket.onerror = () => undefined // a close event always follows
  }

  // --- what the server says itself ---

  private takeText(raw: string, secret: RoomSecret): void {
    const parsed = parseServerMessage(raw)
    if (!parsed.ok) {
      const text = `this page does not understand the server's message (${parsed.text})`
      this.fail('failed', this.unreachable(text))
      return
    }
    this.handle(parsed.message, secret).catch((thrown) =>
      this.fail('failed', this.unreachable(messageOf(thrown))),
    )
  }

  private async handle(message: ServerMessage, secret: RoomSecret): Promise<void> {
    const { channel, side, token } = this.options
    switch (message.type) {
      case 'challenge': {
        if (this.nonce) return
        this.nonce = message.nonce
        const proof = await secret.prove(message.nonce)
        const { room } = secret
        const place = { room, proof, token, channel, side }
        const asked = { type: 'relay', version: protocolVersion, ...place }
        this.socket?.send(JSON.stringify(asked))
        return
      }
      case 'relayed':
        this.socket?.send(this.hello)
        return
      case 'ping':
        this.socket?.send(JSON.stringify({ type: 'pong' }))
        return
      case 'error': {
        const { message: text } = new SignalError(message.code, message.text)
        this.inbox = this.inbox.then(() => this.fail('closed', this.unreachable(text), text))
      }
    }
  }

  // --- what the other side says ---

  private takeBytes(bytes: Uint8Array<ArrayBuffer>): void {
    if (!this.seal) {
      this.greeted(bytes)
      return
    }
    const opened = this.seal.then((seal) => seal.open(bytes))
    opened.catch(() => undefined) // handled in its turn
    this.inbox = this.inbox
      .then(() => opened)
      .then(
        (frame) => this.take(frame),
        (thrown) => this.fail('protocol', thrown),
      )
  }

  private greeted(bytes: Uint8Array<ArrayBuffer>): void {
    if (bytes.length !== relayHelloBytes) {
      const text = `relay: expected the other side's ${relayHelloBytes} random bytes, got ${bytes.length} bytes. The signaling server may be tampering.`
      this.fail('protocol', new PeerError('peer.protocol', text))
      return
    }
    const { channel, side, address } = this.options
    const hellos = side === 0 ? ([this.hello, bytes] as const) : ([bytes, this.hello] as const)
    this.seal = FrameSeal.derive({ link: address.link, channel, side, hellos })
    this.seal.then(
      (seal) => {
        this.readySeal = seal
        this.sendSealed('ready', new Uint8Array(0))
      },
      (thrown) => this.fail('failed', this.unreachable(messageOf(thrown))),
    )
  }

  private take({ kind, message }: OpenedFrame): void {
    if (this.ended) return
    if (this.isUp === (kind === 'ready')) {
      this.fail(
        'protocol',
        unexpected(`frame "${clipped(kind)}" ${this.isUp ? 'again' : 'before "ready"'}`),
      )
      return
    }
    switch (kind) {
      case 'ready':
        this.isUp = true
        this.cancelTimeout()
        this.settle.resolve()
        this.roomAgain()
        return
      case 'data':
        this.receivedBytes += message.length
        this.tellTaken()
        this.deliver(message)
        return
      case 'taken':
        this.taken(message)
        return
      case 'goodbye':
        this.release()
        this.finish({ why: 'closed', detail: shownText(message, maxGoodbyeChars) })
    }
  }

  private tellTaken(): void {
    if (this.receivedBytes - this.acknowledgedBytes < this.windowBytes * takenShare) return
    this.acknowledgedBytes = this.receivedBytes
    const count = new Uint8Array(8)
    new DataView(count.buffer).setFloat64(0, this.receivedBytes)
    this.sendSealed('taken', count)
  }

  private taken(message: Uint8Array<ArrayBuffer>): void {
    const count = message.length === 8 ? new DataView(message.buffer).getFloat64(0) : Number.NaN
    if (!(count >= this.takenBytes && count <= this.sentBytes)) {
      this.fail('protocol', unexpected(`acknowledgement of ${count} bytes, ${this.sentBytes} sent`))
      return
    }
    const wasFull = this.room() <= 0
    this.takenBytes = count
    if (wasFull && this.room() > 0) this.roomAgain()
  }

  // --- out, and the end ---

  private sendSealed(kind: FrameKind, message: Uint8Array<ArrayBuffer>): void {
    const sealed = this.readySeal!.seal(kind, message)
    sealed.catch(() => undefined) // handled in its turn
    this.outbox = this.outbox
      .then(() => sealed)
      .then(
        (frame) => {
          if (this.socket?.readyState === 1) this.socket.send(frame)
        },
        (thrown) => this.fail('failed', this.unreachable(messageOf(thrown))),
      )
  }

  /** Ends the link for a reason that is not ours to choose. `detail`: in the place of the error's text, once the link was up. */
  private fail(why: LinkEnd['why'], error: Error, detail = error.message): void {
    if (this.ended) return
    this.settle.reject(error)
    this.release()
    this.finish({ why, detail: this.isUp ? detail : error.message })
  }

  /** Lets go of the socket, once what was sent has gone to it. */
  private release(): void {
    this.cancelTimeout()
    const { socket } = this
    if (!socket) return
    socket.onclose = null
    void this.outbox.then(() => {
      socket.onmessage = null
      socket.close(1000, 'the link ended')
    })
  }

  private unreachable(why: string): PeerError {
    const text = `link to ${this.options.peerName}: no connection through the relay of ${this.options.address.server}: ${why}.`
    return new PeerError('peer.unreachable', text)
  }
}

function unexpected(what: string): PeerError {
  return new PeerError(
    'peer.protocol',
    `relay: received an unexpected ${what}. Load the same version of the page on every rank.`,
  )
}

const utf8 = new TextEncoder()
