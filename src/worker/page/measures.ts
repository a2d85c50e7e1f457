import type { Measured, ToNext } from '../../peer/room/messages.ts'
import { toUs } from '../../peer/room/microseconds.ts'
import type { Env } from '../../util/env.ts'

/** Round trips to the server are measured this often between runs, those of links in a run. units: ms. */
const idleEveryMs = 15_000
const runEveryMs = 3_000
/** The device is measured once a room of several members has been left alone for so long: tabs that open take it for themselves. units: ms. */
const quietMs = 1_500
/** The device is measured so often at most, each time that the room is quiet again: the others may have had it the first time. */
const speedTries = 3
/** Reports come at least this far apart. units: ms. */
const tellEveryMs = 2_000
/** Number of tries, of which the shortest counts: other work only makes a round trip longer. */
const serverTries = 3
/** A round trip that differs by less than both is no news. */
const newsShare = 0.25
const newsUs = 200

export interface MeasuresOptions {
  readonly env: Env
  /** Sends the measurements to the room. */
  readonly report: (measured: Measured) => void
  /** Nobody is there to compare with: the device is not measured. */
  readonly isAlone: () => boolean
  /** GFLOP/s of the device; null where it has none. Called between runs, three times at most, and the max counts; may fail. */
  readonly speed: () => Promise<number | null>
  /** units: ms. */
  readonly serverRoundTrip: () => Promise<number>
  /** Of each link of the run, NaN for one that has not answered yet. units: ms. */
  readonly linkRoundTrips: () => Promise<readonly number[]>
}

/** Measurements of a member for the others to see: its device when the room is quiet, round trips now and then, each sent when it is news. */
export class Measures {
  readonly #options: MeasuresOptions
  #measured: Measured = {}
  #reported: Measured = {}
  #sentAtMs = Number.NEGATIVE_INFINITY
  #isRunning = false
  #isOver = false
  #speedTries = 0
  #room = ''
  /** Counts changes of room and run: an answer to a question from before is dropped. */
  #turn = 0
  #cancelCheck: () => void = () => undefined
  #cancelQuiet: () => void = () => undefined
  #cancelTell: () => void = () => undefined

  constructor(options: MeasuresOptions) {
    this.#options = options
  }

  /** Between runs, and not over. */
  get isIdle(): boolean {
    return !this.#isRunning && !this.#isOver
  }

  /** The member is in its room. */
  begin(): void {
    this.#check()
    this.#waitForQuiet()
  }

  /** The room is as `words` says: who is in it, and its state. */
  roomIs(words: string): void {
    if (words === this.#room) return
    this.#room = words
    this.#waitForQuiet()
  }

  #waitForQuiet(): void {
    if (this.#speedTries >= speedTries || this.#isOver) return
    this.#cancelQuiet()
    this.#cancelQuiet = this.#options.env.after(quietMs, () => void this.#measureSpeed())
  }

  /** What is known of the way to the next member between runs. */
  nextIs(toNext: ToNext | undefined): void {
    if (this.#isRunning) return
    const { toNext: _, ...rest } = this.#measured
    this.#measured = toNext ? { ...rest, toNext } : rest
    this.#tellNews()
  }

  runBegan(): void {
    this.#isRunning = true
    const { toNext: _, ...rest } = this.#measured
    this.#measured = rest
    this.#cancelQuiet()
    this.#check()
  }

  /** Links end with the run, and with them their round trips. */
  runEnded(): void {
    if (!this.#isRunning) return
    this.#isRunning = false
    const { linkUs: _, ...rest } = this.#measured
    this.#measured = rest
    this.#tellNews()
    this.#check()
    this.#waitForQuiet()
  }

  end(): void {
    this.#isOver = true
    this.#turn++
    this.#cancelCheck()
    this.#cancelQuiet()
    this.#cancelTell()
  }

  async #measureSpeed(): Promise<void> {
    if (!this.isIdle || this.#options.isAlone()) return
    this.#speedTries++
    const gflops = await this.#options.speed().catch(() => null)
    // A run that began meanwhile came first; there will be another quiet time.
    if (gflops === null && this.#isRunning) this.#speedTries--
    if (gflops === null || this.#isOver) return
    const megaflops = Math.min(1e9, Math.round(1000 * gflops))
    if (megaflops <= (this.#measured.megaflops ?? 0)) return
    this.#measured = { ...this.#measured, megaflops }
    this.#tellNews()
  }

  #check(): void {
    if (this.#isOver) return
    this.#cancelCheck()
    const everyMs = this.#isRunning ? runEveryMs : idleEveryMs
    this.#cancelCheck = this.#options.env.after(everyMs, () => this.#check())
    void this.#measureRoundTrips(++this.#turn)
  }

  async #measureRoundTrips(turn: number): Promise<void> {
    const found = await (this.#isRunning ? this.#links() : this.#server()).catch(() => ({}))
    if (turn !== this.#turn) return
    this.#measured = { ...this.#measured, ...found }
    this.#tellNews()
  }

  async #links(): Promise<Measured> {
    const known = (await this.#options.linkRoundTrips()).filter(Number.isFinite)
    return known.length === 0
      ? {}
      : { linkUs: [toUs(Math.min(...known)), toUs(Math.max(...known))] }
  }

  async #server(): Promise<Measured> {
    let minMs = Number.POSITIVE_INFINITY
    for (let i = 0; i < serverTries; i++)
      minMs = Math.min(minMs, await this.#options.serverRoundTrip())
    return { serverUs: toUs(minMs) }
  }

  #tellNews(): void {
    if (this.#isOver || !isNews(this.#reported, this.#measured)) return
    const { env, report } = this.#options
    const waitMs = this.#sentAtMs + tellEveryMs - env.now()
    this.#cancelTell()
    if (waitMs > 0) {
      this.#cancelTell = env.after(waitMs, () => this.#tellNews())
      return
    }
    this.#sentAtMs = env.now()
    this.#reported = this.#measured
    report(this.#measured)
  }
}

function isNews(old: Measured, now: Measured): boolean {
  const differs = (a: number | undefined, b: number | undefined) => {
    if (a === undefined || b === undefined) return a !== b
    return Math.abs(a - b) > Math.max(newsUs, newsShare * a)
  }
  return (
    old.megaflops !== now.megaflops ||
    differs(old.serverUs, now.serverUs) ||
    old.toNext?.id !== now.toNext?.id ||
    differs(old.toNext?.us ?? undefined, now.toNext?.us ?? undefined) ||
    [0, 1].some((at) => differs(old.linkUs?.[at], now.linkUs?.[at]))
  )
}
