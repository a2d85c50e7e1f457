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

  /** Resolves when the call has ended. errors: the call's. */
  wait(): Promise<void> {
    return this.#promise
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
