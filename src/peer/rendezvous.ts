import { type Env, toHex } from '../util/env.ts'
import { invariant, messageOf } from '../util/errors.ts'
import {
  type AssignedLink,
  type ClientMessage,
  limits as defaultLimits,
  type JsonValue,
  type MemberInfo,
  parseClientMessage,
  protocolVersion,
  type Refusal,
  type RoomState,
  type ServerMessage,
  utf8Bytes,
} from './messages.ts'

/**
 * The signaling server without its sockets: rooms, who is in them, and the epoch that each is in.
 *
 *   LOBBY -start-> ASSIGNED(epoch) -all ready-> RUNNING -all done-> FINISHED
 *                     |  lost rank, linkDown, abort, 20 s  |
 *                     +-------------> FAILED <-------------+        start again: ASSIGNED(epoch + 1)
 *
 * - Membership is the server's: the member that has been here longest is the maker and rank 0, the others follow in
 *   order of joining. Who comes during a run waits for the next epoch.
 * - A rank that says bye, or whose socket ends before the run is RUNNING, fails the run at once.
 * - A socket that ends without bye while RUNNING leaves its rank detached: the ring itself needs no server, so the run goes
 *   on until a neighbour reports that link down too (FAILED), or everyone still attached is done (FINISHED). There is
 *   no way back into a run for a detached rank.
 * - Every refusal goes to the one connection that caused it. A fatal one closes that connection, which other rooms
 *   never notice.
 */

/** What the state machine needs from whoever owns the sockets. */
export interface RendezvousHost {
  send(connectionId: string, message: ServerMessage): void
  /** Ends a connection after what was sent to it; `lost` need not be called for it any more. */
  close(connectionId: string, text: string): void
  /** True when `proof` is HMAC-SHA-256 over `proofText(room, nonce)` under `authKey`; all but `room` in hex. */
  verify(authKey: string, room: string, nonce: string, proof: string): boolean
}

export type Limits = { [K in keyof typeof defaultLimits]: number }

interface Connection {
  id: string
  nonce: string
  tokens: number
  tokensAtMs: number
  heardAtMs: number
  cancelTimer: () => void
  room: Room | null
  member: Member | null
}

interface Member {
  id: string
  info: MemberInfo
  /** Null once detached. */
  connection: Connection | null
}

interface Rank {
  member: Member
  links: AssignedLink[]
  isReady: boolean
  isDone: boolean
  boxChars: number
}

interface Room {
  id: string
  authKey: string
  state: RoomState
  epoch: number
  /** In order of joining; the first is the maker. */
  members: Member[]
  /** Of the current epoch; empty unless assigned or running. */
  ranks: Rank[]
  settings: JsonValue
  cancelReady: () => void
  isLobbyDue: boolean
}

type Body<T extends ClientMessage['type']> = Extract<ClientMessage, { type: T }>

const nothing = () => undefined

export class Rendezvous {
  private readonly connections = new Map<string, Connection>()
  private readonly rooms = new Map<string, Room>()
  private readonly limits: Limits

  constructor(
    private readonly env: Env,
    private readonly host: RendezvousHost,
    limits: Partial<Limits> = {},
  ) {
    this.limits = { ...defaultLimits, ...limits }
  }

  /** Rooms and connections now, for the server's own log. */
  get counts(): { rooms: number; connections: number } {
    return { rooms: this.rooms.size, connections: this.connections.size }
  }

  // --- what the owner of the sockets calls ---

  /** A socket has opened. */
  open(connectionId: string): void {
    invariant(!this.connections.has(connectionId), () => `connection ${connectionId} opened twice`)
    const now = this.env.now()
    const connection: Connection = {
      id: connectionId,
      nonce: toHex(this.env.random(16)),
      tokens: this.limits.messageBurst,
      tokensAtMs: now,
      heardAtMs: now,
      cancelTimer: nothing,
      room: null,
      member: null,
    }
    this.connections.set(connectionId, connection)
    connection.cancelTimer = this.env.after(this.limits.authenticateMs, () =>
      this.refuse(
        connection,
        'too-slow',
        `expected create or join within ${this.limits.authenticateMs} ms of connecting, got none. Connect again.`,
        null,
        true,
      ),
    )
    this.send(connection, {
      type: 'challenge',
      version: protocolVersion,
      nonce: connection.nonce,
    })
  }

