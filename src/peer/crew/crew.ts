import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import type { Link, LinkStats } from '../link/link.ts'
import { CrewLinks } from './crew-links.ts'
import type { CrewMessage } from './messages.ts'
import {
  ballotAbove,
  type FormerLife,
  judge,
  newestOf,
  type Report,
  type Roster,
  type Verdict,
  winsHalf,
} from './roster.ts'

/** How long members wait for each other. units: ms. */
export interface CrewTimes {
  /** A leader, for members that have a link and do not answer a call. */
  answerMs: number
  /** The same, where no member is lost: all are about to end the same step. */
  plannedMs: number
  /** A member, for the most senior one to call, and half as long again for each one between. */
  leadMs: number
  /** A leader that may not decide, until it calls again. */
  againMs: number
  /** A member, for one that it doubts. */
  doubtMs: number
  /** A member that joins, once it has lost one of its links. */
  lameMs: number
  /** A member that joins, to be let in: the others end a step first. */
  joinMs: number
}

export const crewTimes: CrewTimes = {
  answerMs: 2500,
  plannedMs: 8000,
  leadMs: 3000,
  againMs: 2000,
  doubtMs: 800,
  lameMs: 10_000,
  joinMs: 120_000,
}

export interface CrewOptions {
  readonly env: Env
  /** Names one life of this member: after it was out it comes in with another id. */
  readonly self: string
  /** With which the run began; null for a member that joins later. */
  readonly roster: Pick<Roster, 'ballot' | 'members'> | null
  /** The life before this one, where it is over: to the others a proof that it is. */
  readonly former?: FormerLife | null
  /** Most members of a roster. */
  readonly most: number
  readonly times?: Partial<CrewTimes>
  /**
   * Of two halves one may continue: stores `lives` for the ballot of a roster unless something is stored, and returns what is. Without it, or
   * where it rejects, a person has to decide.
   */
  readonly claim?: (ballot: number, lives: readonly string[]) => Promise<readonly string[]>
}

/** What a crew tells its owner. */
export interface CrewListener {
  /** The group of the roster must end now: another roster follows. */
  stop(why: string): void
  /** A member has links to members that are in no roster yet: all should end the same step and ask for the `next` roster. */
  wish(): void
  /** The others continue without this member. */
  out(why: string): void
  /** Too few members are here, and a person must decide, by `continueWithout`: these are missing. Null: that is over. */
  undecided(missing: readonly string[] | null): void
}

/**
 * One member's part in deciding who trains together, as its run goes from roster to roster. There is no coordinator: leading is an act, and any
 * number of leaders is safe (roster.ts says why).
 *
 *   RUNNING --a member is lost, a wish, a call--> STOPPED --calls--> LEADING --all have answered--> RUNNING with the next roster
 *                                                    |  ^                |
 *                                                    |  +---refused------+
 *                                                    +--another's roster--> RUNNING, or OVER where this member is not in it
 *
 * The most senior member that is not known to be dead calls at once, the next ones later if they hear of no roster. A leader decides when all
 * linked members of the newest roster have answered, or after `answerMs` (`plannedMs` where none is lost).
 */
export class Crew {
  readonly #options: CrewOptions
  readonly #listener: CrewListener
  readonly #times: CrewTimes
  readonly #links: CrewLinks
  #roster: Roster | null
  /** The newest that this member knows to be proved. */
  #proved: number
  #promised: number
  /** The largest ballot that it has heard of. */
  #seen: number
  #state: 'running' | 'stopped' | 'leading' | 'over'
  /** Of the call that this member leads. */
  #reports = new Map<string, Report>()
  #isPlanned = false
  /** For new members, and for those of the newest roster. */
  #isLateForNew = false
  #isLate = false
  #isDeciding = false
  /** By id: the newest roster that a member had entered when it died. */
  readonly #dead = new Map<string, number>()
  /** Those of them whose run is over: the others do not need them any more. */
  readonly #done = new Set<string>()
  /** Of a newcomer: once it has got the run's state. */
  #hasState: boolean
  /** By id: gives up the wait for an answer. */
  readonly #doubted = new Map<string, () => void>()
  /** Whom the owner was told to be missing. */
  #undecided: readonly string[] | null = null
  /** A link has come since the newest roster was decided, or while it was. */
  #hasNewLinks = false
  /** A planned call whose answer waits for this member's own step to end. */
  #held: (() => void) | undefined
  #cancel: () => void = () => undefined
  #waiting: { resolve: (roster: Roster) => void; reject: (error: unknown) => void } | undefined
  /** The ballot of the roster that `next` has returned last. */
  #given = 0

