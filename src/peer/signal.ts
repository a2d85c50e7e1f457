import { type Env, systemEnv } from '../util/env.ts'
import { messageOf, PeerError } from '../util/errors.ts'
import {
  type Assignment,
  type ClientMessage,
  type JsonValue,
  type Lobby,
  limits,
  type MemberInfo,
  parseServerMessage,
  protocolVersion,
  type Refusal,
  type ServerMessage,
  signalPath,
} from './messages.ts'
import { type RoomLink, RoomSecret } from './secret.ts'

/** The part of a WebSocket that is used; the browser's and `ws`'s both have it. */
export interface SocketLike {
  readonly readyState: number
  // The browser's and ws's event classes have nothing in common but what the handlers here ask of them.
  onmessage: ((event: never) => void) | null
  onclose: ((event: never) => void) | null
  onerror: ((event: never) => void) | null
  send(text: string): void
  close(code?: number, reason?: string): void
}
export type SocketConstructor = new (url: string) => SocketLike

/** The server's no; `refusal` tells which. */
export class SignalError extends PeerError {
  readonly refusal: Refusal
  constructor(refusal: Refusal, text: string) {
    super('signal.refused', `signaling: ${refusal}: ${text}`)
    this.refusal = refusal
  }
}

/** What a client tells its owner. */
export interface SignalEvents {
  lobby: Lobby
  assign: Assignment
  /** A neighbour's sealed signal, opened. Signals of one neighbour come in the order in which they were sent. */
  signal: { epoch: number; from: number; attempt: number; data: unknown }
  start: { epoch: number; settings: JsonValue }
  /** The epoch has failed, and why. */
  abort: { epoch: number; rank: number | null; text: string }
  finished: { epoch: number }
  gone: { id: string; name: string; rank: number | null; text: string }
  /** A refusal that leaves the connection up, or a box that does not open. */
  refused: PeerError
  /**
   * The connection has ended: the last event, and not sent for our own `bye`. While a run is RUNNING this alone
   * is no reason to stop: the ring needs no server, the server leaves the rank in the run until a neighbour misses it too,
   * and the run ends as the ring ends. Before that (lobby, assigned) the member is out.
   */
  lost: PeerError
}

export interface SignalOptions {
  /** `ws:` or `wss:` address; see `signalUrl`. */
  url: string
  link: RoomLink
  info: MemberInfo
  /** `either`: join, or make the room when nobody is in it. So one link always works. */
  mode?: 'create' | 'join' | 'either'
  WebSocket: SocketConstructor
  env?: Env
}

/** The signaling address of the page's own server. */
export function signalUrl(page: { protocol: string; host: string }): string {
  return `${page.protocol === 'https:' ? 'wss:' : 'ws:'}//${page.host}${signalPath}`
}

/**
 * A tab's connection to the signaling server: one room, from `open` to `bye`.
 *
 * Register listeners before `open`. A listener that throws does so on its own: the others still run.
 */
export class SignalClient {
  /** This member's id; set once `open` has resolved. */
  id = ''
  /** The room as last told. */
  lobby: Lobby | null = null
  private assignment: Assignment | null = null
  /** Signals of this epoch that came before anyone listened: a neighbour may be quicker than our own page. */
  private early: SignalEvents['signal'][] = []
  private socket: SocketLike | null = null
  private readonly listeners = new Map<keyof SignalEvents, Set<(value: never) => void>>()
  private readonly env: Env
  private secret: RoomSecret | null = null
  private nonce = ''
  private hasTriedToCreate = false
  private isJoined = false
  private isOver = false
  private inbox: Promise<void> = Promise.resolve()
  private outbox: Promise<void> = Promise.resolve()
  private cancelWatchdog: () => void = () => undefined
  private fatal: PeerError | null = null
  private opened: { resolve: () => void; reject: (error: PeerError) => void } | null = null

  constructor(private readonly options: SignalOptions) {
    this.env = options.env ?? systemEnv
  }

  /** True for the member that may start. */
  get isMaker(): boolean {
    return this.lobby !== null && this.lobby.maker === this.id
  }

