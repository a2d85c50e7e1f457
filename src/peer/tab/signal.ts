import { messageOf, PeerError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { IceServer } from '../room/ice-servers.ts'
import {
  type Abort,
  type Asks,
  type Assignment,
  type Lobby,
  limits,
  type MemberInfo,
  type Reached,
  signalPath,
} from '../room/messages.ts'
import { SignalError } from '../room/refusals.ts'
import type { RoomOptions } from '../room/room-options.ts'
import type { RoomAddress } from '../room/room-url.ts'
import { type InsideMessage, type Reconnecting, RoomConnection } from './room-connection.ts'

/** Events of a client for its owner. */
export interface SignalEvents {
  lobby: Lobby
  /** Before `open` resolves: the maker, by this name, has been asked to let this tab in. */
  asking: { host: string }
  /** To the maker: who waits to be let in. */
  asks: Asks
  /** Settings that the maker would start now, sent to the others. */
  proposed: JsonValue
  assign: Assignment
  /** A neighbour's sealed signal, opened. Signals of one neighbour come in the order in which they were sent. */
  signal: { epoch: number; from: number; attempt: number; data: unknown }
  /** Message of a neighbour between runs, of an onlooker, or of the rank that this onlooker asks, opened; in the order in which it was sent. */
  reach: { from: string; data: unknown }
  /** The maker's message to the others as it removed a member, opened. */
  moved: { data: unknown }
  start: { epoch: number; settings: JsonValue }
  /** The epoch has failed, and why. */
  abort: Abort
  finished: { epoch: number }
  /** To `half`: who asked first; null where the server cannot know. */
  half: { key: string; ballot: number; first: readonly string[] | null }
  /**
   * `hasLeft`: it said bye; else it may be alive. `ballot`: of the newest roster of an elastic run that it can have been in, as far as the server
   * knows; 0 for none.
   */
  gone: {
    id: string
    name: string
    rank: number | null
    text: string
    hasLeft: boolean
    ballot: number
  }
  /** A refusal that leaves the connection up, or a box that does not open. */
  refused: PeerError
  /**
   * The connection has ended: the last event, and not sent for our own `bye`. While a run is RUNNING this alone
   * is no reason to stop: the ring needs no server, the server leaves the rank in the run until a neighbour misses it too,
   * and the run ends as the ring ends. Before that (lobby, assigned) the member is out. One that the maker has removed is out at once: the
   * error is then a SignalError `removed`. With `reconnects` it comes only for a refusal that will not pass.
   */
  lost: PeerError
  /**
   * With `reconnects`: the connection has ended, and is tried again. What is said meanwhile is dropped, except `update`, and links that were
   * forming are given up by the server.
   */
  away: PeerError
  /**
   * In the room again, perhaps that of a new server: say again what it should know (`ranks`, `done`, `propose`). `isSame`: by the id that this
   * member had.
   */
  back: { isSame: boolean }
}

export interface SignalOptions extends RoomOptions, Reconnecting {
  info: MemberInfo
  /** Loads what a run needs; awaited before the event `assign` and all that follow it. */
  loadRuns?: () => Promise<unknown>
}

/** All of them, as the receiver of a box. */
const toWatchers = 'watchers'

/** The signaling address of the page's own server. */
export function signalUrl(page: { protocol: string; host: string }): string {
  return `${page.protocol === 'https:' ? 'wss:' : 'ws:'}//${page.host}${signalPath}`
}

/**
 * A member of one room, from `open` to `bye`, also over several connections where it `reconnects`.
 *
 * Register listeners before `open`. A listener that throws does so on its own: the others still run.
 */
export class SignalClient {
  /** The room as last received. */
  lobby: Lobby | null = null
  /** Members that wait to be let in, as last received. */
  asks: Asks = []
  private readonly connection: RoomConnection
  private assignment: Assignment | null = null
  /** Signals of this epoch that came before anyone listened: a neighbour may be quicker than our own page. */
  private early: SignalEvents['signal'][] = []
  private readonly listeners = new Map<keyof SignalEvents, Set<(value: never) => void>>()
  private outbox: Promise<void> = Promise.resolve()

  /** The room, for links through its server. */
  readonly address: RoomAddress

  constructor(private readonly options: SignalOptions) {
    this.address = { server: options.url, link: options.link }
    this.connection = new RoomConnection(options, {
      message: (message) => this.take(message),
      asking: (host) => this.emit('asking', { host }),
      refused: (error) => {
        // Messages that crossed the end of their epoch are no news: its end has been received or is about to be.
        if (error instanceof SignalError && error.refusal === 'wrong-epoch') return
        this.emit('refused', error)
      },
      lost: (error) => this.emit('lost', error),
      away: (error) => this.emit('away', error),
      back: (isSame) => this.emit('back', { isSame }),
    })
  }

  /** This member's id; set once `open` has resolved. */
  get id(): string {
    return this.connection.id
  }

  /** Proof for the server that a relayed link is this member's. */
  get token(): string | undefined {
    return this.connection.token
  }

  /** True if the connection is up, and this member in its room. */
  get isInside(): boolean {
    return this.connection.isInside
  }

  /** True if the server relays links; known once `open` has resolved. */
  get hasRelay(): boolean {
    return this.connection.hasRelay
  }

  /** For the links of the assignment that was received last. */
  get iceServers(): readonly IceServer[] {
    return this.connection.iceServers
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
  open(): Promise<void> {
    return this.connection.open()
  }

  /** Milliseconds until the server has answered; never resolves where the connection ends first. */
  roundTrip(): Promise<number> {
    return this.connection.roundTrip()
  }

  /** Sends the others what changed about this member. */
  update(info: MemberInfo): void {
    this.connection.info = info
    this.connection.send({ type: 'update', info })
  }

  /** Shows the others what this member would start; the maker's act. */
  propose(settings: JsonValue): void {
    this.connection.send({ type: 'propose', settings })
  }

  /** Answers one of `asks`; the maker's act. A refusal comes as `refused`. */
  letIn(id: string, isLetIn: boolean): void {
    this.connection.send({ type: 'letIn', id, isLetIn })
  }

  /** Makes another member the maker; the maker's act, between runs. A refusal comes as `refused`. */
  handOver(id: string): void {
    this.connection.send({ type: 'handOver', id })
  }

  /** Takes a member out of the room, which ends a run that it has a rank in unless that is elastic; the maker's act. A refusal comes as `refused`. */
  remove(id: string): void {
    this.connection.send({ type: 'remove', id })
  }

  /** Members of the room with its onlookers, as last received. */
  private get everyone(): Lobby['members'] {
    const { members = [], watchers = [] } = this.lobby ?? {}
    return [...members, ...watchers]
  }

  /**
   * Removes members between runs; each of the others gets `data`, sealed for it, as `moved`. Resolves once the server has done so; a member that
   * has already left counts as removed.
   *
   * errors: SignalError with the server's reason; `signal.lost` where the connection is down, or has ended for good meanwhile.
   */
  async removeAndTell(ids: readonly string[], data: JsonValue): Promise<void> {
    const { connection } = this
    const { secret } = connection
    const [last, ...others] = [...ids].reverse()
    const stay = this.everyone.filter(({ id }) => id !== this.id && !ids.includes(id))
    const boxes = await Promise.all(
      stay.map(async ({ id: to }) => ({
        to,
        box: await secret!.seal({ from: this.id, to }, data),
      })),
    )
    if (!connection.isInside) throw notRemoved()
    const outcome = this.outcomeOfRemoval()
    for (const id of others) this.remove(id)
    connection.send({ type: 'remove', id: last, boxes })
    if ((await outcome) === 'taken') return
    // Whether it got through shows in the room, once this client is back in it.
    if (this.everyone.some(({ id }) => ids.includes(id))) throw notRemoved()
  }

  /**
   * Resolves with `taken` once the server has handled all that is sent in this turn, with `back` where the connection ended first and this client
   * is in its room again. errors: as `removeAndTell`.
   */
  private async outcomeOfRemoval(): Promise<'taken' | 'back'> {
    const unlisten: (() => void)[] = []
    const listen: SignalClient['on'] = (event, listener) => {
      const stop = this.on(event, listener)
      unlisten.push(stop)
      return stop
    }
    try {
      return await new Promise((resolve, reject) => {
        listen('refused', (error) => {
          const isAbout = error instanceof SignalError && error.about === 'remove'
          if (isAbout && error.refusal !== 'unknown-member') reject(error)
        })
        listen('lost', reject)
        listen('away', () => listen('back', () => listen('lobby', () => resolve('back'))))
        // After what is sent in this turn.
        queueMicrotask(() => void this.roundTrip().then(() => resolve('taken')))
      })
    } finally {
      for (const stop of unlisten) stop()
    }
  }

  /**
   * Seals `data` and sends it: between runs to a neighbour in the ring; from an onlooker to a rank; from a rank to all onlookers that ask it (null).
   * It comes in order, or is dropped where the room has changed, and from or to onlookers where it is too much.
   */
  reach(to: string | null, data: JsonValue): void {
    const { connection } = this
    const sealed = connection.secret?.seal({ from: this.id, to: to ?? toWatchers }, data)
    if (!sealed) return
    this.outbox = this.outbox.then(async () => {
      connection.send({ type: 'reach', to, box: await sealed })
    })
  }

  /** ICE servers for links between runs, with credentials that are fresh. errors: as the connection's end. */
  askIceServers(): Promise<readonly IceServer[]> {
    return this.connection.askIceServers()
  }

  /** Starts a run with everyone in the room; the maker's act. `isElastic`: see the message. A refusal comes as `refused`. */
  start(settings: JsonValue, isElastic = false): void {
    this.connection.send({ type: 'start', settings, ...(isElastic && { isElastic }) })
  }

  /** Seals `data` for one neighbour and sends it. Signals keep their order. */
  signal(epoch: number, to: number, attempt: number, data: JsonValue): void {
    const from = this.assignment?.epoch === epoch ? this.assignment.rank : null
    const { connection } = this
    if (from === null || !connection.secret) return // the epoch is over
    const sealed = connection.secret.seal({ epoch, from, to, attempt }, data)
    this.outbox = this.outbox.then(async () => {
      connection.send({ type: 'signal', epoch, to, attempt, box: await sealed })
    })
  }

  /** This rank's links are all up. */
  ready(epoch: number): void {
    this.connection.send({ type: 'ready', epoch })
  }

  /** The link to a neighbour has ended or could not be made: the epoch is over for everyone. */
  linkDown(epoch: number, peerRank: number, text: string): void {
    this.connection.send({ type: 'linkDown', epoch, peerRank, text: plain(text) })
  }

  /** Ends the epoch for everyone: this rank cannot continue. */
  abort(epoch: number, text: string): void {
    this.connection.send({ type: 'abort', epoch, text: plain(text) })
  }

  /** This rank's part of the run has ended well; it may leave from now on. */
  done(epoch: number, reached?: Reached): void {
    this.connection.send({ type: 'done', epoch, reached })
  }

  /** Who the ranks of an elastic run are now, by id, as its members have decided; the highest ballot counts. `key`: that of the run. */
  ranks(key: string, ballot: number, ids: readonly string[]): void {
    this.connection.send({ type: 'ranks', key, ballot, ids: [...ids] })
  }

  /**
   * Which half of a roster of an elastic run has asked first? The answer comes as `half`. `alive`: those of its members that are not known to be
   * dead; `lives`: those that would continue.
   */
  half(key: string, ballot: number, alive: readonly string[], lives: readonly string[]): void {
    this.connection.send({ type: 'half', key, ballot, alive: [...alive], lives: [...lives] })
  }

  /** This tab is no rank any more of the elastic run with that key, and wants links to the ranks of the room's run as a newcomer. */
  out(key: string): void {
    this.connection.send({ type: 'out', key })
  }

  /** Leaves the room and closes; idempotent, and safe to call from `pagehide`. */
  bye(): void {
    this.connection.bye()
  }

  private async take(message: InsideMessage): Promise<void> {
    switch (message.type) {
      case 'lobby': {
        const { type: _, ...lobby } = message
        this.lobby = lobby
        this.emit('lobby', lobby)
        return
      }
      case 'asks':
        this.asks = message.asks
        this.emit('asks', message.asks)
        return
      case 'proposed':
        this.emit('proposed', message.settings)
        return
      case 'assign': {
        const { type: _, ...assignment } = message
        try {
          await this.options.loadRuns?.()
        } catch (thrown) {
          this.abort(message.epoch, messageOf(thrown))
          throw thrown
        }
        if (!this.isInside) return
        this.assignment = assignment
        this.early = []
        this.emit('assign', assignment)
        return
      }
      case 'signal': {
        const { epoch, from, attempt, box } = message
        const { secret } = this.connection
        if (this.assignment?.epoch !== epoch || !secret) return
        const to = this.assignment.rank
        const data = await secret.open({ epoch, from, to, attempt }, box)
        const signal = { epoch, from, attempt, data }
        if (this.listeners.get('signal')?.size) this.emit('signal', signal)
        else this.early.push(signal)
        return
      }
      case 'reach':
      case 'moved': {
        const { type, from, box } = message
        const isToAll = type === 'reach' && message.toWatchers
        const to = isToAll ? toWatchers : this.id
        const data = await this.connection.secret?.open({ from, to }, box)
        if (type === 'reach') this.emit('reach', { from, data })
        else this.emit('moved', { data })
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
      case 'half':
        this.emit('half', message)
        return
      case 'gone':
        this.emit('gone', message)
    }
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

function notRemoved(): PeerError {
  return new PeerError(
    'signal.lost',
    'signaling: the connection to the server ended, so nobody was removed. Try again once it is back.',
  )
}

/** `text` as the server takes it: one line, not too long. */
function plain(text: string): string {
  return text.replace(/\p{Cc}+/gu, ' ').slice(0, limits.textChars)
}
