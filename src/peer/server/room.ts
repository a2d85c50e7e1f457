import { type Env, toHex } from '../../util/env.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { NewestMap } from '../../util/newest-map.ts'
import type { Again, ClientMessage, MessageOf } from '../room/client-messages.ts'
import { edgesBySize, ringNeighbours } from '../room/edges.ts'
import type { IceServer } from '../room/ice-servers.ts'
import type { MemberInfo, ServerMessage } from '../room/messages.ts'
import type { Refusal } from '../room/refusals.ts'
import { TokenBucket } from '../room/token-bucket.ts'
import { Hues } from './hues.ts'
import type { Limits } from './limits.ts'
import { type Going, type Member, planFor } from './linking.ts'
import { isOnlooker, Onlookers } from './onlookers.ts'
import { RoomAsks } from './room-asks.ts'
import { type RelaySockets, RoomRelay } from './room-relay.ts'
import { RoomRun, type RunMessage } from './room-run.ts'
import { RoomStore } from './room-store.ts'

/** The part of the server that a room needs. */
export interface RoomHost {
  readonly env: Env
  readonly limits: Limits
  send(connectionId: string, message: ServerMessage): void
  /** Sends one connection a refusal. A fatal one closes it, and the member leaves. */
  refuse(
    connectionId: string,
    code: Refusal,
    text: string,
    about: ClientMessage['type'],
    isFatal?: boolean,
    call?: number,
  ): void
  /** Sends a member this text, and the name of who removed it, and ends its connection; it leaves the room with the text as its reason. */
  dismiss(connectionId: string, code: 'removed' | 'idle', text: string, by?: string): void
  /** Bytes that the stores of all rooms hold together. */
  readonly held: { sizeBytes: number }
  /** For the links of one connection, with credentials that are fresh. */
  iceServers(connectionId: string): IceServer[]
  /** As in `RunRoom`. */
  isServerNew(): boolean
  /** Null: this server relays no links. */
  readonly relay: RelaySockets | null
}

export type RoomMessage =
  | MessageOf<'update' | 'propose' | 'handOver' | 'letIn' | 'remove' | 'reach' | 'start'>
  | RunMessage

/**
 * One room: its members, its runs (room-run.ts), its store, the guests who are here for the store alone, and its relay, if the server has one.
 *
 * Membership is the server's: the first member is the maker and rank 0, the others follow in order of joining. That is the one that has been
 * here longest, or between runs one that was the maker and has come back with its token: of several the one that was it first. What came before
 * a handing over does not count. Who comes during a run waits for the next epoch.
 */
export class Room {
  readonly store: RoomStore
  readonly relay: RoomRelay | null
  readonly asks: RoomAsks
  private readonly guests = new Set<string>()
  /** Tokens of tabs that were in the room, and of which no rank was removed since. They cost nothing to make. */
  private readonly known: NewestMap<string, true>
  private readonly hues = new Hues()
  /** True once the maker has a message that somebody waits. */
  private hasSentAsks = false
  private readonly run: RoomRun
  private readonly onlookers: Onlookers
  /** In order of joining, but for the first, which is the maker. */
  private members: Member[] = []
  /** Tokens of who made the room or was handed it, and then of each that took its place when it went. */
  private claims: string[] = []
  /** Settings that the maker would start now, or started last. */
  private proposed: JsonValue = null
  /** The next lobby message, once one is due. */
  private dueLobby: { atMs: number; cancel: () => void } | null = null
  private hasUpdates = false
  /** Lobbies, and messages of who waits: those who come and go could have any number of them sent. */
  private readonly news: TokenBucket
  private updatesSentAtMs = Number.NEGATIVE_INFINITY
  private cancelIdle: () => void = () => undefined

