import type { Env } from '../../util/env.ts'
import { without, withoutEpoch } from '../collective/failure.ts'
import { meshLimit } from '../room/edges.ts'
import type { IceServer } from '../room/ice-servers.ts'
import type {
  AssignedLink,
  ClientMessage,
  JsonValue,
  Limits,
  MemberInfo,
  MessageOf,
  RoomState,
  ServerMessage,
} from '../room/messages.ts'
import { leftOutBecause, type Refusal } from '../room/refusals.ts'
import type { TokenBucket } from '../room/token-bucket.ts'
import { planLinks } from '../room/topology.ts'

/** Of a room. */
export interface Member {
  readonly id: string
  info: MemberInfo
  /** Null once detached. */
  connectionId: string | null
  /** For the server alone: what it came with to be known by when it comes again. */
  readonly token: string | null
  /** Of its boxes between runs. */
  readonly reaches: TokenBucket
}

/** What names its epoch, and what else a member may say. */
export type EpochMessage = MessageOf<'signal' | 'ready' | 'linkDown' | 'abort' | 'done'>

/** What a run needs of its room. */
export interface RunRoom {
  readonly env: Env
  readonly limits: Limits
  readonly hasRelay: boolean
  /** In order of joining, the maker first. */
  members(): readonly Member[]
  send(member: Member, message: ServerMessage): void
  refuse(
    member: Member,
    code: Refusal,
    text: string,
    about: ClientMessage['type'],
    isFatal?: boolean,
  ): void
  /** When anything came from the member. */
  heardAtMs(member: Member): number
  iceServers(connectionId: string): IceServer[]
  /** The state, the epoch or the ranks are others. */
  changed(): void
  /** The run is over. */
  ended(): void
}

interface Rank {
  readonly member: Member
  readonly links: AssignedLink[]
  isReady: boolean
  isDone: boolean
  boxChars: number
}

/** For those who ask for a relay where there is none. */
export const withoutRelay =
  'this server has no relay. Start it with --relay, or the Vite plugin with relay: true.'

type LinkPlan = { readonly links: AssignedLink[][] }
type Refused = { readonly code: Refusal; readonly text: string }

/**
 * The runs of a room, one after the other: their epochs and ranks.
 *
 *   LOBBY -start-> ASSIGNED(epoch) -all ready-> RUNNING -all done-> FINISHED
 *                     |  lost rank, linkDown, abort, 20 s  |
 *                     +-------------> FAILED <-------------+        start again: ASSIGNED(epoch + 1)
 *
 * - A rank that says bye, or whose socket ends before the run is RUNNING, fails the run at once.
 * - A socket that ends without bye while RUNNING leaves its rank detached: the ring itself needs no server, so the run continues until a
 *   neighbour reports that link down too (FAILED), or everyone still attached is done (FINISHED). There is no way back into a run for a
 *   detached rank. Once every rank is detached the run counts as FAILED: they leave the room to who waits in it.
 *
 * An elastic run that has once been RUNNING does not fail by a lost rank:
 *
 *   RUNNING -lost rank, newcomer-> ASSIGNED(epoch + 1, the same run) -all ready-> RUNNING
 *
 * - The members in the room get ranks in its order. A rank whose socket ends is lost. Where a link ends, all are asked, and those that do not
 *   answer within `doubtMs` are left out until they are heard again.
 * - Newcomers are admitted while the others train, and these train until the newcomers are ready. After a loss nobody waits for newcomers: they
 *   get ranks in the epoch after.
 * - Ranks that are not ready in time are left out in the same way. Of two that cannot be linked the newcomer is left out, or the higher rank, for
 *   the rest of the run.
 * - An abort of a rank ends the run for all; that of one that came with the newest epoch leaves it out for the rest of the run.
 */