  /** A text message has come. Anything that goes wrong in here is told to this connection alone. */
  receive(connectionId: string, raw: string): void {
    const connection = this.connections.get(connectionId)
    if (!connection) return
    try {
      this.take(connection, raw)
    } catch (thrown) {
      this.refuse(connection, 'internal', `the server failed: ${messageOf(thrown)}`, null, true)
    }
  }

  /** A socket has ended by itself. */
  lost(connectionId: string, text: string): void {
    const connection = this.connections.get(connectionId)
    if (connection) this.leave(connection, text, false)
  }

  /** Tells everyone that the server ends, and closes every connection. */
  shutDown(): void {
    for (const connection of [...this.connections.values()]) {
      this.refuse(connection, 'shutting-down', 'the signaling server was stopped.', null, true)
    }
  }

  // --- messages ---

  private take(connection: Connection, raw: string): void {
    connection.heardAtMs = this.env.now()
    if (!this.takeToken(connection)) {
      const { messagesPerSec, messageBurst } = this.limits
      this.refuse(
        connection,
        'too-fast',
        `expected at most ${messagesPerSec} messages a second and ${messageBurst} at once, got more.`,
        null,
        true,
      )
      return
    }
    const sizeBytes =
      raw.length > this.limits.messageBytes
        ? raw.length // never fewer bytes than characters
        : utf8Bytes(raw)
    if (sizeBytes > this.limits.messageBytes) {
      this.refuse(
        connection,
        'too-large',
        `expected a message of at most ${this.limits.messageBytes} bytes, got ${sizeBytes} or more.`,
        null,
        true,
      )
      return
    }
    const parsed = parseClientMessage(raw)
    if (!parsed.ok) {
      const isVersion = parsed.text.startsWith('version:')
      this.refuse(
        connection,
        isVersion ? 'wrong-version' : 'bad-message',
        `${parsed.text}.${isVersion ? ' Reload the page.' : ''}`,
        null,
        true,
      )
      return
    }
    const message = parsed.message
    if (message.type === 'pong') return
    if (message.type === 'bye') {
      this.leave(connection, 'left', true)
      this.host.close(connection.id, 'bye')
      return
    }
    if (message.type === 'create' || message.type === 'join') {
      if (connection.room) {
        this.refuse(
          connection,
          'already-in-a-room',
          'expected one create or join a connection, got another.',
          message.type,
        )
      } else if (message.type === 'create') this.create(connection, message)
      else this.join(connection, message)
      return
    }
    const { room, member } = connection
    if (!room || !member) {
      this.refuse(
        connection,
        'not-in-a-room',
        `expected create or join before ${message.type}.`,
        message.type,
      )
      return
    }
    if (message.type === 'update') {
      member.info = message.info
      this.lobbyChanged(room)
    } else if (message.type === 'start') this.start(connection, room, member, message)
    else this.inEpoch(connection, room, member, message)
  }

  private takeToken(connection: Connection): boolean {
    const now = this.env.now()
    const earned = ((now - connection.tokensAtMs) / 1000) * this.limits.messagesPerSec
    connection.tokens = Math.min(this.limits.messageBurst, connection.tokens + earned)
    connection.tokensAtMs = now
    if (connection.tokens < 1) return false
    connection.tokens--
    return true
  }

