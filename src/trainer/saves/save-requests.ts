import type { SavedState } from '../../data/saved-tree.ts'
import { messageOf, TabringError } from '../../util/errors.ts'
import type { RunEvent } from '../watch/run-events.ts'

/** A rank that saves by itself does so this often. units: ms. */
const everyMs = 10_000
/** After a save that failed it tries again this much later: a disk that is full may have room then. units: ms. */
const retryMs = 60_000
/** All ranks wait for a save: it may take this share of the time at most. */
const maxShare = 0.02

/** State read of a run between two steps: all that its checkpoint has. */
export interface ReadRun {
  readonly step: number
  readonly isBest: boolean
  /** Of its last test; the larger the better. NaN before there was one. */
  readonly score: number
  readonly state: SavedState
}

/** A checkpoint that a person asked for. */
export interface SavedFile {
  readonly step: number
  readonly name: string
}

type WithoutRank<Event> = Event extends unknown ? Omit<Event, 'rank'> : never
/** An event of saving. */
export type SaveEvent = WithoutRank<Extract<RunEvent, { event: 'checkpoint' | 'unsaved' }>>

export interface SavesOptions {
  /** Writes on this rank alone; returns the file's name. */
  readonly write: (run: ReadRun, isKept: boolean) => Promise<string>
  readonly report: (event: SaveEvent) => void
  /** units: ms; any origin. */
  readonly now: () => number
}

interface Waiting {
  resolve(file: SavedFile): void
  reject(reason: unknown): void
}

/**
 * The saves of a run, where `canBeSaved`, on one rank: by the clock, and when a person wants one.
 *
 * The optimizer's state is spread over the ranks, so all read it together: while steps are made, that somebody wants a save travels with
 * them, as pauses do. What is read when a pause begins and behind the last step is held here, so that a save is then this rank's own
 * business. Each rank writes in its own place, and what it cannot write ends nothing.
 */
export class Saves {
  readonly #options: SavesOptions
  #waiting: Waiting[] = []
  #held: ReadRun | null = null
  #dueMs = Number.POSITIVE_INFINITY
  /** The newest save failed. */
  #hasFailed = false
  #ended: unknown = null

  constructor(options: SavesOptions) {
    this.#options = options
  }

  /** From now on this rank saves by the clock. */
  startClock(): void {
    this.#dueMs = this.#options.now() + everyMs
  }

  /** True if this rank wants a save behind the step that begins. */
  get isWanted(): boolean {
    return this.#waiting.length > 0 || this.#options.now() >= this.#dueMs
  }

  /** Saves what is held, or behind one of the next steps. errors: those of the write; the run's end, where that comes first. */
  async ask(): Promise<SavedFile> {
    if (this.#held) return this.#writeKept(this.#held)
    if (this.#ended) throw this.#ended
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
  }

  /**
   * Takes what all ranks have read, from `beganMs` on, and writes it where somebody here waits for it, the clock wants it, or `isDue`.
   * With `isHeld` it stays for later saves, until `letGo`.
   */
  async take(
    run: ReadRun,
    { beganMs, isDue, isHeld }: { beganMs: number; isDue: boolean; isHeld: boolean },
  ): Promise<void> {
    const { now, write, report } = this.#options
    if (isHeld) this.#held = run
    const waiting = this.#waiting.splice(0)
    const isKept = waiting.length > 0
    const isByItself = isDue || now() >= this.#dueMs
    if (!isKept && !isByItself) return
    try {
      const name = await write(run, isKept)
      this.#report(run, name, isKept)
      for (const { resolve } of waiting) resolve({ step: run.step, name })
    } catch (thrown) {
      for (const { reject } of waiting) reject(thrown)
      if (isKept) return
      const code = thrown instanceof TabringError ? thrown.code : ''
      // Once is enough until a save succeeds.
      if (!this.#hasFailed)
        report({ event: 'unsaved', step: run.step, code, text: messageOf(thrown) })
      this.#hasFailed = true
      if (this.#dueMs !== Number.POSITIVE_INFINITY) this.#dueMs = now() + retryMs
      return
    }
    this.#hasFailed = false
    if (this.#dueMs === Number.POSITIVE_INFINITY) return
    const endedMs = now()
    this.#dueMs = endedMs + Math.max(everyMs, (endedMs - beganMs) / maxShare)
  }

  /** Steps are to come: what was held is of an earlier one. */
  letGo(): void {
    this.#held = null
  }

  /** No step is to come: who waits is refused, but what is held can be saved. */
  end(reason?: unknown): void {
    this.#ended =
      reason ??
      new TabringError(
        'graph.misuse',
        'save: there is no run that is training or has finished. Save while it runs.',
      )
    for (const { reject } of this.#waiting.splice(0)) reject(this.#ended)
  }

  async #writeKept(run: ReadRun): Promise<SavedFile> {
    const name = await this.#options.write(run, true)
    this.#report(run, name, true)
    return { step: run.step, name }
  }

  #report({ step, isBest }: ReadRun, name: string, isKept: boolean): void {
    this.#options.report({ event: 'checkpoint', step, name, isBest, isKept })
  }
}