export class RoomRun {
  state: RoomState = 'lobby'
  /** Of the current or last run; 0 before the first. */
  epoch = 0
  private ranks: Rank[] = []
  private settings: JsonValue = null
  /** The epoch with which the run began. */
  private first = 0
  private isElastic = false
  /** It has been RUNNING. */
  private hasBegun = false
  /** Of the epoch that ran last, while the one that follows is ASSIGNED: they may be done with it. */
  private before: { epoch: number; ranks: Rank[] } | null = null
  /** The one before the epoch that is RUNNING: its ranks may have come to the run's end before they took notice of the next one. */
  private previous: { epoch: number; ranks: Rank[] } | null = null
  /** The ranks of `before` train no more: they wait for the epoch that is ASSIGNED. */
  private isStopped = false
  /** Ranks of the newest epoch that no epoch before had. */
  private newest: readonly Member[] = []
  /** Members of the room that are no ranks of this run: until they are heard again, or to its end. */
  private readonly silent = new Set<Member>()
  private readonly barred = new Set<Member>()
  private cancelReady: () => void = () => undefined
  /** The look at ranks that may be lost, a regrouping that is due. */
  private cancelDue: (() => void) | null = null

  constructor(private readonly room: RunRoom) {}

  get isOn(): boolean {
    return this.state === 'assigned' || this.state === 'running'
  }

  rankOf(member: Member): number {
    return this.ranks.findIndex((one) => one.member === member)
  }

  nameOf(rank: number): string {
    return `rank ${rank} (${this.ranks[rank].member.info.name})`
  }

  /** Whether the others wait for something of this rank. */
  isOwed(rank: number): boolean {
    return rank >= 0 && !this.ranks[rank].isDone
  }

  /** Whether a rank whose socket ends without a bye stays in the run. */
  get keepsDetached(): boolean {
    return this.state === 'running' && !this.isElastic
  }

  /** The links of a run with these members, or why there can be none. */
  planFor(members: readonly Member[]): LinkPlan | Refused {
    const plan = planLinks(
      members.map((one) => one.info),
      this.room.hasRelay,
    )
    if ('apart' in plan) {
      const [a, b] = plan.apart
      const asked = [a, b].map((rank) => members[rank].info.transport)
      const text = asked.includes('port')
        ? `ranks ${a} and ${b} do not share a browser, but transport "port" was requested. Use "auto" or "webrtc".`
        : `ranks ${a} and ${b} request transports "${asked.join('" and "')}". Use the same for both.`
      return { code: 'no-transport', text }
    }
    if (!this.room.hasRelay && plan.links.flat().some(({ kind }) => kind === 'relay')) {
      return {
        code: 'no-relay',
        text: `transport "relay" was requested, but ${withoutRelay}`,
      }
    }
    return plan
  }

  start({ links }: LinkPlan, settings: JsonValue, isElastic: boolean): void {
    this.settings = settings
    this.isElastic = isElastic
    this.hasBegun = false
    this.first = this.epoch + 1
    this.assign(this.room.members(), links)
  }

  private assign(members: readonly Member[], links: AssignedLink[][]): void {
    this.epoch++
    this.state = 'assigned'
    this.ranks = members.map((member, rank) => ({
      member,
      links: links[rank],
      isReady: false,
      isDone: false,
      boxChars: 0,
    }))
    const { limits, env } = this.room
    const mayFallBack = links.flat().some(({ canRelay }) => canRelay)
    const mostMs = this.hasBegun && !this.isStopped ? limits.prepareMs : limits.readyMs
    // Then a link is tried one way after the other.
    const readyMs = mostMs + (mayFallBack ? limits.relayWaitMs : 0)
    this.cancelReady = env.after(readyMs, () => this.endWait(readyMs))
    const { epoch, first: run } = this
    const worldSize = members.length
    // Links need nothing of what was measured, and the message of a full room must fit.
    const told = members.map(({ id, info: { measured: _, ...info } }) => ({ id, ...info }))
    for (const [rank, { member, links: own }] of this.ranks.entries()) {
      if (own.some(({ kind }) => kind === 'webrtc')) this.sendIceServers(member)
      this.room.send(member, {
        type: 'assign',
        epoch,
        ...(this.isElastic && { run }),
        rank,
        worldSize,
        members: told,
        links: own,
      })
    }
    this.room.changed()
  }

