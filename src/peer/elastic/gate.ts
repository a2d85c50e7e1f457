import type { Env } from '../../util/env.ts'
import { LinkTest, linkWords, type StepPace } from './link-test.ts'
import type { Probe } from './messages.ts'

/** The member that lets newcomers in: the most senior one. */
export interface GateHost {
  readonly env: Env
  /** Those with a link to this member, while it is for this member to let them in. */
  waiting(): readonly string[]
  /** Tells whether it was a rank before, and left out for its slow link. */
  wasSlow(id: string): boolean
  probe(id: string, message: Probe): void
  letIn(id: string): void
  /** It is to wait, and why; `isSlow`: for its link, so that nobody lets it in. */
  keepOut(id: string, why: string, isSlow: boolean): void
}

const tickMs = 1000
/** A newcomer that hears nothing gives up. */
const tellMs = 5000

/**
 * Measures the links to newcomers while the run trains, and lets in those over which a step's exchange takes no longer than the run can wait.
 * The others hear why they wait.
 */
export class Gate {
  readonly #host: GateHost
  readonly #pace: () => StepPace | undefined
  readonly #tests = new Map<string, LinkTest>()
  /** When a newcomer last got a message that the run is paused. */
  readonly #sentMs = new Map<string, number>()
  #cancel: () => void = () => undefined

  /** `pace`: undefined as long as no step has ended. */
  constructor(host: GateHost, pace: () => StepPace | undefined) {
    this.#host = host
    this.#pace = pace
  }

  /** Newcomers have come, or others let them in now. */
  check(): void {
    this.#cancel()
    const { env } = this.#host
    const waiting = this.#host.waiting()
    for (const id of this.#tests.keys()) if (!waiting.includes(id)) this.forget(id)
    const pace = this.#pace()
    if (pace) for (const id of waiting) this.#measure(id, pace)
    if (waiting.length > 0) this.#cancel = env.after(tickMs, () => this.check())
  }

  #measure(id: string, { isPaused }: StepPace): void {
    const { env } = this.#host
    const nowMs = env.now()
    if (isPaused && nowMs >= (this.#sentMs.get(id) ?? Number.NEGATIVE_INFINITY) + tellMs) {
      this.#sentMs.set(id, nowMs)
      this.#host.keepOut(id, 'the run is paused.', false)
    }
    let test = this.#tests.get(id)
    if (!test) {
      test = new LinkTest(
        env,
        (probe) => this.#host.probe(id, probe),
        (bytesPerMs) => this.#isFast(id, bytesPerMs),
        (bytesPerMs) => this.#judge(id, bytesPerMs),
      )
      this.#tests.set(id, test)
    }
    test.beginIfDue()
  }

  /** One that was slow must be twice as fast as others, or it would come and go. */
  #isFast(id: string, bytesPerMs: number): boolean {
    const pace = this.#pace()
    if (!pace) return false
    const limitMs = pace.limitMs(pace.stepMs)
    return pace.bytes / bytesPerMs <= (this.#host.wasSlow(id) ? limitMs / 2 : limitMs)
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
    if (this.#isFast(id, bytesPerMs)) {
      // Once for each link: a member that cannot be let in would stop the others again and again.
      test.dueMs = Number.POSITIVE_INFINITY
      this.#host.letIn(id)
      return
    }
    const { bytes, stepMs } = pace
    const waitMs = test.postpone()
    const why = `its connection ${linkWords(bytes / bytesPerMs, 'a step of the run', stepMs)}. Training does not wait for it: the connection is measured again in ${waitMs / 1000} s.`
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
    this.#sentMs.delete(id)
  }

  forgetAll(): void {
    for (const id of [...this.#tests.keys()]) this.forget(id)
  }

  end(): void {
    this.#cancel()
    this.forgetAll()
  }
}
