/**
 * One side of a conversation over one link, for one epoch: frames, credits, heartbeats, one end.
 *
 * Map: settings - the Session: HELLO, sending, receiving, credit, heartbeat, leaving.
 *
 * Flow control. The browser gives a receiver no back-pressure, and a connection with more than 512 KiB under way loses
 * packets before the wire (research/webrtc-transport.md 0.1, 0.2). So a sender counts the DATA bytes that the other side
 * has not yet *consumed* and never lets them exceed the window that the other side announced in HELLO. Only DATA counts:
 * START, CREDIT, PING, PONG, ABORT and BYE go straight to the link and never wait behind data in a queue of ours; on the
 * wire they wait for at most the link's own send queue.
 */
import type { Env } from '../util/env.ts'
import { messageOf, PeerError } from '../util/errors.ts'
import type { Link, LinkEnd, LinkKind } from './link.ts'
import {
  type AbortRecord,
  decodeAbort,
  decodeHeader,
  decodeHello,
  emptyHeader,
  encodeAbort,
  encodeHeader,
  encodeHello,
  type FrameHeader,
  FrameType,
  frameTypeName,
  headerBytes,
} from './wire.ts'

export interface SessionConfig {
  /** DATA bytes (headers included) that the other side may have under way to us, by kind of link. */
  windowBytes: Record<LinkKind, number>
  /** Credit is returned when this share of the window has been consumed, or after `creditIdleMs`. */
  creditShare: number
  creditIdleMs: number
  /** A PING this often; silence of `suspectMs` is reported, silence of `deadMs` ends the session. */
  pingMs: number
  suspectMs: number
  deadMs: number
  /** How long to wait for the other side's HELLO. */
  helloMs: number
  /** How long `leave` waits for the other side to consume and to say goodbye. */
  leaveMs: number
}

/** source: research/webrtc-transport.md 9.3 and 9.4. */
export const sessionDefaults: SessionConfig = {
  windowBytes: { webrtc: 512 * 1024, memory: 512 * 1024, port: 8 * 1024 * 1024 },
  creditShare: 1 / 4,
  creditIdleMs: 5,
  pingMs: 1000,
  suspectMs: 3000,
  deadMs: 8000,
  helloMs: 15_000,
  leaveMs: 2000,
}

export interface SessionOptions {
  link: Link
  env: Env
  epoch: number
  rank: number
  peerRank: number
  size: number
  config?: Partial<SessionConfig>
}

export interface SessionStats {
  kind: LinkKind
  /** DATA payload bytes, headers not counted. */
  payloadBytesSent: number
  payloadBytesReceived: number
  dataFramesSent: number
  dataFramesReceived: number
  controlFramesSent: number
  controlFramesReceived: number
  /** Frames of another epoch: counted and dropped. */
  foreignEpochFrames: number
  /** The most DATA bytes that ever were under way and not credited; at most the other side's window. */
  peakInFlightBytes: number
  /** Round trip of the last answered PING in milliseconds; NaN before the first. */
  rttMs: number
}

/** Where the bytes of a DATA frame come from; they are written straight into the message. */
export interface SegmentSource {
  writeSegment(
    step: number,
    offset: number,
    length: number,
    target: Uint8Array<ArrayBuffer>,
    at: number,
  ): void
}

export class Session {
  readonly rank: number
  readonly peerRank: number
  readonly stats: SessionStats
  /** Resolves once both sides have said HELLO; rejects if that does not come to pass. */
  readonly ready: Promise<void>

