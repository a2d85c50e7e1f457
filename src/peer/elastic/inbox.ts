/** Of all that waits for one neighbour: beyond it a link ends. */
export const maxWaitingBytes = 2 ** 22
/** Of it passed messages may have this much: beyond it they are dropped, since others pass them on too. */
export const maxUncheckedBytes = 2 ** 21
/** Any message counts this much at least: it bounds how many wait. */
const minBytes = 2 ** 11

interface Waiting {
  readonly bytes: number
  readonly take: () => void | Promise<void>
}

/**
 * Messages of a neighbour that this member has not taken yet: all in order, although it takes a while to check a passed message. Where nothing
 * waits, a message is taken at once.
 */
export class Inbox {
  #waiting: Waiting[] = []
  #bytes = 0
  #isBusy = false

  /**
   * Does `take` once all before it is done, and its promise, where it returns one. False, and it is dropped, where more than `max`
   * bytes would wait.
   */
  put(size: number, take: Waiting['take'], max: number): boolean {
    const bytes = Math.max(size, minBytes)
    if (this.#bytes + bytes > max) return false
    this.#bytes += bytes
    this.#waiting.push({ bytes, take })
    if (!this.#isBusy) this.#next()
    return true
  }

  /** Drops the messages that wait. */
  clear(): void {
    this.#waiting = []
    this.#bytes = 0
  }

  #next(): void {
    this.#isBusy = false
    for (let one = this.#waiting.shift(); one; one = this.#waiting.shift()) {
      this.#bytes -= one.bytes
      const checked = one.take()
      if (!checked) continue
      this.#isBusy = true
      void checked.finally(() => this.#next())
      return
    }
  }
}
