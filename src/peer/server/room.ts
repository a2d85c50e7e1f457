import { type Env, toHex } from '../../util/env.ts'
import { without, withoutEpoch } from '../collective/failure.ts'
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
import { type Refusal, removedBy } from '../room/refusals.ts'
import { TokenBucket } from '../room/token-bucket.ts'
import { planLinks, ringNeighbours } from '../room/topology.ts'
import { type RelaySockets, RoomRelay } from './room-relay.ts'
import { RoomStore } from './room-store.ts'

/** What a room needs from the server around it. */
export interface RoomHost {
  readonly env: Env
  readonly limits: Limits
  send(connectionId: string, message: ServerMessage): void
  /** Tells one connection why not. A fatal refusal closes it, and the member leaves. */
  refuse(
    connectionId: string,
    code: Refusal,
    text: string,
    about: ClientMessage['type'],
    isFatal?: boolean,
    call?: number,
  ): void
  /** Ends the connection of a removed member, which is told so, and who then leaves with this text. */
  dismiss(connectionId: string, text: string): void
  /** What the stores of all rooms hold together. */
  readonly held: { sizeBytes: number }
  /** For the links of one connection, with credentials that are fresh. */
  iceServers(connectionId: string): IceServer[]
  /** Null: this server relays no links. */
  readonly relay: RelaySockets | null
}

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
type EpochMessage = MessageOf<'signal' | 'ready' | 'linkDown' | 'abort' | 'done'>
export type RoomMessage =
  | MessageOf<'update' | 'propose' | 'handOver' | 'remove' | 'reach' | 'start'>
  | EpochMessage

/** For those who ask for a relay where there is none. */
export const withoutRelay =
  'this server has no relay. Start it with --relay, or the Vite plugin with relay: true.'

interface Rank {
  readonly member: Member
  readonly links: AssignedLink[]
  isReady: boolean
  isDone: boolean
  boxChars: number
}

/**
 * One room: its members, the epoch that it is in, its store, the guests who are here for the store alone, and its relay, if the server has one.
 *
 *   LOBBY -start-> ASSIGNED(epoch) -all ready-> RUNNING -all done-> FINISHED
 *                     |  lost rank, linkDown, abort, 20 s  |
 *                     +-------------> FAILED <-------------+        start again: ASSIGNED(epoch + 1)
 *
 * - Membership is the server's: the first member is the maker and rank 0, the others follow in order of joining. That is the one that has
 *   been here longest, or between runs one that was the maker and has come back with its token: of several the one that was it first. What came
 *   before a handing over does not count.
 *   Who comes during a run waits for the next epoch.
 * - A rank that says bye, or whose socket ends before the run is RUNNING, fails the run at once.
 * - A socket that ends without bye while RUNNING leaves its rank detached: the ring itself needs no server, so the run goes
 *   on until a neighbour reports that link down too (FAILED), or everyone still attached is done (FINISHED). There is
 *   no way back into a run for a detached rank. Once every rank is detached the run counts as FAILED: they leave the room
 *   to who waits in it.
 */
export class Room {
  readonly store: RoomStore
  readonly relay: RoomRelay | null
  private readonly guests = new Set<string>()
  private state: RoomState = 'lobby'
  private epoch = 0
  /** In order of joining, but for the first, which is the maker. */
  private members: Member[] = []
  /** Tokens of who made the room or was handed it, and then of each that took its place when it went. */
  private claims: string[] = []
  /** Of the current epoch; empty unless assigned or running. */
  private ranks: Rank[] = []
  private settings: JsonValue = null
  /** What the maker would start now, or started last. */
  private proposed: JsonValue = null
  private cancelReady: () => void = () => undefined
  /** The next lobby message, once one is due. */
  private dueLobby: { atMs: number; cancel: () => void } | null = null
  private hasUpdates = false
  private updatesToldAtMs = Number.NEGATIVE_INFINITY

