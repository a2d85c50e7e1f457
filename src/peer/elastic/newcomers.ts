import { NewestMap } from '../../util/newest-map.ts'
import { memberOf } from '../room/lives.ts'
import { Gate } from './gate.ts'
import type { ElasticMessage, Probe } from './messages.ts'
import type { MemberView } from './options.ts'
import type { Presence } from './presence.ts'
import type { Roster } from './roster.ts'

/** Tabs of which it is remembered that their links were slow. */
export const maxSlow = 64

interface NewcomersHost extends MemberView {
  readonly presence: Presence
}

/** Those that have links to a member and are in no roster yet: who is let in, and who hears why not. */
export class Newcomers {
  readonly #view: NewcomersHost
  readonly #gate: Gate | undefined
  /** Those that have said hello: before that a newcomer gets ready. */
  readonly #here = new Set<string>()
  /** Those that this member has wished for: once for each link, and again after a change that did not wait for them. */
  readonly #requested = new Set<string>()
  /** Those whose links are too slow. */
  readonly #slow = new Set<string>()
  /** Tabs that were ranks, and left out for their slow links. */
  readonly #wereSlow = new NewestMap<string, true>(maxSlow)

  constructor(view: NewcomersHost) {
    this.#view = view
    const { env, pace } = view.options
    if (!pace) return
    const own = {
      env,
      waiting: () => this.#waiting,
      wasSlow: (id: string) => this.#wereSlow.has(memberOf(id)),
      probe: (id: string, message: Probe) => view.links.probe(id, message),
      letIn: (id: string) => this.#letIn(id),
      keepOut: (id: string, why: string, isSlow: boolean) => this.#keepOut(id, why, isSlow),
    }
    this.#gate = new Gate(own, pace)
  }

  /** Perhaps over another link than before. */
  came(id: string): void {
    this.#here.add(id)
    this.#requested.delete(id)
    this.#slow.delete(id)
    this.#gate?.forget(id)
    this.#check()
  }

  /** Ranks that are left out for their slow links. */
  wereSlow(ids: Iterable<string>): void {
    for (const id of ids) this.#wereSlow.set(memberOf(id), true)
  }

  /** Its link has ended. */
  gone(id: string): void {
    if (this.#slow.delete(id)) this.#view.listener.waits?.(id, null)
  }

  /** Nothing that comes may be about it. */
  forget(id: string): void {
    this.#here.delete(id)
    this.#requested.delete(id)
    this.#gate?.forget(id)
  }

  /** This member has entered a roster; `isPlanned`: the change has waited for newcomers. */
  entered({ members }: Roster, isPlanned: boolean): void {
    for (const id of members) this.#slow.delete(id)
    if (!isPlanned) {
      this.#requested.clear()
      this.#gate?.forgetAll()
    }
    this.#check()
  }

  /** Those that no call takes in: with slow links, and where there is a gate those that it has not let in. */
  get keptOut(): ReadonlySet<string> {
    const { links, presence } = this.#view
    const isOutside = (id: string) =>
      this.#slow.has(id) || (this.#gate !== undefined && !this.#requested.has(id))
    return new Set(links.up.filter((id) => presence.isNew(id) && isOutside(id)))
  }

  /** Newcomers that answered a call and are not in its roster hear why. */
  leftOut(answered: readonly string[], keptOut: ReadonlySet<string>): void {
    const { options, presence, roster } = this.#view
    const { max } = options
    const { length } = roster!.members
    const why = length === max ? `the run has its ${max} ranks.` : 'it has no link to some rank.'
    for (const id of answered)
      if (presence.isNew(id) && !keptOut.has(id)) this.#keepOut(id, why, false)
  }

  /** The senior member's word on a newcomer, which may be this one. */
  mustWait({ id, why, isSlow }: Extract<ElasticMessage, { type: 'wait' }>): void {
    const { listener, presence, roster } = this.#view
    if (isSlow && presence.isNew(id)) this.#slow.add(id)
    if (!roster || isSlow) listener.waits?.(id, why)
  }

  /** A probe has come back. */
  echoed(id: string, round: number): void {
    this.#gate?.echoed(id, round)
  }

  end(): void {
    this.#gate?.end()
  }

  /** The most senior member lets them in, while it trains. */
  get #waiting(): string[] {
    const { options, links, presence, roster, isRunning } = this.#view
    const letsIn = isRunning && roster!.members[0] === options.self
    return letsIn ? links.up.filter((id) => presence.isNew(id) && this.#here.has(id)) : []
  }

  #check(): void {
    const waiting = this.#waiting
    if (waiting.length === 0) return
    if (this.#gate) this.#gate.check()
    else for (const id of waiting) this.#letIn(id)
  }

  #letIn(id: string): void {
    if (this.#requested.has(id)) return
    this.#requested.add(id)
    this.#slow.delete(id)
    this.#view.listener.request()
  }

  #keepOut(id: string, why: string, isSlow: boolean): void {
    const { listener, links, roster } = this.#view
    const { members } = roster!
    const to = isSlow ? [id, ...members] : [id]
    links.send(to, { type: 'wait', id, why, isSlow, members })
    if (!isSlow) return
    this.#slow.add(id)
    listener.waits?.(id, why)
  }
}