  private create(connection: Connection, message: Body<'create'>): void {
    if (this.rooms.has(message.room)) {
      this.refuse(connection, 'room-exists', 'this room is there already. Join it.', 'create')
      return
    }
    if (this.rooms.size >= this.limits.rooms) {
      const text = `the server holds ${this.rooms.size} rooms and takes no more. Try later.`
      this.refuse(connection, 'server-full', text, 'create')
      return
    }
    const room: Room = {
      id: message.room,
      authKey: message.authKey,
      state: 'lobby',
      epoch: 0,
      members: [],
      ranks: [],
      settings: null,
      cancelReady: nothing,
      isLobbyDue: false,
    }
    this.rooms.set(room.id, room)
    this.admit(connection, room, message.info)
  }

  private join(connection: Connection, message: Body<'join'>): void {
    const room = this.rooms.get(message.room)
    if (!room) {
      const text = 'there is no such room; a room ends when its last member leaves.'
      this.refuse(connection, 'unknown-room', text, 'join')
      return
    }
    if (!this.host.verify(room.authKey, room.id, connection.nonce, message.proof)) {
      const text = "the proof of the room's key is wrong. Open the whole link, with its #."
      this.refuse(connection, 'bad-proof', text, 'join', true)
      return
    }
    if (room.members.length >= this.limits.membersPerRoom) {
      const text = `the room is full with ${room.members.length} members.`
      this.refuse(connection, 'room-full', text, 'join')
      return
    }
    this.admit(connection, room, message.info)
  }

  private admit(connection: Connection, room: Room, info: MemberInfo): void {
    const member: Member = { id: toHex(this.env.random(8)), info, connection }
    room.members.push(member)
    connection.room = room
    connection.member = member
    connection.cancelTimer()
    this.schedulePing(connection)
    this.send(connection, { type: 'welcome', id: member.id, room: room.id })
    this.lobbyChanged(room)
  }

  private schedulePing(connection: Connection): void {
    connection.cancelTimer = this.env.after(this.limits.pingMs, () => {
      const silentMs = this.env.now() - connection.heardAtMs
      if (silentMs >= this.limits.goneMs) {
        const text = `the server heard nothing for ${Math.round(silentMs)} ms`
        this.leave(connection, text, false)
        this.host.close(connection.id, text)
        return
      }
      this.send(connection, { type: 'ping' })
      this.schedulePing(connection)
    })
  }

  // --- a run ---

  private start(connection: Connection, room: Room, member: Member, message: Body<'start'>): void {
    if (room.members[0] !== member) {
      const text = `only the room's maker (${room.members[0].info.name}) may start.`
      this.refuse(connection, 'not-the-maker', text, 'start')
      return
    }
    if (room.state === 'assigned' || room.state === 'running') {
      const text = `expected a room that waits, got one that is ${room.state} (epoch ${room.epoch}).`
      this.refuse(connection, 'wrong-state', text, 'start')
      return
    }
    const edges = ringEdges(room.members.length)
    const kinds = edges.map(([a, b]) => linkKind(room.members[a].info, room.members[b].info))
    const impossible = kinds.indexOf(null)
    if (impossible >= 0) {
      const [a, b] = edges[impossible]
      const text = `ranks ${a} and ${b} do not share a browser, but the transport "port" is asked for. Use "auto" or "webrtc".`
      this.refuse(connection, 'no-transport', text, 'start')
      return
    }
    room.epoch++
    room.state = 'assigned'
    room.settings = message.settings
    room.ranks = room.members.map((one, rank) => ({
      member: one,
      links: edges.flatMap(([from, to], edge): AssignedLink[] => {
        if (rank !== from && rank !== to) return []
        const isFrom = rank === from
        return [{ peerRank: isFrom ? to : from, initiator: isFrom, kind: kinds[edge]! }]
      }),
      isReady: false,
      isDone: false,
      boxChars: 0,
    }))
    const epoch = room.epoch
    room.cancelReady = this.env.after(this.limits.readyMs, () => {
      const late = room.ranks.flatMap((one, rank) => (one.isReady ? [] : [rank]))
      const names = late.map((rank) => rankName(room, rank)).join(', ')
      this.fail(
        room,
        late[0],
        `epoch ${epoch}: expected every rank's links within ${this.limits.readyMs} ms, got none from ${names}. Look at those tabs and start again.`,
      )
    })
    const members = room.ranks.map(({ member: one }) => ({ id: one.id, ...one.info }))
    room.ranks.forEach(({ member: one, links }, rank) => {
      const worldSize = members.length
      this.send(one.connection, { type: 'assign', epoch, rank, worldSize, members, links })
    })
    this.lobbyChanged(room)
  }

