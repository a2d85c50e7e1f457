import type { ClientMessage } from '../../src/peer/room/client-messages.ts'
import {
  type Lobby,
  type LobbyMember,
  type Measured,
  type MemberInfo,
  protocolVersion,
  type ServerMessage,
} from '../../src/peer/room/messages.ts'
import { proofText } from '../../src/peer/room/secret.ts'
import { Rendezvous } from '../../src/peer/server/rendezvous.ts'
import { LobbyLinks, type LobbyWay, type WayOptions } from '../../src/peer/tab/lobby-links.ts'
import type { JsonValue } from '../../src/util/json-value.ts'
import { VirtualEnv } from '../../src/util/virtual-env.ts'
import { Measures } from '../../src/worker/page/measures.ts'
import { infoOf } from './member-info.ts'
import { authKey, hmac, roomA } from './rendezvous-world.ts'

/** From a tab to the server, and the other way. units: ms. */
const serverMs = 10

/** Tabs of one room on a virtual clock: the real server, lobby links and measures over a made-up network. */
export class LobbyTabs {
  readonly env = new VirtualEnv(11)
  readonly tabs = new Map<string, LobbyTab>()
  /** Ways that are open now, both sides counted, and how many were ever called. */
  readonly open = new Set<Way>()
  calls = 0
  /** Pairs without a way, as `a b` in the order of their names. */
  readonly apart = new Set<string>()
  /** Who takes no questions: their tabs are frozen. */
  readonly frozen = new Set<string>()
  /** Whose pages are not so far that they could take a call. */
  readonly deaf = new Set<string>()
  readonly server: Rendezvous

  constructor() {
    this.server = new Rendezvous(this.env, {
      send: (id, message) => this.tabs.get(id)?.later(() => this.tabs.get(id)?.received(message)),
      close: () => undefined,
      verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
    })
  }

  /** One way from `a` to `b`. units: ms. */
  latencyMs(a: string, b: string): number {
    const [x, y] = [a, b].map((name) => Number(name.replace(/\D/g, '')))
    return 1 + Math.abs(x - y) / 4
  }

  come(name: string): LobbyTab {
    const tab = new LobbyTab(this, name)
    this.tabs.set(name, tab)
    this.server.open(name, name)
    return tab
  }

  async fill(count: number, apartMs = 100): Promise<LobbyTab[]> {
    const tabs: LobbyTab[] = []
    for (let i = 0; i < count; i++) {
      tabs.push(this.come(`t${i}`))
      await this.env.advance(apartMs)
    }
    return tabs
  }

  leave(name: string): void {
    this.tabs.get(name)?.leave()
    this.tabs.delete(name)
    this.server.lost(name, 'left')
  }
}

/** What a page does in its room, as src/worker/page/member.ts does it. */
export class LobbyTab {
  id = ''
  lobby: Lobby | null = null
  errors: string[] = []
  boxes = 0
  /** Bytes of the largest message that came. */
  largestBytes = 0
  assigned: Extract<ServerMessage, { type: 'assign' }> | null = null
  links: LobbyLinks | undefined
  readonly name: string
  readonly #world: LobbyTabs
  readonly #info: MemberInfo
  readonly #measures: Measures
  #inMs = 0

