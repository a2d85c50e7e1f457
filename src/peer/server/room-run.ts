import { toHex } from '../../util/env.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { without, withoutEpoch } from '../collective/failure.ts'
import { ballotStep } from '../room/ballots.ts'
import type { Again, MessageOf, RunNow } from '../room/client-messages.ts'
import { meshLimit, ringNeighbours } from '../room/edges.ts'
import type { Abort, AbortCode, Reached, RoomState, ServerMessage } from '../room/messages.ts'
import { endedWithout, leftOutText } from '../room/refusals.ts'
import { Halves } from './halves.ts'
import { keepNewest } from './keep-newest.ts'
import {
  type Going,
  Linking,
  type LinkPlan,
  type Member,
  planFor,
  type RunRoom,
} from './linking.ts'
import { Newcomers } from './newcomers.ts'

/** Messages that name their epoch. */
type EpochMessage = MessageOf<'signal' | 'ready' | 'linkDown' | 'abort' | 'done'>
export type RunMessage = EpochMessage | MessageOf<'ranks' | 'half' | 'out'>

/**
 * The highest epochs that count where members claim them; a server counts on from there. So no claim uses all numbers up, and what is claimed of
 * a run counts also where a claim of someone outside has moved its epochs.
 */
const maxClaimed = { inRun: 2 ** 30, outside: 2 ** 29, ballot: 2 ** 31 }

const counted = (claimed: number, max: number) => (claimed <= max ? claimed : 0)

/** Tokens of members that are in a run, by id: undefined until it has come, null where it has none. Then it does not come again. */
type Seats = Map<string, string | null | undefined>

/** State of an elastic run once it has begun. */
interface Elastic {
  readonly newcomers: Newcomers
  readonly halves: Halves
  /** Members' ids in the order of their ranks, as the newest ballot says, and then those that have joined since. Not all need be here. */
  order: string[]
  ballot: number
  ballotAtMs: number
  /** By id: of the order, and of those that were in it and have links to the ranks. What others say of the run counts nothing. */
  readonly seats: Seats
  /** Until then ranks may come back to a run that they have brought to this server. */
  readonly gatherUntilMs: number
}

/**
 * The runs of a room, one after the other: their epochs and ranks.
 *
 *   LOBBY -start-> ASSIGNED(epoch) -all ready-> RUNNING -all done-> FINISHED
 *                     |  lost rank, linkDown, abort, 20 s  |
 *                     +-------------> FAILED <-------------+        start again: ASSIGNED(epoch + 1)
 *
 * - A rank that says bye, or whose socket ends before the run is RUNNING, fails the run at once. In an elastic run the others are ASSIGNED again
 *   without it, in the next epoch; so they are without those that cannot be linked or are not ready in time, if they are more than half.
 * - A socket that ends without bye while RUNNING leaves its rank detached: the ring itself needs no server, so the run continues until a
 *   neighbour reports that link down too (FAILED), or everyone still attached is done (FINISHED). There is no way back into a run for a
 *   detached rank. Once every rank is detached the run counts as FAILED: they leave the room to who waits in it.
 *
 * An elastic run that has been RUNNING stays so until it is over. Its members decide among themselves who the ranks are, over the links that
 * they have, and the server helps:
 *
 * - It sends the others who is gone, and until the members say otherwise the rest are the ranks, in their order.
 * - It gives newcomers links (newcomers.ts), each time in a new epoch. They are ranks from then on, after the others.
 * - By `ranks` it learns who the ranks are. A member that no longer is one gets no links until it says `out`: then it is a newcomer.
 * - Of two halves of the ranks it says which may continue (halves.ts).
 * - An end of a link between two ranks is no news to it. An abort of a rank ends the run for all.
 * - A rank whose socket ended has its rank again when it comes back, unless the members say otherwise. One that brings a run that the room does
 *   not know, because its server is new or all ranks were away, makes it know it (`mayTakeOver`). Newcomers and the run's end then wait a while for
 *   the others.
 * - A member that comes in another run than the room's, by its key, has no rank and gets no links until that run has ended on it.
 */