  /**
   * A START or DATA frame. The header is reused for the next frame. For DATA the handler, or whoever holds the message,
   * calls `consumed(message.length)` when the bytes have been taken out.
   */
  onframe: (header: FrameHeader, message: Uint8Array<ArrayBuffer>) => void = ignore
  onabort: (record: AbortRecord) => void = ignore
  /** `hasRoom` may have become true. Called on credit, on room in the link, and on every heartbeat as a watchdog. */
  onwritable: () => void = ignore
  /** The other side has been silent for `suspectMs`, or is heard again. */
  onsuspect: (isSuspect: boolean, silentMs: number) => void = ignore
  /** The other side, or the owner's handler, broke the protocol. The session goes on: the owner decides. */
  onerror: (error: PeerError) => void = ignore
  /** Called once. */
  onend: (end: LinkEnd) => void = ignore

  private readonly link: Link
  private readonly env: Env
  private readonly epoch: number
  private readonly size: number
  private readonly config: SessionConfig
  private readonly ownWindowBytes: number
  private readonly creditStepBytes: number
  private readonly isTransferring: boolean

  private readonly out = emptyHeader()
  private readonly incoming = emptyHeader()
  private readonly scratch: Uint8Array<ArrayBuffer>
  private isHelloSent = false
  private isHelloReceived = false
  private pendingControl: { header: FrameHeader; payload: Uint8Array | undefined }[] = []
  private maxFrameBytes = 0
  private peerWindowBytes = 0
  private inFlightBytes = 0
  private framesSent = 0
  private framesReceived = 0
  /** Cumulative, modulo 2^32. */
  private creditReceived = 0
  private creditGiven = 0
  private unreturnedBytes = 0
  private isCreditTimerSet = false

  private lastHeardMs: number
  private lastTickMs: number
  private isSuspect = false
  private pingSerial = 0
  private pingSentMs = 0
  private ticks = 0

  private end: LinkEnd | undefined
  private isByeSent = false
  private leaving: { detail: string; finish: () => void } | undefined
  private readonly cancels = new Set<() => void>()
  private settleReady!: { resolve: () => void; reject: (error: PeerError) => void }

  constructor(options: SessionOptions) {
    this.link = options.link
    this.env = options.env
    this.epoch = options.epoch
    this.rank = options.rank
    this.peerRank = options.peerRank
    this.size = options.size
    this.config = { ...sessionDefaults, ...options.config }
    this.ownWindowBytes = this.config.windowBytes[this.link.kind]
    this.creditStepBytes = Math.floor(this.ownWindowBytes * this.config.creditShare)
    this.isTransferring = this.link.transfers === true
    this.scratch = new Uint8Array(this.isTransferring ? headerBytes : this.link.maxMessageBytes)
    this.stats = {
      kind: this.link.kind,
      payloadBytesSent: 0,
      payloadBytesReceived: 0,
      dataFramesSent: 0,
      dataFramesReceived: 0,
      controlFramesSent: 0,
      controlFramesReceived: 0,
      foreignEpochFrames: 0,
      peakInFlightBytes: 0,
      rttMs: Number.NaN,
    }
    this.lastHeardMs = this.lastTickMs = this.env.now()
    this.ready = new Promise((resolve, reject) => {
      this.settleReady = { resolve, reject }
    })
    // Whoever does not wait for `ready` hears of the same failure through `onend` or `onerror`.
    this.ready.catch(ignore)

    this.link.onmessage = (message) => this.receive(message)
    this.link.onroom = () => this.writable()
    this.link.onend = (end) => this.finish(end)
    this.after(this.config.helloMs, () => this.checkHello())
    this.tick()
    this.writable()
  }

  get isReady(): boolean {
    return this.isHelloSent && this.isHelloReceived && !this.end
  }

  get isEnded(): boolean {
    return this.end !== undefined
  }

  /** The largest DATA payload in bytes that one frame carries to the other side; 0 before `ready`. */
  get maxPayloadBytes(): number {
    return this.maxFrameBytes - headerBytes
  }

  /** The other side's window in bytes; 0 before `ready`. */
  get windowBytes(): number {
    return this.peerWindowBytes
  }

  /** The window that this side announced, bytes. */
  get ownWindow(): number {
    return this.ownWindowBytes
  }

