import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { checkTimeout } from '../../util/options.ts'

/** Handle of an operation in flight, as in torch.distributed. */
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
   * Resolves when the operation has finished.
   *
   * `timeoutMs`: how long to wait at most. The operation keeps running after a timeout, and `wait` may be called again.
   * errors: those of the operation; `peer.timeout`.
   */
  wait(timeoutMs?: number): Promise<void> {
    checkTimeout('wait', 'timeoutMs', timeoutMs)
    if (timeoutMs === undefined) return this.#promise
    return new Promise((resolve, reject) => {
      const cancel = systemEnv.after(timeoutMs, () =>
        reject(
          new PeerError(
            'peer.timeout',
            `wait: timed out after ${timeoutMs} ms. The operation is still running; call wait() again or use a longer timeout.`,
          ),
        ),
      )
      this.#promise.then(resolve, reject).finally(cancel)
    })
  }

  /** Returns whether the operation has finished, successfully or not. */
  isCompleted(): boolean {
    return this.#isCompleted
  }

  /** Returns whether the operation has succeeded; false while it is in flight, where torch throws. */
  isSuccess(): boolean {
    return this.#isCompleted && this.#exception === undefined
  }

  /** Returns the error of the operation; undefined while it is in flight or if it succeeded. */
  exception(): unknown {
    return this.#exception
  }

  /** Returns the promise of `wait()`, under torch's name: `work.getFuture().then(...)`. */
  getFuture(): Promise<void> {
    return this.#promise
  }
}
