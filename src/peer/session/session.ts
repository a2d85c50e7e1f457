/**
 * One side of a conversation over one link, for one epoch: frames, credits, heartbeats, one end.
 *
 * Map: options - the Session: HELLO, sending, receiving, leaving. Its parts: hello.ts, frames.ts, credit.ts, heartbeat.ts.
 *
 * Only DATA waits for credit: START, CREDIT, PING, PONG, ABORT and BYE go straight to the link and never wait behind data
 * in a queue of ours; on the wire they wait for at most the link's own send queue.
 */
import type { Env } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import type { Link, LinkEnd } from '../link/link.ts'
import {
  type AbortRecord,
  decodeAbort,
  encodeAbort,
  type FrameHeader,
  FrameType,
  fingerprintBytes,
  frameTypeName,
  headerBytes,
  shownText,
} from '../link/wire.ts'
import { ReceiveWindow, SendWindow } from './credit.ts'
import {
  type FramePart,
  FrameReader,
  type FrameRoute,
  type FrameStart,
  FrameWriter,
  type SegmentSource,
} from './frames.ts'
import { Heartbeat } from './heartbeat.ts'
import { Handshake } from './hello.ts'
import {
  emptyStats,
  type SessionConfig,
  type SessionStats,
  sessionDefaults,
} from './session-config.ts'

/** Of the text in BYE. */
const maxByeChars = 200

export interface SessionOptions {
  link: Link
  env: Env
  epoch: number
  rank: number
  peerRank: number
  size: number
  config?: Partial<SessionConfig>
}

export class Session {
  readonly rank: number
  readonly peerRank: number
  readonly stats: SessionStats
  private recentPeakBytes = 0
  private recentPeakFrames = 0
  /** Resolves once both sides have said HELLO; rejects if that does not come to pass. */
  readonly ready: Promise<void>

  /**
   * A START or DATA frame. The header is reused for the next frame. For DATA the handler, or the holder of the message,
   * calls `consumed(message.length)` when the bytes have been taken out.
   */
  onframe: (header: FrameHeader, message: Uint8Array<ArrayBuffer>) => void = ignore
  onabort: (record: AbortRecord) => void = ignore
  /** `hasRoom` may have become true. Called on credit, on room in the link, and on every heartbeat as a watchdog. */
  onwritable: () => void = ignore
  /** The other side has been silent for `suspectMs`, or is heard again. */
  onsuspect: (isSuspect: boolean, silentMs: number) => void = ignore
  /** The other side, or the owner's handler, broke the protocol. The session stays open: the owner decides. */
  onerror: (error: PeerError) => void = ignore
  /** Called once. */
  onend: (end: LinkEnd) => void = ignore

  private readonly link: Link
  private readonly env: Env
  private readonly config: SessionConfig
  private readonly sendWindow = new SendWindow()
  private readonly receiveWindow: ReceiveWindow
  private readonly writer: FrameWriter
  private readonly heartbeat: Heartbeat
  private readonly reader: FrameReader
  private readonly hello: Handshake
  /** Control frames that wait for our HELLO. */
  private waitingForHello: [fields: Partial<FrameHeader>, payload: Uint8Array | undefined][] = []

  private end: LinkEnd | undefined
  private isByeSent = false
  private leaving: { detail: string; finish: () => void } | undefined
  private readonly cancels = new Set<() => void>()
  /** Of the wait for the side that said goodbye first to close the link. */
  private cancelClose = (): void => undefined
  private settleReady!: { resolve: () => void; reject: (error: PeerError) => void }