export class RoomRun {
  state: RoomState = 'lobby'
  /** Of the current or last run, the newest; 0 before the first. */
  epoch = 0
  private ranks: Member[] = []
  /** Ranks whose part of the run has ended well, by id. */
  private readonly done = new Set<string>()
  private settings: JsonValue = null
  /** Result of the last run, from the first rank that reports it. */
  reached: Reached | undefined
  /** The newest that a member has named; it may be another server's. */
  private epochElsewhere = 0
  /** The epoch with which the current or last run began. */
  private first = 0
  /** How that epoch's links form; null for a run that began elsewhere. */
  private linking: Linking | null = null
  /** Of the current or last run, if that is elastic. */
  private key: string | null = null
  /** Null before the run has begun, and where it is not elastic. */
  private elastic: Elastic | null = null
  private cancelTimer: () => void = () => undefined
  /** The elastic run that ended here because its last rank was away, until another starts. */
  private away: { key: string; first: number; settings: JsonValue; seats: Seats } | null = null
  /** The last elastic runs that ended here: what the server sent to the ranks. */
  private readonly past: { key: string; words: ServerMessage }[] = []

  constructor(private readonly room: RunRoom) {}

  get isOn(): boolean {
    return this.state === 'assigned' || this.state === 'running'
  }

  /** Of the newest roster of an elastic run; 0 for none. */
  get ballot(): number {
    return this.elastic ? Math.max(this.first, this.elastic.ballot) : 0
  }

  /** Of the newest roster that the member can have entered. */
  ballotOf({ id }: Member): number {
    return this.elastic ? this.elastic.halves.maxBallotOf(id, this.ballot) : 0
  }

  rankOf(member: Member): number {
    return this.ranks.indexOf(member)
  }

  /** Returns whether the member stays in the run when its socket ends without a bye: the others wait for something of it. */
  keepsDetached(member: Member): boolean {
    return this.state === 'running' && this.key === null && this.isOwed(member)
  }

  /** Returns whether the member is in another elastic run than the room's. */
  isElsewhere({ cameInRun }: Member): boolean {
    return cameInRun !== undefined && cameInRun !== this.key
  }

  private isOwed(member: Member): boolean {
    return this.rankOf(member) >= 0 && !this.done.has(member.id)
  }

  private nameOf(rank: number): string {
    return `rank ${rank} (${this.ranks[rank].info.name})`
  }

  start(
    members: readonly Member[],
    { links }: LinkPlan,
    settings: JsonValue,
    isElastic: boolean,
  ): void {
    const { room } = this
    this.state = 'assigned'
    this.reached = undefined
    this.away = null
    this.settings = settings
    this.key = isElastic ? toHex(room.env.random(8)) : null
    for (const one of room.members()) one.cameInRun = undefined
    this.assign([...members], links)
  }

  /** Ranks of a run that begins get their links, in a new epoch. */
  private assign(members: Member[], links: LinkPlan['links']): void {
    const { room, key } = this
    const epoch = this.nextEpoch()
    this.first = epoch
    this.ranks = members
    const elastic = key === null ? {} : { run: epoch, key }
    const linking = new Linking(room, epoch, members, links, room.limits.readyMs, elastic)
    this.linking = linking
    this.cancelTimer()
    this.cancelTimer = room.env.after(linking.readyMs, () => {
      const { late } = linking
      const why = `${linking.lateText()} Check those tabs and start again.`
      if (!this.leaveOut(late, { code: 'peer.late', ranks: late }, linking.lateText()))
        this.fail('peer.late', late, why)
    })
    room.changed()
  }

  /** An elastic run that has not begun does so without these ranks. False where it cannot. */
  private assignWithout(out: readonly Member[]): boolean {
    const { key, room, state } = this
    if (state !== 'assigned' || key === null) return false
    const others = this.ranks.filter((one) => !out.includes(one))
    const plan = planFor(others, room.hasRelay)
    if (others.length === 0 || !('links' in plan)) return false
    this.assign(others, plan.links)
    return true
  }

