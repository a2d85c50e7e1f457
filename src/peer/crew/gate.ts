import type { Env } from '../../util/env.ts'
import type { CrewMessage } from './messages.ts'

/** What a step of the run takes now. */
export interface StepPace {
  /** What a step's exchange moves over each link, in each direction. */
  readonly bytes: number
  readonly stepMs: number
  /** Over a link to a newcomer the exchange may take this long. units: ms. */
  readonly limitMs: number
  readonly isPaused: boolean
}

/** The member that lets newcomers in: the most senior one. */
export interface GateHost {
  readonly env: Env
  /** Those with a link to this member, while it is for this member to let them in. */
  waiting(): readonly string[]
  probe(id: string, message: Extract<CrewMessage, { type: 'probe' }>): void
  letIn(id: string): void
  /** It is to wait, and why; `isSlow`: for its link, so that nobody lets it in. */
  keepOut(id: string, why: string, isSlow: boolean): void
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
const tickMs = 1000
/** A newcomer that hears nothing gives up. */
const tellMs = 5000
/**
 * A link that was too slow is measured again after this time, then after twice as long each time, up to `slowestMs`: at first soon, since a link that
 * was just restored recovers within seconds.
 */
const againMs = 10_000
const slowestMs = 60_000

/**
 * Measures the links to newcomers while the run trains, and lets in those over which a step's exchange takes no longer than the run can wait.
 * The others hear why they wait.
 *
 * Frames go there and back in a stream, as in a step; the time between the first and the last that come back is that of the slower direction,
 * whatever the round trip.
 */
export class Gate {
  readonly #host: GateHost
  readonly #pace: () => StepPace | undefined
  readonly #tests = new Map<string, LinkTest>()
  /** When a newcomer was last told that the run is paused. */
  readonly #toldMs = new Map<string, number>()
  #cancel: () => void = () => undefined

  /** `pace`: undefined as long as no step has ended. */
  constructor(host: GateHost, pace: () => StepPace | undefined) {
    this.#host = host
    this.#pace = pace
  }

  /** Newcomers have come, or others let them in now. */
  look(): void {
    this.#cancel()
    const { env } = this.#host
    const waiting = this.#host.waiting()
    for (const id of this.#tests.keys()) if (!waiting.includes(id)) this.forget(id)
    const pace = this.#pace()
    if (pace) for (const id of waiting) this.#lookAt(id, pace)
    if (waiting.length > 0) this.#cancel = env.after(tickMs, () => this.look())
  }

  #lookAt(id: string, { isPaused }: StepPace): void {
    const { env } = this.#host
    const nowMs = env.now()
    if (isPaused && nowMs >= (this.#toldMs.get(id) ?? Number.NEGATIVE_INFINITY) + tellMs) {
      this.#toldMs.set(id, nowMs)
      this.#host.keepOut(id, 'the run is paused.', false)
    }
    let test = this.#tests.get(id)
    if (!test) {
      test = new LinkTest(
        env,
        (round) => this.#host.probe(id, { type: 'probe', round, fill }),
        (bytesPerMs) => this.#isFast(bytesPerMs),
        (bytesPerMs) => this.#judge(id, bytesPerMs),
      )
      this.#tests.set(id, test)
    }
    test.beginIfDue()
  }

  #isFast(bytesPerMs: number): boolean {
    const pace = this.#pace()
    return pace !== undefined && pace.bytes / bytesPerMs <= pace.limitMs
  }

  #judge(id: string, bytesPerMs: number): void {
    const pace = this.#pace()
    const test = this.#tests.get(id)
    if (!pace || !test) return
    if (!this.#host.waiting().includes(id)) {
      // The members decide about others, or it has gone: it is measured at the next look.
      this.forget(id)
      return
    }
    if (this.#isFast(bytesPerMs)) {
      // Once for each link: a member that cannot be let in would stop the others again and again.
      test.dueMs = Number.POSITIVE_INFINITY
      this.#host.letIn(id)
      return
    }
    const { bytes, stepMs } = pace
    const link =
      bytesPerMs > 0
        ? `carries a step's gradients in ${seconds(bytes / bytesPerMs)}, and a step of the run takes ${seconds(stepMs)}`
        : `carried nothing for ${seconds(testMs)}`
    const waitMs = test.postpone()
    const why = `its connection ${link}. Training does not wait for it: the connection is measured again in ${waitMs / 1000} s.`
    this.#host.keepOut(id, why, true)
  }

  /** A frame has come back. */
  echoed(id: string, round: number): void {
    this.#tests.get(id)?.echoed(round)
  }

  /** Another link to that member, or other members: it is measured at the next look. */
  forget(id: string): void {
    this.#tests.get(id)?.end()
    this.#tests.delete(id)
    this.#toldMs.delete(id)
  }

  forgetAll(): void {
    for (const id of [...this.#tests.keys()]) this.forget(id)
  }

  end(): void {
    this.#cancel()
    this.forgetAll()
  }
}

/** The measurement of one link, round by round. */
class LinkTest {
  /** Not before that. */
  dueMs = 0
  readonly #env: Env
  readonly #send: (round: number) => void
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
    send: (round: number) => void,
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
    for (let i = 0; i < rounds[this.#at]; i++) this.#send(this.#round)
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

const seconds = (ms: number): string => `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
