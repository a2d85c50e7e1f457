import { againMs, LinkTest, linkWords, type StepPace, slowestMs } from './link-test.ts'
import type { Newcomers } from './newcomers.ts'
import type { MemberView } from './options.ts'

interface SlowMembersHost extends MemberView {
  readonly newcomers: Newcomers
}

const tickMs = 1000
/** A tab that slept finds its steps held up when it wakes, and hears soon that the others went on: that was not its connection. */
const sureMs = 2000
const never = { atMs: Number.POSITIVE_INFINITY, receivedBytes: 0 }

/**
 * Finds the member whose links hold up the steps, while these take too long.
 *
 * Each member measures the link to the rank whose bytes it waits for, as `Gate` does those to newcomers. In a ring all wait for the rank before, so
 * most find a fast link and are done. Who finds a slow one measures its other links, one after the other: first those to the same machine, which
 * share its way. Where at least half of all are fast, the other ends of the slow ones are the slow members. Else it may be this member itself, or
 * all are slow: then it names nobody else.
 */
export class SlowMembers {
  /** Those that this member, or another one, has named since the steps are held up. */
  readonly #named = new Set<string>()
  readonly #view: SlowMembersHost
  readonly #leaveOut: (ids: ReadonlySet<string>) => void
  readonly #pace: () => StepPace | undefined
  readonly #tests = new Map<string, LinkTest>()
  /** How long a step's exchange takes over the links that were measured, first over the one that was waited for. units: ms. */
  readonly #takesMs = new Map<string, number>()
  /** When the link that was waited for was begun to be measured. */
  #began = never
  /** Whose link is measured now. */
  #measured: string | undefined
  /** Links are measured again no sooner. */
  #dueMs = 0
  #count = 0
  #isReported = false
  /** What the link that is waited for carries, or this member's own ones as others say, as long as that holds up the steps, and still once the group has ended. */
  own: string | undefined
  #cancel: () => void = () => undefined

  /** `pace`: undefined as long as no step has ended. `leaveOut`: calls for a roster without those members. */
  constructor(
    view: SlowMembersHost,
    pace: () => StepPace | undefined,
    leaveOut: (ids: ReadonlySet<string>) => void,
  ) {
    this.#view = view
    this.#pace = pace
    this.#leaveOut = leaveOut
    this.#wait()
  }