  constructor(world: LobbyTabs, name: string) {
    this.#world = world
    this.name = name
    this.#info = infoOf(name)
    this.#measures = new Measures({
      env: world.env,
      report: (measured) => this.say({ type: 'update', info: { ...this.#info, measured } }),
      isAlone: () => false,
      speed: () => Promise.resolve(null),
      serverRoundTrip: () => Promise.resolve(2 * serverMs),
      linkRoundTrips: () => Promise.resolve([1.5]),
    })
  }

  /** Delivers in order, like a socket. */
  later(run: () => void): void {
    const { env } = this.#world
    this.#inMs = Math.max(this.#inMs, env.now() + serverMs)
    env.after(this.#inMs - env.now(), run)
  }

  say(message: ClientMessage): void {
    this.#world.env.after(serverMs, () => {
      if (this.#world.tabs.get(this.name) === this)
        this.#world.server.receive(this.name, JSON.stringify(message))
    })
  }

  /** As the others receive it. */
  get measured(): Measured | undefined {
    return this.lobby?.members.find(({ id }) => id === this.id)?.measured
  }

  received(message: ServerMessage): void {
    this.largestBytes = Math.max(this.largestBytes, JSON.stringify(message).length)
    switch (message.type) {
      case 'challenge': {
        const common = { version: protocolVersion, room: roomA, info: this.#info } as const
        if (this.#world.server.counts.rooms === 0) this.say({ type: 'create', ...common, authKey })
        else {
          const proof = hmac(authKey, proofText(roomA, message.nonce))
          this.say({ type: 'join', ...common, proof })
        }
        return
      }
      case 'welcome':
        this.id = message.id
        this.links = new LobbyLinks({
          env: this.#world.env,
          ownId: this.id,
          makeWay: (peer, options) => new Way(this.#world, this.name, peer, options),
          send: (to, data) => {
            this.boxes++
            this.say({ type: 'reach', to, box: packed(data) })
          },
          report: (toNext) => this.#measures.nextIs(toNext),
        })
        this.#measures.begin()
        return
      case 'ping':
        this.say({ type: 'pong' })
        return
      case 'lobby':
        this.lobby = message
        if (!this.assigned) this.links!.roomIs(message)
        return
      case 'reach':
        if (!this.#world.deaf.has(this.name))
          this.links!.receive(message.from, unpacked(message.box))
        return
      case 'assign':
        this.assigned = message
        this.#measures.runBegan()
        this.links!.close()
        this.say({ type: 'ready', epoch: message.epoch })
        return
      case 'finished':
      case 'abort':
        this.assigned = null
        this.#measures.runEnded()
        if (this.lobby) this.links!.roomIs(this.lobby)
        return
      case 'error':
        this.errors.push(`${message.code}: ${message.text}`)
    }
  }

  leave(): void {
    this.#measures.end()
    this.links?.close()
  }
}

const packed = (data: JsonValue) => Buffer.from(JSON.stringify(data)).toString('base64url')
const unpacked = (box: string): unknown => JSON.parse(Buffer.from(box, 'base64url').toString())

/** A way over the made-up network: up once both sides have one of the same key. */
class Way implements LobbyWay {
  readonly connected: Promise<void>
  readonly #world: LobbyTabs
  readonly #names: [string, string]
  readonly #key: string
  #settle!: { resolve: () => void; reject: (error: Error) => void }
  #isUp = false

  constructor(world: LobbyTabs, own: string, peer: LobbyMember, options: WayOptions) {
    this.#world = world
    this.#names = [own, peer.name]
    this.#key = options.key
    this.connected = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject }
    })
    this.connected.catch(() => undefined)
    world.open.add(this)
    if (options.isCalling) {
      world.calls++
      options.say('call')
      world.env.after(10_000, () => this.#settle.reject(new Error('no answer')))
      return
    }
    // A side that finds no address to connect from knows at once.
    const { apart, open, env } = world
    if (apart.has([...this.#names].sort().join(' '))) this.#settle.reject(new Error('no way'))
    else
      env.after(this.#awayMs, () => {
        const other = [...open].find((one) => one !== this && one.#key === this.#key)
        if (!other || !open.has(this)) return
        for (const side of [this, other]) {
          side.#isUp = true
          side.#settle.resolve()
        }
      })
  }

  get #awayMs(): number {
    return this.#world.latencyMs(...this.#names)
  }

  async roundTrips(count: number): Promise<number[]> {
    const { env, frozen } = this.#world
    const trips: number[] = []
    for (let i = 0; i < count; i++) {
      const sinceMs = env.now()
      // One in three finds the page busy.
      const busyMs = i % 3 === 1 ? 40 : 0
      await new Promise<void>((resolve, reject) => {
        if (!this.#isUp) reject(new Error('ended'))
        if (frozen.has(this.#names[1])) return
        env.after(2 * this.#awayMs + busyMs, resolve)
      })
      trips.push(env.now() - sinceMs)
    }
    return trips
  }

  receive(said: unknown): void {
    if (said !== 'call') throw new Error(`expected a call, got ${String(said)}`)
  }

  close(): void {
    this.#world.open.delete(this)
    this.#isUp = false
    this.#settle.reject(new Error('closed'))
  }
}