  /** Likewise without ranks that are here and hold up the others, where these are more than half: they come to it as newcomers. */
  private leaveOut(
    ranks: readonly number[],
    failure: Pick<Abort, 'code' | 'ranks'>,
    why: string,
  ): boolean {
    const { epoch, room } = this
    const out = ranks.map((rank) => this.ranks[rank])
    if (out.length * 2 >= this.ranks.length || !this.assignWithout(out)) return false
    const text = `epoch ${epoch}: ${leftOutText(why)}`
    for (const one of out)
      room.send(one, { type: 'abort', epoch, ...failure, leftOut: 'again', text })
    return true
  }

  private nextEpoch(): number {
    this.epoch = Math.max(this.epoch, this.epochElsewhere) + 1
    return this.epoch
  }

  /** A member has come, or come back. */
  memberCame(): void {
    if (this.elastic) this.setRanks()
  }

  /** Returns whether the holder of this token may be the member with that id: nobody else takes the seat of one that is in the run. */
  maySit(id: string, token: string | null): boolean {
    const own = (this.elastic ?? this.away)?.seats.get(id)
    return own === undefined || (token !== null && own === token)
  }

  /** A member has come back, with what it knows. */
  memberBack(member: Member, { epoch, run: now }: Again): void {
    const { elastic } = this
    this.epochElsewhere = Math.max(this.epochElsewhere, counted(epoch, maxClaimed.outside))
    if (!now) return
    if (elastic && now.key === this.key) {
      if (this.isTaking) {
        this.epoch = Math.max(this.epoch, counted(epoch, maxClaimed.inRun))
        this.seat(member.id, member.token)
      }
      if (!elastic.seats.has(member.id)) return
      if (!now.mayBeAhead) elastic.halves.heard(member.id)
      if (now.ballot <= this.maxBallot) this.reorder(now)
      return
    }
    // It was in this one before.
    if (elastic) this.withoutRank(member.id)
    const past = this.past.find(({ key }) => key === now.key)
    if (past) this.room.send(member, past.words)
    else if (now.ids.includes(member.id) && this.mayTakeOver(member, now))
      this.takeOver(member, now, epoch)
  }

  /** A message of a member has come. */
  heard(member: Member): void {
    this.elastic?.newcomers.heard(member)
  }

  /** A member is not in the room any more: it has left, the maker has removed it, or its connection has ended. `text` says why. */
  memberWent(member: Member, text: string, how: Going): void {
    if (how === 'left' || how === 'removed') this.withoutRank(member.id)
    if (this.elastic) {
      this.setRanks()
      return
    }
    const rank = this.rankOf(member)
    if (rank < 0) return
    if (!this.isOwed(member)) this.finishIfDone()
    else if (!this.assignWithout([member])) {
      const who = this.nameOf(rank)
      const code = how === 'removed' ? 'peer.removed' : 'peer.lost'
      this.fail(
        code,
        [rank],
        `${who} is gone: ${text}. Start again without it, or once it is back.`,
      )
    }
  }

  // --- what members say ---

  receive(member: Member, message: RunMessage): void {
    const isEnd = ['done', 'abort', 'out'].includes(message.type)
    const isOfOther = isEnd && this.isElsewhere(member)
    if (message.type === 'ranks') this.takeRanks(member, message)
    else if (message.type === 'half') this.tellHalf(member, message)
    else if (message.type === 'out') this.out(member, message)
    else if (!this.elastic?.newcomers.receive(member, message)) this.take(member, message)
    if (!isOfOther) return
    // The other run has ended on this member.
    member.cameInRun = undefined
    this.elastic?.newcomers.changed()
  }