  private inEpoch(
    connection: Connection,
    room: Room,
    member: Member,
    message: Body<'signal' | 'ready' | 'linkDown' | 'abort' | 'done'>,
  ): void {
    const isOn = room.state === 'assigned' || room.state === 'running'
    const rank = room.ranks.findIndex((one) => one.member === member)
    if (!isOn || message.epoch !== room.epoch || rank < 0) {
      // Common and harmless: the message crossed the end of its epoch.
      const now = isOn ? `${room.epoch}${rank < 0 ? ', which you are not in' : ''}` : 'none'
      const text = `expected the current epoch (${now}), got ${message.epoch}.`
      this.refuse(connection, 'wrong-epoch', text, message.type)
      return
    }
    const mine = room.ranks[rank]
    switch (message.type) {
      case 'signal': {
        if (!mine.links.some((link) => link.peerRank === message.to)) {
          const text = `expected a rank that this one has a link to, got ${message.to}.`
          this.refuse(connection, 'unknown-rank', text, 'signal')
          return
        }
        mine.boxChars += message.box.length
        if (mine.boxChars > this.limits.boxCharsPerEpoch) {
          const text = `expected at most ${this.limits.boxCharsPerEpoch} characters of signals an epoch, got more. Signaling carries no data.`
          this.refuse(connection, 'too-large', text, 'signal', true)
          return
        }
        const { epoch, attempt, box } = message
        const to = room.ranks[message.to].member.connection
        this.send(to, { type: 'signal', epoch, from: rank, attempt, box })
        return
      }
      case 'ready': {
        if (room.state !== 'assigned') return
        mine.isReady = true
        if (!room.ranks.every((one) => one.isReady)) return
        room.cancelReady()
        room.state = 'running'
        this.sendToRanks(room, { type: 'start', epoch: room.epoch, settings: room.settings })
        this.lobbyChanged(room)
        return
      }
      case 'linkDown': {
        if (!mine.links.some((link) => link.peerRank === message.peerRank)) {
          const text = `expected a rank that this one has a link to, got ${message.peerRank}.`
          this.refuse(connection, 'unknown-rank', text, 'linkDown')
          return
        }
        // A rank that is done may go: what it owed the others has been sent.
        if (room.ranks[message.peerRank].isDone) return
        const ends = `${rankName(room, rank)} lost its link to ${rankName(room, message.peerRank)}`
        this.fail(room, message.peerRank, `epoch ${room.epoch}: ${ends}: ${message.text}`)
        return
      }
      case 'abort':
        this.fail(room, rank, `epoch ${room.epoch}: ${rankName(room, rank)}: ${message.text}`)
        return
      case 'done': {
        if (room.state !== 'running') {
          const text = 'expected done while running, got it before the start.'
          this.refuse(connection, 'wrong-state', text, 'done')
          return
        }
        mine.isDone = true
        this.finishIfDone(room)
      }
    }
  }

  private finishIfDone(room: Room): void {
    const attached = room.ranks.filter((one) => one.member.connection)
    if (!attached.every((one) => one.isDone)) return
    if (!room.ranks.some((one) => one.isDone)) return // all detached: nobody can tell how it ended
    this.sendToRanks(room, { type: 'finished', epoch: room.epoch })
    this.endEpoch(room, 'finished')
  }

  private fail(room: Room, rank: number | null, text: string): void {
    this.sendToRanks(room, { type: 'abort', epoch: room.epoch, rank, text })
    this.endEpoch(room, 'failed')
  }

