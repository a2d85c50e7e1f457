import { type Env, toHex } from '../../util/env.ts'
import { invariant, messageOf } from '../../util/errors.ts'
import { type ClientMessage, type MessageOf, parseClientMessage } from '../room/client-messages.ts'
import type { IceServer } from '../room/ice-servers.ts'
import { protocolVersion, type ServerMessage, utf8Bytes } from '../room/messages.ts'
import type { Refusal } from '../room/refusals.ts'
import { TokenBucket } from '../room/token-bucket.ts'
import { AddressBuckets } from './address-buckets.ts'
import { limits as defaultLimits, type Limits } from './limits.ts'
import { type Going, type Member, withoutRelay } from './linking.ts'
import { type Role, refusalOf } from './rights.ts'
import { Room } from './room.ts'
import type { RelaySockets } from './room-relay.ts'
import { ShortCodes } from './short-codes.ts'

export { linkKind } from '../room/topology.ts'
export type { Limits } from './limits.ts'

/**
 * The signaling server without its sockets: who is connected, and who may enter which room. What happens inside is the
 * room's (room.ts).
 *
 * Every refusal goes to the one connection that caused it. A fatal one closes that connection, which other rooms never
 * notice.
 */

/** Calls of the state machine to the owner of the sockets. */
export interface RendezvousHost {
  send(connectionId: string, message: ServerMessage): void
  /** Ends a connection after what was sent to it; `lost` need not be called for it any more. */
  close(connectionId: string, text: string): void
  /** True when `proof` is HMAC-SHA-256 over `proofText(room, nonce)` under `authKey`; all but `room` in hex. */
  verify(authKey: string, room: string, nonce: string, proof: string): boolean
  /** Returns whether this room may be made under this key; absent: any may. */
  mayCreate?(room: string, authKey: string): boolean
  /** Returns whether `proof` is the HMAC of `roomKeyText(room, nonce)` under the server's room key; absent: no key is needed to make rooms. */
  isRoomKey?(room: string, nonce: string, proof: string): boolean
  /** True if the maker of a room lets each newcomer in; default: who has the key is in. */
  asks?: boolean
  /** ICE servers for one connection, made for each call; default none. */
  iceServers?(connectionId: string): IceServer[]
  /** Absent: this server relays no links. */
  relay?: RelaySockets
  event?(event: RoomEvent): void
}

/** For the log of a server's owner: who, never what was said or shown for it. */
export interface RoomEvent {
  readonly event: 'made' | 'joined' | 'left' | 'removed' | 'refused' | 'ended'
  readonly room?: string
  /** Its id in the room, or that of a guest. */
  readonly member?: string
  /** Of `ended`: whose room it was. */
  readonly address: string
  /** Of `refused`. */
  readonly why?: Refusal
}

/** Refusals of an ordinary day: a tab tries to join before it creates, links end, the server is stopped. `removed` is another event. */
const ordinary: readonly Refusal[] = [
  'unknown-room',
  'room-exists',
  'other-end-gone',
  'shutting-down',
  'removed',
]

interface Connection {
  id: string
  /** Where it comes from, as it counts for limits. */
  address: string
  nonce: string
  /** Of store calls, and of all other messages. */
  callTokens: TokenBucket
  tokens: TokenBucket
  heardAtMs: number
  cancelTimer: () => void
  /** Where it has entered; a guest is no member, nor is the end of a relayed link, which has no id either. */
  place: { room: Room; member: Member | null; id: string | null } | null
  /** The room whose maker has been asked to let it in. */
  asked: Room | null
  /** What it does with a short code. */
  code: 'code giver' | 'code user' | null
}

function roleOf({ id, place, asked, code }: Connection): Role {
  if (code) return code
  if (!place) return asked ? 'waiting' : 'stranger'
  if (place.room.relay?.has(id)) return 'link end'
  if (!place.member) return 'guest'
  return place.room.maker === place.member ? 'maker' : 'member'
}

export class Rendezvous {
  private readonly connections = new Map<string, Connection>()
  private readonly rooms = new Map<string, Room>()
  private readonly limits: Limits
  /** Bytes that the stores of all rooms hold together. */
  private readonly held = { sizeBytes: 0 }
  private readonly wrongKeys: AddressBuckets
  private readonly codes: ShortCodes
  private readonly beganMs: number
  /** Since the server began. */
  private relayedBytes = 0
  /** Null: what an address sends through relays has no limit. */
  private readonly relayRates: AddressBuckets | null

