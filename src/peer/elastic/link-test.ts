import type { Env } from '../../util/env.ts'
import type { Probe } from './messages.ts'

/** Pace of a run: what a step takes now. */
export interface StepPace {
  /** Bytes of a step's exchange over each link, in each direction. */
  readonly bytes: number
  readonly stepMs: number
  /** The step under way, or the one before it, has taken this long. units: ms. */
  readonly newestStepMs: number
  /** Time of a step without that for its bytes; NaN before the first of a group. units: ms. */
  readonly restMs: number
  /** The rank whose bytes are waited for, and what it has sent so far; null where there is none. */
  readonly heldBy: { readonly rank: number; readonly receivedBytes: number } | null
  /** How long the exchange over a link may take, where a step takes `stepMs` without it. units: ms. */
  limitMs(stepMs: number): number
  readonly isPaused: boolean
}

const fill = 'x'.repeat(2 ** 15)
/**
 * Frames of each round, of which all but the first count: growing, so that a slow link stops it early, and since a new connection only gets up to
 * its rate. The last round counts, of those of most frames the better one.
 */
const rounds = [2, 8, 32, 32] as const
/** A round with more frames follows one that took no longer. */
const shortMs = 1000
/** A round that is shorter says little: the tabs may have been busy, and have taken several frames at once. */
const sureMs = 100
/** All rounds together. */
const testMs = 5000
/**
 * A link that was too slow is measured again after this time, then after twice as long each time, up to `slowestMs`: at first soon, since a link that
 * was just restored recovers within seconds.
 */
export const againMs = 10_000
export const slowestMs = 60_000

/**
 * The measurement of one link, round by round.
 *
 * Frames go there and back in a stream, as in a step; the time between the first and the last that come back is that of the slower direction,
 * whatever the round trip.
 */
export class LinkTest {
  /** Not before that. */
  dueMs = 0
  readonly #env: Env
  readonly #send: (probe: Probe) => void
  readonly #isEnough: (bytesPerMs: number) => boolean
  readonly #ended: (bytesPerMs: number) => void
  /** 0 between tests. */
  #round = 0
  /** Of all rounds of all tests: what comes late belongs to none. */
  #lastRound = 0
  /** Which one of `rounds`. */
  #at = 0
  #echoes = 0
  #firstMs = 0
  #bytesPerMs = 0
  #slowCount = 0
  #cancel: () => void = () => undefined

  constructor(
    env: Env,
    send: (probe: Probe) => void,
    isEnough: (bytesPerMs: number) => boolean,
    ended: (bytesPerMs: number) => void,
  ) {
    this.#env = env
    this.#send = send
    this.#isEnough = isEnough
    this.#ended = ended
  }

  beginIfDue(): void {
    if (this.#round > 0 || this.#env.now() < this.dueMs) return
    this.#bytesPerMs = 0
    this.#at = 0
    this.#cancel = this.#env.after(testMs, () => {
      this.#take()
      this.#end()
    })
    this.#begin()
  }

  #begin(): void {
    this.#round = ++this.#lastRound
    this.#echoes = 0
    for (let i = 0; i < rounds[this.#at]; i++)
      this.#send({ type: 'probe', round: this.#round, fill })
  }

  echoed(round: number): void {
    if (round !== this.#round) return
    this.#echoes++
    if (this.#echoes === 1) this.#firstMs = this.#env.now()
    if (this.#echoes < rounds[this.#at]) return
    const ms = this.#take()
    const isSure = ms >= sureMs || rounds[this.#at] === Math.max(...rounds)
    const isOver = ms > shortMs || (isSure && this.#isEnough(this.#bytesPerMs))
    this.#at++
    if (isOver || this.#at === rounds.length) this.#end()
    else this.#begin()
  }

  /** Counts what the round under way has shown so far; returns for how long. */
  #take(): number {
    const ms = Math.max(1, this.#env.now() - this.#firstMs)
    const bytesPerMs = ((this.#echoes - 1) * fill.length) / ms
    const isBetter = bytesPerMs > this.#bytesPerMs || rounds[this.#at] !== rounds[this.#at - 1]
    if (this.#echoes > 1 && isBetter) this.#bytesPerMs = bytesPerMs
    return ms
  }

  #end(): void {
    this.end()
    this.#ended(this.#bytesPerMs)
  }

  end(): void {
    this.#cancel()
    this.#round = 0
  }

  /** It was too slow; returns when it is measured again. units: ms. */
  postpone(): number {
    const waitMs = Math.min(slowestMs, againMs * 2 ** this.#slowCount++)
    this.dueMs = this.#env.now() + waitMs
    return waitMs
  }
}

/** Words after "the connection": how long it takes for a step's exchange, and how long `what` takes. `triedMs`: how long it was measured. units: ms. */
export const linkWords = (
  takesMs: number,
  what: string,
  stepMs: number,
  triedMs = testMs,
): string =>
  Number.isFinite(takesMs)
    ? `carries a step's gradients in ${seconds(takesMs)}, and ${what} takes ${seconds(stepMs)}`
    : `carried nothing for ${seconds(triedMs)}`

const seconds = (ms: number): string => `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
