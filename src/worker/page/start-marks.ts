import type { RunEvent } from '../api.ts'

/** What stands before each name in the browser's timeline. */
export const startMark = 'tabring start: '

/** In the order in which they happen on the member that presses Start. */
export type StartMoment = 'pressed' | 'assigned' | 'sent' | Phase | 'step 1'
type Phase = Extract<RunEvent, { event: 'phase' }>['phase']

/**
 * Marks the way from Start to the first step in the browser's own timeline (User Timing): DevTools shows it, and `npm run bench -- start`
 * reads it. The newest run's alone.
 */
export class StartMarks {
  readonly #marked = new Set<string>()

  /** A new run: by a press of Start here, or by its coming from the server. */
  begin(moment: 'pressed' | 'assigned'): void {
    // A press stands before the assignment that it leads to.
    if (moment === 'assigned' && this.#marked.has('pressed') && this.#marked.size === 1) {
      this.mark(moment)
      return
    }
    for (const name of this.#marked) performance.clearMarks(startMark + name)
    this.#marked.clear()
    this.mark(moment)
  }

  /** Notes a moment, the first time that it comes. units: ms of Unix time. */
  mark(moment: StartMoment, atMs = performance.timeOrigin + performance.now()): void {
    if (this.#marked.has(moment)) return
    this.#marked.add(moment)
    performance.mark(startMark + moment, {
      startTime: Math.max(0, atMs - performance.timeOrigin),
    })
  }

  /** Notes a run's events, up to its first step. */
  take(event: RunEvent, atMs: number): void {
    if (this.#marked.has('step 1')) return
    if (event.event === 'phase') this.mark(event.phase, atMs)
    else if (event.event === 'step') this.mark('step 1', atMs)
  }
}
