import { PeerError } from '../src/util/errors.ts'

export interface MinRanksOptions {
  readonly min: number
  /** How long there may be fewer. */
  readonly waitMs: number
  /** The flag that raises it. */
  readonly waitFlag: string
  /** Takes a line for people. */
  readonly onNotice: (line: string) => void
  /** Ends the run. */
  readonly onEnd: (error: Error) => void
}

/** Ends an elastic run that has fewer ranks than it is to have, and does not get them back in time. Those of the built-in training train meanwhile. */
export class MinRanks {
  readonly #options: MinRanksOptions
  #timer: NodeJS.Timeout | undefined

  constructor(options: MinRanksOptions) {
    this.#options = options
  }

  /** Takes the numbers of ranks and of tabs that are to join them, whenever one of them is another. */
  count(ranks: number, coming: number): void {
    const { min, waitMs, waitFlag, onNotice, onEnd } = this.#options
    if (ranks >= min) {
      this.stop()
      return
    }
    const few = `--elastic: ${ranks} of at least ${min} ranks left`
    if (ranks + coming < min) {
      const text = `${few}, and no restart. Raise --max-restarts, or lower MIN.`
      onEnd(new PeerError('peer.lost', text))
    } else if (!this.#timer) {
      onNotice(`${few}; waiting for another, at most ${waitMs / 1000} s`)
      const text = `${few}, for ${waitMs / 1000} s. Raise ${waitFlag}, or lower MIN.`
      this.#timer = setTimeout(() => onEnd(new PeerError('peer.timeout', text)), waitMs)
    }
  }

  /** Waits no longer. */
  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}