  constructor(
    private readonly env: Env,
    private readonly host: RendezvousHost,
    limits: Partial<Limits> = {},
  ) {
    this.limits = { ...defaultLimits, ...limits }
    this.beganMs = env.now()
    const { addressesKept, wrongKeysPerSec, wrongKeyBurst } = this.limits
    this.codes = new ShortCodes({
      env,
      limits: this.limits,
      send: (id, message) => this.send(id, message),
      refuse: (id, code, text, about) => {
        const refused = this.connections.get(id)
        if (refused) this.refuse(refused, code, text, about, true)
      },
    })
    const { relayBytesPerSec, relayBurstSec } = this.limits
    this.wrongKeys = new AddressBuckets(env, addressesKept, wrongKeysPerSec, wrongKeyBurst)
    this.relayRates = Number.isFinite(relayBytesPerSec)
      ? new AddressBuckets(env, addressesKept, relayBytesPerSec, relayBurstSec * relayBytesPerSec)
      : null
  }

  /** Rooms and connections now, for the server's own log. */
  get counts(): { rooms: number; connections: number } {
    return { rooms: this.rooms.size, connections: this.connections.size }
  }

  /** Figures for its owner. */
  get status(): { rooms: number; members: number; guests: number; relayedBytes: number } {
    const rooms = [...this.rooms.values()]
    return {
      rooms: rooms.length,
      members: rooms.reduce((sum, { size }) => sum + size, 0),
      guests: rooms.reduce((sum, { guestCount }) => sum + guestCount, 0),
      relayedBytes: this.relayedBytes,
    }
  }

  /** Bytes that wait in the relays of all rooms now. units: bytes. */
  get relayBytes(): number {
    return [...this.rooms.values()].reduce((sum, { relay }) => sum + (relay?.queuedBytes ?? 0), 0)
  }

  /** Bytes that the stores of all rooms hold now. units: bytes. */
  get storeBytes(): number {
    return this.held.sizeBytes
  }

  // --- what the owner of the sockets calls ---

  /** A socket has opened. `address`: whose it is, for the limits of one address. */
  open(connectionId: string, address: string): void {
    invariant(!this.connections.has(connectionId), () => `connection ${connectionId} opened twice`)
    const { messagesPerSec, messageBurst, storeCallsPerSec, storeCallBurst } = this.limits
    const connection: Connection = {
      id: connectionId,
      address,
      nonce: toHex(this.env.random(16)),
      callTokens: new TokenBucket(this.env, storeCallsPerSec, storeCallBurst),
      tokens: new TokenBucket(this.env, messagesPerSec, messageBurst),
      heardAtMs: this.env.now(),
      cancelTimer: () => undefined,
      place: null,
      asked: null,
      code: null,
    }
    this.connections.set(connectionId, connection)
    connection.cancelTimer = this.env.after(this.limits.authenticateMs, () =>
      this.refuse(
        connection,
        'too-slow',
        connection.code
          ? `the tab that shows the code did not answer within ${this.limits.authenticateMs} ms. Is it still open?`
          : `no create or join arrived within ${this.limits.authenticateMs} ms of connecting. Connect again.`,
        null,
        true,
      ),
    )
    this.send(connection.id, {
      type: 'challenge',
      version: protocolVersion,
      nonce: connection.nonce,
    })
  }

  /** A text message has come. Errors in here are sent to this connection alone. */
  receive(connectionId: string, raw: string): void {
    const connection = this.connections.get(connectionId)
    if (!connection) return
    try {
      this.take(connection, raw)
    } catch (thrown) {
      this.refuse(connection, 'internal', `the server failed: ${messageOf(thrown)}`, null, true)
    }
  }

  /** A binary message has come: only the ends of relayed links send such. */
  receiveBytes(connectionId: string, bytes: Uint8Array): void {
    const connection = this.connections.get(connectionId)
    if (!connection) return
    connection.heardAtMs = this.env.now()
    const relay = connection.place?.room.relay
    if (relay?.has(connectionId)) {
      this.relayedBytes += bytes.length
      relay.receive(connectionId, bytes)
    } else this.refuse(connection, 'bad-message', 'expected JSON text, got binary.', null, true)
  }

  /** Notes that bytes given to `RelaySockets.pass` have left this process. */
  passed(connectionId: string, sizeBytes: number): void {
    this.connections.get(connectionId)?.place?.room.relay?.passed(connectionId, sizeBytes)
  }

  /** Takes the end of a socket that the server did not close. */
  lost(connectionId: string, text: string): void {
    const connection = this.connections.get(connectionId)
    if (connection) this.leave(connection, text, 'ended')
  }

