import { type Env, systemEnv, toHex } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import type { Again, ClientMessage, RunNow } from '../room/client-messages.ts'
import type { IceServer } from '../room/ice-servers.ts'
import {
  limits,
  type MemberInfo,
  parseServerMessage,
  protocolVersion,
  type RoomServerMessage,
} from '../room/messages.ts'
import { type Refusal, SignalError } from '../room/refusals.ts'
import { proveRoomKey } from '../room/room-key.ts'
import type { RoomOptions, SocketLike } from '../room/room-options.ts'
import { RoomSecret } from '../room/secret.ts'

/** Messages of the server to those who are inside. */
export type InsideMessage = Exclude<
  RoomServerMessage,
  { type: 'challenge' | 'welcome' | 'asking' | 'ice' | 'relayed' | 'ping' | 'pong' | 'error' }
>

/** Events of a connection for its owner. */
export interface RoomListener {
  /** One after the other: the next comes when this one is through. What it throws comes as `refused`. */
  message(message: InsideMessage): void | Promise<void>
  /** The room's maker, by this name, has been asked to let this tab in; `open` waits for the answer. */
  asking?(host: string): void
  /** A refusal that leaves the connection up; `call` is the number of the store call that was refused. */
  refused(error: PeerError, call?: number): void
  /** The connection has ended: the last call, and none for our own `bye`. */
  lost(error: PeerError): void
  /** The connection has ended, and is tried again; not while it stays so. */
  away?(error: PeerError): void
  /** In the room again; `isSame`: by the id that it had. */
  back?(isSame: boolean): void
}

/** Data to bring a member back into its room when its connection has ended. */
export interface Reconnecting {
  /** True if it is tried, until `bye` or a refusal that will not pass. Default false: the connection's end is the last word. */
  reconnects?: boolean
  /** The elastic run that this member is in, for a server that does not know it; null for none. */
  runNow?: () => RunNow | null
}

/** Refusals that may have passed when a member tries again to come back. */
const passing: readonly Refusal[] = [
  'shutting-down',
  'unknown-room',
  'no-key',
  'room-exists',
  'room-full',
  'server-full',
  'too-many',
  'too-slow',
]
/** From a connection's end until the next try: this long at first, then twice as long each time. units: ms. */
const retryMs = { first: 250, max: 8_000 }

/**
 * A tab's way into one room, as a member or as a guest (`info` null): it opens the socket, proves the secret, answers pings,
 * notices the end, and comes back if it is to. What is said inside is its owner's.
 */
export class RoomConnection {
  /** This member's id at the server; set once `open` has resolved. */
  id = ''
  /** This member as the others know it; null for a guest. */
  info: MemberInfo | null
  /** The room's keys, once `open` was called and they are derived. */
  secret: RoomSecret | null = null
  /** The servers that the signaling server sent last; empty where it has none. */
  iceServers: readonly IceServer[] = []
  private readonly asking: {
    resolve: (received: readonly IceServer[]) => void
    reject: (error: PeerError) => void
  }[] = []
  /** Round trips under way, the oldest first: when each began, and its promise. */
  private readonly pinging: { sinceMs: number; resolve: (ms: number) => void }[] = []
  /** True if the server relays links; known once `open` has resolved. */
  hasRelay = false
  private socket: SocketLike | null = null
  /** By which the server knows this member when it comes back, and its relayed links; absent for a guest. */
  readonly token: string | undefined
  private readonly env: Env
  private nonce = ''
  private hasTriedToCreate = false
  isInside = false
  private isOver = false
  private inbox: Promise<void> = Promise.resolve()
  private cancelWatchdog: () => void = () => undefined
  private cancelRetry: () => void = () => undefined
  /** Since it was inside. */
  private retries = 0
  /** Of its rooms' runs, also on a server before. */
  private newestEpoch = 0
  private fatal: PeerError | null = null
  /** False where another try would end in the same way. */
  private mayPass = true
  private opened: { resolve: () => void; reject: (error: PeerError) => void } | null = null