  private sendIceServers(member: Member): void {
    const { connectionId } = member
    if (connectionId === null) return
    const iceServers = this.room.iceServers(connectionId)
    if (iceServers.length > 0) this.room.send(member, { type: 'ice', iceServers })
  }

  /** Not all ranks have their links. */
  private endWait(readyMs: number): void {
    const late = this.ranks.flatMap((one, rank) => (one.isReady ? [] : [rank]))
    const names = late.map((rank) => this.nameOf(rank)).join(', ')
    const text = `not every rank had its links within ${readyMs} ms: missing ${names}.`
    if (!this.hasBegun) {
      this.fail(late[0], `${text} Check those tabs and start again.`)
      return
    }
    for (const rank of late) this.leaveOut(this.ranks[rank].member, text, false)
    if (late.some((rank) => !this.newest.includes(this.ranks[rank].member))) this.isStopped = true
    this.regroup()
  }

  // --- an elastic run ---

  /** A rank has left, or its connection has ended: `text` says why. */
  lost(rank: number, text: string): void {
    const who = this.nameOf(rank)
    if (this.isElastic && this.hasBegun) {
      this.isStopped ||= this.state === 'running' || !this.newest.includes(this.ranks[rank].member)
      this.regroup()
    } else this.fail(rank, `${who} is gone: ${text}. Start again without it, or once it is back.`)
  }

  /** Admits members that have no rank, soon. */
  newcomers(): void {
    if (this.state !== 'running' || !this.isElastic || this.cancelDue) return
    if (this.members().length === this.ranks.length) return
    this.cancelDue = this.room.env.after(this.room.limits.joinMs, () => this.regroup())
  }

  /** A message of a member has come. */
  heard(member: Member): void {
    if (this.silent.delete(member)) this.newcomers()
  }

  /** Those that would have ranks now: who has one first, and newcomers up to the number that can all be linked. */
  private members(): Member[] {
    const known = new Set([...(this.before?.ranks ?? []), ...this.ranks].map((one) => one.member))
    const here = this.room
      .members()
      .filter((one) => one.connectionId && !this.silent.has(one) && !this.barred.has(one))
    const places = meshLimit - here.filter((one) => known.has(one)).length
    const admitted = here.filter((one) => !known.has(one)).slice(0, Math.max(0, places))
    return here.filter((one) => known.has(one) || admitted.includes(one))
  }

  /** The same run in a new epoch, with those who are here. */
  private regroup(): void {
    this.clearTimers()
    this.before ??= { epoch: this.epoch, ranks: this.ranks }
    this.previous = null
    const { ranks } = this.before
    const members = this.members()
    const known = members.filter((one) => ranks.some(({ member }) => member === one))
    for (const some of this.isStopped ? [known] : [members, known]) {
      const plan = this.planFor(some)
      if ('code' in plan || some.length === 0) continue
      for (const one of this.newest)
        if (!some.includes(one) && members.includes(one))
          this.tellLeftOut(one, 'a rank is gone. This tab joins once the others train again.')
      this.newest = some.filter((one) => !known.includes(one))
      this.assign(some, plan.links)
      return
    }
    this.fail(0, 'the run cannot continue: no rank of it is left in the room. Start again.')
  }

  /** A link between two ranks has ended: ranks that do not answer now are left out. */
  private doubt(): void {
    if (this.cancelDue) return
    const { env, limits } = this.room
    const askedAtMs = env.now()
    for (const { member } of this.ranks) this.room.send(member, { type: 'ping' })
    this.cancelDue = env.after(limits.doubtMs, () => {
      for (const [rank, { member }] of this.ranks.entries())
        if (this.room.heardAtMs(member) < askedAtMs)
          this.leaveOut(
            member,
            `${this.nameOf(rank)} did not answer within ${limits.doubtMs} ms.`,
            false,
          )
      this.isStopped = true
      this.regroup()
    })
  }

