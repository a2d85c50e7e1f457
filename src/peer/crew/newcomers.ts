import type { Env } from '../../util/env.ts'
import { memberOf } from '../room/lives.ts'
import { Gate } from './gate.ts'
import type { StepPace } from './link-test.ts'
import type { CrewMessage, PassableMessage, Probe } from './messages.ts'
import type { Roster } from './roster.ts'

/** What newcomers need of the crew. */
export interface NewcomersHost {
  readonly env: Env
  /** Members with a link that is up. */
  readonly up: readonly string[]
  readonly roster: Roster | null
  /** Whether it is for this member to let newcomers in: it trains, as the most senior one. */
  readonly letsIn: boolean
  /** Whether that member is in no roster yet, as far as this one knows. */
  isNew(id: string): boolean
  send(to: readonly string[], message: PassableMessage): void
  probe(id: string, message: Probe): void
  /** All should end the same step and ask for the next roster. */
  wish(): void
  /** That newcomer waits, and why; null: it has gone. */
  waits(id: string, why: string | null): void
}

/** Those that have links to a member and are in no roster yet: who is let in, and who hears why not. */
export class Newcomers {
  readonly #host: NewcomersHost
  readonly #gate: Gate | undefined
  /** Those that have said hello: before that a newcomer gets ready. */
  readonly #here = new Set<string>()
  /** Those that this member has wished for: once for each link, and again after a change that did not wait for them. */
  readonly #wished = new Set<string>()
  /** Those whose links are too slow. */
  readonly #slow = new Set<string>()

  /** Tabs that were ranks, and left out for their slow links. */
  readonly #wereSlow = new Set<string>()

  /** `pace`: as of `CrewOptions`. */
  constructor(host: NewcomersHost, pace: (() => StepPace | undefined) | undefined) {
    this.#host = host
    if (!pace) return
    const own = {
      env: host.env,
      waiting: () => this.#waiting,
      wasSlow: (id: string) => this.#wereSlow.has(memberOf(id)),
      probe: (id: string, message: Probe) => host.probe(id, message),
      letIn: (id: string) => this.#letIn(id),
      keepOut: (id: string, why: string, isSlow: boolean) => this.#keepOut(id, why, isSlow),
    }
    this.#gate = new Gate(own, pace)
  }

  /** Perhaps over another link than before. */
  came(id: string): void {
    this.#here.add(id)
    this.#wished.delete(id)
    this.#slow.delete(id)
    this.#gate?.forget(id)
    this.#look()
  }

  /** Ranks that are left out for their slow links. */
  wereSlow(ids: Iterable<string>): void {
    for (const id of ids) this.#wereSlow.add(memberOf(id))
  }

  /** Its link has ended. */
  gone(id: string): void {
    if (this.#slow.delete(id)) this.#host.waits(id, null)
  }

  /** This member has entered a roster; `isPlanned`: the change has waited for newcomers. */
  entered({ members }: Roster, isPlanned: boolean): void {
    for (const id of members) this.#slow.delete(id)
    if (!isPlanned) {
      this.#wished.clear()
      this.#gate?.forgetAll()
    }
    this.#look()
  }

  /** Those that no call takes in: with slow links, and where there is a gate those that it has not let in. */
  get keptOut(): ReadonlySet<string> {
    const { up } = this.#host
    const isOutside = (id: string) =>
      this.#slow.has(id) || (this.#gate !== undefined && !this.#wished.has(id))
    return new Set(up.filter((id) => this.#host.isNew(id) && isOutside(id)))
  }

  /** Newcomers that answered a call and are not in its roster hear why. */
  leftOut(answered: readonly string[], keptOut: ReadonlySet<string>, most: number): void {
    const { length } = this.#host.roster!.members
    const why = length === most ? `the run has its ${most} ranks.` : 'it has no link to some rank.'
    for (const id of answered)
      if (this.#host.isNew(id) && !keptOut.has(id)) this.#keepOut(id, why, false)
  }

  /** The senior member's word on a newcomer, which may be this one. */
  mustWait({ id, why, isSlow }: Extract<CrewMessage, { type: 'wait' }>): void {
    if (isSlow && this.#host.isNew(id)) this.#slow.add(id)
    if (!this.#host.roster || isSlow) this.#host.waits(id, why)
  }

  /** A probe has come back. */
  echoed(id: string, round: number): void {
    this.#gate?.echoed(id, round)
  }

  end(): void {
    this.#gate?.end()
  }

  get #waiting(): string[] {
    const { letsIn, up } = this.#host
    return letsIn ? up.filter((id) => this.#host.isNew(id) && this.#here.has(id)) : []
  }

  #look(): void {
    const waiting = this.#waiting
    if (waiting.length === 0) return
    if (this.#gate) this.#gate.look()
    else for (const id of waiting) this.#letIn(id)
  }

  #letIn(id: string): void {
    if (this.#wished.has(id)) return
    this.#wished.add(id)
    this.#slow.delete(id)
    this.#host.wish()
  }

  #keepOut(id: string, why: string, isSlow: boolean): void {
    const { members } = this.#host.roster!
    const to = isSlow ? [id, ...members] : [id]
    this.#host.send(to, { type: 'wait', id, why, isSlow, members })
    if (!isSlow) return
    this.#slow.add(id)
    this.#host.waits(id, why)
  }
}
