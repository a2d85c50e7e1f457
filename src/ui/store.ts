import { type Action, reduce, type Snapshot } from './state.ts'

/** At most this many snapshots a second reach the views: digits that change faster cannot be read. */
export const snapshotsPerSec = 15

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
 * Holds the snapshot: every action counts at once, views see the newest at most 15 times a second, on a frame, and not at all while the
 * tab is hidden (call `show` when that ends).
 */
export class Store {
  #snapshot: Snapshot
  readonly #surface: Surface
  readonly #draw: (snapshot: Snapshot) => void
  #isDue = false
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
    this.#schedule()
  }

  /** Draws what happened while the tab was hidden. */
  show(): void {
    this.#schedule()
  }

  #schedule(): void {
    if (this.#isDue || this.#surface.isHidden()) return
    this.#isDue = true
    const waitMs = this.#drawnAtMs + 1000 / snapshotsPerSec - this.#surface.now()
    const frame = () =>
      this.#surface.frame(() => {
        this.#isDue = false
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
