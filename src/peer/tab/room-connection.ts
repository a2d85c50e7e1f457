import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import type { IceServer } from '../room/ice-servers.ts'
import {
  type ClientMessage,
  limits,
  type MemberInfo,
  parseServerMessage,
  protocolVersion,
  type ServerMessage,
} from '../room/messages.ts'
import { SignalError } from '../room/refusals.ts'
import type { RoomOptions, SocketLike } from '../room/room-options.ts'
import { RoomSecret } from '../room/secret.ts'

/** What the server tells those who are inside. */
export type InsideMessage = Exclude<
  ServerMessage,
  { type: 'challenge' | 'welcome' | 'ice' | 'relayed' | 'ping' | 'pong' | 'error' }
>

/** What a connection tells its owner. */
export interface RoomListener {
  /** One after the other: the next comes when this one is through. What it throws comes as `refused`. */
  message(message: InsideMessage): void | Promise<void>
  /** A refusal that leaves the connection up; `call` is the number of the store call that was refused. */
  refused(error: PeerError, call?: number): void
  /** The connection has ended: the last word, and not told for our own `bye`. */
  lost(error: PeerError): void
}

/**
 * A tab's way into one room, as a member or as a guest (`info` null): it opens the socket, proves the secret, answers pings and
 * notices the end. What is said inside is its owner's.
 */
export class RoomConnection {
  /** What the server calls us; set once `open` has resolved. */
  id = ''
  /** The room's keys, once `open` was called and they are derived. */
  secret: RoomSecret | null = null
  /** What the server has told last; empty where it has none. */
  iceServers: readonly IceServer[] = []
  private readonly asking: {
    resolve: (told: readonly IceServer[]) => void
    reject: (error: PeerError) => void
  }[] = []
  /** Round trips under way, the oldest first: when each began, and whom to tell. */
  private readonly pinging: { sinceMs: number; resolve: (ms: number) => void }[] = []
  /** Whether the server relays links; known once `open` has resolved. */
  hasRelay = false
  private socket: SocketLike | null = null
  private readonly env: Env
  private nonce = ''
  private hasTriedToCreate = false
  private isInside = false
  private isOver = false
  private inbox: Promise<void> = Promise.resolve()
  private cancelWatchdog: () => void = () => undefined
  private fatal: PeerError | null = null
  private opened: { resolve: () => void; reject: (error: PeerError) => void } | null = null

  constructor(
    private readonly options: RoomOptions & { info: MemberInfo | null },
    private readonly listener: RoomListener,
  ) {
    this.env = options.env ?? systemEnv
  }