  private endEpoch(room: Room, state: 'finished' | 'failed'): void {
    room.cancelReady()
    room.state = state
    room.ranks = []
    room.settings = null
    room.members = room.members.filter((one) => one.connection)
    this.lobbyChanged(room)
  }

  // --- leaving ---

  private leave(connection: Connection, text: string, isBye: boolean): void {
    connection.cancelTimer()
    this.connections.delete(connection.id)
    const { room, member } = connection
    if (!room || !member) return
    connection.room = connection.member = null
    member.connection = null
    if (!room.members.some((one) => one.connection)) {
      room.cancelReady()
      this.rooms.delete(room.id)
      return
    }
    const rank = room.ranks.findIndex((one) => one.member === member)
    const isOwed = rank >= 0 && !room.ranks[rank].isDone
    if (isOwed && room.state === 'running' && !isBye) {
      this.lobbyChanged(room)
      this.finishIfDone(room)
      return
    }
    const { id } = member
    const { name } = member.info
    const who = rank >= 0 ? rankName(room, rank) : name
    room.members = room.members.filter((one) => one !== member)
    for (const one of room.members) {
      this.send(one.connection, { type: 'gone', id, name, rank: rank >= 0 ? rank : null, text })
    }
    if (isOwed) {
      const advice = 'Start again without it, or once it is back.'
      this.fail(room, rank, `epoch ${room.epoch}: ${who} is gone: ${text}. ${advice}`)
    } else {
      if (rank >= 0) this.finishIfDone(room)
      this.lobbyChanged(room)
    }
  }

  private refuse(
    connection: Connection,
    code: Refusal,
    text: string,
    about: ClientMessage['type'] | null,
    isFatal = false,
  ): void {
    this.send(connection, { type: 'error', code, text, about, isFatal })
    if (!isFatal) return
    // Not an accident of the network: a rank that is thrown out of a run is gone, not detached.
    this.leave(connection, `the server closed its connection: ${text}`, true)
    this.host.close(connection.id, text)
  }

  // --- telling ---

  private lobbyChanged(room: Room): void {
    if (room.isLobbyDue) return
    room.isLobbyDue = true
    this.env.after(this.limits.lobbyDelayMs, () => {
      room.isLobbyDue = false
      if (room.members.length === 0) return
      const { state, epoch } = room
      const members = room.members.map((one) => {
        const rank = room.ranks.findIndex((each) => each.member === one)
        const attached = one.connection !== null
        return { id: one.id, ...one.info, rank: rank < 0 ? null : rank, attached }
      })
      const maker = room.members[0].id
      for (const one of room.members) {
        this.send(one.connection, { type: 'lobby', state, epoch, maker, members })
      }
    })
  }

  private sendToRanks(room: Room, message: ServerMessage): void {
    for (const { member } of room.ranks) this.send(member.connection, message)
  }

  private send(connection: Connection | null, message: ServerMessage): void {
    if (connection && this.connections.has(connection.id)) this.host.send(connection.id, message)
  }
}

/** The ring's edges as [offering rank, answering rank]: N of them, one for 2 ranks, none for 1. */
export function ringEdges(worldSize: number): [number, number][] {
  if (worldSize < 2) return []
  if (worldSize === 2) return [[0, 1]]
  return Array.from({ length: worldSize }, (_, rank) => [rank, (rank + 1) % worldSize])
}

/** The one rule that decides how two members are joined; null when what they ask for cannot be. */
export function linkKind(a: MemberInfo, b: MemberInfo): AssignedLink['kind'] | null {
  if (a.transport === 'webrtc' || b.transport === 'webrtc') {
    return a.transport === 'port' || b.transport === 'port' ? null : 'webrtc'
  }
  if (a.hostTag !== '' && a.hostTag === b.hostTag) return 'port'
  return a.transport === 'port' || b.transport === 'port' ? null : 'webrtc'
}

function rankName(room: Room, rank: number): string {
  return `rank ${rank} (${room.ranks[rank].member.info.name})`
}