  constructor(options: SessionOptions) {
    const { link, env, epoch } = options
    this.link = link
    this.env = env
    this.rank = options.rank
    this.peerRank = options.peerRank
    this.config = { ...sessionDefaults, ...options.config }
    this.stats = emptyStats(link.kind)
    const after = (delayMs: number, run: () => void) => this.after(delayMs, run)
    this.receiveWindow = new ReceiveWindow({
      windowBytes: this.config.windowBytes[link.kind] * (link.laneCount ?? 1),
      share: this.config.creditShare,
      idleMs: this.config.creditIdleMs,
      after,
      sendCredit: () => this.sendControl({ type: FrameType.credit }),
    })
    this.writer = new FrameWriter({ link, epoch, stampCredit: () => this.receiveWindow.stamp() })
    this.reader = new FrameReader(epoch)
    this.hello = new Handshake({
      rank: this.rank,
      peerRank: this.peerRank,
      size: options.size,
      maxMessageBytes: link.maxMessageBytes,
      windowBytes: this.ownWindow,
    })
    this.heartbeat = new Heartbeat({
      config: this.config,
      now: () => env.now(),
      after,
      canPing: () => this.hello.isSent,
      canJudge: () => this.hello.isReceived,
      sendPing: (serial) => this.sendControl({ type: FrameType.ping, offset: serial }),
      onsuspect: (isSuspect, silentMs) => this.onsuspect(isSuspect, silentMs),
      ondead: (silentMs) => this.die(`nothing heard for ${Math.round(silentMs)} ms`),
      onbeat: () => this.writable(),
    })
    this.ready = new Promise((resolve, reject) => {
      this.settleReady = { resolve, reject }
    })
    // Owners that do not await `ready` get the same failure through `onend` or `onerror`.
    this.ready.catch(ignore)

    link.onmessage = (message) => this.receive(message)
    link.onroom = () => this.writable()
    link.onend = (end) => {
      this.cancelClose()
      this.finish(end)
    }
    this.after(this.config.helloMs, () => this.checkHello())
    this.heartbeat.beat()
    this.writable()
  }

  get isReady(): boolean {
    return this.hello.isDone && !this.end
  }

  /** The largest DATA payload in bytes that one frame carries to the other side; 0 before `ready`. */
  get maxPayloadBytes(): number {
    return this.hello.maxFrameBytes - headerBytes
  }

  /** The other side's window in bytes; 0 before `ready`. */
  get windowBytes(): number {
    return this.sendWindow.windowBytes
  }

  /** The most DATA bytes, and the most frames of it, that were under way at once since this was asked last. */
  takeRecentPeaks(): { peakInFlightBytes: number; peakInFlightFrames: number } {
    const { recentPeakBytes, recentPeakFrames, sendWindow } = this
    this.recentPeakBytes = sendWindow.inFlightBytes
    this.recentPeakFrames = sendWindow.inFlightFrames
    return { peakInFlightBytes: recentPeakBytes, peakInFlightFrames: recentPeakFrames }
  }

  /** The window that this side announced, bytes. */
  get ownWindow(): number {
    return this.receiveWindow.windowBytes
  }

  /** Milliseconds since anything was heard from the other side. */
  get silentMs(): number {
    return this.heartbeat.silentMs
  }

  /** See `Heartbeat.stoodStillMs`. */
  get stoodStillMs(): number {
    return this.heartbeat.stoodStillMs
  }

  // HELLO

  private sendHello(): void {
    const payload = this.hello.send()
    this.sendControl({ type: FrameType.hello }, payload)
    for (const waiting of this.waitingForHello) this.sendControl(...waiting)
    this.waitingForHello = []
    if (this.hello.isDone) this.settleReady.resolve()
  }

  private receiveHello(payload: Uint8Array): void {
    this.hello.receive(payload)
    this.sendWindow.windowBytes = this.hello.peerWindowBytes
    if (this.hello.isDone) this.settleReady.resolve()
    this.writable()
  }

