import { PeerError } from '../../util/errors.ts'
import { ballotStep, callsAhead, lastBallot } from '../room/ballots.ts'
import { meshLimit } from '../room/edges.ts'
import { Ballots } from './ballots.ts'
import { Call, type Leader } from './call.ts'
import { MemberLinks } from './member-links.ts'
import type { ElasticMessage } from './messages.ts'
import { Newcomers } from './newcomers.ts'
import {
  type ElasticListener,
  type ElasticMemberOptions,
  type ElasticTimes,
  elasticTimes,
  type MemberView,
} from './options.ts'
import { Presence } from './presence.ts'
import { breachOf, type Role, rights } from './rights.ts'
import { follows, type Report, type Roster, turnOf } from './roster.ts'
import { SlowMembers } from './slow-members.ts'

/** Newcomers that have gone and are remembered: a roster with them may be on its way. */
export const maxGone = 64

/** Ranks of which one that joins has heard, and those to which it has links. */
const maxRanks = 256
/** Why a group ends where its members call. */
const deciding = 'the members decide who trains on'

/**
 * One member's part in deciding who trains together, as its run goes from roster to roster. There is no coordinator: leading is an act, and any
 * number of leaders is safe (roster.ts says why).
 *
 *   RUNNING --a member is lost, a planned change, a call--> STOPPED --calls--> LEADING --all have answered--> RUNNING with the next roster
 *                                                    |  ^                |
 *                                                    |  +---refused------+
 *                                                    +--another's roster--> RUNNING, or OVER where this member is not in it
 *
 * The most senior member that is not known to be dead calls at once, the next ones later if they hear of no roster. A leader decides when all
 * linked members of the newest roster have answered, or after `answerMs` (`plannedMs` where none is lost).
 */