  private take(member: Member, message: EpochMessage): void {
    const { type, epoch } = message
    const { linking, first } = this
    const rank = this.rankOf(member)
    const place = linking?.indexOf(member) ?? -1
    const isOfRank = type === 'done' || type === 'abort'
    const isIn = isOfRank ? rank >= 0 && epoch <= this.epoch : place >= 0 && epoch === first
    if (!this.isOn || !isIn || epoch < first) this.refuseEpoch(member, type, epoch)
    else if (type === 'abort') {
      const text = withoutEpoch(message.text, epoch)
      const why = without(`rank ${rank} `, text)
      this.fail('peer.aborted', [rank], `${this.nameOf(rank)}${why === text ? ':' : ''} ${why}`)
    } else if (type === 'done') this.takeDone(member, message)
    else if (type === 'signal') linking!.passBox(place, message)
    else if (type === 'linkDown') this.linkDown(linking!, place, message)
    else if (this.state === 'assigned') {
      linking!.places[place].isReady = true
      if (linking!.isReady && linking!.unlinked.length === 0) this.begin()
    }
  }

  private takeDone(member: Member, { reached }: MessageOf<'done'>): void {
    if (this.state !== 'running') {
      const text = 'done arrived before the run had started.'
      this.room.refuse(member, 'wrong-state', text, 'done')
      return
    }
    this.done.add(member.id)
    this.reached ??= reached
    this.finishIfDone()
  }

  /** Common and harmless: the message crossed the end of its epoch. */
  private refuseEpoch(member: Member, about: RunMessage['type'], got: number): void {
    const outside = this.rankOf(member) < 0 ? ', which you are not in' : ''
    const now = this.isOn ? `${this.epoch}${outside}` : 'none'
    const text = `expected the current epoch (${now}), got ${got}.`
    this.room.refuse(member, 'wrong-epoch', text, about)
  }

  private refuseRun(member: Member, about: RunMessage['type']): void {
    const text = "expected the room's run, from a member that has links to its ranks."
    this.room.refuse(member, 'wrong-epoch', text, about)
  }

  private begin(): void {
    this.cancelTimer()
    this.state = 'running'
    const { epoch, settings } = this
    this.sendToRanks({ type: 'start', epoch, settings })
    if (this.key === null) this.room.changed()
    else {
      const order = this.ranks.map(({ id }) => id)
      this.beginElastic(this.key, order, -1, new Map(), 0)
      for (const id of order) this.elastic!.halves.heard(id)
    }
  }

  private linkDown(linking: Linking, at: number, message: MessageOf<'linkDown'>): void {
    const { peerRank } = message
    if (!linking.hasLink(at, peerRank, 'linkDown') || this.elastic) return
    // A rank that is done may go: what it owed the others has been sent.
    const { id, connectionId } = this.ranks[peerRank]
    if (this.done.has(id)) return
    const text = linking.downText(at, message)
    const ranks = [at, peerRank]
    if (this.state === 'assigned' && this.key === null) this.fail('peer.unreachable', ranks, text)
    else if (this.state === 'assigned') {
      // Beyond a mesh the members make the links across the ring that they lack.
      const size = this.ranks.length
      if (size > meshLimit && !ringNeighbours(at, size).includes(peerRank)) return
      linking.isDown(at, peerRank)
      // The link's end may come before that of the peer's connection, and before that of other links.
      this.room.env.after(this.room.limits.joinMs, () => {
        const failure = { code: 'peer.unreachable', ranks } as const
        if (this.linking !== linking || this.state !== 'assigned') return
        if (!this.leaveOut(linking.unlinked, failure, text)) this.fail(failure.code, ranks, text)
      })
    }
    // Where both are here, neither may be lost.
    else this.fail('peer.lost', connectionId === null ? [peerRank] : [], text)
  }

  // --- an elastic run ---

  private beginElastic(
    key: string,
    order: string[],
    ballot: number,
    seats: Seats,
    gatherMs: number,
  ): void {
    const { room, settings, first } = this
    const halves = new Halves(room.limits.halvesPerRun)
    const newcomers = new Newcomers({
      room,
      first,
      key,
      settings,
      ranks: () => this.ranks,
      isFree: (member) => member.cameInRun === undefined && !seats.has(member.id),
      isGathering: () => this.isGathering,
      nextEpoch: () => this.nextEpoch(),
      failed: (member) => {
        this.withoutRank(member.id)
        this.setRanks()
      },
      joined: (members) => {
        const known = this.elastic!.order
        for (const one of members) {
          one.outOf = undefined
          halves.heard(one.id)
          if (!known.includes(one.id)) known.push(one.id)
        }
        this.setRanks()
      },
    })
    const ballotAtMs = room.env.now()
    const gatherUntilMs = ballotAtMs + gatherMs
    this.elastic = { order, ballot, ballotAtMs, seats, newcomers, halves, gatherUntilMs }
    for (const id of order) this.seat(id)
    this.setRanks()
  }

