import { createHmac } from 'node:crypto'
import type { IceSource } from '../../node/ice/ice-source.ts'
import type { ClientMessage, MessageOf } from '../../src/peer/room/client-messages.ts'
import {
  limits,
  type MemberInfo,
  protocolVersion,
  type ServerMessage,
} from '../../src/peer/room/messages.ts'
import { roomKeyText } from '../../src/peer/room/room-key.ts'
import { proofText } from '../../src/peer/room/secret.ts'
import { type Limits, Rendezvous, type RoomEvent } from '../../src/peer/server/rendezvous.ts'
import { VirtualEnv } from '../../src/util/virtual-env.ts'
import { infoOf } from './member-info.ts'

export const roomA = 'aa'.repeat(16)
export const roomB = 'bb'.repeat(16)
export const authKey = '01'.repeat(32)

/** The proof over `text` that its sender knows `key`, in hexadecimal. */
export function hmac(key: string, text: string): string {
  return createHmac('sha256', Buffer.from(key, 'hex')).update(text).digest('hex')
}

/** The proof of a server's room key, in hexadecimal. */
export const keyProofOf = (roomKey: string, room: string, nonce: string): string =>
  createHmac('sha256', roomKey).update(roomKeyText(room, nonce)).digest('hex')

/** That of a tab which `fill` has brought. */
export const tokenOf = (name: string): string => Buffer.from(name).toString('hex').padEnd(32, '0')

type Of<T extends ServerMessage['type']> = Extract<ServerMessage, { type: T }>

/** The server with tabs, which answer pings without a call. */
export class RendezvousWorld {
  readonly env = new VirtualEnv(7)
  readonly inboxes = new Map<string, ServerMessage[]>()
  readonly closed = new Map<string, string>()
  readonly deaf = new Set<string>()
  /** Binary messages, and to whom they went. */
  readonly passed: [string, number[]][] = []
  /** For the log of the server's owner. */
  readonly events: RoomEvent[] = []
  /** Connections that are not read. */
  readonly paused = new Set<string>()
  readonly server: Rendezvous
  /** Each connection has its own by default. */
  addressOf = (id: string): string => id
  readonly #roomKey: string | undefined
  /** Whether `create` proves the room key. */
  givesRoomKey = false
  /** Every message passes as JSON text, as it does on a socket. */
  constructor(
    custom: Partial<Limits> = {},
    {
      ice,
      hasRelay = false,
      mayCreate,
      roomKey,
      asks = false,
    }: {
      ice?: IceSource
      hasRelay?: boolean
      mayCreate?: (room: string, authKey: string) => boolean
      roomKey?: string
      asks?: boolean
    } = {},
  ) {
    this.#roomKey = roomKey
    this.server = new Rendezvous(
      this.env,
      {
        send: (id, message) => {
          this.inboxes.get(id)!.push(JSON.parse(JSON.stringify(message)))
          if (message.type === 'ping' && !this.deaf.has(id)) this.say(id, { type: 'pong' })
        },
        close: (id, text) => this.closed.set(id, text),
        verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
        asks,
        event: (event) => this.events.push(event),
        iceServers: (id) => ice?.(id, this.env.now()) ?? [],
        ...(mayCreate && { mayCreate }),
        ...(roomKey !== undefined && {
          isRoomKey: (room, nonce, proof) => keyProofOf(roomKey, room, nonce) === proof,
        }),
        ...(hasRelay && {
          relay: {
            pass: (id, bytes) => this.passed.push([id, [...bytes]]),
            pause: (id) => this.paused.add(id),
            resume: (id) => this.paused.delete(id),
          },
        }),
      },
      custom,
    )
  }

  open(id: string): void {
    this.inboxes.set(id, [])
    this.server.open(id, this.addressOf(id))
  }
  say(id: string, message: ClientMessage): void {
    this.server.receive(id, JSON.stringify(message))
  }
  all<T extends ServerMessage['type']>(id: string, type: T): Of<T>[] {
    return this.inboxes.get(id)!.filter((one): one is Of<T> => one.type === type)
  }
  last<T extends ServerMessage['type']>(id: string, type: T): Of<T> {
    const found = this.all(id, type).at(-1)
    if (!found) throw new Error(`${id} got no ${type}`)
    return found
  }
  refusal(id: string): string {
    return this.last(id, 'error').code
  }
  /** Enters as a guest where `info` is null. */
  create(
    id: string,
    room = roomA,
    info: MemberInfo | null = infoOf(id),
    token?: string,
    isFurther?: boolean,
  ): void {
    this.open(id)
    const { nonce } = this.last(id, 'challenge')
    const keyProof = this.givesRoomKey ? keyProofOf(this.#roomKey!, room, nonce) : undefined
    const entry = { room, authKey, info, token, isFurther, keyProof }
    this.say(id, { type: 'create', version: protocolVersion, ...entry })
  }
  join(
    id: string,
    room = roomA,
    info: MemberInfo | null = infoOf(id),
    key = authKey,
    token?: string,
    rest: Pick<MessageOf<'join'>, 'isFurther' | 'again'> = {},
  ): void {
    this.open(id)
    const proof = hmac(key, proofText(room, this.last(id, 'challenge').nonce))
    this.say(id, { type: 'join', version: protocolVersion, room, proof, info, token, ...rest })
  }
  /** Opens one end of a relayed link. */
  relay(id: string, side: 0 | 1, channel = 'c', room = roomA, token?: string): void {
    this.open(id)
    const proof = hmac(authKey, proofText(room, this.last(id, 'challenge').nonce))
    this.say(id, { type: 'relay', version: protocolVersion, room, proof, token, channel, side })
  }
  /** Shows a short code for the room. */
  giveCode(id: string, room = roomA): void {
    this.open(id)
    const proof = hmac(authKey, proofText(room, this.last(id, 'challenge').nonce))
    const token = tokenOf(id)
    this.say(id, { type: 'giveCode', version: protocolVersion, room, proof, token })
  }
  /** A room with the tabs t0 (the maker), t1, … */
  async fill(count: number, room = roomA, prefix = 't'): Promise<string[]> {
    const ids = Array.from({ length: count }, (_, i) => `${prefix}${i}`)
    ids.forEach((id, i) => {
      if (i === 0) this.create(id, room, infoOf(id), tokenOf(id))
      else this.join(id, room, infoOf(id), authKey, tokenOf(id))
    })
    await this.tick()
    return ids
  }
  async tick(): Promise<void> {
    await this.env.advance(limits.lobbyDelayMs)
  }
  assign(ids: string[], settings = { steps: 3 }): number {
    this.say(ids[0], { type: 'start', settings })
    return this.last(ids[0], 'assign').epoch
  }
  async run(ids: string[]): Promise<number> {
    const epoch = this.assign(ids)
    for (const id of ids) this.say(id, { type: 'ready', epoch })
    await this.tick()
    return epoch
  }
  async state(id: string): Promise<string> {
    await this.tick()
    return this.last(id, 'lobby').state
  }
}
