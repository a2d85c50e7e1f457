import { type Env, systemEnv } from '../../util/env.ts'

/** The pace of a run's steps, so that people can follow them: each begins no sooner than `1 / maxStepsPerSec` behind the last one's beginning. */
export class Pace {
  /** 0: as fast as they go. */
  maxStepsPerSec: number
  readonly #env: Env
  /** By the clock: when the next step may begin. */
  #nextMs = 0

  constructor(maxStepsPerSec = 0, env: Env = systemEnv) {
    this.maxStepsPerSec = maxStepsPerSec
    this.#env = env
  }

  /** True if the next step has to wait. */
  get isEarly(): boolean {
    return this.#nextMs > this.#env.now()
  }

  /**
   * Resolves when the next step may begin. Timers that come late are made up for by the step behind, a long step or a pause is not.
   *
   * errors: `signal`'s reason.
   */
  async next(signal?: AbortSignal): Promise<void> {
    const everyMs = this.maxStepsPerSec > 0 ? 1000 / this.maxStepsPerSec : 0
    if (everyMs > 0) {
      const env = this.#env
      const waitMs = this.#nextMs - env.now()
      if (waitMs > 0) await waited(env, waitMs, signal)
      const nowMs = env.now()
      this.#nextMs = (waitMs > 0 ? Math.max(this.#nextMs, nowMs - everyMs) : nowMs) + everyMs
    }
    signal?.throwIfAborted()
  }
}

/** Resolves after `ms`, or when `signal` is aborted. */
function waited(env: Env, ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted()
  return new Promise((resolve) => {
    const end = () => {
      cancel()
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const cancel = env.after(ms, end)
    signal?.addEventListener('abort', end)
  })
}
