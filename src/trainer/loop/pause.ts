import type { ProcessGroup } from '../../peer/group/group.ts'
import { type Env, systemEnv } from '../../util/env.ts'

/** How soon ranks in a pause hear that one of them goes on. units: ms. */
const hearMs = 100

/** Words of a rank to the others in a pause. `stays`: another group began it. */
const words = { nothing: 0, asks: 1, stays: 2, goesOn: 3 } as const
/** Added to it where the rank asks for a change of settings. */
const changeWord = 4

/** Settings that change in a pause, for the step after it. */
export interface ChangesInPause {
  isAsked(): boolean
  /** All ranks call it. */
  agree(): Promise<void>
}

/**
 * The pause of a run, on one rank: asked for here or elsewhere, begun by all ranks after the same step, and over when one of them goes on. It
 * outlasts the group in which it began, and the rank that asked for it.
 *
 * Requests travel with each step's gradients (`StepFlags`), so that ranks agree without a message. In the pause
 * they tell each other every `hearMs`; heartbeats go on, so that a rank that dies is missed as ever.
 */
export class Pause {
  readonly #env: Env
  #isAsked = false
  #stays = false
  #goesOn = false
  #wake: () => void = () => undefined

  constructor(env: Env = systemEnv) {
    this.#env = env
  }

  /** True if this rank asks for a pause, or for the present one to last. */
  get isAsked(): boolean {
    return this.#isAsked
  }

  ask(): void {
    this.#isAsked = true
  }

  /** Ends the pause that all are in, or takes back what was asked for. */
  goOn(): void {
    this.#isAsked = false
    this.#goesOn = true
    this.#wake()
  }

  /** Lets one step pass: the pause ends, and the next one begins behind the step that follows. */
  passStep(): void {
    this.goOn()
    this.ask()
  }

  /**
   * Holds all ranks, which call it after the same step, until one of them resumes. `began` gets which of them asked, none where that one is
   * gone; it is not called where nobody asks.
   *
   * errors: the group's, `signal`'s reason, those of `began`.
   */
  async hold(
    group: ProcessGroup,
    signal: AbortSignal | undefined,
    began: (by: readonly number[]) => unknown,
    changes?: ChangesInPause,
  ): Promise<void> {
    this.#goesOn = false
    let isOn = false
    try {
      for (;;) {
        const own = Uint32Array.of(this.#word + (changes?.isAsked() ? changeWord : 0))
        const options = { label: 'the pause', deadlineMs: Number.POSITIVE_INFINITY }
        const all = [...(await group.allGatherU32(own, options))]
        signal?.throwIfAborted()
        if (all.some((word) => word >= changeWord)) await changes?.agree()
        const received = all.map((word) => word % changeWord)
        if (received.includes(words.goesOn) || received.every((word) => word === words.nothing))
          break
        if (!isOn) {
          isOn = true
          await began(received.flatMap((word, rank) => (word === words.asks ? [rank] : [])))
        }
        await this.#untilNext()
      }
    } catch (error) {
      this.#stays ||= isOn
      throw error
    }
    this.#stays = false
    if (!this.#goesOn) this.#isAsked = false
  }

  get #word(): number {
    if (this.#goesOn) return words.goesOn
    if (this.#isAsked) return words.asks
    return this.#stays ? words.stays : words.nothing
  }

  #untilNext(): Promise<void> {
    if (this.#goesOn) return Promise.resolve()
    return new Promise((resolve) => {
      const cancel = this.#env.after(hearMs, resolve)
      this.#wake = () => {
        cancel()
        resolve()
      }
    })
  }
}