  constructor(options: CrewOptions, listener: CrewListener) {
    const { roster } = options
    this.#options = options
    this.#listener = listener
    this.#times = { ...crewTimes, ...options.times }
    this.#links = new CrewLinks(options.self, {
      said: (from, message) => this.#receive(from, message),
      came: (id) => this.#came(id),
      ended: (id) => this.#ended(id),
    })
    this.#roster = roster && { ...roster, before: [] }
    this.#proved = this.#promised = this.#seen = this.#given = roster?.ballot ?? 0
    this.#state = roster ? 'running' : 'stopped'
    this.#hasState = roster !== null
    if (!roster) this.#after(this.#times.joinMs, () => this.#out('nobody has let it in'))
  }

  /** The newest that this member has entered; null before the first. */
  get roster(): Roster | null {
    return this.#roster
  }

  get self(): string {
    return this.#options.self
  }

  /** Takes a link to a member; a newer one takes its place. `id`: null for a member that has a roster, which says itself who it is. */
  add(id: string | null, transport: Link): void {
    this.#links.add(transport, id)
  }

  /** The links for the group of the current roster, by rank. Those of the group before it fall silent. */
  openLinks(): Map<number, Link> {
    const { ballot, members } = this.#roster!
    return this.#links.open(ballot, members)
  }

  /** This member has the state of the run, or a person has decided that it continues without. */
  hasState(): void {
    this.#hasState = true
  }

  /** All members of the current roster are in it: its group is complete. */
  proved(): void {
    if (!this.#roster || this.#roster.ballot <= this.#proved) return
    this.#proved = this.#roster.ballot
    this.#roster = { ...this.#roster, before: [] }
    for (const id of this.#dead.keys())
      if (!this.#roster.members.includes(id)) this.#dead.delete(id)
  }

  /**
   * Resolves with a roster that follows the one which `next` returned last. `isPlanned`: this member has ended a step after which all wanted
   * another one; otherwise the group has failed. Call it again when the former call has settled.
   */
  next(isPlanned = false): Promise<Roster> {
    return new Promise((resolve, reject) => {
      if (this.#state === 'over') {
        reject(new PeerError('peer.aborted', 'crew: this member is out of the run.'))
        return
      }
      this.#waiting = { resolve, reject }
      if (this.#roster && this.#roster.ballot > this.#given) {
        // Entered while nobody asked; the group of that roster has not begun.
        if (this.#state === 'running') this.#give()
        return
      }
      const held = this.#held
      this.#held = undefined
      if (this.#state !== 'running') return
      // The others may need this member's last frames of the step: the group ends with the next one.
      if (isPlanned) this.#state = 'stopped'
      if (held) held()
      else this.#convene(isPlanned)
    })
  }

  /** The group failed before it was complete, or later: the roster cannot train. */
  failed(): void {
    if (this.#state === 'running') this.#convene(false)
  }

  /**
   * A member is dead for sure: it said so, or its process has ended. `entered`: the newest roster that it may have entered. Without it the link
   * must be up: a member that had entered a roster without this one would have closed it.
   */
  isDead(id: string, entered?: number): void {
    if (this.#state === 'over' || this.#dead.has(id)) return
    if (entered === undefined && !this.#links.isUp(id)) return
    this.#dead.set(id, entered ?? this.#roster?.ballot ?? 0)
    this.#links.close(id, 'that member is dead')
    this.#lost(id)
  }

  /** A member's connection to the server has ended: its link ends too, unless it answers. */
  doubt(id: string): void {
    if (this.#state === 'over' || !this.#links.isUp(id) || this.#doubted.has(id)) return
    const { env } = this.#options
    const cancel = env.after(this.#times.doubtMs, () => {
      this.#doubted.delete(id)
      this.#links.close(id, 'it does not answer, and its connection to the server has ended')
    })
    this.#doubted.set(id, cancel)
    this.#links.send([id], { type: 'ping' })
  }

  #isThere(id: string): void {
    this.#doubted.get(id)?.()
    this.#doubted.delete(id)
  }

  /** A person has decided: those that are missing count as dead. */
  continueWithout(): void {
    const told = this.#undecided
    if (!told || !this.#roster) return
    this.#hasState = true
    this.#reports.set(this.self, this.#report())
    for (const id of [...told, ...this.#dead.keys()]) this.#dead.set(id, this.#roster.ballot)
    if (this.#state === 'leading') this.#decide()
    else if (this.#state === 'stopped') this.#lead(false)
  }

  /** This member takes part no more. `isDone`: its run is over, and the others come to their end too. */
  resign(why: string, isDone = false): void {
    if (this.#state === 'over') return
    this.#sayBye(why, isDone)
    this.#end(new PeerError('peer.aborted', `crew: ${why}`))
  }

  #sayBye(why: string, isDone = false): void {
    const entered = this.#roster?.ballot ?? 0
    this.#links.send(this.#links.up, { type: 'bye', entered, isDone, why: why.slice(0, 300) })
  }

  /** The server says that the others continue without this member. */
  leftOut(why: string): void {
    this.#out(why)
  }

  closeLinks(why: string): void {
    this.#links.closeAll(why)
  }

  /** Members to which there are links, or were. */
  get known(): string[] {
    return this.#links.known
  }

  /** What its links have carried so far. */
  linkStats(): Promise<LinkStats> {
    return this.#links.stats()
  }

  // --- who comes, who is lost ---

  #came(id: string): void {
    this.#hasNewLinks ||= !this.#roster?.members.includes(id)
    this.#wishForNew()
  }

  #isNew(id: string): boolean {
    const members = this.#roster?.members
    return members !== undefined && !members.includes(id) && !this.#dead.has(id)
  }

  #ended(id: string): void {
    if (this.#state === 'over' || this.#done.has(id)) return
    if (this.#roster) this.#lost(id)
    else if (this.#links.up.length === 0) this.#out('no member is left')
    // The others may let it in without that one, or never.
    else this.#after(this.#times.lameMs, () => this.#out('it has lost a link'))
  }

  #lost(id: string): void {
    const isMember = this.#roster?.members.includes(id)
    if (this.#state === 'leading') this.#decide()
    else if (this.#state === 'running' && isMember) this.#convene(false)
    else if (this.#state === 'stopped' && isMember && !this.#held) this.#waitForLeader(false)
  }

  // --- calling ---

  /** The roster's group ends here; then somebody calls. */
  #convene(isPlanned: boolean): void {
    this.#stop('the members decide who trains on')
    const held = this.#held
    this.#held = undefined
    if (held) held()
    else this.#waitForLeader(isPlanned)
  }

  #stop(why: string): void {
    if (this.#state !== 'running') return
    this.#state = 'stopped'
    this.#listener.stop(why)
  }

  /** Calls at once where this member is the most senior one, else when nobody else has. A member that joins only waits. */
  #waitForLeader(isPlanned: boolean): void {
    this.#cancel()
    this.#state = 'stopped'
    const members = this.#roster?.members
    if (!members) return
    const alive = members.filter((id) => id === this.self || this.#links.isUp(id))
    const place = alive.indexOf(this.self)
    if (place === 0) this.#lead(isPlanned)
    else this.#waitForRoster(isPlanned)
  }

  #after(ms: number, run: () => void): void {
    this.#cancel()
    this.#cancel = this.#options.env.after(ms, run)
  }

  #lead(isPlanned: boolean): void {
    if (this.#state === 'over' || !this.#roster) return
    this.#stop('this member calls')
    const ballot = ballotAbove(Math.max(this.#seen, this.#promised), this.self)
    this.#seen = this.#promised = ballot
    this.#state = 'leading'
    this.#isPlanned = isPlanned
    this.#isLate = false
    this.#isLateForNew = !isPlanned
    this.#isDeciding = false
    this.#reports = new Map([[this.self, this.#report()]])
    const entered = this.#roster.ballot
    this.#links.send(this.#links.up, { type: 'call', ballot, entered, isPlanned })
    const { answerMs, plannedMs } = this.#times
    this.#after(answerMs, () => {
      this.#isLateForNew = true
      if (isPlanned) this.#after(plannedMs - answerMs, () => this.#isTooLate())
      else this.#isTooLate()
      this.#decide()
    })
    this.#decide()
  }

  #isTooLate(): void {
    this.#isLate = true
    this.#decide()
  }

  #report(): Report {
    const { former = null } = this.#options
    return {
      roster: this.#roster,
      proved: this.#proved,
      hasState: this.#hasState,
      linked: this.#links.up,
      former,
    }
  }

  // --- deciding ---

  #decide(): void {
    if (this.#state !== 'leading' || this.#isDeciding) return
    const newest = newestOf(this.#reports.values())
    const isMember = (id: string) => newest?.members.includes(id) === true
    const awaited = this.#links.up.filter((id) => !this.#reports.has(id))
    if (!this.#isLate && awaited.some(isMember)) return
    if (!this.#isLateForNew && awaited.length > 0) return
    const verdict = judge(this.self, this.#reports, this.#dead, this.#options.most)
    if (verdict.kind === 'agreed') this.#agree(verdict)
    else if (verdict.kind === 'half') this.#claim(verdict, this.#promised)
    else if (verdict.kind === 'ahead') this.#cannotDecide(verdict.ahead)
    else if (verdict.kind === 'missing') this.#cannotDecide(this.#missing(), verdict.unlinked)
  }

  #agree({ members, before }: Extract<Verdict, { kind: 'agreed' | 'half' }>): void {
    const roster: Roster = { ballot: this.#promised, members, before }
    this.#links.send([...this.#reports.keys()], { type: 'roster', roster })
    if (this.#isPlanned)
      for (const id of this.#links.up)
        if (!this.#reports.has(id)) this.#links.close(id, 'it did not answer a call')
    this.#enter(roster)
  }

  async #claim(verdict: Extract<Verdict, { kind: 'half' }>, ballot: number): Promise<void> {
    const { claim } = this.#options
    const { members } = verdict
    this.#isDeciding = true
    let isWon = claim !== undefined
    try {
      for (const { ballot: half, members: all } of verdict.before) {
        if (!isWon || !verdict.ballots.includes(half)) continue
        const own = members.filter((id) => all.includes(id))
        isWon = winsHalf(own, await claim!(half, own), this.#dead)
      }
    } catch {
      isWon = false
    }
    if (this.#state !== 'leading' || this.#promised !== ballot) return
    this.#isDeciding = false
    if (isWon) this.#agree({ ...verdict, kind: 'agreed' })
    else this.#cannotDecide(this.#missing())
  }

  /** Members of the newest roster that have not answered and are not known to be dead. */
  #missing(): string[] {
    const members = (newestOf(this.#reports.values()) ?? this.#roster)?.members ?? []
    return members.filter((id) => !this.#reports.has(id) && !this.#dead.has(id))
  }

  #cannotDecide(missing: readonly string[], unlinked: readonly string[] = []): void {
    // Others may still answer in time.
    if (!this.#isLate && this.#links.up.some((id) => !this.#reports.has(id))) return
    if (this.#undecided?.join() !== missing.join()) {
      this.#undecided = missing
      this.#listener.undecided(missing)
    }
    const { againMs, leadMs } = this.#times
    // Some lack links to each other. Another member, to which all are linked, finds that out when it leads.
    const isElsewhere = missing.some((id) =>
      [...this.#reports.values()].some(({ linked }) => linked.includes(id)),
    )
    this.#after(isElsewhere ? 3 * leadMs : againMs, () => this.#lead(false))
    this.#links.send(unlinked, { type: 'leave', ballot: this.#promised })
  }

  #decided(): void {
    if (!this.#undecided) return
    this.#undecided = null
    this.#listener.undecided(null)
  }

  // --- what others say ---

  #receive(from: string, message: CrewMessage): void {
    this.#isThere(from)
    if (message.type === 'ping') this.#links.send([from], { type: 'pong' })
    if (this.#state === 'over') return
    switch (message.type) {
      case 'call':
        this.#called(from, message)
        return
      case 'report':
        if (this.#state !== 'leading' || message.ballot !== this.#promised) return
        this.#reports.set(from, message)
        if (message.former) this.#dead.set(message.former.id, message.former.entered)
        this.#decide()
        return
      case 'refuse':
        this.#refused(from, message)
        return
      case 'roster':
        this.#told(from, message.roster)
        return
      case 'leave':
        if (message.ballot === this.#promised && this.#state === 'stopped')
          this.#out('it has lost links to other members')
        return
      case 'bye':
        this.#left(from, message)
    }
  }

  #left(from: string, { entered, isDone }: Extract<CrewMessage, { type: 'bye' }>): void {
    if (!isDone || this.#state !== 'running') {
      this.isDead(from, entered)
      return
    }
    // Its last frames are on their way to this member's own end.
    this.#dead.set(from, entered)
    this.#done.add(from)
  }

  #called(
    from: string,
    { ballot, entered, isPlanned }: Extract<CrewMessage, { type: 'call' }>,
  ): void {
    this.#seen = Math.max(this.#seen, ballot)
    const own = this.#roster
    const isOutside = own !== null && own.ballot > entered && !own.members.includes(from)
    if (isOutside || ballot <= this.#promised) {
      const outside = isOutside ? own.ballot : null
      this.#links.send([from], { type: 'refuse', ballot, promised: this.#promised, outside })
      return
    }
    this.#promised = ballot
    this.#isPlanned = isPlanned
    const answer = () => {
      if (this.#state === 'over' || this.#promised !== ballot) return
      this.#stop('a member called')
      this.#state = 'stopped'
      if (own) this.#waitForRoster(isPlanned)
      this.#links.send([from], { type: 'report', ballot, ...this.#report() })
    }
    // The step that all end is this member's too: `next` answers.
    if (isPlanned && this.#state === 'running') this.#held = answer
    else answer()
  }

  /** After an answer: the leader may be lost before it has decided. */
  #waitForRoster(isPlanned: boolean): void {
    const place = this.#roster!.members.indexOf(this.self)
    const { leadMs, plannedMs } = this.#times
    const leadingMs = isPlanned ? plannedMs : 0
    this.#after(leadingMs + leadMs * (1 + place / 2), () => this.#lead(false))
  }

  #refused(
    from: string,
    { ballot, promised, outside }: Extract<CrewMessage, { type: 'refuse' }>,
  ): void {
    this.#seen = Math.max(this.#seen, promised)
    if (outside !== null && outside > (this.#roster?.ballot ?? 0)) {
      this.#out('the others continue without this member')
      return
    }
    if (this.#state !== 'leading' || ballot !== this.#promised) return
    // Newcomers decide nothing: this call can do without them.
    if (this.#isNew(from)) return
    // Another one leads: it gets the time that it needs.
    this.#state = 'stopped'
    const [draw] = this.#options.env.random(1)
    const place = this.#roster!.members.indexOf(this.self)
    const { answerMs } = this.#times
    this.#after(answerMs * (1 + place / 2) * (1 + draw / 256), () => this.#lead(false))
  }

  #told(from: string, roster: Roster): void {
    const { ballot } = roster
    this.#seen = Math.max(this.#seen, ballot)
    if (ballot < this.#promised || ballot <= (this.#roster?.ballot ?? 0)) {
      this.#links.send([from], { type: 'refuse', ballot, promised: this.#promised, outside: null })
    } else if (roster.members.includes(this.self)) {
      this.#promised = ballot
      this.#enter(roster)
    } else if (this.#roster) this.#out('the others continue without this member')
  }

  #enter(roster: Roster): void {
    const before = this.#roster
    this.#cancel()
    this.#held = undefined
    this.#stop('the next roster is here')
    this.#roster = roster
    this.#state = 'running'
    this.#decided()
    for (const id of before?.members ?? [])
      if (!roster.members.includes(id)) this.#links.close(id, 'the others continue without it')
    this.#give()
    // Such a change does not wait for newcomers.
    if (!this.#isPlanned) this.#hasNewLinks ||= this.#links.up.some((id) => this.#isNew(id))
    this.#wishForNew()
  }

  /** Once for each link: a member that cannot be let in would stop the others again and again. */
  #wishForNew(): void {
    if (this.#state !== 'running' || !this.#hasNewLinks) return
    this.#hasNewLinks = false
    if (this.#links.up.some((id) => this.#isNew(id))) this.#listener.wish()
  }

  #give(): void {
    const waiting = this.#waiting
    if (!waiting || !this.#roster) return
    this.#waiting = undefined
    this.#given = this.#roster.ballot
    waiting.resolve(this.#roster)
  }

  #out(why: string): void {
    if (this.#state === 'over') return
    this.#stop(why)
    this.#sayBye(why)
    this.#end(new PeerError('peer.lost', `crew: ${why}. It joins again as a newcomer.`))
    this.#listener.out(why)
  }

  #end(error: PeerError): void {
    this.#cancel()
    for (const id of this.#doubted.keys()) this.#isThere(id)
    this.#held = undefined
    this.#decided()
    this.#state = 'over'
    this.#waiting?.reject(error)
    this.#waiting = undefined
  }
}
