/**
 * Lets work through between the steps of a run: one piece in each gap, so that a step waits for one piece at most; any number while no
 * step is to come. Pieces go in the order of asking.
 */
export class Gaps {
  readonly #waiting: Piece[] = []
  #isOpen = true
  /** Work that is under way while it is open. */
  #flow: Promise<void> = Promise.resolve()

  /** No step is to come. */
  get isOpen(): boolean {
    return this.#isOpen
  }

  get isWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** Runs `owner`'s work when its turn has come, and resolves with its result. errors: those of `work`; the reason of `refuse`. */
  run<T>(owner: object, work: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#waiting.push({
        start: async () => work().then(resolve, reject),
        refuse: reject,
        owner,
      })
      if (this.#isOpen) this.open()
    })
  }

  /** Lets one piece through; between two steps. */
  async one(): Promise<void> {
    await this.#waiting.shift()?.start()
  }

  /** No step is to come until `close`: all pieces go through. */
  open(): void {
    this.#isOpen = true
    this.#flow = this.#flow.then(async () => {
      while (this.#isOpen) {
        const next = this.#waiting.shift()
        if (!next) return
        await next.start()
      }
    })
  }

  /** A step is to come: resolves when the piece that is under way, if any, has ended. */
  async close(): Promise<void> {
    this.#isOpen = false
    await this.#flow
  }

  /** Rejects what waits of `owner`. */
  refuse(owner: object, reason: Error): void {
    const waiting = this.#waiting.splice(0)
    for (const piece of waiting) {
      if (piece.owner === owner) piece.refuse(reason)
      else this.#waiting.push(piece)
    }
  }
}

interface Piece {
  readonly owner: object
  /** Never rejects. */
  start(): Promise<void>
  refuse(reason: Error): void
}
