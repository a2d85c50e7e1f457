/**
 * Flow control of one session, both ways.
 *
 * The browser gives a receiver no back-pressure, and a connection with more than 512 KiB under way loses packets before
 * the wire (seen with Chromium 156 on loopback). So a sender counts the DATA bytes that the other side has not yet
 * *consumed* and never lets them exceed the window that the other side announced in HELLO. Only DATA counts.
 *
 * Credit is cumulative, modulo 2^32, and rides on every frame. units: bytes of whole messages, headers included.
 */
import { PeerError } from '../../util/errors.ts'

/** Bytes under way from us to the other side. */
export class SendWindow {
  /** The other side's window; 0 before its HELLO. */
  windowBytes = 0
  inFlightBytes = 0
  private creditReceived = 0
  /** Bytes until the end of each frame that is under way, counted from the first frame on; those before `confirmed` are not any more. */
  private readonly ends: number[] = []
  private confirmed = 0
  private sentBytes = 0

  /** Frames of which not all has been consumed on the other side, as far as its credit has come here. */
  get inFlightFrames(): number {
    return this.ends.length - this.confirmed
  }

  hasRoom(frameBytes: number): boolean {
    return this.inFlightBytes + frameBytes <= this.windowBytes
  }

  sent(frameBytes: number): void {
    this.inFlightBytes += frameBytes
    this.sentBytes += frameBytes
    this.ends.push(this.sentBytes)
  }

  /** Takes the credit on a frame; returns how much is new. errors: `peer.protocol` for more than is under way. */
  take(credit: number): number {
    const gained = (credit - this.creditReceived) >>> 0
    if (gained > this.inFlightBytes)
      throw new PeerError(
        'peer.protocol',
        `credit for ${gained} bytes, but only ${this.inFlightBytes} are in flight`,
      )
    this.creditReceived = credit
    this.inFlightBytes -= gained
    if (gained > 0) this.confirm(this.sentBytes - this.inFlightBytes)
    return gained
  }

  private confirm(bytes: number): void {
    const { ends } = this
    while (this.confirmed < ends.length && ends[this.confirmed] <= bytes) this.confirmed++
    if (this.confirmed < ends.length && this.confirmed < maxConfirmed) return
    ends.splice(0, this.confirmed)
    this.confirmed = 0
  }
}

/** Max number of confirmed ends that are kept before the rest is moved up. */
const maxConfirmed = 256

export interface ReceiveWindowOptions {
  windowBytes: number
  /** Credit is returned when this share of the window has been consumed, or after `idleMs`. */
  share: number
  idleMs: number
  /** Runs `run` once, unless the session ends before. */
  after: (delayMs: number, run: () => void) => void
  /** Sends a CREDIT frame. */
  sendCredit: () => void
}

/** Bytes under way from the other side to us. */
export class ReceiveWindow {
  readonly windowBytes: number
  private readonly options: ReceiveWindowOptions
  private readonly stepBytes: number
  private given = 0
  private unreturnedBytes = 0
  private isTimerSet = false

  constructor(options: ReceiveWindowOptions) {
    this.options = options
    this.windowBytes = options.windowBytes
    this.stepBytes = Math.floor(options.windowBytes * options.share)
  }

  consumed(messageBytes: number): void {
    this.given = (this.given + messageBytes) >>> 0
    this.unreturnedBytes += messageBytes
    if (this.unreturnedBytes >= this.stepBytes) this.giveBack()
    else if (!this.isTimerSet) {
      this.isTimerSet = true
      this.options.after(this.options.idleMs, () => {
        this.isTimerSet = false
        this.giveBack()
      })
    }
  }

  /** The credit for a frame that leaves now, which returns all there is. */
  stamp(): number {
    this.unreturnedBytes = 0
    return this.given
  }

  private giveBack(): void {
    if (this.unreturnedBytes > 0) this.options.sendCredit()
  }
}