  private checkHello(): void {
    if (this.hello.isReceived || this.end) return
    const foreign = this.stats.foreignEpochFrames
    const error = new PeerError(
      'peer.timeout',
      `rank ${this.rank} waited ${this.config.helloMs} ms for HELLO from rank ${this.peerRank}` +
        `${this.hello.isSent ? '' : '; the link never opened'}` +
        `${foreign > 0 ? `; ${foreign} frames of another membership came, last of membership ${this.reader.header.epoch}` : ''}. Is that tab still open?`,
    )
    this.settleReady.reject(error)
    this.onerror(error)
    // A side that does not answer is as good as gone; the group's ABORT has been sent.
    this.link.close('no HELLO came')
  }

  // Sending

  /** Returns whether a DATA frame of `payloadBytes` may go now: credit is there, and room in the link. */
  hasRoom(payloadBytes: number): boolean {
    if (!this.isReady || this.isByeSent) return false
    return this.sendWindow.hasRoom(headerBytes + payloadBytes) && this.link.room() > 0
  }

  /** Sends one DATA frame, with START in it where that has not gone; ask `hasRoom` first. cost: one copy, from the source into the message. */
  sendData<Part extends FramePart>(
    route: FrameRoute,
    part: Part,
    source: SegmentSource<Part>,
    start?: FrameStart,
  ): void {
    const { stats, sendWindow } = this
    const { length } = part
    sendWindow.sent(headerBytes + length + (start?.fingerprint.length ?? 0))
    stats.peakInFlightBytes = Math.max(stats.peakInFlightBytes, sendWindow.inFlightBytes)
    this.recentPeakBytes = Math.max(this.recentPeakBytes, sendWindow.inFlightBytes)
    this.recentPeakFrames = Math.max(this.recentPeakFrames, sendWindow.inFlightFrames)
    stats.payloadBytesSent += length
    stats.dataFramesSent += 1
    this.writer.data(route, part, source, start)
  }

  /**
   * Sends START; `isAgain` if only the number of ranks that have begun is news. Waits for HELLO if that has not gone yet.
   */
  sendStart(
    { kind, group, sequence, bucket }: FrameRoute,
    { begun, fingerprint }: FrameStart,
    isAgain = false,
  ): void {
    const fields = { kind, group, sequence, bucket, step: begun, offset: Number(isAgain) }
    this.sendControl({ type: FrameType.start, ...fields }, fingerprint)
  }

  sendAbort(record: AbortRecord): void {
    const max = this.link.maxMessageBytes - headerBytes
    this.sendControl({ type: FrameType.abort, group: record.group }, encodeAbort(record, max))
  }

  private sendControl(fields: Partial<FrameHeader>, payload?: Uint8Array): void {
    if (this.end || this.isByeSent) return
    if (!this.hello.isSent) {
      this.waitingForHello.push([fields, payload])
      return
    }
    this.stats.controlFramesSent += 1
    this.writer.control(fields, payload)
  }

  private writable(): void {
    if (!this.hello.isSent && !this.end && this.link.room() > 0) this.sendHello()
    if (this.isReady) this.onwritable()
  }

  // Receiving

  /** Gives the other side back the credit for a DATA message whose bytes have been taken out. units: whole-message bytes. */
  consumed(messageBytes: number): void {
    this.receiveWindow.consumed(messageBytes)
  }

  /** Adds to a frame's errors which link it was. */
  private receive(message: Uint8Array<ArrayBuffer>): void {
    if (this.end) return
    try {
      this.dispatch(message)
    } catch (thrown) {
      const code = thrown instanceof PeerError ? thrown.code : 'peer.protocol'
      const error = new PeerError(code, this.sentence(messageOf(thrown)), { cause: thrown })
      this.settleReady.reject(error)
      this.onerror(error)
      // A link that has lost or changed frames may do so again.
      if (code === 'peer.protocol') this.link.close(error.message)
    }
  }

