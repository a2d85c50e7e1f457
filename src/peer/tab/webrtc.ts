import SimplePeer, { type SimplePeerSignal } from 'simple-peer/simplepeer.min.js'
import * as v from 'valibot'
import { type Env, systemEnv } from '../../util/env.ts'
import { invariant, messageOf, PeerError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { LinkStats } from '../link/link.ts'

/**
 * Connections between two tabs by WebRTC: the one file that knows simple-peer, so that it can be replaced.
 *
 * simple-peer makes the RTCPeerConnection, trickles signals and keeps a separate channel. The gradients take a second
 * channel, negotiated in advance (an in-band one would silently replace simple-peer's own) and made in the same task as
 * the connection, because a channel may be transferred to a worker in that task only.
 */

/** Id of the bulk channel; ids handed out in-band count up from 0 and stay below. */
export const bulkChannelId = 64

/**
 * One timeout for each attempt to connect, in ms. Their sum stays below the server's `limits.readyMs`, so the rank
 * that cannot connect says why before the server can only say that it is late.
 */
const defaultTimeoutsMs = [10_000, 8_000]
/** Time that the answering side waits beyond the last attempt, which the offering side times. units: ms. */
const answererGraceMs = 1_000
/** Candidates found within this time travel in one message. units: ms. */
const batchDelayMs = 10

export interface WebRtcOptions {
  /** This side makes the offers; exactly one of the two does. */
  initiator: boolean
  /** For error texts: `rank 2 (Laptop)`. */
  peerName: string
  /** ICE servers and policy. Default: no ICE servers at all, so third parties learn nothing. Credentials are in no error text. */
  rtc?: RTCConfiguration
  /**
   * Called with the bulk channel in the task that made it, once for every attempt: the newest replaces the others, which never
   * opened or are closed by then.
   */
  onChannel: (channel: RTCDataChannel, attempt: number) => void
  /** Called with what to bring to the other side's `receive`. */
  onSignal: (attempt: number, signals: JsonValue) => void
  /** Called once when a connection that was up has ended and we did not close it. errors: `peer.lost`. */
  onDown: (error: PeerError) => void
  /** For each attempt, in ms; default: 10 s, then 8 s. */
  attemptTimeoutsMs?: readonly number[]
  env?: Env
}

/** The bulk channel as the browser counts it, and the path that it takes. */
export interface WebRtcStats extends LinkStats {
  /** Packets that the browser threw away before they reached the network: more than a few mean too full a send queue. */
  packetsDiscardedOnSend: number
  /** Milliseconds; null before the first measurement. */
  roundTripMs: number | null
  /** Candidate types of the path in use, as `local-remote`: host-host, srflx-host, relay-relay. Null without one. */
  pair: string | null
}

const signalsSchema = v.pipe(
  v.array(
    v.looseObject({
      type: v.picklist(['offer', 'answer', 'candidate', 'renegotiate', 'transceiverRequest']),
    }),
  ),
  v.maxLength(200),
)

interface Attempt {
  number: number
  peer: SimplePeer
  pc: RTCPeerConnection
  isOver: boolean
  localCandidates: number
  remoteCandidates: number
  /** A TURN server gave this side an address. */
  isRelayed: boolean
  /** Errors of TURN servers that gave none, by URL. */
  turnErrors: Map<string, string>
  hasHeard: boolean
  /** How many of `attemptTimeoutsMs` have begun. */
  timeouts: number
  cancelTimeout: () => void
  outgoing: SimplePeerSignal[]
  cancelBatch: () => void
}

/** One connection: `start`, feed `receive`, await `connected`, and `close`. */
export class WebRtcConnection {
  /** Resolves when data can flow. errors: PeerError `peer.unreachable` with the likely reason. */
  readonly connected: Promise<void>
  private settle!: { resolve: () => void; reject: (error: PeerError) => void }
  private readonly env: Env
  private readonly attemptTimeoutsMs: readonly number[]
  private attempt: Attempt | null = null
  private isConnected = false
  private isOver = false
  private lastReason = ''
  private lastStats: WebRtcStats = {
    bytesSent: 0,
    bytesReceived: 0,
    messagesSent: 0,
    messagesReceived: 0,
    packetsDiscardedOnSend: 0,
    roundTripMs: null,
    pair: null,
  }
  private cancelDeadline: () => void = () => undefined
  private handlePong: () => void = () => undefined
  private handleEnd: (error: PeerError) => void = () => undefined

  constructor(private readonly options: WebRtcOptions) {
    this.env = options.env ?? systemEnv
    this.attemptTimeoutsMs = options.attemptTimeoutsMs ?? defaultTimeoutsMs
    this.connected = new Promise((resolve, reject) => {
      this.settle = { resolve, reject }
    })
    this.connected.catch(() => undefined) // its owner may look only after `onDown`
  }

  start(): void {
    if (!SimplePeer.WEBRTC_SUPPORT) {
      this.giveUp(
        'this browser has no WebRTC. Disable the extension or policy that blocks it, or use the relay',
      )
      return
    }
    window.addEventListener('pagehide', this.handlePageHide)
    if (this.options.initiator) {
      this.begin(1)
      return
    }
    const totalMs = this.attemptTimeoutsMs.reduce((sum, ms) => sum + ms, answererGraceMs)
    this.cancelDeadline = this.env.after(totalMs, () =>
      this.giveUp(
        this.attempt ? this.reason(this.attempt) : this.lastReason || 'the other tab sent no offer',
      ),
    )
  }

  /** Takes what the other side's `onSignal` gave. Signals of an attempt that was given up are dropped. */
  receive(attempt: number, signals: unknown): void {
    if (this.isOver) return
    const parsed = v.safeParse(signalsSchema, signals)
    if (!parsed.success) {
      this.giveUp(`the other tab sent an invalid signal (${parsed.issues[0].message})`)
      return
    }
    const isNewer = attempt > (this.attempt?.number ?? 0)
    if (isNewer && !this.options.initiator) this.begin(attempt)
    const current = this.attempt
    if (!current || current.number !== attempt || current.isOver) return
    current.hasHeard = true
    for (const signal of parsed.output as unknown as SimplePeerSignal[]) {
      if (signal.type === 'candidate') current.remoteCandidates++
      try {
        current.peer.signal(signal)
      } catch (thrown) {
        this.attemptEnded(current, messageOf(thrown)) // destroyed meanwhile
        return
      }
    }
  }

  /** Counts of the bulk channel and the path; the last known ones after the end. */
  async stats(): Promise<WebRtcStats> {
    const pc = this.attempt?.pc
    if (!pc || pc.connectionState === 'closed') return this.lastStats
    const report = await pc.getStats()
    const stats = readStats(report)
    if (stats) this.lastStats = stats
    return this.lastStats
  }

  /**
   * `count` round trips to the other side, one after the other, once connected; for the side that offers. What the two pages do meanwhile is
   * part of them. errors: `peer.lost`. units: ms.
   */
  async roundTrips(count = 5): Promise<number[]> {
    const tripsMs: number[] = []
    for (let i = 0; i < count; i++) {
      const startMs = this.env.now()
      await new Promise<void>((resolve, reject) => {
        this.handlePong = resolve
        this.handleEnd = reject
        if (this.isOver) reject(this.closedError())
        else this.sendPing(this.attempt!.peer, 'ping')
      })
      tripsMs.push(this.env.now() - startMs)
    }
    return tripsMs
  }

  /** Ends the connection, which the other side sees in 10-20 ms; idempotent. */
  close(): void {
    if (this.isOver) return
    this.end()
    this.settle.reject(this.closedError())
  }

  private closedError(): PeerError {
    return new PeerError(
      'peer.lost',
      `link to ${this.options.peerName}: closed on this side. Connect again.`,
    )
  }

  private begin(number: number): void {
    if (this.attempt) this.drop(this.attempt)
    const { initiator, rtc } = this.options
    const peer = new SimplePeer({
      initiator,
      config: { iceServers: [], ...rtc },
      trickle: true,
      // Its stream would otherwise join messages.
      objectMode: true,
    })
    const pc = peer._pc
    invariant(
      pc && typeof pc.createDataChannel === 'function',
      () => 'simple-peer has no _pc; webrtc.ts was written for version 9.11.1',
    )
    const attempt: Attempt = {
      number,
      peer,
      pc,
      isOver: false,
      localCandidates: 0,
      remoteCandidates: 0,
      isRelayed: false,
      turnErrors: new Map(),
      hasHeard: false,
      timeouts: number - 1,
      cancelTimeout: () => undefined,
      outgoing: [],
      cancelBatch: () => undefined,
    }
    this.attempt = attempt
    const bulk = pc.createDataChannel('bulk', { negotiated: true, id: bulkChannelId })
    bulk.binaryType = 'arraybuffer'

    peer.on('signal', (signal) => this.signalOut(attempt, signal))
    peer.on('connect', () => this.attemptConnected(attempt))
    // On simple-peer's channel nothing travels but what measures the way: one side asks, the other answers.
    peer.on('data', (data) => {
      if (initiator) this.handlePong()
      else this.sendPing(peer, data)
    })
    peer.on('error', (error) => this.attemptEnded(attempt, error.message))
    peer.on('close', () => this.attemptEnded(attempt, 'the connection closed'))
    pc.addEventListener('icecandidateerror', ({ url, errorCode, errorText }) => {
      if (/^turns?:/.test(url))
        attempt.turnErrors.set(url, `${errorCode} ${errorText}`.replace(/[ .]+$/, ''))
    })
    pc.addEventListener('icegatheringstatechange', () => {
      // Waiting is of no use: without any address this side can neither ask nor be asked.
      if (pc.iceGatheringState !== 'complete' || attempt.localCandidates > 0) return
      if (!attempt.isOver) this.giveUp(this.reason(attempt))
    })
    if (initiator) this.time(attempt)
    this.options.onChannel(bulk, number)
  }

  /** Gives an attempt up in time. One that has found a way gets the time of the next one too: over a slow connection another begins from nothing. */
  private time(attempt: Attempt): void {
    attempt.cancelTimeout = this.env.after(this.attemptTimeoutsMs[attempt.timeouts++]!, () => {
      const isLast = attempt.timeouts === this.attemptTimeoutsMs.length
      if (!isLast && hasWay(attempt.pc)) this.time(attempt)
      else this.attemptEnded(attempt, this.reason(attempt))
    })
  }

  private sendPing(peer: SimplePeer, data: string | Uint8Array): void {
    try {
      peer.send(data)
    } catch {
      // The channel is closing, and its end will be reported.
    }
  }

  private signalOut(attempt: Attempt, signal: SimplePeerSignal): void {
    if (attempt.isOver) return
    attempt.outgoing.push(signal)
    if (signal.type === 'candidate') {
      attempt.localCandidates++
      attempt.isRelayed ||= / typ relay\b/.test(signal.candidate?.candidate ?? '')
      if (attempt.outgoing.length > 1) return // a batch is under way
      attempt.cancelBatch = this.env.after(batchDelayMs, () => this.flush(attempt))
    } else this.flush(attempt)
  }

  private flush(attempt: Attempt): void {
    attempt.cancelBatch()
    if (attempt.isOver || attempt.outgoing.length === 0) return
    // Through JSON: candidates are objects of the browser's own classes.
    const signals = JSON.parse(JSON.stringify(attempt.outgoing)) as JsonValue
    attempt.outgoing = []
    this.options.onSignal(attempt.number, signals)
  }

  private attemptConnected(attempt: Attempt): void {
    if (attempt.isOver || attempt !== this.attempt) return
    attempt.cancelTimeout()
    this.cancelDeadline()
    this.isConnected = true
    this.settle.resolve()
  }

  private attemptEnded(attempt: Attempt, reason: string): void {
    if (attempt.isOver || this.isOver) return
    if (this.isConnected) {
      this.end()
      this.options.onDown(
        new PeerError('peer.lost', `link to ${this.options.peerName}: ended: ${reason}.`),
      )
      return
    }
    this.lastReason = this.reason(attempt)
    const { timeouts } = attempt
    if (!this.options.initiator)
      this.drop(attempt) // the offering side decides about another attempt
    else if (timeouts < this.attemptTimeoutsMs.length) this.begin(timeouts + 1)
    else this.giveUp(this.lastReason)
  }

  private giveUp(reason: string): void {
    if (this.isOver) return
    const wasConnected = this.isConnected
    this.end()
    const text = `link to ${this.options.peerName}: no connection: ${reason}.`
    const error = new PeerError('peer.unreachable', text)
    if (wasConnected) this.options.onDown(error)
    this.settle.reject(error)
  }

  private reason(attempt: Attempt): string {
    const { localCandidates, remoteCandidates, hasHeard, pc } = attempt
    const turn = this.turnTrouble(attempt)
    if (localCandidates === 0 && turn === '') {
      return 'no network route: this browser offers no address to connect from, for example because it is offline. Connect to a network, or open the tabs in one browser'
    }
    if (!hasHeard) return 'the other tab did not answer. Is it frozen or being debugged?'
    if (remoteCandidates === 0) {
      return 'no network route: the other browser offers no address to connect to, for example because it is offline'
    }
    if (hasWay(pc))
      return 'a way was found, but it carried too little to agree on keys in time. Use a faster connection, or close what fills this one'
    const advice =
      turn ||
      'A firewall or NAT may be in between: use one network, or a TURN server (--ice-servers for the launcher or the server, or the option rtc)'
    return `none of ${localCandidates} addresses here reaches one of ${remoteCandidates} there (ICE ${pc.iceConnectionState}). ${advice}`
  }

  /** Describes the fault of the TURN servers, if any are configured and none has given an address. */
  private turnTrouble({ isRelayed, turnErrors }: Attempt): string {
    const urls = (this.options.rtc?.iceServers ?? []).flatMap((server) => server.urls)
    const turns = urls.filter((url) => /^turns?:/.test(url))
    if (turns.length === 0 || isRelayed) return ''
    // The browser reports addresses in another form.
    const answers = [...turnErrors].map(([url, error]) => `${url}: ${error}`)
    const listed = answers.length > 0 ? answers : [`${turns.join(', ')}: no answer`]
    return `No TURN server gave an address (${listed.join(', ')}): check its address, its secret, and the clocks of both machines`
  }

  private end(): void {
    this.isOver = true
    this.cancelDeadline()
    window.removeEventListener('pagehide', this.handlePageHide)
    if (this.attempt) this.drop(this.attempt)
    this.handleEnd(this.closedError())
  }

  private drop(attempt: Attempt): void {
    attempt.isOver = true
    attempt.cancelTimeout()
    attempt.cancelBatch()
    // At once: simple-peer destroys in a later microtask, which a page that is being closed may not reach.
    attempt.pc.close()
    attempt.peer.destroy()
  }

  private readonly handlePageHide = () => this.close()
}

/** One of the addresses here reaches one there. */
const hasWay = ({ iceConnectionState }: RTCPeerConnection): boolean =>
  iceConnectionState === 'connected' || iceConnectionState === 'completed'

interface ChannelReport {
  dataChannelIdentifier?: number
  bytesSent: number
  bytesReceived: number
  messagesSent: number
  messagesReceived: number
}

function readStats(report: RTCStatsReport): WebRtcStats | null {
  let channel: ChannelReport | null = null
  let pairId: string | null = null
  const byId = new Map<string, Record<string, unknown>>()
  report.forEach((entry) => {
    byId.set(entry.id, entry)
    if (entry.type === 'data-channel' && entry.dataChannelIdentifier === bulkChannelId) {
      channel = entry
    }
    if (entry.type === 'transport') pairId = entry.selectedCandidatePairId ?? null
  })
  if (!channel) return null
  const { bytesSent, bytesReceived, messagesSent, messagesReceived } = channel as ChannelReport
  const pair = pairId ? byId.get(pairId) : undefined
  const typeOf = (id: unknown) => byId.get(String(id))?.['candidateType'] ?? '?'
  const roundTrip = pair?.['currentRoundTripTime']
  return {
    bytesSent,
    bytesReceived,
    messagesSent,
    messagesReceived,
    packetsDiscardedOnSend: Number(pair?.['packetsDiscardedOnSend'] ?? 0),
    roundTripMs: typeof roundTrip === 'number' ? roundTrip * 1000 : null,
    pair: pair ? `${typeOf(pair['localCandidateId'])}-${typeOf(pair['remoteCandidateId'])}` : null,
  }
}