  /** Milliseconds since anything was heard from the other side. */
  get silentMs(): number {
    return this.env.now() - this.lastHeardMs
  }

  // Sending

  /** Whether a DATA frame of `payloadBytes` may go now: credit is there, and room in the link. */
  hasRoom(payloadBytes: number): boolean {
    if (!this.isReady || this.isByeSent) return false
    const frameBytes = headerBytes + payloadBytes
    return this.inFlightBytes + frameBytes <= this.peerWindowBytes && this.link.room() > 0
  }

  /** Sends one DATA frame; ask `hasRoom` first. cost: one copy, from the source into the message. */
  sendData(
    kind: number,
    sequence: number,
    bucket: number,
    step: number,
    offset: number,
    length: number,
    source: SegmentSource,
  ): void {
    const frameBytes = headerBytes + length
    const { out } = this
    out.type = FrameType.data
    out.kind = kind
    out.sequence = sequence
    out.bucket = bucket
    out.step = step
    out.offset = offset
    out.length = length
    const message = this.isTransferring
      ? new Uint8Array(frameBytes)
      : frameBytes === this.scratch.length
        ? this.scratch
        : this.scratch.subarray(0, frameBytes)
    source.writeSegment(step, offset, length, message, headerBytes)
    this.inFlightBytes += frameBytes
    this.stats.peakInFlightBytes = Math.max(this.stats.peakInFlightBytes, this.inFlightBytes)
    this.stats.payloadBytesSent += length
    this.stats.dataFramesSent += 1
    this.transmit(out, message)
  }

  /** Sends START. `kind`, `sequence` and `bucket` as in the header. Waits for HELLO if that has not gone yet. */
  sendStart(kind: number, sequence: number, bucket: number, payload: Uint8Array): void {
    this.sendControl({ ...emptyHeader(), type: FrameType.start, kind, sequence, bucket }, payload)
  }

  sendAbort(record: AbortRecord): void {
    this.sendControl({ ...emptyHeader(), type: FrameType.abort }, encodeAbort(record))
  }

  private sendControl(header: FrameHeader, payload?: Uint8Array): void {
    if (this.end || this.isByeSent) return
    if (!this.isHelloSent) {
      this.pendingControl.push({ header, payload })
      return
    }
    header.length = payload?.length ?? 0
    const message = new Uint8Array(headerBytes + header.length)
    if (payload) message.set(payload, headerBytes)
    this.stats.controlFramesSent += 1
    this.transmit(header, message)
  }

  private transmit(header: FrameHeader, message: Uint8Array<ArrayBuffer>): void {
    header.epoch = this.epoch
    header.number = this.framesSent
    header.credit = this.creditGiven
    this.framesSent = (this.framesSent + 1) >>> 0
    this.unreturnedBytes = 0
    encodeHeader(header, message)
    this.link.send(message, this.isTransferring)
  }

  private writable(): void {
    if (!this.isHelloSent && !this.end && this.link.room() > 0) this.sendHello()
    if (this.isReady) this.onwritable()
  }

  // HELLO

  private sendHello(): void {
    this.isHelloSent = true
    this.sendControl(
      { ...emptyHeader(), type: FrameType.hello },
      encodeHello({
        rank: this.rank,
        size: this.size,
        maxMessageBytes: this.link.maxMessageBytes,
        windowBytes: this.ownWindowBytes,
      }),
    )
    for (const { header, payload } of this.pendingControl) this.sendControl(header, payload)
    this.pendingControl = []
    if (this.isHelloReceived) this.settleReady.resolve()
  }