  constructor(
    readonly id: string,
    readonly authKey: string,
    private readonly host: RoomHost,
  ) {
    this.store = new RoomStore({
      env: host.env,
      limits: host.limits,
      held: host.held,
      answer: (to, id, answer) => host.send(to, { type: 'stored', id, answer }),
      refuse: (to, code, text, id) => host.refuse(to, code, text, 'store', false, id),
    })
    this.relay =
      host.relay &&
      new RoomRelay({
        env: host.env,
        limits: host.limits,
        sockets: host.relay,
        joined: (to) => host.send(to, { type: 'relayed' }),
        refuse: (to, code, text) => host.refuse(to, code, `relay: ${text}`, 'relay', true),
      })
  }

  get size(): number {
    return this.members.length
  }

  get guestCount(): number {
    return this.guests.size
  }

  /** Whether nobody is here: the room is over. */
  get isEmpty(): boolean {
    const isRelaying = this.relay !== null && this.relay.size > 0
    return this.guests.size === 0 && !isRelaying && !this.members.some((one) => one.connectionId)
  }

  // --- guests ---

  addGuest(connectionId: string): void {
    this.guests.add(connectionId)
    const id = toHex(this.host.env.random(8))
    this.host.send(connectionId, this.welcome(id))
  }

  removeGuest(connectionId: string): void {
    this.guests.delete(connectionId)
  }

  private welcome(id: string): ServerMessage {
    return { type: 'welcome', id, room: this.id, ...(this.relay && { relay: true }) }
  }

  // --- members ---

  add(connectionId: string, info: MemberInfo, token: string | null): Member {
    const { env, limits } = this.host
    const reaches = new TokenBucket(env, limits.reachesPerSec, limits.reachBurst)
    const member: Member = { id: toHex(env.random(8)), info, connectionId, token, reaches }
    this.members.push(member)
    this.send(member, this.welcome(member.id))
    this.tellProposed(member)
    this.giveBack()
    this.lobbyChanged()
    return member
  }

  private tellProposed(member: Member): void {
    if (this.proposed !== null) this.send(member, { type: 'proposed', settings: this.proposed })
  }

  /** The room to who has the first claim, unless a run is on; its maker, who may have come to be it just now, has one too. */
  private giveBack(): void {
    const owners = this.claims.map((claim) => this.members.find(({ token }) => token === claim))
    const owner = owners.find((one) => one !== undefined)
    if (owner && !this.isOn) this.putFirst(owner)
    const { token } = this.members[0]
    if (token === null || this.claims.includes(token)) return
    // Tokens cost nothing to make: who was first is kept, and those of late.
    if (this.claims.length >= this.host.limits.membersPerRoom) this.claims.splice(1, 1)
    this.claims.push(token)
  }

  private putFirst(member: Member): void {
    const [before] = this.members
    if (member === before) return
    this.members = [member, ...this.members.filter((one) => one !== member)]
    // From now on it sees what another chooses.
    this.tellProposed(before)
  }

  /** The connection of `member` has ended. */
  remove(member: Member, text: string, isBye: boolean): void {
    member.connectionId = null
    if (!this.members.some((one) => one.connectionId)) {
      this.endWithoutMembers()
      return
    }
    const rank = this.rankOf(member)
    const isOwed = rank >= 0 && !this.ranks[rank].isDone
    if (isOwed && this.state === 'running' && !isBye) {
      this.lobbyChanged()
      this.finishIfDone()
      return
    }
    const { id } = member
    const { name } = member.info
    const who = rank >= 0 ? this.nameOf(rank) : name
    this.members = this.members.filter((one) => one !== member)
    for (const one of this.members) {
      this.send(one, { type: 'gone', id, name, rank: rank >= 0 ? rank : null, text })
    }
    if (isOwed) {
      this.fail(rank, `${who} is gone: ${text}. Start again without it, or once it is back.`)
    } else {
      if (rank >= 0) this.finishIfDone()
      this.giveBack()
      this.lobbyChanged()
    }
  }

  /** Guests may stay, and the next member makes the room its own. */
  private endWithoutMembers(): void {
    this.cancelReady()
    this.dueLobby?.cancel()
    this.dueLobby = null
    if (this.isOn) this.state = 'failed'
    this.ranks = []
    this.settings = null
    this.proposed = null
    this.members = []
    this.claims = []
  }