  /**
   * Connects and enters the room. Call once.
   *
   * errors: SignalError (`signal.refused`) with the server's reason; PeerError `signal.lost` when there is no server.
   */
  async open(): Promise<void> {
    this.secret = await RoomSecret.derive(this.options.link)
    if (this.isOver) throw leftEarly()
    await new Promise<void>((resolve, reject) => {
      this.opened = { resolve, reject }
      const socket = new this.options.WebSocket(this.options.url)
      this.socket = socket
      socket.onmessage = ({ data }: { data: unknown }) => {
        // One at a time and in order, although opening a box takes a few turns.
        this.inbox = this.inbox.then(() => this.take(String(data)))
      }
      socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
        this.inbox = this.inbox.then(() => this.ended(code, reason))
      }
      socket.onerror = () => undefined // a close event with the outcome always follows
      this.watch()
    })
  }

  /** Does nothing when the connection is not up. */
  send(message: ClientMessage): void {
    if (this.socket?.readyState === 1 && !this.isOver) this.socket.send(JSON.stringify(message))
  }

  /** ICE servers with credentials that are fresh. errors: as the connection's end. */
  askIceServers(): Promise<readonly IceServer[]> {
    if (!this.isInside || this.isOver) return Promise.reject(notInside())
    return new Promise((resolve, reject) => {
      this.asking.push({ resolve, reject })
      this.send({ type: 'ice' })
    })
  }

  /** Milliseconds until the server has answered; never resolves where the connection ends first. */
  roundTrip(): Promise<number> {
    return new Promise((resolve) => {
      this.pinging.push({ sinceMs: this.env.now(), resolve })
      this.send({ type: 'ping' })
    })
  }

  /** Leaves the room and closes; idempotent, and safe to call from `pagehide`. */
  bye(): void {
    if (this.isOver) return
    this.send({ type: 'bye' })
    this.isOver = true
    this.cancelWatchdog()
    this.opened?.reject(leftEarly())
    this.opened = null
    this.stopAsking(notInside())
    this.socket?.close(1000, 'bye')
  }

  /** The server pings; when it has been silent too long it is as good as gone. */
  private watch(): void {
    this.cancelWatchdog()
    this.cancelWatchdog = this.env.after(limits.goneMs, () => {
      this.fatal ??= new PeerError(
        'signal.lost',
        `signaling: the server sent nothing for ${limits.goneMs} ms. Is it still running?`,
      )
      this.socket?.close()
      this.ended(1006, '')
    })
  }

  private async take(raw: string): Promise<void> {
    if (this.isOver) return
    this.watch()
    const parsed = parseServerMessage(raw)
    if (!parsed.ok) {
      this.fatal = new PeerError(
        'signal.lost',
        `signaling: this page does not understand the server's message (${parsed.text}). Reload the page.`,
      )
      this.socket?.close()
      return
    }
    try {
      await this.handle(parsed.message)
    } catch (thrown) {
      const isOurs = thrown instanceof PeerError
      this.listener.refused(
        isOurs ? thrown : new PeerError('peer.protocol', `signaling: ${messageOf(thrown)}`),
      )
    }
  }

  private async handle(message: ServerMessage): Promise<void> {
    switch (message.type) {
      case 'challenge':
        this.nonce = message.nonce
        if (this.options.mode === 'create') this.create()
        else await this.join()
        return
      case 'welcome':
        this.id = message.id
        this.hasRelay = message.relay ?? false
        this.isInside = true
        this.opened?.resolve()
        this.opened = null
        return
      case 'ice':
        this.iceServers = message.iceServers
        this.asking.shift()?.resolve(message.iceServers)
        return
      case 'ping':
        this.send({ type: 'pong' })
        return
      case 'pong': {
        const asked = this.pinging.shift()
        asked?.resolve(this.env.now() - asked.sinceMs)
        return
      }
      case 'error':
        await this.refused(message)
        return
      case 'relayed': // of other connections
        return
      default:
        await this.listener.message(message)
    }
  }

  private create(): void {
    const { link, info, hostToken } = this.options
    const authKey = this.secret!.authKey
    this.hasTriedToCreate = true
    this.send({
      type: 'create',
      version: protocolVersion,
      room: link.room,
      authKey,
      info,
      token: hostToken,
    })
  }

  private async join(): Promise<void> {
    const { link, info, hostToken } = this.options
    const proof = await this.secret!.prove(this.nonce)
    this.send({
      type: 'join',
      version: protocolVersion,
      room: link.room,
      proof,
      info,
      token: hostToken,
    })
  }

  private async refused(message: Extract<ServerMessage, { type: 'error' }>): Promise<void> {
    const { code, text, isFatal, call } = message
    if (!this.isInside && (this.options.mode ?? 'either') === 'either') {
      if (code === 'unknown-room' && !this.hasTriedToCreate) return this.create()
      if (code === 'room-exists') return this.join() // another tab was quicker
    }
    const error = new SignalError(code, text)
    if (isFatal || !this.isInside) {
      this.fatal = error
      this.socket?.close()
      this.ended(1008, text)
    } else this.listener.refused(error, call)
  }

  private ended(code: number, reason: string): void {
    if (this.isOver) return
    this.isOver = true
    this.cancelWatchdog()
    const where = this.options.url
    const why = code === tooBig ? tooBigText : reason ? `${code}: ${reason}` : String(code)
    const error =
      this.fatal ??
      new PeerError(
        'signal.lost',
        this.isInside
          ? `signaling: the connection to ${where} ended (${why}). Open the room's link again.`
          : `signaling: no connection to ${where} (${why}). Is the server running, and does this page come from it?`,
      )
    if (this.opened) this.opened.reject(error)
    else this.listener.lost(error)
    this.opened = null
    this.stopAsking(error)
  }

  private stopAsking(error: PeerError): void {
    for (const { reject } of this.asking.splice(0)) reject(error)
  }
}

/** How a WebSocket's end says that a message was larger than the other side reads at all; it comes without a reason. */
const tooBig = 1009
const tooBigText = `${tooBig}: a message was too large for the server, which reads ${limits.messageBytes} bytes`

function notInside(): PeerError {
  return new PeerError(
    'signal.lost',
    'signaling: cannot request ICE servers after leaving the room. Enter it again.',
  )
}

function leftEarly(): PeerError {
  return new PeerError(
    'signal.lost',
    'signaling: the room was left before it was entered. Enter it again.',
  )
}