  /** Refuses everyone with `shutting-down`, and closes every connection. */
  shutDown(): void {
    for (const connection of [...this.connections.values()]) {
      this.refuse(connection, 'shutting-down', 'the signaling server was stopped.', null, true)
    }
  }

  // --- messages ---

  /** A message that has the right form; for any other the connection is refused. */
  private read(connection: Connection, raw: string): ClientMessage | null {
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
      return null
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
      return null
    }
    return parsed.message
  }

  private take(connection: Connection, raw: string): void {
    connection.heardAtMs = this.env.now()
    const message = this.read(connection, raw)
    if (!message) return
    const { place } = connection
    if (place?.member) place.room.heard(place.member)
    if (!this.takeToken(connection, message)) return
    const refused = refusalOf(roleOf(connection), message.type)
    if (refused) {
      this.refuse(connection, ...refused, message.type)
      return
    }
    switch (message.type) {
      case 'pong':
        return
      case 'ping':
        this.send(connection.id, { type: 'pong' })
        return
      case 'bye':
        this.leave(connection, 'left', 'left')
        this.host.close(connection.id, 'bye')
        return
      case 'create':
        this.create(connection, message)
        return
      case 'join':
        this.join(connection, message)
        return
      case 'relay':
        this.relay(connection, message)
        return
      case 'giveCode': {
        if (!this.provenRoom(connection, message)) return
        connection.code = 'code giver'
        if (!this.codes.give(connection.id, connection.address, message)) return
        connection.cancelTimer()
        this.schedulePing(connection)
        return
      }
      case 'useCode':
        connection.code = 'code user'
        this.codes.use(connection.id, connection.address, message)
        return
      case 'codeAnswer':
        this.codes.answer(connection.id, message)
        return
      case 'store':
        place!.room.store.receive(connection.id, message)
        return
      case 'ice': {
        const iceServers = this.iceServersIn(place!.room, connection.id)
        this.send(connection.id, { type: 'ice', iceServers })
        return
      }
      default:
        place!.room.receive(place!.member!, message)
    }
  }

  /** Refuses what comes too fast: at most one message more than allowed is parsed, as that ends the connection. */
  private takeToken(connection: Connection, { type }: ClientMessage): boolean {
    const { messagesPerSec, messageBurst, storeCallsPerSec, storeCallBurst } = this.limits
    const isCall = type === 'store'
    if ((isCall ? connection.callTokens : connection.tokens).take()) return true
    const max = isCall
      ? `${storeCallsPerSec} store calls a second and ${storeCallBurst} at once`
      : `${messagesPerSec} messages a second and ${messageBurst} at once`
    this.refuse(connection, 'too-fast', `at most ${max} are allowed. Send fewer.`, null, true)
    return false
  }

  private create(connection: Connection, message: MessageOf<'create'>): void {
    if (this.host.mayCreate?.(message.room, message.authKey) === false) {
      const text =
        'the room is not that of its key, or none of those that this server makes. Copy the whole link again, and check its server.'
      this.refuse(connection, 'bad-proof', text, 'create', true)
      return
    }
    if (this.rooms.has(message.room)) {
      this.refuse(connection, 'room-exists', 'this room already exists. Join it.', 'create')
      return
    }
    if (!this.hasRoomKey(connection, message)) return
    if (this.rooms.size >= this.limits.rooms) {
      const text = `the server has ${this.rooms.size} rooms and accepts no more. Try again later.`
      this.refuse(connection, 'server-full', text, 'create')
      return
    }
    const { address } = connection
    const isOwn = ({ makerAddress }: Room) => makerAddress === address
    const { roomsPerAddress } = this.limits
    if ([...this.rooms.values()].filter(isOwn).length >= roomsPerAddress) {
      const text = `${address} has made ${roomsPerAddress} rooms that are still open, as many as this server allows. Join one of them, or close all tabs of one and try again.`
      this.refuse(connection, 'too-many', text, 'create')
      return
    }
    const room = new Room(message.room, message.authKey, address, {
      env: this.env,
      limits: this.limits,
      send: (id, result) => this.send(id, result),
      refuse: (id, ...why) => {
        const refused = this.connections.get(id)
        if (refused) this.refuse(refused, ...why)
      },
      dismiss: (id, code, text, by) => {
        const dismissed = this.connections.get(id)
        if (dismissed) this.end(dismissed, code, text, null, text, by)
      },
      held: this.held,
      iceServers: (id) => this.iceServers(id),
      isServerNew: () => this.env.now() - this.beganMs < this.limits.backMs,
      relay: this.host.relay ?? null,
    })
    this.rooms.set(room.id, room)
    this.host.event?.({ event: 'made', room: room.id, address })
    this.admit(connection, room, message)
  }

  /** Returns whether the server wants no key, or got the right one; otherwise it refuses the connection. */
  private hasRoomKey(connection: Connection, { room, keyProof }: MessageOf<'create'>): boolean {
    if (!this.host.isRoomKey) return true
    if (keyProof === undefined) {
      const text =
        'this room is not open, and this server makes rooms only for people who have its room key. Give the key, or ask for the link of an open room.'
      this.refuse(connection, 'no-key', text, 'create')
      return false
    }
    const { address, nonce } = connection
    const wrongKeys = this.wrongKeys.of(address)
    if (wrongKeys.waitMs > 0) {
      const seconds = Math.ceil(wrongKeys.waitMs / 1000)
      const text = `too many wrong room keys came from ${address}. Try again in ${seconds} s.`
      this.refuse(connection, 'too-many', text, 'create', true)
      return false
    }
    if (this.host.isRoomKey(room, nonce, keyProof)) return true
    wrongKeys.take()
    const text = "this is not the server's room key. Ask the person who runs the server for it."
    this.refuse(connection, 'wrong-key', text, 'create', true)
    return false
  }

  /** The room, for a connection that has proved its key; any other gets a refusal. */
  private provenRoom(
    connection: Connection,
    message: MessageOf<'join' | 'relay' | 'giveCode'>,
  ): Room | undefined {
    const room = this.rooms.get(message.room)
    if (!room) {
      const text =
        'this room does not exist; a room ends when everyone has left it. Create it again.'
      this.refuse(connection, 'unknown-room', text, message.type)
      return undefined
    }
    if (this.host.verify(room.authKey, room.id, connection.nonce, message.proof)) return room
    const text = "the room's key is wrong. Open the whole link, including the part after #."
    this.refuse(connection, 'bad-proof', text, message.type, true)
    return undefined
  }

  private relay(connection: Connection, message: MessageOf<'relay'>): void {
    if (!this.host.relay) {
      this.refuse(connection, 'no-relay', withoutRelay, 'relay')
      return
    }
    const room = this.provenRoom(connection, message)
    if (!room) return
    if (this.host.asks && room.mustAsk(message.token)) {
      const text =
        'relay: the host has not let this tab into the room, so it opens no relayed link there. Join the room first.'
      this.refuse(connection, 'declined', text, 'relay', true)
      return
    }
    const refused = room.relay!.check(message.channel, message.side)
    if (refused) {
      this.refuse(connection, refused[0], `relay: ${refused[1]}`, 'relay', true)
      return
    }
    connection.cancelTimer()
    this.schedulePing(connection)
    connection.place = { room, member: null, id: null }
    const rate = this.relayRates?.of(connection.address) ?? null
    room.relay!.add(connection.id, message.channel, message.side, rate)
  }

  private join(connection: Connection, message: MessageOf<'join'>): void {
    let room = this.provenRoom(connection, message)
    const before = room?.connectionOf(message)
    if (before !== undefined) {
      // Its network changed, say, and the end of its first connection has not come through.
      const text = 'it has come back on another connection'
      this.leave(this.connections.get(before)!, text, 'ended')
      this.host.close(before, text)
      // It may have been the last one in the room.
      room = this.provenRoom(connection, message)
    }
    if (!room) return
    const [count, max, who] = message.info
      ? [room.size, this.limits.membersPerRoom, 'members']
      : [room.guestCount, this.limits.guestsPerRoom, 'guests']
    if (count >= max) {
      const text = `the room is full: it has ${count} ${who}.`
      this.refuse(connection, 'room-full', text, 'join')
      return
    }
    if (this.host.asks && !message.info && room.size > 0) {
      const text = 'the hosts of this server let members in one by one, and a guest has no page.'
      this.refuse(connection, 'declined', text, 'join', true)
    } else if (this.host.asks && message.info && room.mustAsk(message.token))
      this.ask(connection, room, message)
    else this.admit(connection, room, message)
  }

  private ask(connection: Connection, room: Room, message: MessageOf<'join'>): void {
    connection.cancelTimer()
    connection.asked = room
    const isWaiting = room.asks.add({
      connectionId: connection.id,
      address: connection.address,
      name: message.info!.name,
      token: message.token,
      enter: () => {
        connection.asked = null
        connection.cancelTimer()
        if (room.size < this.limits.membersPerRoom) this.admit(connection, room, message)
        else this.refuse(connection, 'room-full', 'the room is full.', 'join', true)
      },
      refuse: (code, text) => {
        connection.asked = null
        this.refuse(connection, code, text, 'join', true)
      },
    })
    if (!isWaiting) return
    this.schedulePing(connection)
    this.send(connection.id, { type: 'asking', host: room.maker.info.name })
  }

  private admit(connection: Connection, room: Room, message: MessageOf<'create' | 'join'>): void {
    connection.cancelTimer()
    this.schedulePing(connection)
    const member = message.info ? room.add(connection.id, message.info, message) : null
    const id = member?.id ?? room.addGuest(connection.id)
    connection.place = { room, member, id }
    this.tellOf(connection, 'joined')
  }

  private schedulePing(connection: Connection): void {
    const dueMs = this.env.now() + this.limits.pingMs
    connection.cancelTimer = this.env.after(this.limits.pingMs, () => {
      // While this process or its machine stood still, what members sent lay unread.
      const nowMs = this.env.now()
      connection.heardAtMs = Math.min(nowMs, connection.heardAtMs + nowMs - dueMs)
      // Whom we do not read, we do not hear.
      if (connection.place?.room.relay?.isPaused(connection.id)) connection.heardAtMs = nowMs
      const silentMs = nowMs - connection.heardAtMs
      if (silentMs >= this.limits.goneMs) {
        const text = `the server heard nothing for ${Math.round(silentMs)} ms`
        this.leave(connection, text, 'ended')
        this.host.close(connection.id, text)
        return
      }
      this.send(connection.id, { type: 'ping' })
      this.schedulePing(connection)
    })
  }

  // --- leaving ---

  private leave(connection: Connection, text: string, how: Going): void {
    connection.cancelTimer()
    this.connections.delete(connection.id)
    connection.asked?.asks.forget(connection.id)
    if (connection.code) this.codes.forget(connection.id)
    if (!connection.place) return
    const { room, member, id } = connection.place
    if (id !== null) this.tellOf(connection, how === 'removed' ? how : 'left')
    connection.place = null
    room.store.forget(connection.id)
    if (room.relay?.has(connection.id)) room.relay.remove(connection.id, text)
    else if (member) room.remove(member, text, how)
    else room.removeGuest(connection.id)
    if (!room.isEmpty) return
    room.store.close()
    this.rooms.delete(room.id)
    this.codes.roomEnded(room.id)
    this.host.event?.({ event: 'ended', room: room.id, address: room.makerAddress })
  }

  private tellOf(
    { place, address }: Connection,
    event: 'joined' | 'left' | 'removed' | 'refused',
    why?: Refusal,
  ): void {
    this.host.event?.({
      event,
      ...(place && { room: place.room.id }),
      ...(place?.id && { member: place.id }),
      address,
      ...(why && { why }),
    })
  }

  private iceServers(connectionId: string): IceServer[] {
    return this.host.iceServers?.(connectionId) ?? []
  }

  /** Who is alone in a room has nobody to connect to, and gets no login at a TURN server. */
  private iceServersIn({ size, guestCount }: Room, connectionId: string): IceServer[] {
    const servers = this.iceServers(connectionId)
    const isAlone = size + guestCount < 2
    return isAlone ? servers.filter(({ credential }) => credential === undefined) : servers
  }

  private refuse(
    connection: Connection,
    code: Refusal,
    text: string,
    about: ClientMessage['type'] | null,
    isFatal = false,
    call?: number,
  ): void {
    const keepsOut = isFatal || !connection.place
    if (keepsOut && !ordinary.includes(code)) this.tellOf(connection, 'refused', code)
    if (isFatal)
      this.end(connection, code, text, about, `the server closed its connection: ${text}`)
    else this.send(connection.id, { type: 'error', code, text, about, isFatal, call })
  }

  /** Closes a connection; `why` is sent to its room. */
  private end(
    connection: Connection,
    code: Refusal,
    text: string,
    about: ClientMessage['type'] | null,
    why: string,
    by?: string,
  ): void {
    this.send(connection.id, { type: 'error', code, text, by, about, isFatal: true })
    // Not an accident of the network: a rank that is thrown out of a run is gone, not detached.
    this.leave(connection, why, code === 'removed' ? 'removed' : 'refused')
    this.host.close(connection.id, text)
  }

  private send(connectionId: string, message: ServerMessage): void {
    if (this.connections.has(connectionId)) this.host.send(connectionId, message)
  }
}