export class ElasticMember implements MemberView {
  readonly options: ElasticMemberOptions
  readonly listener: ElasticListener
  readonly times: ElasticTimes
  readonly links: MemberLinks
  readonly presence: Presence
  readonly newcomers: Newcomers
  readonly #slow: SlowMembers | undefined
  #roster: Roster | null
  readonly #ballots: Ballots
  /** Of one that joins: those that train, as the server and they say. */
  readonly #ranks = new Set<string>()
  #state: 'running' | 'stopped' | 'leading' | 'over'
  /** That this member leads, or has led since the newest roster. */
  #call: Call | null = null
  readonly #asLeader: Leader = {
    report: () => this.#report(),
    leads: (ballot) => this.#state === 'leading' && this.#ballots.promised === ballot,
    after: (ms, run) => this.#after(ms, run),
    enter: (roster) => this.#enter(roster),
    cannotDecide: (about, againMs) => {
      this.presence.awaits(about)
      this.#after(againMs, () => this.#lead(false))
    },
    out: () => this.leftOut('the others continue without this member'),
  }
  /** The newest call was for a planned change. */
  #isPlanned = false
  /** Of a newcomer: once it has got the run's state. */
  #hasState: boolean
  /** Members that the host, at this tab, has removed. */
  readonly #removed = new Set<string>()
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

  constructor(options: ElasticMemberOptions, listener: ElasticListener) {
    const { roster, pace } = options
    this.options = options
    this.listener = listener
    this.times = { ...elasticTimes, ...options.times }
    this.links = new MemberLinks(options, {
      heard: (from, message) => this.#receive(from, message),
      mayProbe: (id) => rights.probe.from.includes(this.#roleOf(id)),
      mayPass: (id) => this.#roster?.isRing === true && this.#roster.members.includes(id),
      came: (id, isRank) => this.#came(id, isRank),
      answered: (id) => this.presence.isThere(id),
      ended: (id) => this.#ended(id),
      broke: (id, what) => this.#broke(id, what),
    })
    this.presence = new Presence(this)
    this.newcomers = new Newcomers(this)
    const isRing = roster !== null && roster.members.length > meshLimit
    this.#roster = roster && { ...roster, before: [], isRing }
    this.#given = roster?.ballot ?? 0
    this.#ballots = new Ballots(options.env, this.#given)
    this.#state = roster ? 'running' : 'stopped'
    this.#hasState = roster !== null
    this.#slow = pace && new SlowMembers(this, pace, (ids) => this.#leaveOut(ids))
    if (!roster) this.#waitToJoin()
  }

  #waitToJoin(): void {
    this.#after(this.times.joinMs, () => this.leftOut('nobody has let it in'))
  }

  get roster(): Roster | null {
    return this.#roster
  }

  get isRunning(): boolean {
    return this.#state === 'running'
  }

  get isOver(): boolean {
    return this.#state === 'over'
  }

  /** Calls for another roster, without waiting for others to: they do not notice that this member cannot form the group of the current one. */
  lead(): void {
    if (this.#state === 'running') this.#lead(false)
  }

  /** This member has the state of the run, or a person has decided that it continues without. */
  hasState(): void {
    this.#hasState = true
  }

  /** All members of the current roster are in it: its group is complete. */
  proved(): void {
    if (!this.#roster || this.#roster.ballot <= this.#ballots.proved) return
    const { ballot, members } = this.#roster
    this.#ballots.proved = ballot
    this.#roster = { ...this.#roster, before: [] }
    this.presence.keep(members)
    this.#ballots.keep(members)
    this.#forgetGone(members, 0)
  }

  /** Forgets whose link has ended, but for `members` and the `max` newest others. */
  #forgetGone(members: readonly string[], max: number): void {
    for (const id of this.links.forgetEnded(members, max)) {
      this.presence.forget(id)
      this.newcomers.forget(id)
    }
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
   * The host, at this tab, has removed that one, which may answer and train on. It counts as one that has said bye: perhaps it is in a later roster.
   * This member calls, since the others end their links to it as they enter a roster without it. Its own one stays until then: by its end the
   * removed one would call, too, for a roster without this member.
   */
  remove(id: string): void {
    const isGone = this.presence.dead.has(id) && !this.links.isUp(id)
    if (this.#state === 'over' || this.#removed.has(id) || isGone) return
    const { ballot = 0, members = [] } = this.#roster ?? {}
    if (!members.includes(id)) {
      this.presence.left(id, { entered: ballot, isDone: false })
      return
    }
    this.#removed.add(id)
    this.presence.isRemoved(id, ballot)
    if (this.#state === 'leading') this.decide()
    else this.#lead(false)
  }

  /** A person has decided: those that are missing count as dead. */
  continueWithout(): void {
    if (!this.#roster || !this.presence.giveUp(this.#roster.ballot)) return
    this.#hasState = true
    this.#call?.reportAgain()
    if (this.#state === 'stopped') this.#lead(false)
    else this.decide()
  }

  /** This member takes part no more. `isDone`: its run is over, and the others come to their end too. */
  resign(why: string, isDone = false): void {
    if (this.#state === 'over') return
    this.#sayBye(why, isDone)
    this.#end(new PeerError('peer.aborted', `membership: ${why}`))
  }

  /** Ends the run for all members that are linked to this one, or to one that is. */
  abort(why: string): void {
    if (this.#state === 'over') return
    this.links.send(this.links.up, { type: 'abort', why: why.slice(0, 300) })
    this.#stop(why)
    this.#end(new PeerError('peer.aborted', `membership: ${why}`))
  }

  #sayBye(why: string, isDone = false): void {
    const entered = this.#roster?.ballot ?? 0
    const bye = { entered, isDone, why: why.slice(0, 300) }
    this.links.send(this.presence.others, { type: 'bye', ...bye })
  }

  /** The others continue without this member, or it needs new links: it is to come in again. So are those that wait for its decision. */
  leftOut(why: string): void {
    if (this.#state === 'over') return
    if (this.#state === 'leading') {
      const { ballot, answered } = this.#call!
      this.links.send(answered, { type: 'leave', ballot })
    }
    this.#stop(why)
    this.#sayBye(why)
    this.#end(new PeerError('peer.lost', `membership: ${why}. It joins again as a newcomer.`))
    // Those who decided may not reach it: it knows from its own steps.
    const slow = this.#slow?.own
    if (slow) this.listener.waits?.(this.options.self, `its connection ${slow}.`)
    this.listener.out(why)
  }

  // --- who comes, who is lost ---

  #came(id: string, isRank: boolean): void {
    if (isRank && !this.#roster) this.#ranks.add(id)
    this.newcomers.came(id)
  }

  #ended(id: string): void {
    if (this.#state === 'over') return
    this.presence.ended(id)
    const own = this.#roster
    if (own)
      this.#forgetGone(
        [own, ...own.before].flatMap(({ members }) => members),
        maxGone,
      )
    if (this.presence.done.has(id)) return
    this.newcomers.gone(id)
    if (own) this.lost(id)
    else if (this.links.up.length === 0) this.leftOut('no member is left')
    // The others may let it in without that one, or never.
    else this.#after(this.times.lameMs, () => this.leftOut('it has lost a link'))
  }

  lost(id: string): void {
    const isMember = this.#roster?.members.includes(id)
    if (this.#state === 'leading') this.decide()
    else if (this.#state === 'running' && isMember) this.#convene(false)
    else if (this.#state === 'stopped' && isMember && !this.#held) this.#waitForLeader(false)
  }

  // --- calling ---

  /** Others may have answered a call of this member, or be known to be dead. */
  decide(): void {
    this.#call?.decide()
  }

  /** The roster's group ends here; then somebody calls. */
  #convene(isPlanned: boolean): void {
    this.#stop(deciding)
    const held = this.#held
    this.#held = undefined
    if (held) held(!isPlanned)
    else this.#waitForLeader(isPlanned)
  }

  #stop(why: string): void {
    if (this.#state !== 'running') return
    this.#state = 'stopped'
    this.listener.stop(why)
  }

  /** Calls at once where this member is the most senior one, else when nobody else has. A member that joins only waits. */
  #waitForLeader(isPlanned: boolean): void {
    this.#cancel()
    this.#state = 'stopped'
    const members = this.#roster?.members
    if (!members) return
    const alive = members.filter((id) => this.presence.mayBeThere(id))
    if (alive[0] === this.options.self) this.#lead(isPlanned)
    else this.#waitForRoster(isPlanned)
  }

  #after(ms: number, run: () => void): void {
    this.#cancel()
    this.#cancel = this.options.env.after(ms, run)
  }

  #lead(isPlanned: boolean): void {
    if (this.#state === 'over' || !this.#roster) return
    this.#stop(deciding)
    const ballot = this.#ballots.callAs(this.options.self, this.#removed.size > 0)
    if (ballot === null) {
      this.abort('the run has had as many changes of its ranks as it can. Start it again.')
      return
    }
    this.#state = 'leading'
    this.#isPlanned = isPlanned
    const [without, before] = [this.#without, this.#call]
    this.#call = new Call(this, this.#asLeader, { ballot, isPlanned, without, before })
    this.#call.begin()
  }

  #report(): Report {
    const { former = null, step } = this.options
    return {
      roster: this.#roster,
      proved: this.#ballots.proved,
      hasState: this.#hasState,
      step: step?.() ?? 0,
      linked: this.links.up,
      apart: [...this.presence.apart],
      former,
    }
  }

  // --- what others say ---

  #roleOf(id: string): Role {
    if (id === this.#ballots.leader) return 'leader'
    return (this.#roster?.members.includes(id) ?? this.#ranks.has(id)) ? 'member' : 'newcomer'
  }

  /** It has said what no build of this project says. */
  #broke(from: string, what: string): void {
    this.links.close(from, `it ${what}`)
    this.listener.broke?.(from, what)
  }

  #receive(from: string, message: ElasticMessage): void {
    if (this.#state === 'over' || this.#removed.has(from)) return
    const role = this.#roleOf(from)
    const breach = breachOf(message, from, role, {
      self: this.options.self,
      roster: this.#roster,
      promised: this.#ballots.promised,
      // One that joins does not know how many calls there have been.
      limit: this.#roster ? this.#ballots.limitOf(from) : lastBallot - callsAhead * ballotStep,
      isUp: (id) => this.links.isUp(id),
      dead: this.presence.dead,
    })
    if (breach) {
      if (breach.kind === 'end') this.#broke(from, breach.what)
      else if (message.type === 'call') this.#refuse(from, message)
      return
    }
    if (message.type === 'call') this.#called(from, message)
    else if (message.type === 'report') this.#call?.reported(from, message)
    else if (message.type === 'refuse') this.#refused(from, message)
    else if (message.type === 'roster') this.#takeRoster(from, message.roster)
    else if (message.type === 'leave') this.#mayLeave(from, message.ballot)
    else if (message.type === 'abort') this.abort(message.why)
    else if (message.type === 'wait') this.#mustWait(message)
    else if (message.type === 'bye') this.presence.left(from, message)
    else if (message.type === 'signal') this.listener.signal?.(from, message)
    else if (message.type === 'probed') {
      this.newcomers.echoed(from, message.round)
      this.#slow?.echoed(from, message.round)
    }
  }

  /** Its leader says that it lacks links, or is out itself. */
  #mayLeave(from: string, ballot: number): void {
    if (ballot !== this.#ballots.promised || this.#state !== 'stopped') return
    if (this.presence.lacksLinks) this.leftOut('it has lost links to other members')
    else this.#doubtIsIn(from)
  }

  /** A member says that the others continue without this one, which asks them. */
  #doubtIsIn(from: string): void {
    if (this.presence.outside.has(from)) return
    this.presence.outside.add(from)
    if (this.#state === 'leading') this.decide()
    else if (this.#roster) this.#after(this.times.doubtMs, () => this.#lead(false))
  }

  #called(from: string, message: Extract<ElasticMessage, { type: 'call' }>): void {
    const { ballot, isPlanned } = message
    this.#ballots.take(ballot, from)
    const own = this.#roster
    if (ballot <= this.#ballots.promised) {
      this.#refuse(from, message)
      return
    }
    this.#ballots.promise(ballot, from)
    this.#isPlanned = isPlanned
    const answer = (hasFailed: boolean) => {
      if (this.#state === 'over' || this.#ballots.promised !== ballot) return
      this.#stop(deciding)
      this.#state = 'stopped'
      // It may have gone while this member's step was to end. In a ring a call comes also where the link to its leader has ended.
      if (own && (own.isRing || this.links.isUp(from))) this.#waitForRoster(isPlanned && !hasFailed)
      else if (own) this.#waitForLeader(false)
      this.links.send([from], { type: 'report', ballot, ...this.#report() })
    }
    // The step that all end is this member's too: `next` answers.
    if (isPlanned && this.#state === 'running') this.#held = answer
    else answer(false)
  }

  /** It has promised another call, or the caller is no member of its roster. */
  #refuse(from: string, { ballot, entered }: Extract<ElasticMessage, { type: 'call' }>): void {
    const own = this.#roster
    const isOutside = own !== null && own.ballot > entered && !own.members.includes(from)
    const outside = isOutside ? own.ballot : null
    const { promised } = this.#ballots
    this.links.send([from], { type: 'refuse', ballot, promised, outside })
  }

  /** After an answer: the leader may be lost before it has decided. */
  #waitForRoster(isPlanned: boolean): void {
    const { leadMs, plannedMs } = this.times
    const leadingMs = isPlanned ? plannedMs : 0
    this.#after(leadingMs + leadMs * this.#turn, () => this.#lead(false))
  }

  get #turn(): number {
    return turnOf(this.options.self, this.#roster!.members)
  }

  #refused(
    from: string,
    { ballot, promised, outside }: Extract<ElasticMessage, { type: 'refuse' }>,
  ): void {
    this.#ballots.take(promised, from)
    if (outside !== null && outside > (this.#roster?.ballot ?? 0)) {
      this.#doubtIsIn(from)
      return
    }
    const { members = [], ballot: entered } = this.#roster ?? {}
    const isMissed = ballot === entered && promised > ballot && this.#ballots.proved < ballot
    if (this.#state === 'running' && isMissed && members.includes(from)) {
      // It promised another leader before the roster came, and would be waited for in vain.
      this.#convene(false)
      return
    }
    if (!this.#asLeader.leads(ballot) || !this.#call?.refused(from)) return
    // Another one leads: it gets the time that it needs.
    this.#state = 'stopped'
    const [draw] = this.options.env.random(1)
    this.#after(this.times.answerMs * this.#turn * (1 + draw / 256), () => this.#lead(false))
  }

  #takeRoster(from: string, roster: Roster): void {
    const { ballot, members } = roster
    const own = this.#roster
    if (!own) this.#areRanks(members)
    const { promised } = this.#ballots
    if (ballot < promised || ballot <= (own?.ballot ?? 0)) {
      this.links.send([from], { type: 'refuse', ballot, promised, outside: null })
      return
    }
    const isNext = !own || follows(roster, own)
    const isMine = isNext && members.includes(this.options.self)
    // A lost link to a member of this roster shows as the group forms; others may not even be there.
    const isHeard = (id: string) =>
      id === this.options.self || this.links.isUp(id) || own?.members.includes(id) === true
    const isRing = roster.isRing && (!own || own.isRing || members.length > meshLimit)
    const isLinked = isRing || members.every(isHeard)
    if (!own && !isLinked) this.leftOut('it has lost a link')
    else if (isMine && isLinked) this.#enter(roster)
    else if (own && !isMine && this.presence.lacksLinks)
      this.leftOut('the others continue without this member')
    else if (own) this.#doubtIsIn(from)
  }

  /** A rank says so. Of those that are not linked the newest are remembered. */
  #areRanks(ids: readonly string[]): void {
    const known = new Set(this.links.known)
    for (const id of ids) this.#ranks.add(id)
    for (const id of this.#ranks)
      if (this.#ranks.size > maxRanks && !known.has(id)) this.#ranks.delete(id)
  }

  #enter(roster: Roster): void {
    const before = this.#roster
    this.#cancel()
    this.#held = undefined
    this.#stop('the next roster is here')
    this.#roster = roster
    if (!before) this.#ballots.newest = roster.ballot
    this.#ballots.promised = roster.ballot
    this.#call = null
    this.#without = new Set()
    this.#slow?.forget()
    this.#ranks.clear()
    this.presence.outside.clear()
    this.presence.apart.clear()
    this.#state = 'running'
    this.presence.awaits(null)
    const { ballot } = roster
    const isLeftOut = (id: string) => !roster.members.includes(id) && this.links.isUp(id)
    const leftOut = before?.members.filter(isLeftOut) ?? []
    this.links.send(leftOut, { type: 'refuse', ballot, promised: ballot, outside: ballot })
    for (const id of leftOut) this.links.close(id, 'the others continue without it')
    for (const id of this.#removed) if (!roster.members.includes(id)) this.#removed.delete(id)
    this.#give()
    this.newcomers.entered(roster, this.#isPlanned)
    // Another one has led.
    if (this.#removed.size > 0) this.#lead(false)
  }

  /** Slow members: the others do not wait for the step to end. */
  #leaveOut(ids: ReadonlySet<string>): void {
    this.#without = ids
    this.#held = undefined
    this.#lead(false)
  }

  #mustWait(message: Extract<ElasticMessage, { type: 'wait' }>): void {
    if (this.#roster?.members.includes(message.id)) {
      if (message.isSlow) this.#slow?.named(message.id, message.why)
      return
    }
    this.newcomers.mustWait(message)
    if (!this.#roster) this.#areRanks(message.members)
    // One that has lost a link joins again over others, unless its end was that member's.
    const { known } = this.links
    const isLinked = message.members.every((one) => this.links.isUp(one) || !known.includes(one))
    if (!this.#roster && isLinked) this.#waitToJoin()
  }

  #give(): void {
    const waiting = this.#waiting
    if (!waiting || !this.#roster) return
    this.#waiting = undefined
    this.#given = this.#roster.ballot
    waiting.resolve(this.#roster)
  }

  #end(error: PeerError): void {
    this.#cancel()
    this.newcomers.end()
    this.#slow?.end()
    this.links.endDoubts()
    this.#held = undefined
    this.presence.awaits(null)
    this.#state = 'over'
    this.#error = error
    this.#waiting?.reject(error)
    this.#waiting = undefined
  }
}
