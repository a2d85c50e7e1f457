import { PeerError } from '../../util/errors.ts'
import type { Link, LinkStats } from '../link/link.ts'
import { ballotStep, callsAhead, lastBallot } from '../room/ballots.ts'
import { meshLimit } from '../room/edges.ts'
import { Call } from './call.ts'
import { CrewLinks } from './crew-links.ts'
import type { CrewMessage, Probe } from './messages.ts'
import { Newcomers } from './newcomers.ts'
import {
  type CrewListener,
  type CrewOptions,
  type CrewTimes,
  crewTimes,
  type Undecided,
} from './options.ts'
import { breachOf, type Role } from './rights.ts'
import { ballotAbove, follows, type Report, type Roster, type Verdict, winsHalf } from './roster.ts'
import { SeenBallots } from './seen-ballots.ts'
import { SlowMembers } from './slow-members.ts'

type Missing = Omit<Undecided, 'step'>
type Signal = Extract<CrewMessage, { type: 'signal' }>

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
  /** To whose call it has promised last. */
  #leader: string | null = null
  readonly #seen: SeenBallots
  /** Of one that joins: those that train, as the server and they say. */
  readonly #ranks = new Set<string>()
  /** Members of the newest roster to which no link could be made. */
  readonly #apart = new Set<string>()
  /** Members that have said since the newest roster that the others continue without this one. */
  readonly #outside = new Set<string>()
  #state: 'running' | 'stopped' | 'leading' | 'over'
  /** That this member leads, or has led since the newest roster. */
  #call: Call | null = null
  /** The newest call was for a planned change. */
  #isPlanned = false
  /** By id: the newest roster that a member had entered when it died. */
  readonly #dead = new Map<string, number>()
  /** Those of them of which nothing says so but their own word over a link. */
  readonly #saidBye = new Set<string>()
  /** Those of them whose run is over: the others do not need them any more. */
  readonly #done = new Set<string>()
  /** Of a newcomer: once it has got the run's state. */
  #hasState: boolean
  /** What the owner was told. */
  #undecided: Undecided | null = null
  readonly #newcomers: Newcomers
  readonly #slow: SlowMembers | undefined
  /** Slow members, which the next roster is to leave out. */
  #without: ReadonlySet<string> = new Set()
  /** A planned call whose answer waits for this member's own step to end; `hasFailed`: in a way that nobody planned. */
  #held: ((hasFailed: boolean) => void) | undefined
  #cancel: () => void = () => undefined
  #waiting: { resolve: (roster: Roster) => void; reject: (error: unknown) => void } | undefined
  /** Why this member takes part no more. */
  #error: PeerError | undefined
  /** The ballot of the roster that `next` has returned last. */
  #given = 0

  constructor(options: CrewOptions, listener: CrewListener) {
    const { roster } = options
    this.#options = options
    this.#listener = listener
    this.#times = { ...crewTimes, ...options.times }
    this.#links = new CrewLinks(options.self, options.env, {
      heard: (from, message) => this.#receive(from, message),
      mayPass: (id) => this.#roster?.isRing === true && this.#roster.members.includes(id),
      came: (id, isRank) => this.#came(id, isRank),
      ended: (id) => this.#ended(id),
    })
    const self = this
    this.#newcomers = new Newcomers(
      {
        env: options.env,
        get up() {
          return self.#links.up
        },
        get roster() {
          return self.#roster
        },
        get letsIn() {
          return self.#state === 'running' && self.#roster!.members[0] === self.self
        },
        isNew: (id) => this.#isNew(id),
        send: (to, message) => this.#links.send(to, message),
        probe: (id, message) => this.#links.probe(id, message),
        wish: () => listener.wish(),
        waits: (id, why) => listener.waits?.(id, why),
      },
      options.pace,
    )
    const slowHost = {
      env: options.env,
      self: options.self,
      get ranks() {
        return self.#state === 'running' ? self.#roster!.members : []
      },
      isUp: (id: string) => this.#links.isUp(id),
      machineOf: (id: string) => options.machineOf?.(id),
      probe: (id: string, message: Probe) => this.#links.probe(id, message),
      found: (id: string, why: string) => this.#foundSlow(id, why),
      passed: () => listener.holdsUp?.(null, null),
    }
    this.#roster = roster && {
      ...roster,
      before: [],
      isRing: roster.members.length > meshLimit,
    }
    this.#proved = this.#promised = this.#given = roster?.ballot ?? 0
    this.#seen = new SeenBallots(options.env, this.#promised)
    this.#state = roster ? 'running' : 'stopped'
    this.#hasState = roster !== null
    this.#slow = options.pace && new SlowMembers(slowHost, options.pace)
    if (!roster) this.#waitToJoin()
  }

  #waitToJoin(): void {
    this.#after(this.#times.joinMs, () => this.#out('nobody has let it in'))
  }

  /** The newest that this member has entered; null before the first. */
  get roster(): Roster | null {
    return this.#roster
  }

  /** Whether the group of the newest roster may form and train: no other roster is under way. */
  get isRunning(): boolean {
    return this.#state === 'running'
  }

  get self(): string {
    return this.#options.self
  }

  /**
   * Takes a link to a member; a newer one takes its place. `id`: null for one that trains, which says itself which life it is of `member`.
   */
  add(id: string | null, transport: Link, member?: string): void {
    this.#links.add(transport, id, member)
  }

  /** The links for the group of the current roster, by rank. Those of the group before it fall silent. */
  openLinks(): Map<number, Link> {
    const { ballot, members } = this.#roster!
    return this.#links.open(ballot, members)
  }

  /** A link to that member of the current roster could not be made: the next one does without it where it needs one. */
  setApart(id: string): void {
    this.#apart.add(id)
  }

  isApart(id: string): boolean {
    return this.#apart.has(id)
  }

  /** Calls for another roster, without waiting for others to: they do not notice that this member cannot form the group of the current one. */
  lead(): void {
    if (this.#state === 'running') this.#lead(false)
  }

  isLinked(id: string): boolean {
    return this.#links.isUp(id)
  }

  /** Sends what WebRTC needs to link this member to that one, of the roster with that ballot. */
  signal(to: string, signal: Omit<Signal, 'type'>): void {
    this.#links.send([to], { type: 'signal', ...signal })
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
      if (!this.#roster.members.includes(id)) {
        this.#dead.delete(id)
        this.#saidBye.delete(id)
      }
    this.#seen.keep(this.#roster.members)
    this.#links.forgetEnded(this.#roster.members)
  }

  /**
   * Resolves with a roster that follows the one which `next` returned last. `isPlanned`: this member has ended a step after which all wanted
   * another one; otherwise the group has failed. Call it again when the former call has settled.
   */
  next(isPlanned = false): Promise<Roster> {
    return new Promise((resolve, reject) => {
      if (this.#state === 'over') {
        reject(this.#error)
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
      if (held) held(!isPlanned)
      else this.#convene(isPlanned)
    })
  }

  /**
   * A member is dead for sure: it told the server so, with the newest roster that it may have `entered`, or its process has ended. Then the link
   * must still be up once all that was on its way has come: a member that had entered a roster without this one would have closed it.
   */
  isDead(id: string, entered?: number): void {
    if (this.#state === 'over') return
    if (this.#dead.has(id)) {
      if (entered !== undefined && this.#saidBye.delete(id)) this.#decide()
      return
    }
    if (entered === undefined) {
      this.#options.env.after(this.#times.lastMs, () => {
        if (this.#links.isUp(id)) this.isDead(id, this.#roster?.ballot ?? 0)
      })
      return
    }
    this.#isGone(id, entered)
  }

  #isGone(id: string, entered: number): void {
    this.#dead.set(id, entered)
    this.#links.close(id, 'that member is dead')
    this.#lost(id)
  }

  /** A member's connection to the server has ended: its link ends too, unless it answers. */
  doubt(id: string): void {
    if (this.#state !== 'over') this.#links.doubt(id, this.#times.doubtMs)
  }

  /** A person has decided: those that are missing count as dead. */
  continueWithout(): void {
    const told = this.#undecided
    if (!told || !this.#roster) return
    this.#hasState = true
    this.#call?.take(this.self, this.#report())
    for (const id of [...told.missing, ...this.#dead.keys()])
      this.#dead.set(id, this.#roster.ballot)
    this.#saidBye.clear()
    if (this.#state === 'leading') this.#decide()
    else if (this.#state === 'stopped') this.#lead(false)
  }

  /** This member takes part no more. `isDone`: its run is over, and the others come to their end too. */
  resign(why: string, isDone = false): void {
    if (this.#state === 'over') return
    this.#sayBye(why, isDone)
    this.#end(new PeerError('peer.aborted', `crew: ${why}`))
  }

  /** Ends the run for all members that are linked to this one, or to one that is. */
  abort(why: string): void {
    if (this.#state === 'over') return
    this.#links.send(this.#links.up, { type: 'abort', why: why.slice(0, 300) })
    this.#stop(why)
    this.#end(new PeerError('peer.aborted', `crew: ${why}`))
  }

  #sayBye(why: string, isDone = false): void {
    const entered = this.#roster?.ballot ?? 0
    this.#links.send(this.#others, { type: 'bye', entered, isDone, why: why.slice(0, 300) })
  }

  /** The others continue without this member, or it needs new links: it is to come in again. */
  leftOut(why: string): void {
    this.#out(why)
  }

  /** The group of the newest roster did not form: its links fall silent, and stay for the next one. */
  silenceLinks(): void {
    this.#links.silence()
  }

  closeLinks(why: string): void {
    this.#links.closeAll(why)
  }

  /** Members to which there are links, or were. */
  get known(): string[] {
    return this.#links.known
  }

  /** Those that hear what this member sends to all: with links, and in a ring those to whom others pass it on. */
  get #others(): string[] {
    const { up } = this.#links
    const { isRing, members } = this.#roster ?? {}
    const far = isRing ? members!.filter((id) => id !== this.self && !this.#dead.has(id)) : []
    return [...new Set([...up, ...far])]
  }

  /** Whether that member may be there, as far as this one's links show. */
  #mayBeThere(id: string): boolean {
    if (id === this.self || this.#links.isUp(id)) return true
    return this.#roster?.isRing === true && !this.#links.known.includes(id) && !this.#dead.has(id)
  }

  /** What its links have carried so far. */
  linkStats(): Promise<LinkStats> {
    return this.#links.stats()
  }

  // --- who comes, who is lost ---

  #came(id: string, isRank: boolean): void {
    if (isRank && !this.#roster) this.#ranks.add(id)
    this.#newcomers.came(id)
  }

  #isNew(id: string): boolean {
    const members = this.#roster?.members
    return members !== undefined && !members.includes(id) && !this.#dead.has(id)
  }

  #ended(id: string): void {
    if (this.#state === 'over' || this.#done.has(id)) return
    this.#newcomers.gone(id)
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
    if (held) held(!isPlanned)
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
    const alive = members.filter((id) => this.#mayBeThere(id))
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
    const ballot = ballotAbove(this.#seen.newest, this.self)
    if (ballot === null) {
      this.abort('the run has had as many changes of its ranks as it can. Start it again.')
      return
    }
    this.#seen.newest = this.#promised = ballot
    this.#leader = this.self
    this.#state = 'leading'
    this.#isPlanned = isPlanned
    const others = this.#others
    const { refused } = this.#call ?? {}
    const call = new Call(this.self, ballot, this.#report(), isPlanned, others, refused)
    this.#call = call
    const entered = this.#roster.ballot
    this.#links.send(others, { type: 'call', ballot, entered, isPlanned })
    const { answerMs, plannedMs } = this.#times
    const endWait = () => {
      call.isLate = true
      this.#decide()
    }
    this.#after(answerMs, () => {
      call.isLateForNew = true
      if (!isPlanned) return endWait()
      this.#after(plannedMs - answerMs, endWait)
      this.#decide()
    })
    this.#decide()
  }

  #report(): Report {
    const { former = null, step } = this.#options
    return {
      roster: this.#roster,
      proved: this.#proved,
      hasState: this.#hasState,
      step: step?.() ?? 0,
      linked: this.#links.up,
      apart: [...this.#apart],
      former,
    }
  }

  // --- deciding ---

  #decide(): void {
    const call = this.#call
    if (this.#state !== 'leading' || !call || call.isAsking) return
    if (this.#isOutside(call)) {
      this.#out('the others continue without this member')
      return
    }
    const verdict = this.#verdict(call)
    if (verdict?.kind === 'agreed') this.#agree(call, verdict)
    else if (verdict?.kind === 'half') this.#askForHalf(call, verdict)
    else if (verdict?.kind === 'ahead')
      this.#cannotDecide(call, { missing: verdict.ahead, hadMore: true })
    else if (verdict?.kind === 'missing')
      this.#cannotDecide(call, this.#unheard(call, verdict), verdict.unlinked)
  }

  #verdict(call: Call): Verdict | null {
    const up = this.#reached(call).filter((id) => !this.#outside.has(id))
    const { keptOut } = this.#newcomers
    return call.verdict(up, this.#dead, this.#options.most, keptOut, this.#saidBye, this.#without)
  }

  /** Those whose answers it can expect. */
  #reached(call: Call): string[] {
    const { up } = this.#links
    return this.#roster?.isRing ? call.reached(up) : up
  }

  /** Whether more of its roster's members say that they are in one without this member than say otherwise, once those that can have answered. */
  #isOutside(call: Call): boolean {
    if (this.#outside.size === 0) return false
    const others = this.#roster!.members.filter((id) => id !== this.self)
    const answered = others.filter((id) => call.has(id))
    const reached = this.#reached(call)
    const isAwaited = others.some(
      (id) => reached.includes(id) && !call.has(id) && !this.#outside.has(id),
    )
    return this.#outside.size > answered.length && (call.isLate || !isAwaited)
  }

  /** Members of the newest roster, or where those are all here, of one before it that counts too. */
  #unheard(call: Call, verdict: Extract<Verdict, { kind: 'half' | 'missing' }>): Missing {
    const newest = call.missing(this.#roster, this.#dead)
    return { missing: newest.length > 0 ? newest : verdict.missing, hadMore: false }
  }

  #agree(
    { ballot, answered, isPlanned }: Call,
    { members, before, isRing }: Extract<Verdict, { kind: 'agreed' | 'half' }>,
  ): void {
    const roster: Roster = { ballot, members, before, isRing }
    this.#links.send(answered, { type: 'roster', roster })
    const { keptOut } = this.#newcomers
    if (isPlanned)
      for (const id of this.#links.up)
        if (!answered.includes(id) && !keptOut.has(id))
          this.#links.close(id, 'it did not answer a call')
    this.#enter(roster)
    this.#newcomers.leftOut(answered, keptOut, this.#options.most)
  }

  async #askForHalf(call: Call, verdict: Extract<Verdict, { kind: 'half' }>): Promise<void> {
    const { firstHalf = noServer } = this.#options
    const { members } = verdict
    const sure = new Map([...this.#dead].filter(([id]) => !this.#saidBye.has(id)))
    call.isAsking = true
    let isWon = true
    const later: (readonly string[])[] = []
    try {
      for (const { ballot: half, members: all } of verdict.before) {
        if (!isWon) break
        if (!verdict.ballots.includes(half)) {
          later.push(all)
          continue
        }
        const own = members.filter((id) => all.includes(id))
        const alive = all.filter((id) => !this.#dead.has(id))
        const first = await firstHalf(half, alive, own)
        // Of those that won it together with one that is here, none can go on alone: neither who said bye, nor who is in a later roster that
        // those here may follow.
        const isOurs = first?.some((id) => own.includes(id))
        const isFollowed =
          isOurs &&
          all.every((id) => !this.#saidBye.has(id)) &&
          later.some((ids) => first!.every((id) => ids.includes(id)))
        isWon = first !== null && (isFollowed || winsHalf(own, first, isOurs ? this.#dead : sure))
        later.push(all)
      }
    } catch {
      // Without the server their word must do.
      isWon = verdict.missing.every((id) => this.#saidBye.has(id))
    }
    call.isAsking = false
    if (this.#state !== 'leading' || this.#promised !== call.ballot) return
    // Others may have answered or died meanwhile.
    const now = this.#verdict(call)
    const isSame = now?.kind === 'half' && now.members.join() === members.join()
    if (!isSame) this.#decide()
    else if (isWon) this.#agree(call, verdict)
    else {
      const unlinked = now.missing.filter((id) => call.has(id))
      this.#cannotDecide(call, this.#unheard(call, now), unlinked)
    }
  }

  #cannotDecide(call: Call, about: Missing, unlinked: readonly string[] = []): void {
    // Others may still answer in time.
    if (!call.isLate && this.#reached(call).some((id) => !call.has(id))) return
    const { missing, hadMore } = about
    const told = this.#undecided
    const { step } = call
    if (told?.hadMore !== hadMore || told.step !== step || told.missing.join() !== missing.join()) {
      this.#undecided = { missing, hadMore, step }
      this.#listener.undecided(this.#undecided)
    }
    const { againMs, leadMs } = this.#times
    // Some lack links to each other. Another member, to which all are linked, finds that out when it leads.
    const isElsewhere = call.reaches(missing)
    this.#after(isElsewhere ? 3 * leadMs : againMs, () => this.#lead(false))
    this.#links.send(unlinked, { type: 'leave', ballot: call.ballot })
  }

  #decided(): void {
    if (!this.#undecided) return
    this.#undecided = null
    this.#listener.undecided(null)
  }

  // --- what others say ---

  #roleOf(id: string): Role {
    if (id === this.#leader) return 'leader'
    return (this.#roster?.members.includes(id) ?? this.#ranks.has(id)) ? 'member' : 'newcomer'
  }

  #receive(from: string, message: CrewMessage): void {
    if (this.#state === 'over') return
    const role = this.#roleOf(from)
    const breach = breachOf(message, from, role, {
      self: this.self,
      roster: this.#roster,
      promised: this.#promised,
      // One that joins does not know how many calls there have been.
      limit: this.#roster ? this.#seen.limitOf(from) : lastBallot - callsAhead * ballotStep,
      isUp: (id) => this.#links.isUp(id),
    })
    if (breach) {
      if (breach.kind === 'end') this.#broke(from, breach.what)
      else if (message.type === 'call') this.#refuse(from, message)
      return
    }
    switch (message.type) {
      case 'call':
        this.#called(from, message)
        return
      case 'report':
        this.#reported(from, message)
        return
      case 'refuse':
        this.#refused(from, message)
        return
      case 'roster':
        this.#told(from, message.roster)
        return
      case 'leave':
        this.#mayLeave(from, message.ballot)
        return
      case 'abort':
        this.abort(message.why)
        return
      case 'probed':
        this.#newcomers.echoed(from, message.round)
        this.#slow?.echoed(from, message.round)
        return
      case 'wait':
        this.#mustWait(message)
        return
      case 'bye':
        this.#left(from, message)
        return
      case 'signal':
        this.#listener.signal?.(from, message)
    }
  }

  /** It has said what no build of this project says. */
  #broke(from: string, what: string): void {
    this.#links.close(from, `it ${what}`)
    this.#listener.broke?.(from, what)
  }

  #reported(from: string, report: Extract<CrewMessage, { type: 'report' }>): void {
    const call = this.#call
    if (this.#state !== 'leading' || !call || report.ballot !== call.ballot || call.has(from))
      return
    this.#outside.delete(from)
    call.take(from, report)
    if (report.former) this.#dead.set(report.former.id, report.former.entered)
    this.#decide()
  }

  /** Its leader says that it lacks links. */
  #mayLeave(from: string, ballot: number): void {
    if (ballot !== this.#promised || this.#state !== 'stopped') return
    if (this.#lacksLinks) this.#out('it has lost links to other members')
    else this.#doubtIsIn(from)
  }

  /** Whether it has no link to one of its roster that may be alive. */
  get #lacksLinks(): boolean {
    const { members = [] } = this.#roster ?? {}
    return members.some((id) => !this.#mayBeThere(id) && !this.#dead.has(id))
  }

  /** A member says that the others continue without this one, which asks them. */
  #doubtIsIn(from: string): void {
    this.#outside.add(from)
    if (this.#state === 'leading') this.#decide()
    else if (this.#roster) this.#after(this.#times.doubtMs, () => this.#lead(false))
  }

  #left(from: string, { entered, isDone }: Extract<CrewMessage, { type: 'bye' }>): void {
    if (this.#dead.has(from)) return
    this.#saidBye.add(from)
    if (!isDone || this.#state !== 'running') {
      this.#isGone(from, entered)
      return
    }
    // Its last frames are on their way to this member's own end.
    this.#dead.set(from, entered)
    this.#done.add(from)
  }

  #called(from: string, message: Extract<CrewMessage, { type: 'call' }>): void {
    const { ballot, isPlanned } = message
    this.#seen.take(ballot, from)
    const own = this.#roster
    if (ballot <= this.#promised) {
      this.#refuse(from, message)
      return
    }
    this.#promised = ballot
    this.#leader = from
    this.#isPlanned = isPlanned
    const answer = (hasFailed: boolean) => {
      if (this.#state === 'over' || this.#promised !== ballot) return
      this.#stop('a member called')
      this.#state = 'stopped'
      // It may have gone while this member's step was to end. In a ring a call comes also where the link to its leader has ended.
      if (own && (own.isRing || this.#links.isUp(from)))
        this.#waitForRoster(isPlanned && !hasFailed)
      else if (own) this.#waitForLeader(false)
      this.#links.send([from], { type: 'report', ballot, ...this.#report() })
    }
    // The step that all end is this member's too: `next` answers.
    if (isPlanned && this.#state === 'running') this.#held = answer
    else answer(false)
  }

  /** It has promised another call, or the caller is no member of its roster. */
  #refuse(from: string, { ballot, entered }: Extract<CrewMessage, { type: 'call' }>): void {
    const own = this.#roster
    const isOutside = own !== null && own.ballot > entered && !own.members.includes(from)
    const outside = isOutside ? own.ballot : null
    this.#links.send([from], { type: 'refuse', ballot, promised: this.#promised, outside })
  }

  /** After an answer: the leader may be lost before it has decided. */
  #waitForRoster(isPlanned: boolean): void {
    const { leadMs, plannedMs } = this.#times
    const leadingMs = isPlanned ? plannedMs : 0
    this.#after(leadingMs + leadMs * this.#turn, () => this.#lead(false))
  }

  /** When this member leads, in times that a leader needs: from 1 for the most senior one to less than 9 for the last, of however many. */
  get #turn(): number {
    const { members } = this.#roster!
    return 1 + members.indexOf(this.self) / Math.max(2, members.length / 8)
  }

  #refused(
    from: string,
    { ballot, promised, outside }: Extract<CrewMessage, { type: 'refuse' }>,
  ): void {
    this.#seen.take(promised, from)
    if (outside !== null && outside > (this.#roster?.ballot ?? 0)) {
      this.#doubtIsIn(from)
      return
    }
    const { members = [], ballot: entered } = this.#roster ?? {}
    const isMissed = ballot === entered && promised > ballot && this.#proved < ballot
    if (this.#state === 'running' && isMissed && members.includes(from)) {
      // It promised another leader before the roster came, and would be waited for in vain.
      this.#convene(false)
      return
    }
    const call = this.#call
    if (this.#state !== 'leading' || !call || ballot !== call.ballot) return
    call.refused.add(from)
    // It has refused the call before, too: this one can do without it.
    if (call.refusedBefore.has(from)) return
    // Another one leads: it gets the time that it needs.
    this.#state = 'stopped'
    const [draw] = this.#options.env.random(1)
    const { answerMs } = this.#times
    this.#after(answerMs * this.#turn * (1 + draw / 256), () => this.#lead(false))
  }

  #told(from: string, roster: Roster): void {
    const { ballot, members } = roster
    const own = this.#roster
    if (!own) for (const id of members) this.#ranks.add(id)
    if (ballot < this.#promised || ballot <= (own?.ballot ?? 0)) {
      this.#links.send([from], { type: 'refuse', ballot, promised: this.#promised, outside: null })
      return
    }
    const isNext = !own || follows(roster, own)
    const isHeard = (id: string) => id === this.self || this.#links.isUp(id)
    const isLinked = own !== null || roster.isRing || members.every(isHeard)
    if (!isLinked) this.#out('it has lost a link')
    else if (members.includes(this.self) && isNext) this.#enter(roster)
    else if (own && this.#lacksLinks) this.#out('the others continue without this member')
    else if (own) this.#doubtIsIn(from)
  }

  #enter(roster: Roster): void {
    const before = this.#roster
    this.#cancel()
    this.#held = undefined
    this.#stop('the next roster is here')
    this.#roster = roster
    if (!before) this.#seen.newest = roster.ballot
    this.#promised = roster.ballot
    this.#call = null
    this.#without = new Set()
    this.#slow?.forget()
    this.#ranks.clear()
    this.#outside.clear()
    this.#apart.clear()
    this.#state = 'running'
    this.#decided()
    const { ballot } = roster
    const isLeftOut = (id: string) => !roster.members.includes(id) && this.#links.isUp(id)
    const leftOut = before?.members.filter(isLeftOut) ?? []
    this.#links.send(leftOut, { type: 'refuse', ballot, promised: ballot, outside: ballot })
    for (const id of leftOut) this.#links.close(id, 'the others continue without it')
    this.#give()
    this.#newcomers.entered(roster, this.#isPlanned)
  }

  /** This member has found that the links of that one are slow: the others hear it. */
  #foundSlow(id: string, why: string): void {
    if (id === this.self) {
      this.#listener.holdsUp?.(id, why)
      return
    }
    const { members } = this.#roster!
    this.#links.send(members, { type: 'wait', id, why, isSlow: true, members })
    this.#holdsUp(id, why)
  }

  /** The most senior one of the others leaves it out at once, without waiting for the step, where they are more than half. */
  #holdsUp(id: string, why: string): void {
    if (this.#state !== 'running' || !this.#slow?.isHeldUp) return
    const { named } = this.#slow
    this.#slow.name(id)
    this.#listener.holdsUp?.(id, why)
    const { members } = this.#roster!
    const others = members.filter((one) => !named.has(one))
    if (others.length * 2 <= members.length) return
    this.#newcomers.wereSlow(named)
    if (others[0] !== this.self) return
    this.#without = new Set(named)
    this.#held = undefined
    this.#lead(false)
  }

  #mustWait(message: Extract<CrewMessage, { type: 'wait' }>): void {
    if (this.#roster?.members.includes(message.id)) {
      if (message.isSlow) this.#holdsUp(message.id, message.why)
      return
    }
    this.#newcomers.mustWait(message)
    if (!this.#roster) for (const id of message.members) this.#ranks.add(id)
    // One that has lost a link joins again over others, unless its end was that member's.
    const { known } = this.#links
    const isLinked = message.members.every((one) => this.#links.isUp(one) || !known.includes(one))
    if (!this.#roster && isLinked) this.#waitToJoin()
  }

  #give(): void {
    const waiting = this.#waiting
    if (!waiting || !this.#roster) return
    this.#waiting = undefined
    this.#given = this.#roster.ballot
    waiting.resolve(this.#roster)
  }

  /** To be let in again as another life; those that wait for this member's decision would wait in vain, too. */
  #out(why: string): void {
    if (this.#state === 'over') return
    if (this.#state === 'leading') {
      const { ballot, answered } = this.#call!
      this.#links.send(answered, { type: 'leave', ballot })
    }
    this.#stop(why)
    this.#sayBye(why)
    this.#end(new PeerError('peer.lost', `crew: ${why}. It joins again as a newcomer.`))
    this.#listener.out(why)
  }

  #end(error: PeerError): void {
    this.#cancel()
    this.#newcomers.end()
    this.#slow?.end()
    this.#links.endDoubts()
    this.#held = undefined
    this.#decided()
    this.#state = 'over'
    this.#error = error
    this.#waiting?.reject(error)
    this.#waiting = undefined
  }
}

const noServer = () => Promise.reject(new PeerError('peer.lost', 'crew: no server'))
