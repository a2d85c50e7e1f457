import type { Env } from '../../util/env.ts'

/** Something that may not stand still for longer than `deadlineMs`. */
export interface Timed {
  readonly deadlineMs: number
  /** Since when it stands still: its launch, or the last that moved it or what it stands behind. */
  readonly stillSinceMs: number
}

export interface DeadlinesOptions<T extends Timed> {
  env: Env
  /** Returns those that wait now, oldest first. */
  waiting: () => readonly T[]
  /** `late` has stood still for `waitedMs`, and is ended: it waits no more. */
  onlate: (late: T, waitedMs: number) => void
}

/**
 * One timer for all deadlines.
 *
 * Progress does not re-arm the timer, which would cost one a frame; it looks again when it fires.
 */
export class Deadlines<T extends Timed> {
  private readonly options: DeadlinesOptions<T>
  private firesAtMs = Number.POSITIVE_INFINITY
  private cancelTimer: () => void = () => undefined
  private isStopped = false

  constructor(options: DeadlinesOptions<T>) {
    this.options = options
  }

  watch({ deadlineMs }: Pick<Timed, 'deadlineMs'>): void {
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
    this.cancelTimer = env.after(delayMs, () => this.check())
  }

  private check(): void {
    const { env, waiting, onlate } = this.options
    this.firesAtMs = Number.POSITIVE_INFINITY
    if (this.isStopped) return
    const now = env.now()
    let soonestMs = Number.POSITIVE_INFINITY
    for (const one of waiting()) {
      const { stillSinceMs } = one
      const leftMs = stillSinceMs + one.deadlineMs - now
      if (leftMs <= 0) {
        onlate(one, now - stillSinceMs)
        // What stood behind it may move now.
        if (!this.isStopped) this.fireWithin(0)
        return
      }
      soonestMs = Math.min(soonestMs, leftMs)
    }
    if (soonestMs < Number.POSITIVE_INFINITY) this.fireWithin(soonestMs)
  }
}