  constructor(
    readonly id: string,
    readonly authKey: string,
    /** Whose limits it counts for, also when its maker has left. */
    readonly makerAddress: string,
    private readonly host: RoomHost,
  ) {
    const isAway = (one: string) => !this.members.some(({ token }) => token === one)
    this.known = new NewestMap(2 * host.limits.membersPerRoom, isAway)
    this.news = new TokenBucket(host.env, host.limits.newsPerSec, host.limits.newsBurst)
    this.store = new RoomStore({
      env: host.env,
      limits: host.limits,
      held: host.held,
      answer: (to, id, answer) => host.send(to, { type: 'stored', id, answer }),
      refuse: (to, code, text, id) => host.refuse(to, code, text, 'store', false, id),
    })
    this.asks = new RoomAsks({
      env: host.env,
      limits: host.limits,
      changed: () => (this.news.take() ? this.tellAsks() : this.lobbyChanged()),
    })
    this.run = new RoomRun({
      env: host.env,
      limits: host.limits,
      hasRelay: host.relay !== null,
      members: () => this.members,
      send: (member, message) => this.send(member, message),
      refuse: (member, code, text, about, isFatal) =>
        this.refuse(member, code, text, about, isFatal),
      iceServers: (connectionId) => host.iceServers(connectionId),
      isServerNew: () => host.isServerNew(),
      changed: () => this.lobbyChanged(),
      takenOver: (settings) => {
        this.proposed = settings
        for (const one of this.members.slice(1)) this.tellProposed(one)
      },
      ended: () => {
        this.members = this.members.filter((one) => one.connectionId)
        this.giveBack()
        this.lobbyChanged()
      },
    })
    this.onlookers = new Onlookers({
      env: host.env,
      limits: host.limits,
      members: () => this.members,
      mayShow: (member) => !this.run.isOn || this.run.rankOf(member) >= 0,
      send: (member, message) => this.send(member, message),
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

  /** True if nobody is here: the room is over. */
  get isEmpty(): boolean {
    const isRelaying = this.relay !== null && this.relay.size > 0
    return this.guests.size === 0 && !isRelaying && !this.members.some((one) => one.connectionId)
  }

  // --- guests ---

  /** Returns the guest's id. */
  addGuest(connectionId: string): string {
    this.guests.add(connectionId)
    const id = toHex(this.host.env.random(8))
    this.host.send(connectionId, this.welcome(id))
    this.watchIdle()
    return id
  }

  removeGuest(connectionId: string): void {
    this.guests.delete(connectionId)
    this.watchIdle()
  }

  private welcome(id: string): ServerMessage {
    return { type: 'welcome', id, room: this.id, ...(this.relay && { relay: true }) }
  }

  // --- members ---

  add(
    connectionId: string,
    info: MemberInfo,
    { token, isFurther = false, again }: MessageOf<'create' | 'join'>,
  ): Member {
    const before = this.seatOf(token, again)
    const isDetached = before?.connectionId === null
    const member = isDetached ? before : this.newMember(info, token ?? null, isFurther, again)
    member.connectionId = connectionId
    this.describe(member, info)
    member.cameInRun = again?.run?.key
    if (token !== undefined) this.known.set(token, true)
    this.send(member, this.welcome(member.id))
    this.tellProposed(member)
    this.giveBack()
    this.lobbyChanged()
    if (again) this.run.memberBack(member, again)
    this.run.memberCame()
    return member
  }

  /** Takes what a member says of itself, but for the mark of another tab: a host cannot remove its own ranks. */
  private describe(member: Member, info: MemberInfo): void {
    const isOther = ({ info: { tab }, token }: Member) => tab === info.tab && token !== member.token
    const { tab, ...rest } = info
    const isTaken = tab !== undefined && this.members.some(isOther)
    member.info = { ...(isTaken ? rest : info), hue: member.hue }
  }

  private newMember(
    info: MemberInfo,
    token: string | null,
    isFurther: boolean,
    again?: Again,
  ): Member {
    const { env, limits } = this.host
    const isFree = ({ id }: Again) =>
      !this.members.some((one) => one.id === id) && this.run.maySit(id, token)
    const id = again && isFree(again) ? again.id : toHex(env.random(8))
    const reaches = new TokenBucket(env, limits.reachesPerSec, limits.reachBurst)
    const askBytes = new TokenBucket(env, limits.askBytesPerSec, limits.askBurst)
    const asks = new Set<string>()
    const hue = this.hues.take({ id, token, isFurther }, this.members)
    const member = { id, info, hue, connectionId: null, token, isFurther, reaches, askBytes, asks }
    this.members.push(member)
    return member
  }

  /** The member that comes back with `again` and its token: the id alone proves nothing, as all others see it. */
  private seatOf(token: string | undefined, again: Again | undefined): Member | undefined {
    if (token === undefined) return undefined
    return this.members.find((one) => one.id === again?.id && one.token === token)
  }

  /** On which the member is still here that comes back. */
  connectionOf({ token, again }: MessageOf<'join'>): string | undefined {
    return this.seatOf(token, again)?.connectionId ?? undefined
  }

  /** Returns whether the maker has to let in who comes with this token: not where a rank of its tab has been here, nor where nobody is. */
  mustAsk(token: string | undefined): boolean {
    const isKnown = token !== undefined && this.known.has(token)
    return !isKnown && this.members.some((one) => one.connectionId)
  }

  /** Those who take part in runs. */
  private get ranked(): Member[] {
    return this.members.filter(({ info }) => !info.watches)
  }

  /** The first member; there is none in a room of guests. */
  get maker(): Member {
    return this.members[0]
  }

  private tellAsks(): void {
    const [maker] = this.members
    const { list: asks } = this.asks
    if (!maker || (asks.length === 0 && !this.hasSentAsks)) return
    this.hasSentAsks = asks.length > 0
    this.send(maker, { type: 'asks', asks })
  }

  private letIn(maker: Member, { id, isLetIn }: MessageOf<'letIn'>): void {
    if (this.asks.answer(id, isLetIn)) return
    this.refuse(maker, 'unknown-member', 'nobody with this id waits any more.', 'letIn')
  }

  private tellProposed(member: Member): void {
    if (this.proposed !== null) this.send(member, { type: 'proposed', settings: this.proposed })
  }

  /**
   * The room to who has the first claim, unless a run is on; its maker, who may have come to be it just now, has one too. Of the ranks of a tab
   * it is the first one's: people see only what that one hears.
   */
  private giveBack(): void {
    const tokens = [...this.claims, this.members[0].token]
    const owners = tokens.map((own) =>
      this.members.find(({ token, isFurther }) => token !== null && token === own && !isFurther),
    )
    const owner = owners.find((one) => one !== undefined)
    if (owner && !this.run.isOn) this.putFirst(owner)
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
  remove(member: Member, text: string, how: Going): void {
    const { run } = this
    const rank = run.rankOf(member)
    const staysInRun = how === 'ended' && run.keepsDetached(member)
    member.connectionId = null
    if (!this.members.some((one) => one.connectionId)) {
      this.endWithoutMembers()
      return
    }
    if (staysInRun) run.finishIfDone()
    else {
      const { id, info } = member
      // One that was removed may not have heard it, and train on.
      const hasLeft = how === 'left'
      const ballot = run.ballotOf(member)
      const news = { id, name: info.name, rank: rank >= 0 ? rank : null, text, ballot }
      this.members = this.members.filter((one) => one !== member)
      this.hues.keep(member)
      for (const one of this.members) {
        // Nothing is certain in a run whose rosters this server does not know.
        const isCertain = hasLeft && !run.isElsewhere(one)
        this.send(one, { type: 'gone', ...news, hasLeft: isCertain })
      }
      run.memberWent(member, text, how)
      this.giveBack()
    }
    this.lobbyChanged()
  }

  /** A message of a member has come. */
  heard(member: Member): void {
    this.run.heard(member)
  }

  /** Guests may stay, and the next member makes the room its own. */
  private endWithoutMembers(): void {
    this.run.reset()
    this.cancelIdle()
    this.dueLobby?.cancel()
    this.dueLobby = null
    this.proposed = null
    this.members = []
    this.claims = []
    this.known.clear()
    this.asks.close()
  }

  /** A message of a member, other than those by which it came; it may say it (rights.ts). */
  receive(member: Member, message: RoomMessage): void {
    if (message.type === 'update') {
      const { name, hidden, watches } = member.info
      this.describe(member, message.info)
      if (member.info.watches !== watches) this.run.memberCame()
      // What a tab measures of itself is no sign of a person.
      if (message.info.name !== name || message.info.hidden !== hidden) this.watchIdle()
      this.lobbyChanged(true)
    } else if (message.type === 'propose') this.propose(message.settings)
    else if (message.type === 'handOver') this.handOver(member, message.id)
    else if (message.type === 'letIn') this.letIn(member, message)
    else if (message.type === 'remove') this.dismiss(member, message)
    else if (message.type === 'reach') this.passReach(member, message)
    else if (message.type === 'start') this.start(member, message)
    else this.run.receive(member, message)
  }

  private propose(settings: JsonValue): void {
    this.proposed = settings
    this.watchIdle()
    for (const one of this.members.slice(1)) this.send(one, { type: 'proposed', settings })
  }

  /** Refuses what is for the time between runs. */
  private isWaiting(maker: Member, about: ClientMessage['type'], remedy: string): boolean {
    const { run } = this
    if (!run.isOn) return true
    const text = `the room is ${run.state} (epoch ${run.epoch}), not waiting. ${remedy}`
    this.refuse(maker, 'wrong-state', text, about)
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

  /** Between runs to a neighbour in the ring, or from or to onlookers: what has crossed a change of the room is dropped. */
  private passReach(from: Member, message: MessageOf<'reach'>): void {
    const { limits } = this.host
    const { to, box } = message
    if (to === null || isOnlooker(from)) {
      this.onlookers.pass(from, message)
      return
    }
    const { ranked } = this
    const other = ranked.find(({ id }) => id === to)
    const near = ringNeighbours(ranked.indexOf(from), ranked.length).map((at) => ranked[at])
    if (this.run.isOn || !other || !near.includes(other)) return
    if (from.reaches.take()) {
      this.send(other, { type: 'reach', from: from.id, box })
      return
    }
    const { reachesPerSec, reachBurst } = limits
    const text = `at most ${reachesPerSec} messages a second to neighbours and ${reachBurst} at once are allowed. Do not send data through signaling.`
    this.refuse(from, 'too-many', text, 'reach')
  }

  private handOver(maker: Member, id: string): void {
    if (!this.isWaiting(maker, 'handOver', 'Hand it over after the run.')) return
    const next = this.otherMember(maker, id, 'handOver')
    if (!next) return
    this.claims = []
    this.putFirst(next)
    this.giveBack()
    this.lobbyChanged()
  }

  private dismiss(maker: Member, { id, boxes = [] }: MessageOf<'remove'>): void {
    if (boxes.length > 0 && !this.isWaiting(maker, 'remove', 'Move after the run.')) return
    const member = this.otherMember(maker, id, 'remove')
    if (member) this.evict(maker, member)
    for (const { to, box } of boxes) {
      // Whom it names: one that has come meanwhile, perhaps the removed one again, gets none.
      const other = this.members.find((one) => one.id === to && one !== maker)
      if (other) this.send(other, { type: 'moved', from: maker.id, box })
    }
  }

  private evict(maker: Member, member: Member): void {
    const { name } = maker.info
    const text = `removed by ${name}`
    if (member.token !== null && member.token !== maker.token) this.known.delete(member.token)
    // It may come back, but not as the maker, unless it was that before this one.
    const ownClaim = this.claims.indexOf(maker.token ?? '')
    this.claims = this.claims.filter((claim, at) => at <= ownClaim || claim !== member.token)
    if (member.connectionId !== null) this.host.dismiss(member.connectionId, 'removed', text, name)
    else this.remove(member, text, 'removed')
  }

  private start(member: Member, { settings, isElastic = false }: MessageOf<'start'>): void {
    const { ranked: members, run } = this
    if (!this.isWaiting(member, 'start', 'Start after this run.')) return
    if (members.length === 0) {
      const text = 'everyone in the room watches. Start once somebody takes part.'
      this.refuse(member, 'wrong-state', text, 'start')
      return
    }
    // Links across the ring are for members that decide who trains on: without that a lost one would end the run.
    const edges = isElastic ? undefined : edgesBySize(members.length)
    const plan = planFor(members, this.host.relay !== null, edges)
    if ('code' in plan) {
      this.refuse(member, plan.code, plan.text, 'start')
      return
    }
    this.propose(settings)
    run.start(members, plan, settings, isElastic)
  }

  /** There is news. A member that is alone between runs leaves when none has come for long: the tab may be forgotten, and its room one of few. */
  private watchIdle(): void {
    this.cancelIdle()
    const [alone, ...others] = this.members
    if (!alone || others.length > 0 || this.guests.size > 0 || this.run.isOn) return
    const { env, limits } = this.host
    this.cancelIdle = env.after(limits.idleMs, () => {
      const { connectionId } = alone
      const text = `this room had one member and no news for ${limits.idleMs / 60_000} minutes, so the server ended it. Open its link again.`
      if (connectionId !== null) this.host.dismiss(connectionId, 'idle', text)
    })
  }

  // --- lobbies ---

  /** Sends everyone the lobby soon; after a change that a member made of itself (`isUpdate`) at most once in `lobbyUpdateMs`. */
  private lobbyChanged(isUpdate = false): void {
    const { env, limits } = this.host
    const soonMs = env.now() + Math.max(limits.lobbyDelayMs, this.news.waitMs)
    const atMs = isUpdate ? Math.max(soonMs, this.updatesSentAtMs + limits.lobbyUpdateMs) : soonMs
    if (isUpdate) this.hasUpdates = true
    else this.watchIdle()
    if (this.dueLobby && this.dueLobby.atMs <= atMs) return
    this.dueLobby?.cancel()
    const cancel = env.after(atMs - env.now(), () => this.tellLobby())
    this.dueLobby = { atMs, cancel }
  }

  private tellLobby(): void {
    this.dueLobby = null
    this.news.spend(1)
    if (this.hasUpdates) this.updatesSentAtMs = this.host.env.now()
    this.hasUpdates = false
    const { state, epoch, ballot, reached } = this.run
    const listed = (one: Member) => {
      const rank = this.run.rankOf(one)
      const attached = one.connectionId !== null
      return { id: one.id, ...one.info, rank: rank < 0 ? null : rank, attached }
    }
    const members = this.ranked.map(listed)
    const watchers = this.members.filter(({ info }) => info.watches).map(listed)
    const maker = this.members[0].id
    const run = {
      state,
      epoch,
      ...(ballot > 0 && { ballot }),
      ...(state === 'finished' && reached && { reached }),
    }
    this.tellAsks()
    for (const one of this.members) {
      const others = watchers.length > 0 && { watchers }
      this.send(one, { type: 'lobby', ...run, maker, members, ...others })
    }
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
