import type { Env } from '../util/env.ts'

/** Something that may not stand still for longer than `deadlineMs`. */
export interface Timed {
  readonly launchedMs: number
  readonly deadlineMs: number
}

export interface DeadlinesOptions<T extends Timed> {
  env: Env
  /** What is waiting now, oldest first. */
  waiting: () => readonly T[]
  /** `late` has waited for `waitedMs` without progress anywhere. Nothing is watched after that. */
  onlate: (late: T, waitedMs: number) => void
}

/**
 * One timer for all deadlines. Each counts from its launch or from the last progress of any, whichever is later.
 *
 * Progress does not re-arm the timer, which would cost one a frame; it looks again when it fires.
 */
export class Deadlines<T extends Timed> {
  private readonly options: DeadlinesOptions<T>
  private lastProgressMs: number
  private firesAtMs = Number.POSITIVE_INFINITY
  private cancelTimer: () => void = () => undefined
  private isStopped = false

  constructor(options: DeadlinesOptions<T>) {
    this.options = options
    this.lastProgressMs = options.env.now()
  }

  /** Bytes have moved; returns now. */
  progress(): number {
    this.lastProgressMs = this.options.env.now()
    return this.lastProgressMs
  }

  watch({ deadlineMs }: Timed): void {
    if (!this.isStopped) this.fireWithin(deadlineMs)
  }

  /** For good. */
  stop(): void {
    this.isStopped = true
    this.cancelTimer()
  }

  private fireWithin(delayMs: number): void {
    const { env } = this.options
    const atMs = env.now() + delayMs
    if (atMs >= this.firesAtMs) return
    this.cancelTimer()
    this.firesAtMs = atMs
    this.cancelTimer = env.after(delayMs, () => this.look())
  }

  private look(): void {
    const { env, waiting, onlate } = this.options
    this.firesAtMs = Number.POSITIVE_INFINITY
    if (this.isStopped) return
    const now = env.now()
    let soonestMs = Number.POSITIVE_INFINITY
    for (const one of waiting()) {
      const sinceMs = Math.max(one.launchedMs, this.lastProgressMs)
      const leftMs = sinceMs + one.deadlineMs - now
      if (leftMs <= 0) {
        this.stop()
        onlate(one, now - sinceMs)
        return
      }
      soonestMs = Math.min(soonestMs, leftMs)
    }
    if (soonestMs < Number.POSITIVE_INFINITY) this.fireWithin(soonestMs)
  }
}
