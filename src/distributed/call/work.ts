import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { checkTimeout } from '../../util/options.ts'

/** A call under way, as torch.distributed's handles. */
export class Work {
  readonly #promise: Promise<void>
  #isCompleted = false
  #exception: unknown

  constructor(promise: Promise<void>) {
    this.#promise = promise
    promise.then(
      () => {
        this.#isCompleted = true
      },
      (thrown) => {
        this.#isCompleted = true
        this.#exception = thrown
      },
    )
  }

  /**
   * Resolves when the call has ended.
   *
   * `timeoutMs`: how long to wait at most; the call goes on behind it, and can be waited for again. errors: the call's; `peer.timeout`.
   */
  wait(timeoutMs?: number): Promise<void> {
    checkTimeout('wait', 'timeoutMs', timeoutMs)
    if (timeoutMs === undefined) return this.#promise
    return new Promise((resolve, reject) => {
      const cancel = systemEnv.after(timeoutMs, () =>
        reject(
          new PeerError(
            'peer.timeout',
            `wait: expected the call to end within ${timeoutMs} ms, got nothing yet. It goes on: wait again, or longer.`,
          ),
        ),
      )
      this.#promise.then(resolve, reject).finally(cancel)
    })
  }

  /** Whether it has ended, well or not. */
  isCompleted(): boolean {
    return this.#isCompleted
  }

  /** Whether it has ended well; false while it is under way, where torch throws. */
  isSuccess(): boolean {
    return this.#isCompleted && this.#exception === undefined
  }

  /** What it failed with; undefined while it is under way and where it ended well. */
  exception(): unknown {
    return this.#exception
  }

  /** The same as `wait`, by torch's name for what more is done after it: `work.getFuture().then(...)`. */
  getFuture(): Promise<void> {
    return this.#promise
  }
}
