import type { SessionConfig } from './session-config.ts'

export interface HeartbeatOptions {
  config: SessionConfig
  now: () => number
  /** Runs `run` once, unless the session ends before. */
  after: (delayMs: number, run: () => void) => void
  /** Return whether PING may go, and whether silence counts: after our HELLO, and after theirs. */
  canPing: () => boolean
  canJudge: () => boolean
  sendPing: (serial: number) => void
  onsuspect: (isSuspect: boolean, silentMs: number) => void
  /** The other side has been silent for `deadMs`; the beat stops. */
  ondead: (silentMs: number) => void
  onbeat: () => void
}

/** Asks whether the other side is there, and notices when it is silent. */
export class Heartbeat {
  private readonly options: HeartbeatOptions
  private lastHeardMs: number
  private lastBeatMs: number
  private isSuspect = false
  private serial = 0
  private pingSentMs = 0
  private beats = 0
  /** The last time that this side stood still, and when it ended. */
  private still = { ms: 0, endedMs: Number.NEGATIVE_INFINITY }
  private isOver = false

  constructor(options: HeartbeatOptions) {
    this.options = options
    this.lastHeardMs = this.lastBeatMs = options.now()
  }

  /** Milliseconds since anything was heard from the other side. */
  get silentMs(): number {
    return this.options.now() - this.lastHeardMs
  }

  /**
   * How long this side itself stood still, as a suspended process does, where the other side must have given it up and that ended just now;
   * else 0. units: ms.
   */
  get stoodStillMs(): number {
    const { deadMs } = this.options.config
    if (!this.isOver) this.noteStill()
    const { ms, endedMs } = this.still
    return ms >= deadMs && this.options.now() - endedMs < deadMs ? ms : 0
  }

  /** Nothing runs any more. */
  end(): void {
    this.noteStill()
    this.isOver = true
  }

  /** Returns for how long the timer of the next beat is late. units: ms. */
  private noteStill(): number {
    const { now, config } = this.options
    const atMs = now()
    const lateMs = atMs - this.lastBeatMs - config.pingMs / 2
    if (lateMs > config.pingMs) this.still = { ms: lateMs, endedMs: atMs }
    return lateMs
  }

  heard(): void {
    this.lastHeardMs = this.options.now()
    if (this.isSuspect) {
      this.isSuspect = false
      this.options.onsuspect(false, 0)
    }
  }

  /** The round trip that PONG `serial` ends in milliseconds; undefined for another than the last PING's. */
  roundTripMs(serial: number): number | undefined {
    return serial === this.serial ? this.options.now() - this.pingSentMs : undefined
  }

  /** Twice per PING interval, so that a death is seen at most half an interval after `deadMs`. */
  beat(): void {
    const { now, after, canPing, canJudge, sendPing, onsuspect, ondead, onbeat } = this.options
    const { pingMs, suspectMs, deadMs } = this.options.config
    const intervalMs = pingMs / 2
    const atMs = now()
    const pauseMs = this.noteStill()
    this.lastBeatMs = atMs
    // When our own tab or worker stood still, timers run before the messages that piled up: that is not the other's silence.
    if (pauseMs > pingMs) this.lastHeardMs += pauseMs
    if (canPing() && this.beats++ % 2 === 0) {
      this.serial = (this.serial + 1) >>> 0
      this.pingSentMs = atMs
      sendPing(this.serial)
    }
    if (canJudge()) {
      const { silentMs } = this
      if (silentMs >= deadMs) {
        ondead(silentMs)
        return
      }
      if (silentMs >= suspectMs && !this.isSuspect) {
        this.isSuspect = true
        onsuspect(true, silentMs)
      }
    }
    after(intervalMs, () => this.beat())
    onbeat()
  }
}
