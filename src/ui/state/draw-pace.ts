/** At most this many snapshots a second reach the views: digits that change faster cannot be read. */
export const snapshotsPerSec = 15

/** Share of the main thread that drawing a run's events may take; with what else a page does it stays below 30 ms a second. */
const share = 0.013

/**
 * What is drawn rarely is drawn at multiples of one of these, by the clock: tabs beside each other then show the same step, and events are drawn
 * at least this often, however slow the machine. units: ms.
 */
const slowTicksMs = [750, 1000, 1500, 2000]

/** What the first picture is taken to cost. units: ms. */
const guessedMs = 5

/**
 * How often the progress of a run is drawn: as often as keeps the cost of drawing within its share of the main thread, so a fast machine shows
 * steps 15 times a second, and a slow one keeps its time for training.
 */
export class DrawPace {
  #costMs = guessedMs

  /** One picture took so long, from its state to its pixels. A long one says little: the machine may have done something else meanwhile. */
  took(ms: number): void {
    this.#costMs += (ms < this.#costMs ? 0.5 : 0.1) * (ms - this.#costMs)
  }

  /** When the picture after one at `drawnAtMs` is due. units: ms of Unix time. */
  after(drawnAtMs: number): number {
    const everyMs = Math.max(1000 / snapshotsPerSec, this.#costMs / share)
    if (everyMs < slowTicksMs[0] || !Number.isFinite(drawnAtMs)) return drawnAtMs + everyMs
    const tickMs = slowTicksMs.find((ms) => ms >= everyMs) ?? slowTicksMs[slowTicksMs.length - 1]
    const nextMs = (Math.floor(drawnAtMs / tickMs) + 1) * tickMs
    // One for a person's act may have come just before it.
    return nextMs - drawnAtMs < tickMs / 2 ? nextMs + tickMs : nextMs
  }
}
