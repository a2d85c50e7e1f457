/** In an elastic run a state is kept after this time, however few steps that is. units: ms. */
const keepAfterMs = 2000
/** But keeping may take this share of the time at most. */
const maxShare = 0.02

/** How often a rank keeps its state for ranks that may lose another. */
export class KeepPace {
  readonly #afterMs: number
  /** When the newest was kept. */
  #atMs: number
  /** Time of keeping: the shortest time so far, as others are long by chance; 0 before it is known. */
  #tookMs = 0
  /** The first one also makes what the next ones reuse: its time says nothing of theirs. */
  #isCold = true

  constructor(nowMs: number, afterMs = keepAfterMs) {
    this.#atMs = nowMs
    this.#afterMs = afterMs
  }

  isDue(nowMs: number): boolean {
    return nowMs - this.#atMs >= Math.max(this.#afterMs, this.#tookMs / maxShare)
  }

  kept(beganMs: number, endedMs: number): void {
    this.#atMs = endedMs
    if (!this.#isCold)
      this.#tookMs = Math.min(this.#tookMs || Number.POSITIVE_INFINITY, endedMs - beganMs)
    this.#isCold = false
  }

  /** The run continues in another group, or on another device. */
  begin(): void {
    this.#isCold = true
  }
}