  /** Members by rank, while their group trains; else none. */
  get #ranks(): readonly string[] {
    return this.#view.isRunning ? this.#view.roster!.members : []
  }

  /** True if the bytes of the newest step take longer than they may. */
  get #isHeldUp(): boolean {
    const pace = this.#pace()
    return pace !== undefined && pace.newestStepMs - pace.restMs > pace.limitMs(pace.restMs)
  }

  #wait(): void {
    this.#cancel = this.#view.options.env.after(tickMs, () => {
      this.#wait()
      this.#check()
    })
  }

  #check(): void {
    const { env } = this.#view.options
    const ranks = this.#ranks
    if (this.#view.isRunning)
      this.own =
        this.#ownWords() ?? (this.#named.has(this.#view.options.self) ? this.own : undefined)
    if (!this.#isHeldUp || ranks.length < 2) this.forget()
    else if (this.#measured === undefined && env.now() >= this.#dueMs) {
      const { heldBy } = this.#pace()!
      const awaited = heldBy && ranks[heldBy.rank]
      if (!awaited) return
      this.#began = { atMs: env.now(), receivedBytes: heldBy.receivedBytes }
      this.#measure(awaited)
    }
  }

  #ownWords(): string | undefined {
    const pace = this.#pace()
    const sinceMs = this.#view.options.env.now() - this.#began.atMs
    if (!pace || !this.#isHeldUp || sinceMs < sureMs) return undefined
    const takesMs = pace.bytes / Math.max(0, this.#receivedPerMs)
    return linkWords(takesMs, 'without that a step', pace.restMs, sinceMs)
  }

  #measure(id: string): void {
    this.#measured = id
    const test =
      this.#tests.get(id) ??
      new LinkTest(
        this.#view.options.env,
        (probe) => this.#view.links.probe(id, probe),
        (bytesPerMs) => {
          const pace = this.#pace()
          return pace !== undefined && pace.bytes / bytesPerMs <= pace.limitMs(pace.restMs)
        },
        (bytesPerMs) => this.#judge(id, bytesPerMs),
      )
    this.#tests.set(id, test)
    test.beginIfDue()
  }

  #judge(id: string, measured: number): void {
    const { env, self } = this.#view.options
    const pace = this.#pace()
    const others = this.#ranks.filter((one) => one !== self && this.#view.links.isUp(one))
    this.#measured = undefined
    if (!pace || !this.#isHeldUp) return
    const { bytes, restMs, limitMs } = pace
    const bytesPerMs = this.#takesMs.size > 0 ? measured : Math.max(measured, this.#receivedPerMs)
    this.#takesMs.set(id, bytes / bytesPerMs)
    const [awaitedMs] = this.#takesMs.values()
    const isFast = ([, ms]: readonly [string, number]) => awaitedMs! > limitMs(restMs + ms)
    const fast = [...this.#takesMs].filter(isFast)
    const isSlow = awaitedMs! > limitMs(restMs)
    const isOther = fast.length * 2 >= others.length
    const left = others.filter((one) => !this.#takesMs.has(one))
    const beside = left.find((one) => this.#isBeside(one))
    const next = beside ?? (isOther ? undefined : left[0])
    if (isSlow && next !== undefined) {
      this.#measure(next)
      return
    }
    const slow = [...this.#takesMs].filter((one) => !isFast(one))
    this.#takesMs.clear()
    this.#dueMs = env.now() + Math.min(slowestMs, againMs * 2 ** this.#count++)
    if (!isSlow) return
    this.#isReported = true
    const withoutMs = restMs + Math.max(0, ...fast.map(([, ms]) => ms))
    for (const [one, ms] of isOther ? slow : slow.slice(0, 1)) {
      const why = linkWords(ms, 'without that a step', withoutMs)
      this.#found(isOther ? one : self, `it ${why}.`)
    }
  }

  /** The links of that member hold up the steps: the others hear it. Of this member itself: its own ones do, or those of most. */
  #found(id: string, why: string): void {
    const { options, listener, links } = this.#view
    if (id === options.self) {
      listener.holdsUp?.(id, why)
      return
    }
    const members = this.#ranks
    links.send(members, { type: 'wait', id, why, isSlow: true, members })
    this.named(id, why)
  }

  /** The most senior one of the others leaves it out at once, without waiting for the step, where they are more than half. */
  named(id: string, why: string): void {
    if (!this.#view.isRunning || !this.#isHeldUp) return
    const { options, listener, newcomers } = this.#view
    this.#isReported = true
    this.#named.add(id)
    // Where this member sends all that it has and waits for nobody, only others find it.
    if (id === options.self) this.own ??= why.replace(/^it (.*)\.$/, '$1')
    listener.holdsUp?.(id, why)
    const members = this.#ranks
    const others = members.filter((one) => !this.#named.has(one))
    if (others.length * 2 <= members.length) return
    newcomers.wereSlow(this.#named)
    if (others[0] === options.self) this.#leaveOut(new Set(this.#named))
  }

  /** Tells whether it is on the machine of the one that was waited for, and this member is not. */
  #isBeside(id: string): boolean {
    const [awaited] = this.#takesMs.keys()
    const { machineOf = () => undefined, self } = this.#view.options
    const machine = machineOf(awaited!)
    return machine !== undefined && machine === machineOf(id) && machine !== machineOf(self)
  }

  /** Rate of the link that is waited for since then: frames of a measurement stand behind others in the queue. */
  get #receivedPerMs(): number {
    const { atMs, receivedBytes } = this.#began
    const bytes = (this.#pace()?.heldBy?.receivedBytes ?? 0) - receivedBytes
    return bytes / Math.max(1, this.#view.options.env.now() - atMs)
  }

  /** A frame has come back. */
  echoed(id: string, round: number): void {
    if (id === this.#measured) this.#tests.get(id)?.echoed(round)
  }

  /** The steps are not held up, or other members train. */
  forget(): void {
    for (const test of this.#tests.values()) test.end()
    this.#measured = undefined
    this.#takesMs.clear()
    this.#began = never
    this.#count = 0
    this.#dueMs = Math.min(this.#dueMs, this.#view.options.env.now() + againMs)
    this.#named.clear()
    if (!this.#isReported) return
    this.#isReported = false
    this.#view.listener.holdsUp?.(null, null)
  }

  end(): void {
    this.#cancel()
    this.forget()
  }
}