  /** A message of a member, other than those by which it came. */
  receive(member: Member, message: RoomMessage): void {
    if (message.type === 'update') {
      member.info = message.info
      this.lobbyChanged(true)
    } else if (message.type === 'propose') this.propose(member, message.settings)
    else if (message.type === 'handOver') this.handOver(member, message.id)
    else if (message.type === 'remove') this.dismiss(member, message.id)
    else if (message.type === 'reach') this.passReach(member, message)
    else if (message.type === 'start') this.start(member, message.settings)
    else this.inEpoch(member, message)
  }

  private propose(member: Member, settings: JsonValue): void {
    if (!this.isFromMaker(member, 'propose', 'propose settings')) return
    this.proposed = settings
    for (const one of this.members.slice(1)) this.send(one, { type: 'proposed', settings })
  }

  /** Refuses what only the maker may do. */
  private isFromMaker(member: Member, about: ClientMessage['type'], what: string = about): boolean {
    const [maker] = this.members
    if (maker === member) return true
    const text = `only the host (${maker.info.name}) may ${what}.`
    this.refuse(member, 'not-the-host', text, about)
    return false
  }

  /** The member that the maker means; itself and who is not here are refused. */
  private otherMember(maker: Member, id: string, about: ClientMessage['type']): Member | null {
    const other = this.members.find((one) => one.id === id && one !== maker)
    if (other) return other
    const text =
      id === maker.id
        ? 'the host cannot name itself. Name another member.'
        : `no member ${id} is in this room. It may have left.`
    this.refuse(maker, 'unknown-member', text, about)
    return null
  }

  /** To a neighbour in the ring alone: what has crossed a change of the room is dropped. */
  private passReach(from: Member, { to, box }: MessageOf<'reach'>): void {
    if (this.isOn) return
    const at = this.members.indexOf(from)
    const isNear = (index: number) => this.members[index].id === to
    const near = ringNeighbours(at, this.members.length).find(isNear)
    if (near === undefined) return
    if (from.reaches.take()) {
      this.send(this.members[near], { type: 'reach', from: from.id, box })
      return
    }
    const { reachesPerSec, reachBurst } = this.host.limits
    const text = `at most ${reachesPerSec} messages a second to neighbours and ${reachBurst} at once are allowed. Do not send data through signaling.`
    this.refuse(from, 'too-many', text, 'reach')
  }

  private handOver(maker: Member, id: string): void {
    if (!this.isFromMaker(maker, 'handOver', 'hand the room over')) return
    if (this.isOn) {
      const text = `the room is ${this.state} (epoch ${this.epoch}), not waiting. Hand it over after the run.`
      this.refuse(maker, 'wrong-state', text, 'handOver')
      return
    }
    const next = this.otherMember(maker, id, 'handOver')
    if (!next) return
    this.claims = []
    this.putFirst(next)
    this.giveBack()
    this.lobbyChanged()
  }

  private dismiss(maker: Member, id: string): void {
    if (!this.isFromMaker(maker, 'remove', 'remove a member')) return
    const member = this.otherMember(maker, id, 'remove')
    if (!member) return
    const text = removedBy(maker.info.name)
    // It may come back, but not as the maker, unless it was that before this one.
    const ownClaim = this.claims.indexOf(maker.token ?? '')
    this.claims = this.claims.filter((claim, at) => at <= ownClaim || claim !== member.token)
    if (member.connectionId !== null) this.host.dismiss(member.connectionId, text)
    else this.remove(member, text, true)
  }

  // --- a run ---

