import { DrawPace, snapshotsPerSec } from './draw-pace.ts'
import { isProgressOnly } from './progress-actions.ts'
import { reduce } from './reduce.ts'
import type { Action, Snapshot } from './snapshot.ts'

/** A tab that is covered but not hidden gets few frames; what happened shows after this time at the latest. units: ms. */
const latestFrameMs = 150

export interface Surface {
  isHidden(): boolean
  /** Calls back before the next frame is drawn. */
  frame(callback: () => void): void
  after(delayMs: number, callback: () => void): void
  /** In a frame: calls back when it has been laid out and painted. */
  painted(callback: () => void): void
  /** units: ms of Unix time; never goes back. */
  now(): number
}

/**
 * Holds the snapshot: every action counts at once, views see the newest at most 15 times a second, progress of a run as often as `DrawPace`
 * says, on a frame, and not at all while the tab is hidden (call `show` when that ends).
 */
export class Store {
  #snapshot: Snapshot
  readonly #surface: Surface
  readonly #draw: (snapshot: Snapshot) => void
  readonly #listeners = new Set<(snapshot: Snapshot) => void>()
  /** When the newest snapshot is to be drawn; infinite while nothing is to be. */
  #dueMs = Number.POSITIVE_INFINITY
  #drawnAtMs = Number.NEGATIVE_INFINITY
  readonly #pace = new DrawPace()
  #waiting: (() => void)[] = []

  constructor(first: Snapshot, surface: Surface, draw: (snapshot: Snapshot) => void) {
    this.#snapshot = first
    this.#surface = surface
    this.#draw = draw
    this.#schedule()
  }

  get snapshot(): Snapshot {
    return this.#snapshot
  }

  dispatch(action: Action): void {
    const next = reduce(this.#snapshot, action)
    if (next === this.#snapshot) return
    const isSlow = isProgressOnly(action, this.#snapshot)
    this.#snapshot = next
    this.#schedule(isSlow)
    for (const listener of this.#listeners) listener(next)
  }

  /** Calls back after each action, hidden or not, until the function that it returns is called; for what keeps things, not for what draws them. */
  onChange(listener: (snapshot: Snapshot) => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Resolves when the page is next drawn, at the pace of a run's progress: what is set then costs no extra picture. */
  nextDraw(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#schedule(true)
    })
  }

  /** Draws what happened while the tab was hidden. */
  show(): void {
    this.#schedule()
  }

  #schedule(isSlow = false): void {
    if (this.#surface.isHidden()) return
    const dueMs = isSlow
      ? this.#pace.after(this.#drawnAtMs)
      : this.#drawnAtMs + 1000 / snapshotsPerSec
    // One that is due as early needs no second one; a later one finds that all has been drawn.
    if (this.#dueMs <= dueMs) return
    this.#dueMs = dueMs
    const waitMs = dueMs - this.#surface.now()
    const frame = () =>
      this.#surface.frame(() => {
        if (this.#dueMs !== dueMs) return
        this.#dueMs = Number.POSITIVE_INFINITY
        if (this.#surface.isHidden()) return
        const beganMs = this.#surface.now()
        this.#drawnAtMs = beganMs
        const waiting = this.#waiting.splice(0)
        this.#draw(this.#snapshot)
        for (const resolve of waiting) resolve()
        this.#surface.painted(() => this.#pace.took(this.#surface.now() - beganMs))
      })
    if (waitMs > 0) this.#surface.after(waitMs, frame)
    else frame()
  }
}

/** The page itself as a surface. */
export const pageSurface: Surface = {
  isHidden: () => document.hidden,
  frame(callback) {
    const timer = setTimeout(() => {
      cancelAnimationFrame(request)
      callback()
    }, latestFrameMs)
    const request = requestAnimationFrame(() => {
      clearTimeout(timer)
      callback()
    })
  },
  after: (delayMs, callback) => void setTimeout(callback, delayMs),
  painted(callback) {
    // A message is taken after the frame that it was sent in; a timer would wait longer.
    const { port1, port2 } = new MessageChannel()
    port1.onmessage = () => {
      port1.close()
      callback()
    }
    port2.postMessage(null)
  },
  now: () => performance.timeOrigin + performance.now(),
}
