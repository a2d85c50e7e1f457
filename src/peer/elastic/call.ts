import { PeerError } from '../../util/errors.ts'
import type { ElasticMessage } from './messages.ts'
import type { Newcomers } from './newcomers.ts'
import type { ElasticMemberOptions, MemberView, Undecided } from './options.ts'
import type { Presence } from './presence.ts'
import {
  countedOf,
  type FormerLife,
  judge,
  type NextRoster,
  type Report,
  type Roster,
  type Verdict,
  winsHalf,
} from './roster.ts'

/** The part of the member that a call needs, which leads it. */
export interface Leader {
  /** Returns its own answer. */
  report(): Report
  /** Tells whether it still waits for the answers to that call. */
  leads(ballot: number): boolean
  /** Does that later, in place of what it was to do later before. */
  after(ms: number, run: () => void): void
  enter(roster: Roster): void
  /** It may not decide, and calls again. */
  cannotDecide(about: Undecided, againMs: number): void
  /** The others continue without it. */
  out(): void
}

interface CallHost extends MemberView {
  readonly presence: Presence
  readonly newcomers: Newcomers
}

interface CallOptions {
  readonly ballot: number
  /** All members end the same step for it: none is lost. */
  readonly isPlanned: boolean
  /** Slow members: the next roster leaves them out where the others may decide alone. */
  readonly without: ReadonlySet<string>
  /** The call that this member has led before since the newest roster. */
  readonly before: Call | null
}

/** A call that a member leads: who is called, what they have answered, when it waits no longer, and what follows. */
export class Call {
  readonly ballot: number
  readonly #view: CallHost
  readonly #leader: Leader
  readonly #isPlanned: boolean
  readonly #without: ReadonlySet<string>
  readonly #called: readonly string[]
  readonly #reports: Map<string, Report>
  /** Members that have promised another call than this one, or one before. */
  readonly #refused: Set<string>
  /** Lives that are over, as those say that have come in again: none that answers itself. */
  readonly #former: FormerLife[] = []
  /** It no longer waits for new members. */
  #isLateForNew: boolean
  /** Nor for those of the newest roster. */
  #isLate = false
  /** The server is asked which half came first. */
  #isAsking = false

  constructor(view: CallHost, leader: Leader, { ballot, isPlanned, without, before }: CallOptions) {
    this.ballot = ballot
    this.#view = view
    this.#leader = leader
    this.#isPlanned = isPlanned
    this.#isLateForNew = !isPlanned
    this.#without = without
    this.#refused = before ? before.#refused : new Set()
    this.#called = view.presence.others
    this.#reports = new Map([[view.options.self, leader.report()]])
  }