  private leaveOut(member: Member, text: string, isForGood: boolean): void {
    const outside = isForGood ? this.barred : this.silent
    outside.add(member)
    this.tellLeftOut(member, text)
  }

  private tellLeftOut(member: Member, text: string): void {
    const { epoch } = this
    const whole = `epoch ${epoch}: ${leftOutBecause(text)}`
    this.room.send(member, { type: 'abort', epoch, rank: null, text: whole })
  }

  /** A rank is done with the epoch before: the run is over once all its ranks are; else it continues without those that are. */
  private doneBefore(member: Member): void {
    const { before } = this
    const own = before?.ranks.find((one) => one.member === member)
    if (!before || !own) return
    own.isDone = true
    const attached = before.ranks.filter((one) => one.member.connectionId)
    if (attached.every(({ isDone }) => isDone)) {
      this.end('finished')
      return
    }
    this.cancelDue ??= this.room.env.after(this.room.limits.joinMs, () => {
      for (const one of before.ranks) {
        if (!one.isDone || this.barred.has(one.member)) continue
        this.barred.add(one.member)
        this.room.send(one.member, { type: 'finished', epoch: before.epoch })
      }
      this.isStopped = true
      this.regroup()
    })
  }

  // --- what ranks say ---

  receive(member: Member, message: EpochMessage): void {
    const rank = this.rankOf(member)
    if (message.type === 'done') {
      if (this.previous?.epoch === message.epoch) this.before = this.previous
      if (this.before?.epoch === message.epoch) {
        this.doneBefore(member)
        return
      }
    }
    if (message.type === 'linkDown' && this.before?.epoch === message.epoch) {
      this.linkDownBefore(member, message)
      return
    }
    if (!this.isOn || message.epoch !== this.epoch || rank < 0) {
      // Common and harmless: the message crossed the end of its epoch.
      const now = this.isOn ? `${this.epoch}${rank < 0 ? ', which you are not in' : ''}` : 'none'
      const text = `expected the current epoch (${now}), got ${message.epoch}.`
      this.room.refuse(member, 'wrong-epoch', text, message.type)
      return
    }
    const mine = this.ranks[rank]
    switch (message.type) {
      case 'signal':
        this.passBox(rank, message)
        return
      case 'ready':
        if (this.state !== 'assigned') return
        mine.isReady = true
        if (this.ranks.every((one) => one.isReady)) this.begin()
        return
      case 'linkDown':
        this.linkDown(rank, message)
        return
      case 'abort': {
        const text = withoutEpoch(message.text, this.epoch)
        if (this.newest.includes(member)) {
          this.leaveOut(member, text, true)
          this.regroup()
          return
        }
        const why = without(`rank ${rank} `, text)
        this.fail(rank, `${this.nameOf(rank)}${why === text ? ':' : ''} ${why}`)
        return
      }
      case 'done':
        if (this.state !== 'running') {
          const text = 'done arrived before the run had started.'
          this.room.refuse(member, 'wrong-state', text, 'done')
          return
        }
        mine.isDone = true
        this.finishIfDone()
    }
  }

  private begin(): void {
    this.clearTimers()
    this.state = 'running'
    this.hasBegun = true
    this.previous = this.before
    this.before = null
    this.isStopped = false
    this.sendToRanks({ type: 'start', epoch: this.epoch, settings: this.settings })
    this.room.changed()
    this.newcomers()
  }

  private linkDown(rank: number, { peerRank, text }: MessageOf<'linkDown'>): void {
    if (!this.hasLink(rank, peerRank, 'linkDown')) return
    // A rank that is done may go: what it owed the others has been sent.
    if (this.ranks[peerRank].isDone) return
    const peer = this.nameOf(peerRank)
    const why = `${this.nameOf(rank)} lost its link to ${peer}: ${without(`link to ${peer}: `, text)}`
    if (!this.isElastic || !this.hasBegun) this.fail(peerRank, why)
    else if (this.state === 'running') this.doubt()
    else {
      const wasIn = (at: number) =>
        this.before!.ranks.some(({ member }) => member === this.ranks[at].member)
      const newcomer = [rank, peerRank].find((at) => !wasIn(at))
      this.leaveOut(this.ranks[newcomer ?? Math.max(rank, peerRank)].member, why, true)
      this.isStopped ||= newcomer === undefined
      this.regroup()
    }
  }