  private dispatch(message: Uint8Array<ArrayBuffer>): void {
    const { reader, stats } = this
    const { header } = reader
    const isOurs = reader.read(message)
    this.heartbeat.heard()
    if (!isOurs) {
      stats.foreignEpochFrames += 1
      return
    }
    if (!this.hello.isReceived && header.type !== FrameType.hello)
      throw new PeerError(
        'peer.protocol',
        `expected HELLO first, got ${frameTypeName(header.type)}`,
      )
    const gained = this.sendWindow.take(header.credit)
    if (gained > 0) this.settleLeaving()
    if (header.type === FrameType.data) {
      stats.payloadBytesReceived += header.length - (header.begun > 0 ? fingerprintBytes : 0)
      stats.dataFramesReceived += 1
      this.onframe(header, message)
    } else {
      stats.controlFramesReceived += 1
      if (header.type === FrameType.start) this.onframe(header, message)
      else this.receiveControl(header, message.subarray(headerBytes))
    }
    if (gained > 0) this.writable()
  }

  private receiveControl(header: FrameHeader, payload: Uint8Array): void {
    switch (header.type) {
      case FrameType.hello:
        this.receiveHello(payload)
        break
      case FrameType.ping:
        // Where what was sent is not read, the other side hears from this one as soon as it reads.
        if (this.link.room() > 0) this.sendControl({ type: FrameType.pong, offset: header.offset })
        break
      case FrameType.pong:
        this.stats.rttMs = this.heartbeat.roundTripMs(header.offset) ?? this.stats.rttMs
        break
      case FrameType.abort:
        this.onabort(decodeAbort(payload, header.group))
        break
      case FrameType.bye:
        this.receiveBye(shownText(payload, maxByeChars))
        break
    }
  }

  // Leaving

  /**
   * Says goodbye once the other side has consumed all data, then closes the link. Resolves when the other side has
   * answered, or after `leaveMs`; never rejects.
   */
  leave(detail: string): Promise<void> {
    if (this.end || this.leaving) return Promise.resolve()
    return new Promise((resolve) => {
      const finish = () => {
        this.close(detail)
        resolve()
      }
      this.leaving = { detail, finish }
      this.after(this.config.leaveMs, finish)
      this.settleLeaving()
    })
  }

  /** Says goodbye and ends at once. Idempotent. */
  close(detail: string): void {
    if (!this.end) {
      this.sendBye(detail)
      this.finish({ why: 'local', detail })
    }
    this.link.close(detail)
  }

  private settleLeaving(): void {
    if (!this.leaving || this.sendWindow.inFlightBytes > 0 || this.end) return
    if (this.hello.isSent) this.sendBye(this.leaving.detail)
    else this.leaving.finish()
  }

  private sendBye(detail: string): void {
    if (this.isByeSent) return
    this.sendControl(
      { type: FrameType.bye },
      new TextEncoder().encode(detail.slice(0, maxByeChars)),
    )
    this.isByeSent = true
  }

  /** The side that hears the first BYE answers it; the side that began closes the link. */
  private receiveBye(detail: string): void {
    const began = this.isByeSent
    this.sendBye(detail)
    this.finish({ why: 'bye', detail })
    if (began) this.link.close(detail)
    else this.cancelClose = this.env.after(this.config.leaveMs, () => this.link.close(detail))
  }

  private die(detail: string): void {
    this.finish({ why: 'timeout', detail })
    this.link.close(detail)
  }

  private finish(end: LinkEnd): void {
    if (this.end) return
    this.end = end
    this.heartbeat.end()
    for (const cancel of this.cancels) cancel()
    this.cancels.clear()
    this.settleReady.reject(new PeerError('peer.lost', this.sentence(`${end.why}: ${end.detail}`)))
    this.leaving?.finish()
    this.onend(end)
  }

  private after(delayMs: number, run: () => void): void {
    const cancel = this.env.after(delayMs, () => {
      this.cancels.delete(cancel)
      run()
    })
    this.cancels.add(cancel)
  }

  private sentence(text: string): string {
    return `rank ${this.rank} on its link to rank ${this.peerRank}: ${text.replace(/\.$/, '')}.`
  }
}

function ignore(): undefined {
  return undefined
}