  /**
   * Who has the room's link may bring any run: only the maker's counts, as it may start one, and the one that ended here because its ranks were
   * away, from one of them. A server that has just begun knows no maker of before, and its rooms are anyone's who comes first: for a while it takes what it gets.
   */
  private mayTakeOver({ id }: Member, { key, run }: RunNow): boolean {
    const { room, away, state, isOn } = this
    if (isOn || run > maxClaimed.inRun) return false
    const isMakers = room.members()[0].cameInRun === key
    const isAway = away?.key === key && away.seats.has(id)
    return isMakers || isAway || (state === 'lobby' && room.isServerNew())
  }

  /** `epoch`: the newest that the member knows. */
  private takeOver({ id }: Member, { key, ballot, ids, ...received }: RunNow, epoch: number): void {
    const { env, limits } = this.room
    // What this server knows itself, nobody changes by bringing it.
    const { first, settings, seats } =
      this.away?.key === key
        ? this.away
        : { first: received.run, settings: received.settings, seats: new Map() }
    this.state = 'running'
    this.away = null
    this.key = key
    this.first = first
    const newest = counted(epoch, maxClaimed.inRun)
    // Who is in a run knows its epoch; a member that says otherwise could begin one that nobody can end.
    this.epoch = Math.max(this.epoch, this.epochElsewhere, newest, first)
    this.settings = settings
    this.room.takenOver(settings)
    this.cancelTimer = env.after(limits.backMs, () => this.setRanks())
    const order = this.withoutLeavers(ids)
    const known = counted(ballot, maxClaimed.ballot)
    this.beginElastic(key, order, known, seats, limits.backMs)
    // It may have ended at once.
    if (!received.mayBeAhead) this.elastic?.halves.heard(id)
  }

  /** True if members still bring a run that this server has taken over: it takes what it gets. */
  private get isTaking(): boolean {
    const { elastic, room } = this
    return elastic !== null && room.env.now() < elastic.gatherUntilMs
  }

  /** True if the run waits for ranks that may come back. */
  private get isGathering(): boolean {
    return this.isTaking && this.ranks.length < this.elastic!.order.length
  }

  /** The highest that a member can know: members need time to decide. */
  private get maxBallot(): number {
    if (this.isTaking) return maxClaimed.ballot
    const { env, limits } = this.room
    const seconds = (env.now() - this.elastic!.ballotAtMs) / 1000
    return this.ballot + (limits.rostersAhead + seconds) * ballotStep
  }

  /** The member with that id is in the run. Of those that are away the first one's seat is forgotten where they are too many. */
  private seat(id: string, token = this.elastic!.seats.get(id)): void {
    const { seats } = this.elastic!
    const gone = keepNewest(seats, id, token, this.room.limits.seatsPerRun)
    if (gone !== undefined) this.withoutRank(gone)
  }

  private takeRanks(member: Member, message: MessageOf<'ranks'>): void {
    const { elastic } = this
    const mayTell = elastic?.seats.has(member.id) && message.key === this.key
    if (!elastic || !mayTell || message.ballot > this.maxBallot) {
      this.refuseRun(member, 'ranks')
      return
    }
    elastic.halves.heard(member.id)
    if (this.reorder(message)) this.setRanks()
  }

  private tellHalf(member: Member, message: MessageOf<'half'>): void {
    const { elastic } = this
    if (!elastic || message.key !== this.key) {
      this.refuseRun(member, 'half')
      return
    }
    const { key, ballot } = message
    const newest = { ballot: this.ballot, members: elastic.order }
    const mayAsk = elastic.seats.has(member.id) && ballot <= this.maxBallot
    const first = mayAsk ? elastic.halves.first(message, newest) : null
    this.room.send(member, { type: 'half', key, ballot, first: first && [...first] })
  }

