/** A call under way, as torch.distributed's handles. */
export class Work {
  readonly #promise: Promise<void>
  #isCompleted = false

  constructor(promise: Promise<void>) {
    this.#promise = promise
    promise.then(
      () => {
        this.#isCompleted = true
      },
      () => {
        this.#isCompleted = true
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
}
