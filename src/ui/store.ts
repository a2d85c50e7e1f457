import { type Action, reduce, type Snapshot } from './state.ts'

/** At most this many snapshots a second reach the views: digits that change faster cannot be read. */
export const snapshotsPerSec = 15

/** A run's steps are shown so often: drawing the page once takes some 7 ms of a slow machine (`npm run bench -- page`). */
export const stepsShownPerSec = 3

/** A tab that is covered but not hidden gets few frames; what happened shows after this time at the latest. units: ms. */
const latestFrameMs = 150

export interface Surface {
  isHidden(): boolean
  /** Calls back before the next frame is drawn. */
  frame(callback: () => void): void
  after(delayMs: number, callback: () => void): void
  now(): number
}

/**
 * Holds the snapshot: every action counts at once, views see the newest at most 15 times a second, mere steps of a run 3 times, on a frame,
 * and not at all while the tab is hidden (call `show` when that ends).
 */
export class Store {
  #snapshot: Snapshot
  readonly #surface: Surface
  readonly #draw: (snapshot: Snapshot) => void
  readonly #listeners: ((snapshot: Snapshot) => void)[] = []
  /** When the newest snapshot is to be drawn; infinite while nothing is to be. */
  #dueMs = Number.POSITIVE_INFINITY
  #drawnAtMs = Number.NEGATIVE_INFINITY

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
    this.#snapshot = next
    this.#schedule(action.type === 'event' && action.event.event === 'step')
    for (const listener of this.#listeners) listener(next)
  }

  /** Calls back after each action, hidden or not; for what keeps things, not for what draws them. */
  onChange(listener: (snapshot: Snapshot) => void): void {
    this.#listeners.push(listener)
  }

  /** Draws what happened while the tab was hidden. */
  show(): void {
    this.#schedule()
  }

  #schedule(isStep = false): void {
    if (this.#surface.isHidden()) return
    const dueMs = this.#drawnAtMs + 1000 / (isStep ? stepsShownPerSec : snapshotsPerSec)
    // One that is due as early needs no second one; a later one finds that all has been drawn.
    if (this.#dueMs <= dueMs) return
    this.#dueMs = dueMs
    const waitMs = dueMs - this.#surface.now()
    const frame = () =>
      this.#surface.frame(() => {
        if (this.#dueMs !== dueMs) return
        this.#dueMs = Number.POSITIVE_INFINITY
        if (this.#surface.isHidden()) return
        this.#drawnAtMs = this.#surface.now()
        this.#draw(this.#snapshot)
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
  now: () => performance.now(),
}