  private start(member: Member, settings: JsonValue): void {
    const { members, state } = this
    if (!this.isFromMaker(member, 'start')) return
    if (this.isOn) {
      const text = `the room is ${state} (epoch ${this.epoch}), not waiting. Start after this run.`
      this.refuse(member, 'wrong-state', text, 'start')
      return
    }
    const plan = planLinks(
      members.map((one) => one.info),
      this.relay !== null,
    )
    if ('apart' in plan) {
      const [a, b] = plan.apart
      const asked = [a, b].map((rank) => members[rank].info.transport)
      const text = asked.includes('port')
        ? `ranks ${a} and ${b} do not share a browser, but transport "port" was requested. Use "auto" or "webrtc".`
        : `ranks ${a} and ${b} request transports "${asked.join('" and "')}". Use the same for both.`
      this.refuse(member, 'no-transport', text, 'start')
      return
    }
    if (!this.relay && plan.links.flat().some(({ kind }) => kind === 'relay')) {
      this.refuse(
        member,
        'no-relay',
        `transport "relay" was requested, but ${withoutRelay}`,
        'start',
      )
      return
    }
    this.epoch++
    this.state = 'assigned'
    this.settings = settings
    this.propose(member, settings)
    this.ranks = members.map((one, rank) => ({
      member: one,
      links: plan.links[rank],
      isReady: false,
      isDone: false,
      boxChars: 0,
    }))
    const { limits } = this.host
    const mayFallBack = plan.links.flat().some(({ canRelay }) => canRelay)
    // Then a link is tried one way after the other.
    const readyMs = limits.readyMs + (mayFallBack ? limits.relayWaitMs : 0)
    this.cancelReady = this.host.env.after(readyMs, () => {
      const late = this.ranks.flatMap((one, rank) => (one.isReady ? [] : [rank]))
      const names = late.map((rank) => this.nameOf(rank)).join(', ')
      this.fail(
        late[0],
        `not every rank had its links within ${readyMs} ms: missing ${names}. Check those tabs and start again.`,
      )
    })
    const { epoch } = this
    const worldSize = members.length
    // Links need nothing of what was measured, and the message of a full room must fit.
    const told = members.map(({ id, info: { measured: _, ...info } }) => ({ id, ...info }))
    this.ranks.forEach(({ member: one, links }, rank) => {
      if (links.some(({ kind }) => kind === 'webrtc')) this.sendIceServers(one)
      this.send(one, { type: 'assign', epoch, rank, worldSize, members: told, links })
    })
    this.lobbyChanged()
  }

  private sendIceServers(member: Member): void {
    const { connectionId } = member
    if (connectionId === null) return
    const iceServers = this.host.iceServers(connectionId)
    if (iceServers.length > 0) this.send(member, { type: 'ice', iceServers })
  }

  private inEpoch(member: Member, message: EpochMessage): void {
    const rank = this.rankOf(member)
    if (!this.isOn || message.epoch !== this.epoch || rank < 0) {
      // Common and harmless: the message crossed the end of its epoch.
      const now = this.isOn ? `${this.epoch}${rank < 0 ? ', which you are not in' : ''}` : 'none'
      const text = `expected the current epoch (${now}), got ${message.epoch}.`
      this.refuse(member, 'wrong-epoch', text, message.type)
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
        if (!this.ranks.every((one) => one.isReady)) return
        this.cancelReady()
        this.state = 'running'
        this.sendToRanks({ type: 'start', epoch: this.epoch, settings: this.settings })
        this.lobbyChanged()
        return
      case 'linkDown': {
        const { peerRank, text } = message
        if (!this.hasLink(rank, peerRank, 'linkDown')) return
        // A rank that is done may go: what it owed the others has been sent.
        if (this.ranks[peerRank].isDone) return
        const peer = this.nameOf(peerRank)
        const why = without(`link to ${peer}: `, text)
        this.fail(peerRank, `${this.nameOf(rank)} lost its link to ${peer}: ${why}`)
        return
      }
      case 'abort': {
        const text = withoutEpoch(message.text, this.epoch)
        const why = without(`rank ${rank} `, text)
        this.fail(rank, `${this.nameOf(rank)}${why === text ? ':' : ''} ${why}`)
        return
      }
      case 'done':
        if (this.state !== 'running') {
          const text = 'done arrived before the run had started.'
          this.refuse(member, 'wrong-state', text, 'done')
          return
        }
        mine.isDone = true
        this.finishIfDone()
    }
  }

