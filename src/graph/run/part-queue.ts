/** Parts of about so much work are queued behind the one that runs: the device must not run dry while the host hears of an end. units: ms. */
const aheadMs = 10

/**
 * The parts of backward that the device has been given, and which may go to it next.
 *
 * What is submitted runs in order, so an update waits for all that went before it. Giving the device one part beside the one that runs, or
 * some milliseconds of short ones, lets updates in; a backward that takes no longer than that is submitted at once. How long parts
 * take is known of the run before. Nothing here waits for a timer, which a hidden page may have too rarely.
 */
export class PartQueue {
  readonly #count: number
  readonly #isPaced: boolean
  readonly #now: () => number
  /** Of the last run; nothing is known before the first. units: ms. */
  readonly #durations: number[]
  /** Counts runs: one that failed leaves parts behind, which may end in the next. */
  #run = 0
  #submitted = 0
  #ran = 0
  #waiting: { readonly part: number; readonly resolve: () => void }[] = []
  /** One for each part, when it has run. */
  #ends: Promise<void>[] = []
  #lastEndMs = 0

  constructor(count: number, isPaced: boolean, now: () => number = () => performance.now()) {
    this.#count = count
    this.#isPaced = isPaced
    this.#now = now
    this.#durations = Array.from({ length: count }, () => 0)
  }

  begin(): void {
    this.#run++
    this.#submitted = 0
    this.#ran = 0
    this.#waiting = []
    this.#ends = []
    this.#lastEndMs = 0
  }

  /** Waits until the next part may be submitted; undefined where it may be now. errors: those of the parts that run. */
  room(): Promise<void> | undefined {
    return this.#isFull() ? this.#wait() : undefined
  }

  /** `part` is on the device's queue; `ends` when it has run. */
  submitted(part: number, ends: Promise<void>): void {
    const submittedMs = this.#now()
    const run = this.#run
    this.#ends[part] = ends.then(() => {
      if (run !== this.#run) return
      const nowMs = this.#now()
      this.#durations[part] = nowMs - Math.max(submittedMs, this.#lastEndMs)
      this.#lastEndMs = nowMs
      this.#ran = Math.max(this.#ran, part + 1)
    })
    this.#ends[part].catch(() => undefined)
    this.#submitted = part + 1
    const due = this.#waiting.filter((one) => one.part < this.#submitted)
    this.#waiting = this.#waiting.filter((one) => one.part >= this.#submitted)
    for (const { resolve } of due) resolve()
  }

  /** Resolves when `part` is on the device's queue. */
  whenSubmitted(part: number): Promise<void> {
    if (part < this.#submitted) return Promise.resolve()
    return new Promise((resolve) => {
      this.#waiting.push({ part, resolve })
    })
  }

  /** Resolves when all parts have run. errors: those of the parts. */
  async ran(): Promise<void> {
    await this.whenSubmitted(this.#count - 1)
    await Promise.all(this.#ends)
  }

  #isFull(): boolean {
    if (!this.#isPaced || this.#submitted - this.#ran < 2) return false
    const queued = this.#durations.slice(this.#ran + 1, this.#submitted)
    return queued.reduce((sum, ms) => sum + ms, 0) >= aheadMs
  }

  async #wait(): Promise<void> {
    while (this.#isFull()) await this.#ends[this.#ran]
  }
}
