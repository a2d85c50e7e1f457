import type { RunEvent, TimedEvent } from '../api.ts'

/** Steps and tests are posted at least so far apart: a message costs the page about 0.3 ms, however much is in it. units: ms. */
const batchMs = 100

/** Sends a run's events to its page, many quick steps and tests in one message; all else goes at once, after what was before it. */
export class EventBatches {
  readonly #post: (events: readonly TimedEvent[]) => void
  readonly #now: () => number
  readonly #after: (delayMs: number, run: () => void) => void
  #waiting: TimedEvent[] = []
  #postedMs = Number.NEGATIVE_INFINITY
  #isTimed = false

  constructor(
    post: (events: readonly TimedEvent[]) => void,
    now: () => number = () => performance.timeOrigin + performance.now(),
    after: (delayMs: number, run: () => void) => void = (delayMs, run) =>
      void setTimeout(run, delayMs),
  ) {
    this.#post = post
    this.#now = now
    this.#after = after
  }

  add(event: RunEvent): void {
    const atMs = this.#now()
    this.#waiting.push({ event, atMs })
    const leftMs = this.#postedMs + batchMs - atMs
    if (!isOfSteps(event) || leftMs <= 0) this.flush()
    else if (!this.#isTimed) {
      this.#isTimed = true
      this.#after(leftMs, () => {
        this.#isTimed = false
        this.flush()
      })
    }
  }

  flush(): void {
    if (this.#waiting.length === 0) return
    this.#postedMs = this.#now()
    this.#post(this.#waiting.splice(0))
  }
}

function isOfSteps(event: RunEvent): boolean {
  if (event.event === 'phase') return event.phase === 'evaluate'
  return event.event === 'step' || event.event === 'evaluation'
}