  /** False where a newer ballot is known. */
  private reorder({ ballot, ids }: Pick<RunNow, 'ballot' | 'ids'>): boolean {
    const elastic = this.elastic!
    if (ballot <= elastic.ballot) return false
    elastic.ballot = ballot
    elastic.ballotAtMs = this.room.env.now()
    elastic.order = this.withoutLeavers(ids).filter((id) => this.isTaking || elastic.seats.has(id))
    for (const id of elastic.order) this.seat(id)
    return true
  }

  private withoutLeavers(ids: readonly string[]): string[] {
    const leavers = this.room
      .members()
      .filter((one) => one.outOf === this.key || this.isElsewhere(one))
    return ids.filter((id) => !leavers.some((one) => one.id === id))
  }

  private out(member: Member, { key }: MessageOf<'out'>): void {
    // Of a run that nobody has brought yet, too.
    member.outOf = key
    if (member.cameInRun === key) member.cameInRun = undefined
    if (!this.elastic || key !== this.key) {
      this.refuseRun(member, 'out')
      return
    }
    this.withoutRank(member.id)
    this.setRanks()
  }

  private withoutRank(id: string): void {
    const { elastic } = this
    ;(elastic ?? this.away)?.seats.delete(id)
    if (!elastic) return
    elastic.order = elastic.order.filter((one) => one !== id)
    elastic.halves.gone(id)
    this.done.delete(id)
  }

  /** The order, or who is here, is another. */
  private setRanks(): void {
    const { elastic, room } = this
    const here = room.members().filter((one) => one.connectionId)
    this.ranks = elastic!.order.flatMap((id) => here.find((one) => one.id === id) ?? [])
    for (const { id, token } of this.ranks) this.seat(id, token)
    this.finishIfDone()
    if (!this.isOn) return
    room.changed()
    elastic!.newcomers.changed()
  }

  // --- the end ---

  finishIfDone(): void {
    const attached = this.ranks.filter((one) => one.connectionId)
    // No rank is left to report an end, and members that wait here must not wait forever.
    if (attached.length === 0) this.end('failed', null)
    else if (attached.every((one) => this.done.has(one.id)) && !this.isGathering)
      this.end('finished', { type: 'finished', epoch: this.first })
  }

  private fail(code: AbortCode, ranks: number[], text: string): void {
    const { first: epoch } = this
    this.end('failed', { type: 'abort', epoch, code, ranks, text: `epoch ${epoch}: ${text}` })
  }

  private end(state: 'finished' | 'failed', words: ServerMessage | null): void {
    const { elastic, first: epoch, key, room, settings } = this
    const isAway = elastic && key !== null && !words
    this.away = isAway ? { key, first: epoch, settings, seats: elastic.seats } : null
    if (words && elastic && key !== null) {
      this.past.push({ key, words })
      if (this.past.length > room.limits.endedRunsPerRoom) this.past.shift()
    }
    if (words) this.sendToRanks(words)
    const text = `epoch ${epoch}: ${endedWithout}`
    for (const member of elastic ? room.members() : []) {
      // Who hears of the end does not come back to the run.
      const isSeated = elastic!.seats.delete(member.id)
      const isIn = isSeated || member.cameInRun === key
      if (member.cameInRun === key) member.cameInRun = undefined
      if (isIn && this.rankOf(member) < 0)
        room.send(member, { type: 'abort', epoch, code: 'peer.aborted', ranks: [], text })
    }
    this.state = state
    this.clear()
    room.ended()
  }

  /** Nobody is in the room. */
  reset(): void {
    if (this.isOn) this.state = 'failed'
    this.away = null
    this.clear()
  }

  private clear(): void {
    this.cancelTimer()
    this.elastic?.newcomers.end()
    this.elastic = null
    this.linking = null
    this.ranks = []
    this.done.clear()
    this.settings = null
  }

  private sendToRanks(message: ServerMessage): void {
    for (const member of this.ranks) this.room.send(member, message)
  }
}