  private receiveHello(message: Uint8Array): void {
    if (this.isHelloReceived) throw this.error('a second HELLO on one link')
    const hello = decodeHello(message.subarray(headerBytes))
    if (hello.rank !== this.peerRank || hello.size !== this.size) {
      throw this.error(
        `expected HELLO from rank ${this.peerRank} of ${this.size}, got rank ${hello.rank} of ${hello.size}`,
        'peer.mismatch',
      )
    }
    if (hello.maxMessageBytes < 1024 || hello.windowBytes < 2 * 1024) {
      throw this.error(
        `expected room for messages of 1 KiB and a window of 2 KiB, got ${hello.maxMessageBytes} and ${hello.windowBytes} bytes`,
      )
    }
    // A quarter of the window at most, or the window could not hold early frames and others side by side (collectives.ts).
    const most = Math.min(
      this.link.maxMessageBytes,
      hello.maxMessageBytes,
      Math.floor(hello.windowBytes / 4),
    )
    this.maxFrameBytes = most - (most % 8)
    this.peerWindowBytes = hello.windowBytes
    this.isHelloReceived = true
    if (this.isHelloSent) this.settleReady.resolve()
    this.writable()
  }

  private checkHello(): void {
    if (this.isHelloReceived || this.end) return
    const foreign = this.stats.foreignEpochFrames
    const error = new PeerError(
      'peer.timeout',
      `epoch ${this.epoch}: rank ${this.rank} waited ${this.config.helloMs} ms for HELLO from rank ${this.peerRank}` +
        `${this.isHelloSent ? '' : '; the link never opened'}` +
        `${foreign > 0 ? `; ${foreign} frames of another epoch came, last of epoch ${this.incoming.epoch}` : ''}. Is that tab still there?`,
    )
    this.settleReady.reject(error)
    this.onerror(error)
  }

  // Receiving

  private receive(message: Uint8Array<ArrayBuffer>): void {
    if (this.end) return
    try {
      this.dispatch(message)
    } catch (thrown) {
      const error =
        thrown instanceof PeerError
          ? thrown
          : new PeerError('peer.protocol', this.sentence(messageOf(thrown)), { cause: thrown })
      this.settleReady.reject(error)
      this.onerror(error)
    }
  }

  private dispatch(message: Uint8Array<ArrayBuffer>): void {
    const header = this.incoming
    try {
      decodeHeader(message, header)
    } catch (thrown) {
      throw this.error(messageOf(thrown))
    }
    this.heard()
    if (header.epoch !== this.epoch) {
      this.stats.foreignEpochFrames += 1
      return
    }
    if (header.number !== this.framesReceived) {
      throw this.error(
        `expected frame ${this.framesReceived}, got frame ${header.number} (${frameTypeName(header.type)}): the link lost, doubled or reordered a message`,
      )
    }
    this.framesReceived = (this.framesReceived + 1) >>> 0
    if (!this.isHelloReceived && header.type !== FrameType.hello)
      throw this.error(`expected HELLO first, got ${frameTypeName(header.type)}`)
    const gained = this.takeCredit(header.credit)
    switch (header.type) {
      case FrameType.data:
        this.stats.payloadBytesReceived += header.length
        this.stats.dataFramesReceived += 1
        this.onframe(header, message)
        break
      case FrameType.start:
        this.stats.controlFramesReceived += 1
        this.onframe(header, message)
        break
      default:
        this.stats.controlFramesReceived += 1
        this.receiveControl(header, message)
    }
    if (gained) this.writable()
  }

  private receiveControl(header: FrameHeader, message: Uint8Array): void {
    switch (header.type) {
      case FrameType.hello:
        this.receiveHello(message)
        break
      case FrameType.ping:
        this.sendControl({ ...emptyHeader(), type: FrameType.pong, offset: header.offset })
        break
      case FrameType.pong:
        if (header.offset === this.pingSerial) this.stats.rttMs = this.env.now() - this.pingSentMs
        break
      case FrameType.abort:
        this.onabort(decodeAbort(message.subarray(headerBytes)))
        break
      case FrameType.bye:
        this.receiveBye(new TextDecoder().decode(message.subarray(headerBytes)))
        break
    }
  }

  // Credit