  constructor(
    private readonly options: RoomOptions & Reconnecting & { info: MemberInfo | null },
    private readonly listener: RoomListener,
  ) {
    this.env = options.env ?? systemEnv
    this.info = options.info
    const drawn = () => (options.info ? toHex(this.env.random(16)) : undefined)
    this.token = options.hostToken ?? drawn()
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
      this.connect()
    })
  }

  private connect(): void {
    const socket = new this.options.WebSocket(this.options.url)
    this.socket = socket
    this.hasTriedToCreate = false
    this.fatal = null
    socket.onmessage = ({ data }: { data: unknown }) => {
      // One at a time and in order, although opening a box takes a few turns.
      this.inbox = this.inbox.then(() => this.take(socket, String(data)))
    }
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      this.inbox = this.inbox.then(() => this.ended(socket, code, reason))
    }
    socket.onerror = () => {
      // A close event with the outcome always follows, but not in Node 20, whose socket still connects after a refusal.
      if (socket.readyState === 0) this.ended(socket, 1006, '')
    }
    this.watch(socket)
  }

  /** Does nothing when the connection is not up. */
  send(message: ClientMessage): void {
    if (this.isInside) this.write(message)
  }

  private write(message: ClientMessage): void {
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
    this.write({ type: 'bye' })
    this.isOver = true
    this.isInside = false
    this.cancelWatchdog()
    this.cancelRetry()
    this.opened?.reject(leftEarly())
    this.opened = null
    this.stopAsking(notInside())
    this.socket?.close(1000, 'bye')
  }

  /** The server pings; when it has been silent too long it is as good as gone. */
  private watch(socket: SocketLike): void {
    this.cancelWatchdog()
    this.cancelWatchdog = this.env.after(limits.goneMs, () => {
      this.fatal ??= new PeerError(
        'signal.lost',
        `signaling: the server sent nothing for ${limits.goneMs} ms. Is it still running?`,
      )
      socket.close()
      this.ended(socket, 1006, '')
    })
  }

  private async take(socket: SocketLike, raw: string): Promise<void> {
    if (this.isOver || socket !== this.socket) return
    this.watch(socket)
    const parsed = parseServerMessage(raw)
    if (!parsed.ok) {
      this.fatal = new PeerError(
        'signal.lost',
        `signaling: this page does not understand the server's message (${parsed.text}). Reload the page.`,
      )
      this.mayPass = false
      socket.close()
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

  private async handle(message: RoomServerMessage): Promise<void> {
    switch (message.type) {
      case 'challenge':
        this.nonce = message.nonce
        if (this.mode === 'create') await this.create()
        else await this.join()
        return
      case 'welcome': {
        const before = this.id
        this.id = message.id
        this.hasRelay = message.relay ?? false
        this.isInside = true
        this.retries = 0
        this.opened?.resolve()
        this.opened = null
        if (before) this.listener.back?.(before === this.id)
        return
      }
      case 'asking':
        this.listener.asking?.(message.host)
        return
      case 'ice':
        this.iceServers = message.iceServers
        this.asking.shift()?.resolve(message.iceServers)
        return
      case 'ping':
        this.write({ type: 'pong' })
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
      case 'lobby':
      case 'assign':
        this.newestEpoch = Math.max(this.newestEpoch, message.epoch)
        await this.listener.message(message)
        return
      default:
        await this.listener.message(message)
    }
  }

  /** A server that is another process than before does not know the room. */
  private get mode(): RoomOptions['mode'] {
    return this.id ? 'either' : (this.options.mode ?? 'either')
  }

  private async create(): Promise<void> {
    this.hasTriedToCreate = true
    const { roomKey } = this.options
    const { room, authKey } = this.secret!
    const keyProof = roomKey ? await proveRoomKey(roomKey, room, this.nonce) : undefined
    this.write({ type: 'create', ...this.entry(), authKey, keyProof })
  }

  private async join(): Promise<void> {
    const proof = await this.secret!.prove(this.nonce)
    this.write({ type: 'join', ...this.entry(), proof })
  }

  private entry() {
    return {
      version: protocolVersion,
      room: this.secret!.room,
      info: this.info,
      token: this.token,
      isFurther: this.options.isFurther,
      again: this.again(),
    } as const
  }

  private again(): Again | undefined {
    if (!this.id || !this.info) return undefined
    const run = this.options.runNow?.() ?? undefined
    return { id: this.id, epoch: this.newestEpoch, run }
  }

  private async refused(message: Extract<RoomServerMessage, { type: 'error' }>): Promise<void> {
    const { code, text, by, about, isFatal, call } = message
    if (!this.isInside && this.mode === 'either') {
      if (code === 'unknown-room' && !this.hasTriedToCreate) return this.create()
      if (code === 'room-exists') return this.join() // another tab was quicker
    }
    const error = new SignalError(code, text, by, about ?? '')
    if (isFatal || !this.isInside) {
      const socket = this.socket!
      this.fatal = error
      this.mayPass = passing.includes(code)
      socket.close()
      this.ended(socket, 1008, text)
    } else this.listener.refused(error, call)
  }

  private ended(socket: SocketLike, code: number, reason: string): void {
    if (this.isOver || socket !== this.socket) return
    this.cancelWatchdog()
    this.socket = null
    const { isInside, opened } = this
    this.isInside = false
    // Who has never been inside learns at once why.
    const isTriedAgain = this.options.reconnects === true && this.id !== '' && this.mayPass
    const error = this.fatal ?? this.endError(isInside, code, reason, isTriedAgain)
    this.stopAsking(error)
    this.pinging.length = 0
    if (isTriedAgain) {
      this.cancelRetry = this.env.after(this.nextRetryMs(), () => this.connect())
      if (isInside) this.listener.away?.(error)
      return
    }
    this.isOver = true
    this.opened = null
    if (opened) opened.reject(error)
    else this.listener.lost(error)
  }

  private endError(isInside: boolean, code: number, reason: string, isTriedAgain: boolean) {
    const where = this.options.url
    const why = code === tooBig ? tooBigText : reason ? `${code}: ${reason}` : String(code)
    const advice = isTriedAgain ? 'It is tried again.' : "Open the room's link again."
    return new PeerError(
      'signal.lost',
      isInside
        ? `signaling: the connection to ${where} ended (${why}). ${advice}`
        : `signaling: no connection to ${where} (${why}). Is the server running, and does this page come from it?`,
    )
  }

  /** Half of it up to all, by chance: members that lost one server do not come back in one moment. */
  private nextRetryMs(): number {
    const { first, max } = retryMs
    const maxMs = Math.min(max, first * 2 ** this.retries++)
    return maxMs * (0.5 + this.env.random(1)[0]! / 510)
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