  private passBox(from: number, { to, attempt, box }: MessageOf<'signal'>): void {
    const { member } = this.ranks[from]
    const mostBoxChars = this.host.limits.boxCharsPerLink * this.ranks[from].links.length
    if (!this.hasLink(from, to, 'signal')) return
    this.ranks[from].boxChars += box.length
    if (this.ranks[from].boxChars > mostBoxChars) {
      const text = `at most ${mostBoxChars} characters of signals are allowed in an epoch. Do not send data through signaling.`
      this.refuse(member, 'too-large', text, 'signal', true)
      return
    }
    this.send(this.ranks[to].member, { type: 'signal', epoch: this.epoch, from, attempt, box })
  }

  /** Refuses a message about a rank that `rank` has no link to. */
  private hasLink(rank: number, peerRank: number, about: ClientMessage['type']): boolean {
    const { member, links } = this.ranks[rank]
    if (links.some((link) => link.peerRank === peerRank)) return true
    const text = `this rank has no link to rank ${peerRank}.`
    this.refuse(member, 'unknown-rank', text, about)
    return false
  }

  private finishIfDone(): void {
    const attached = this.ranks.filter((one) => one.member.connectionId)
    if (attached.length === 0) {
      // Nobody is left who could report an end, and who waits here must not wait for ever.
      this.endEpoch('failed')
      return
    }
    if (!attached.every((one) => one.isDone)) return
    this.sendToRanks({ type: 'finished', epoch: this.epoch })
    this.endEpoch('finished')
  }

  private fail(rank: number, text: string): void {
    const { epoch } = this
    this.sendToRanks({ type: 'abort', epoch, rank, text: `epoch ${epoch}: ${text}` })
    this.endEpoch('failed')
  }

  private endEpoch(state: 'finished' | 'failed'): void {
    this.cancelReady()
    this.state = state
    this.ranks = []
    this.settings = null
    this.members = this.members.filter((one) => one.connectionId)
    this.giveBack()
    this.lobbyChanged()
  }

  private get isOn(): boolean {
    return this.state === 'assigned' || this.state === 'running'
  }

  private rankOf(member: Member): number {
    return this.ranks.findIndex((one) => one.member === member)
  }

  private nameOf(rank: number): string {
    return `rank ${rank} (${this.ranks[rank].member.info.name})`
  }

  // --- telling ---

  /** Tells everyone soon; what a member says of itself (`isUpdate`) at most once in `lobbyUpdateMs`. */
  private lobbyChanged(isUpdate = false): void {
    const { env, limits } = this.host
    const soonMs = env.now() + limits.lobbyDelayMs
    const atMs = isUpdate ? Math.max(soonMs, this.updatesToldAtMs + limits.lobbyUpdateMs) : soonMs
    if (isUpdate) this.hasUpdates = true
    if (this.dueLobby && this.dueLobby.atMs <= atMs) return
    this.dueLobby?.cancel()
    const cancel = env.after(atMs - env.now(), () => this.tellLobby())
    this.dueLobby = { atMs, cancel }
  }

  private tellLobby(): void {
    this.dueLobby = null
    if (this.hasUpdates) this.updatesToldAtMs = this.host.env.now()
    this.hasUpdates = false
    const { state, epoch } = this
    const members = this.members.map((one) => {
      const rank = this.rankOf(one)
      const attached = one.connectionId !== null
      return { id: one.id, ...one.info, rank: rank < 0 ? null : rank, attached }
    })
    const maker = this.members[0].id
    for (const one of this.members) {
      this.send(one, { type: 'lobby', state, epoch, maker, members })
    }
  }

  private sendToRanks(message: ServerMessage): void {
    for (const { member } of this.ranks) this.send(member, message)
  }

  private send({ connectionId }: Member, message: ServerMessage): void {
    if (connectionId !== null) this.host.send(connectionId, message)
  }

  private refuse(
    { connectionId }: Member,
    code: Refusal,
    text: string,
    about: ClientMessage['type'],
    isFatal = false,
  ): void {
    if (connectionId !== null) this.host.refuse(connectionId, code, text, about, isFatal)
  }
}