  /** Gives the other side back the credit for a DATA message whose bytes have been taken out. units: whole-message bytes. */
  consumed(messageBytes: number): void {
    this.creditGiven = (this.creditGiven + messageBytes) >>> 0
    this.unreturnedBytes += messageBytes
    if (this.unreturnedBytes >= this.creditStepBytes) this.returnCredit()
    else if (!this.isCreditTimerSet) {
      this.isCreditTimerSet = true
      this.after(this.config.creditIdleMs, () => {
        this.isCreditTimerSet = false
        this.returnCredit()
      })
    }
  }

  private returnCredit(): void {
    if (this.unreturnedBytes > 0) this.sendControl({ ...emptyHeader(), type: FrameType.credit })
  }

  private takeCredit(cumulative: number): boolean {
    const gained = (cumulative - this.creditReceived) >>> 0
    if (gained === 0) return false
    if (gained > this.inFlightBytes)
      throw this.error(`credit for ${gained} bytes, but only ${this.inFlightBytes} are under way`)
    this.creditReceived = cumulative
    this.inFlightBytes -= gained
    this.settleLeaving()
    return true
  }

  // Heartbeat

  private heard(): void {
    this.lastHeardMs = this.env.now()
    if (this.isSuspect) {
      this.isSuspect = false
      this.onsuspect(false, 0)
    }
  }

  /** Twice per PING interval, so that a death is seen at most half an interval after `deadMs`. */
  private tick(): void {
    const intervalMs = this.config.pingMs / 2
    const now = this.env.now()
    const pauseMs = now - this.lastTickMs - intervalMs
    this.lastTickMs = now
    // When our own tab or worker stood still, timers run before the messages that piled up: that is not the other's silence.
    if (pauseMs > this.config.pingMs) this.lastHeardMs += pauseMs
    if (this.isHelloSent && this.ticks++ % 2 === 0) {
      this.pingSerial = (this.pingSerial + 1) >>> 0
      this.pingSentMs = now
      this.sendControl({ ...emptyHeader(), type: FrameType.ping, offset: this.pingSerial })
    }
    if (this.isHelloReceived) {
      const { silentMs } = this
      if (silentMs >= this.config.deadMs) {
        const detail = `nothing heard for ${Math.round(silentMs)} ms`
        this.finish({ why: 'timeout', detail })
        this.link.close(detail)
        return
      }
      if (silentMs >= this.config.suspectMs && !this.isSuspect) {
        this.isSuspect = true
        this.onsuspect(true, silentMs)
      }
    }
    this.after(intervalMs, () => this.tick())
    this.writable()
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
    if (!this.leaving || this.inFlightBytes > 0 || this.end) return
    if (this.isHelloSent) this.sendBye(this.leaving.detail)
    else this.leaving.finish()
  }

  private sendBye(detail: string): void {
    if (this.isByeSent) return
    this.sendControl(
      { ...emptyHeader(), type: FrameType.bye },
      new TextEncoder().encode(detail.slice(0, 200)),
    )
    this.isByeSent = true
  }

  /** The side that hears the first BYE answers it; the side that began closes the link. */
  private receiveBye(detail: string): void {
    const began = this.isByeSent
    this.sendBye(detail)
    this.finish({ why: 'bye', detail })
    if (began) this.link.close(detail)
    else this.env.after(this.config.leaveMs, () => this.link.close(detail))
  }

  private finish(end: LinkEnd): void {
    if (this.end) return
    this.end = end
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

  private error(
    text: string,
    code: 'peer.protocol' | 'peer.mismatch' = 'peer.protocol',
  ): PeerError {
    return new PeerError(code, this.sentence(text))
  }

  private sentence(text: string): string {
    return `epoch ${this.epoch}: rank ${this.rank} on its link to rank ${this.peerRank}: ${text.replace(/\.$/, '')}.`
  }
}

function ignore(): undefined {
  return undefined
}