  /** Adds a listener; returns a function that takes it away. */
  on<K extends keyof SignalEvents>(
    event: K,
    listener: (value: SignalEvents[K]) => void,
  ): () => void {
    let set = this.listeners.get(event)
    if (!set) {
      set = new Set()
      this.listeners.set(event, set)
    }
    const own = (value: SignalEvents[K]) => listener(value)
    set.add(own)
    if (event === 'signal' && this.early.length > 0) {
      const early = this.early
      this.early = []
      queueMicrotask(() => {
        for (const signal of early) this.emit('signal', signal)
      })
    }
    return () => void set.delete(own)
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

  /** Tells the others what changed about this member. */
  update(info: MemberInfo): void {
    this.send({ type: 'update', info })
  }

  /** Starts a run with everyone in the room; the maker's act. A refusal comes as `refused`. */
  start(settings: JsonValue): void {
    this.send({ type: 'start', settings })
  }

  /** Seals `data` for one neighbour and sends it. Signals keep their order. */
  signal(epoch: number, to: number, attempt: number, data: JsonValue): void {
    const from = this.assignment?.epoch === epoch ? this.assignment.rank : null
    if (from === null || !this.secret) return // the epoch is over
    const sealed = this.secret.seal({ epoch, from, to, attempt }, data)
    this.outbox = this.outbox.then(async () => {
      this.send({ type: 'signal', epoch, to, attempt, box: await sealed })
    })
  }

  /** This rank's links are all up. */
  ready(epoch: number): void {
    this.send({ type: 'ready', epoch })
  }

  /** The link to a neighbour has ended or could not be made: the epoch is over for everyone. */
  linkDown(epoch: number, peerRank: number, text: string): void {
    this.send({ type: 'linkDown', epoch, peerRank, text: plain(text) })
  }

  /** This rank cannot go on: the epoch is over for everyone. */
  abort(epoch: number, text: string): void {
    this.send({ type: 'abort', epoch, text: plain(text) })
  }

  /** This rank's part of the run has ended well; it may leave from now on. */
  done(epoch: number): void {
    this.send({ type: 'done', epoch })
  }

  /** Leaves the room and closes; idempotent, and safe to call from `pagehide`. */
  bye(): void {
    if (this.isOver) return
    this.send({ type: 'bye' })
    this.isOver = true
    this.cancelWatchdog()
    this.opened?.reject(
      new PeerError('signal.lost', 'signaling: left before the room was entered.'),
    )
    this.opened = null
    this.socket?.close(1000, 'bye')
  }

  private send(message: ClientMessage): void {
    if (this.socket?.readyState === 1 && !this.isOver) this.socket.send(JSON.stringify(message))
  }

  /** The server pings; when it has been silent too long it is as good as gone. */
  private watch(): void {
    this.cancelWatchdog()
    this.cancelWatchdog = this.env.after(limits.goneMs, () => {
      this.fatal ??= new PeerError(
        'signal.lost',
        `signaling: expected the server to speak within ${limits.goneMs} ms, got silence. Is it still running?`,
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
        `signaling: the server sent something else than this page expects (${parsed.text}). Reload the page.`,
      )
      this.socket?.close()
      return
    }
    try {
      await this.handle(parsed.message)
    } catch (thrown) {
      const isOurs = thrown instanceof PeerError
      this.emit(
        'refused',
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
        this.isJoined = true
        this.opened?.resolve()
        this.opened = null
        return
      case 'lobby': {
        const { type: _, ...lobby } = message
        this.lobby = lobby
        this.emit('lobby', lobby)
        return
      }
      case 'assign': {
        const { type: _, ...assignment } = message
        this.assignment = assignment
        this.early = []
        this.emit('assign', assignment)
        return
      }
      case 'signal': {
        const { epoch, from, attempt, box } = message
        if (this.assignment?.epoch !== epoch || !this.secret) return
        const to = this.assignment.rank
        const data = await this.secret.open({ epoch, from, to, attempt }, box)
        const signal = { epoch, from, attempt, data }
        if (this.listeners.get('signal')?.size) this.emit('signal', signal)
        else this.early.push(signal)
        return
      }
      case 'abort':
      case 'finished':
        if (this.assignment?.epoch === message.epoch) this.assignment = null
        if (message.type === 'abort') this.emit('abort', message)
        else this.emit('finished', message)
        return
      case 'start':
        this.emit('start', message)
        return
      case 'gone':
        this.emit('gone', message)
        return
      case 'ping':
        this.send({ type: 'pong' })
        return
      case 'error':
        await this.refused(message)
    }
  }

  private create(): void {
    const { link, info } = this.options
    const authKey = this.secret!.authKey
    this.hasTriedToCreate = true
    this.send({ type: 'create', version: protocolVersion, room: link.room, authKey, info })
  }

  private async join(): Promise<void> {
    const { link, info } = this.options
    const proof = await this.secret!.prove(this.nonce)
    this.send({ type: 'join', version: protocolVersion, room: link.room, proof, info })
  }

  private async refused(message: Extract<ServerMessage, { type: 'error' }>): Promise<void> {
    const { code, text, isFatal } = message
    if (!this.isJoined && (this.options.mode ?? 'either') === 'either') {
      if (code === 'unknown-room' && !this.hasTriedToCreate) return this.create()
      if (code === 'room-exists') return this.join() // another tab was quicker
    }
    // It crossed the end of its epoch, of which we have been told or are about to be.
    if (code === 'wrong-epoch') return
    const error = new SignalError(code, text)
    if (isFatal || !this.isJoined) {
      this.fatal = error
      this.socket?.close()
      this.ended(1008, text)
    } else this.emit('refused', error)
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
        this.isJoined
          ? `signaling: the connection to ${where} ended (${why}). Reload the page to enter the room again.`
          : `signaling: no connection to ${where} (${why}). Is the server running, and is this page from it?`,
      )
    if (this.opened) this.opened.reject(error)
    else this.emit('lost', error)
    this.opened = null
  }

  private emit<K extends keyof SignalEvents>(event: K, value: SignalEvents[K]): void {
    for (const listener of [...(this.listeners.get(event) ?? [])]) {
      try {
        ;(listener as (value: SignalEvents[K]) => void)(value)
      } catch (thrown) {
        queueMicrotask(() => {
          throw thrown
        })
      }
    }
  }
}

/** How a WebSocket's end says that a message was larger than the other side reads at all; it comes without a reason. */
const tooBig = 1009
const tooBigText = `${tooBig}: a message was too large for the server, which reads ${limits.messageBytes} bytes`

function leftEarly(): PeerError {
  return new PeerError('signal.lost', 'signaling: left before the room was entered.')
}

/** `text` as the server takes it: one line, not too long. */
function plain(text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ').slice(0, limits.textChars)
}