  /** A link has ended of ranks that train while the next epoch forms. */
  private linkDownBefore(member: Member, { peerRank }: MessageOf<'linkDown'>): void {
    const { ranks } = this.before!
    const mine = ranks.find((one) => one.member === member)
    const peer = ranks[peerRank]
    if (!mine?.links.some((link) => link.peerRank === peerRank) || peer.isDone) return
    // One that the next epoch is without is known to be lost.
    if (this.rankOf(member) >= 0 && this.rankOf(peer.member) >= 0) this.doubt()
  }

  private passBox(from: number, { to, attempt, box }: MessageOf<'signal'>): void {
    const { member } = this.ranks[from]
    const mostBoxChars = this.room.limits.boxCharsPerLink * this.ranks[from].links.length
    if (!this.hasLink(from, to, 'signal')) return
    this.ranks[from].boxChars += box.length
    if (this.ranks[from].boxChars > mostBoxChars) {
      const text = `at most ${mostBoxChars} characters of signals are allowed in an epoch. Do not send data through signaling.`
      this.room.refuse(member, 'too-large', text, 'signal', true)
      return
    }
    const { epoch } = this
    this.room.send(this.ranks[to].member, { type: 'signal', epoch, from, attempt, box })
  }

  /** Refuses a message about a rank that `rank` has no link to. */
  private hasLink(rank: number, peerRank: number, about: ClientMessage['type']): boolean {
    const { member, links } = this.ranks[rank]
    if (links.some((link) => link.peerRank === peerRank)) return true
    const text = `this rank has no link to rank ${peerRank}.`
    this.room.refuse(member, 'unknown-rank', text, about)
    return false
  }

  finishIfDone(): void {
    const attached = this.ranks.filter((one) => one.member.connectionId)
    // No rank is left to report an end, and members that wait here must not wait forever.
    if (attached.length === 0) this.end('failed')
    else if (attached.every((one) => one.isDone)) this.end('finished')
  }

  private fail(rank: number, text: string): void {
    const { epoch, before } = this
    const whole = `epoch ${epoch}: ${text}`
    this.sendToRanks({ type: 'abort', epoch, rank, text: whole })
    for (const { member } of before?.ranks ?? [])
      if (this.rankOf(member) < 0)
        this.room.send(member, { type: 'abort', epoch: before!.epoch, rank, text: whole })
    this.end('failed')
  }

  private end(state: 'finished' | 'failed'): void {
    const { before, epoch } = this
    if (state === 'finished') {
      for (const { member } of (before ?? { ranks: this.ranks }).ranks)
        this.room.send(member, { type: 'finished', epoch: before?.epoch ?? epoch })
      const text = `epoch ${epoch}: the run has ended before this tab could join it.`
      for (const { member } of before ? this.ranks : [])
        if (!before!.ranks.some((one) => one.member === member))
          this.room.send(member, { type: 'abort', epoch, rank: null, text })
    }
    this.state = state
    this.clear()
    this.room.ended()
  }

  /** Nobody is in the room. */
  reset(): void {
    if (this.isOn) this.state = 'failed'
    this.clear()
  }

  private clear(): void {
    this.clearTimers()
    this.ranks = []
    this.before = null
    this.previous = null
    this.isStopped = false
    this.newest = []
    this.settings = null
    this.silent.clear()
    this.barred.clear()
  }

  private clearTimers(): void {
    this.cancelReady()
    this.cancelDue?.()
    this.cancelDue = null
  }

  private sendToRanks(message: ServerMessage): void {
    for (const { member } of this.ranks) this.room.send(member, message)
  }
}