  begin(): void {
    const { links, roster, times } = this.#view
    const { answerMs, plannedMs } = times
    const isPlanned = this.#isPlanned
    const call = { ballot: this.ballot, entered: roster!.ballot, isPlanned }
    links.send(this.#called, { type: 'call', ...call })
    const endWait = () => {
      this.#isLate = true
      this.decide()
    }
    this.#leader.after(answerMs, () => {
      this.#isLateForNew = true
      if (!isPlanned) return endWait()
      this.#leader.after(plannedMs - answerMs, endWait)
      this.decide()
    })
    this.decide()
  }

  /** Who has answered, and the leader. */
  get answered(): string[] {
    return [...this.#reports.keys()]
  }

  reported(from: string, report: Extract<ElasticMessage, { type: 'report' }>): void {
    const { ballot, former } = report
    if (ballot !== this.ballot || !this.#leader.leads(ballot) || this.#reports.has(from)) return
    // In a ring anyone can pass on what lives of its invention say, in any tab's name.
    if (!this.#called.includes(from)) return
    const { presence } = this.#view
    presence.outside.delete(from)
    this.#reports.set(from, report)
    if (former) this.#former.push(former)
    this.decide()
  }

  /** Takes a refusal; returns whether the leader gives way. One that has refused a call before it can do without. */
  refused(from: string): boolean {
    const isFirst = !this.#refused.has(from)
    this.#refused.add(from)
    return isFirst
  }

  /** The leader would answer something else now. */
  reportAgain(): void {
    this.#reports.set(this.#view.options.self, this.#leader.report())
  }

  /** Decides who trains on, as soon as enough have answered. */
  decide(): void {
    if (!this.#leader.leads(this.ballot) || this.#isAsking) return
    if (this.#isOutside) {
      this.#leader.out()
      return
    }
    const verdict = this.#verdict
    if (verdict?.kind === 'agreed') this.#agree(verdict)
    else if (verdict?.kind === 'half') void this.#askForHalf(verdict)
    else if (verdict?.kind === 'ahead') this.#cannotDecide(verdict.ahead, true)
    else if (verdict?.kind === 'missing')
      this.#cannotDecide(this.#unheard(verdict.missing), false, verdict.unlinked)
  }

  /** Members whose answers it can expect: those to which there are links, and of those called the ones to which one that has answered has one. */
  get #reached(): string[] {
    const { links, presence, roster } = this.#view
    const reached = new Set(links.up)
    if (roster!.isRing)
      for (const id of reached)
        for (const other of this.#reports.get(id)?.linked ?? [])
          if (this.#called.includes(other)) reached.add(other)
    return [...reached].filter((id) => !presence.dead.has(id))
  }

  /** True if more of its roster's members say that they are in one without the leader than say otherwise, once those that can have answered. */
  get #isOutside(): boolean {
    const { options, presence, roster } = this.#view
    const { outside } = presence
    if (outside.size === 0) return false
    const others = roster!.members.filter((id) => id !== options.self)
    const answered = others.filter((id) => this.#reports.has(id))
    const awaited = this.#reached.filter((id) => !this.#reports.has(id) && !outside.has(id))
    const isAwaited = awaited.some((id) => others.includes(id))
    return outside.size > answered.length && (this.#isLate || !isAwaited)
  }

  /** The members of the newest roster that counts. */
  get #newest(): readonly string[] {
    const { options, presence } = this.#view
    const evidence = { leader: options.self, reports: this.#reports, dead: presence.dead }
    return countedOf(evidence)![0].members
  }

  /** Null while it waits for answers. */
  get #verdict(): Verdict | null {
    const { options, presence, newcomers } = this.#view
    const { dead, saidBye, outside } = presence
    const { keptOut } = newcomers
    const reports = this.#reports
    const newest = this.#newest
    const awaited = this.#reached.filter((id) => !outside.has(id) && !reports.has(id))
    const awaitedOfNewest = awaited.filter((id) => newest.includes(id))
    const evidence = { leader: options.self, reports, dead, saidBye, keptOut, max: options.max }
    if (this.#without.size > 0) {
      const isOther = (id: string) => !this.#without.has(id)
      if (!this.#isLate && awaitedOfNewest.some(isOther)) return null
      const others = new Map([...reports].filter(([id]) => isOther(id)))
      const verdict = judge({ ...evidence, reports: others })
      if (verdict.kind === 'agreed') return verdict
    }
    if (!this.#isLate && awaitedOfNewest.length > 0) return null
    if (!this.#isLateForNew && awaited.some((id) => !keptOut.has(id))) return null
    for (const life of this.#former.splice(0)) if (!reports.has(life.id)) presence.isFormer(life)
    return judge(evidence)
  }

  /** Members of the newest roster, or where those are all here, of one before it that counts too. */
  #unheard(missing: readonly string[]): readonly string[] {
    const { dead } = this.#view.presence
    const newest = this.#newest.filter((id) => !this.#reports.has(id) && !dead.has(id))
    return newest.length > 0 ? newest : missing
  }

  #agree({ members, before, isRing }: NextRoster): void {
    const { links, newcomers } = this.#view
    const { answered, ballot } = this
    const { keptOut } = newcomers
    const roster = { ballot, members, before, isRing }
    links.send(answered, { type: 'roster', roster })
    if (this.#isPlanned)
      for (const id of links.up)
        if (!answered.includes(id) && !keptOut.has(id)) links.close(id, 'it did not answer a call')
    this.#leader.enter(roster)
    newcomers.leftOut(answered, keptOut)
  }

  async #askForHalf(verdict: Half): Promise<void> {
    this.#isAsking = true
    const isWon = await areFirst(verdict, this.#view.presence, this.#view.options.firstHalf)
    this.#isAsking = false
    if (!this.#leader.leads(this.ballot)) return
    // Others may have answered or died meanwhile.
    const now = this.#verdict
    if (now?.kind !== 'half' || now.members.join() !== verdict.members.join()) this.decide()
    else if (isWon) this.#agree(verdict)
    else {
      const unlinked = now.missing.filter((id) => this.#reports.has(id))
      this.#cannotDecide(this.#unheard(now.missing), false, unlinked)
    }
  }

  #cannotDecide(
    missing: readonly string[],
    hadMore: boolean,
    unlinked: readonly string[] = [],
  ): void {
    // Others may still answer in time.
    if (!this.#isLate && this.#reached.some((id) => !this.#reports.has(id))) return
    const { links, roster, times } = this.#view
    // What newcomers say is not believed.
    const members = new Set([...roster!.members, ...this.#newest])
    const reports = [...members].flatMap((id) => this.#reports.get(id) ?? [])
    const steps = reports.flatMap(({ hasState, step }) => (hasState ? [step] : []))
    const about = { missing, hadMore, step: steps.length > 0 ? Math.max(...steps) : null }
    // Some lack links to each other. Another member, to which all are linked, finds that out when it leads.
    const isElsewhere = missing.some((id) => reports.some(({ linked }) => linked.includes(id)))
    this.#leader.cannotDecide(about, isElsewhere ? 3 * times.leadMs : times.againMs)
    links.send(unlinked, { type: 'leave', ballot: this.ballot })
  }
}

type Half = Extract<Verdict, { kind: 'half' }>

/** Tells whether the members of that verdict may continue: asks the server, roster by roster, which half of it was the first to say so. */
async function areFirst(
  { members, before, ballots, missing }: Half,
  { dead, saidBye, surelyDead }: Presence,
  firstHalf: ElasticMemberOptions['firstHalf'] = noServer,
): Promise<boolean> {
  const later: (readonly string[])[] = []
  try {
    for (const { ballot, members: all } of before) {
      if (ballots.includes(ballot)) {
        const own = members.filter((id) => all.includes(id))
        const alive = all.filter((id) => !dead.has(id))
        const first = await firstHalf(ballot, alive, own)
        // Of those that won it together with one that is here, none can go on alone: neither who said bye, nor who is in a later roster that
        // those here may follow.
        const isOurs = first?.some((id) => own.includes(id))
        const isFollowed =
          isOurs &&
          all.every((id) => !saidBye.has(id)) &&
          later.some((ids) => first!.every((id) => ids.includes(id)))
        if (!first || !(isFollowed || winsHalf(own, first, isOurs ? dead : surelyDead)))
          return false
      }
      later.push(all)
    }
    return true
  } catch {
    // Without the server their word must do.
    return missing.every((id) => saidBye.has(id))
  }
}

const noServer = () => Promise.reject(new PeerError('peer.lost', 'membership: no server'))
