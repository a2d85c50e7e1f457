import {
  type ClientMessage,
  limits,
  protocolVersion,
  type ServerMessage,
} from '../../../src/peer/messages.ts'
import { Rendezvous } from '../../../src/peer/rendezvous.ts'
import { proofText } from '../../../src/peer/secret.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { infoOf } from '../member-info.ts'
import { authKey, hmac } from '../rendezvous-world.ts'
import { Draw } from './draw.ts'
import type { Trace } from './trace.ts'

export interface RoomsScenario {
  readonly seed: number
  readonly members: number
  readonly rooms: number
  /** Members come within this time, at first and when they come again. */
  readonly joiningMs: number
  /** After this time everyone leaves. */
  readonly lastingMs: number
  /** One tab in so many is not as it should be. */
  readonly oddOneIn: number
}

/** What a tab may do that others do not. */
export const tabFaults = [
  'bye',
  'lost',
  'detached',
  'deaf',
  'never-ready',
  'abort',
  'link-down',
  'slow',
] as const
export type TabFault = (typeof tabFaults)[number]

export interface RoomsOutcome {
  readonly violations: readonly string[]
  readonly fired: Readonly<Record<TabFault, number>>
  readonly epochs: number
  readonly finished: number
  readonly aborted: number
  /** From the server, to all and to the one that was told most. */
  readonly messages: number
  readonly mostToOne: number
  /** Lobbies told, to the one that was told most. */
  readonly mostLobbies: number
  /** The most that were connected at a time. */
  readonly peakMembers: number
  /** Ranks of the largest epoch. */
  readonly peakRanks: number
}

/** Refusals of what was right when it was said. */
const crossings = ['wrong-epoch', 'wrong-state', 'not-the-maker', 'unknown-room', 'room-exists']

type Told<T extends ServerMessage['type']> = Extract<ServerMessage, { type: T }>

/** To be ready, to run, to be missed by a neighbour or by the server, and for slow messages both ways. */
const longestEpochMs = limits.readyMs + 3000 + limits.goneMs + limits.pingMs + 20_000

interface Epoch {
  readonly assignedMs: number
  readonly worldSize: number
  readonly ranks: Map<number, Tab>
  readonly links: Map<number, Told<'assign'>['links']>
}

/** Members of many rooms of one server, with latencies and faults of their own, checked as the server tells them things. */
export class RoomsSimulation {
  readonly env: VirtualEnv
  readonly server: Rendezvous
  readonly tabs = new Map<string, Tab>()
  readonly violations: string[] = []
  readonly fired = Object.fromEntries(tabFaults.map((name) => [name, 0])) as Record<
    TabFault,
    number
  >
  readonly trace: Trace | undefined
  readonly scenario: RoomsScenario
  epochs = new Map<string, Epoch>()
  finished = 0
  aborted = 0
  messages = 0
  /** By room: whether someone has made it, as far as those who come know. */
  readonly made = new Set<string>()

  constructor(scenario: RoomsScenario, trace?: Trace) {
    this.scenario = scenario
    this.trace = trace
    this.env = new VirtualEnv(scenario.seed)
    this.server = new Rendezvous(this.env, {
      send: (id, message) => {
        this.messages += 1
        const tab = this.tabs.get(id)
        if (!tab || tab.isGone) this.violate(`${id} is told ${message.type} after its end`)
        else tab.told(message)
      },
      close: (id) => {
        const tab = this.tabs.get(id)
        if (tab) tab.isGone = true
      },
      verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
    })
  }

  violate(text: string): void {
    this.violations.push(`${this.env.now()} ms: ${text}`)
    this.note(`VIOLATION ${text}`)
  }

  note(text: string): void {
    this.trace?.note(this.env.now(), text)
  }

  async run(): Promise<RoomsOutcome> {
    const { seed, members, rooms, joiningMs, lastingMs, oddOneIn } = this.scenario
    const draw = new Draw(seed)
    for (let i = 0; i < members; i++) {
      const room = (1 + (i % rooms)).toString(16).padStart(32, '0')
      const fault = draw.isOneIn(oddOneIn) ? draw.pick(tabFaults) : undefined
      const tab = new Tab(this, `t${i}`, room, fault, new Draw(seed, i))
      // The first of a room comes first, or others would find none.
      const atMs = i < rooms ? 0 : 100 + draw.whole(0, joiningMs / 5) * 5
      this.env.after(atMs, () => tab.come())
    }
    let peakMembers = 0
    for (let at = 0; at < 20; at++) {
      await this.env.advance(lastingMs / 20)
      peakMembers = Math.max(peakMembers, this.server.counts.connections)
    }
    for (const [key, epoch] of this.epochs) this.#checkEpoch(key, epoch)
    for (const room of new Set([...this.tabs.values()].map((tab) => tab.room)))
      this.#checkRoom(room)
    for (const tab of this.tabs.values()) tab.go(draw.isOneIn(2))
    await this.env.advance(60_000)
    const { rooms: left, connections } = this.server.counts
    const { storeBytes } = this.server
    if (left + connections + storeBytes + this.env.timers > 0)
      this.violate(
        `${left} rooms, ${connections} connections, ${storeBytes} bytes and ${this.env.timers} timers are left`,
      )
    const all = [...this.tabs.values()]
    return {
      violations: this.violations,
      fired: this.fired,
      epochs: this.epochs.size,
      finished: this.finished,
      aborted: this.aborted,
      messages: this.messages,
      mostToOne: all.reduce((most, tab) => Math.max(most, tab.messages), 0),
      mostLobbies: all.reduce((most, tab) => Math.max(most, tab.lobbies), 0),
      peakMembers,
      peakRanks: [...this.epochs.values()].reduce((most, one) => Math.max(most, one.worldSize), 0),
    }
  }

  /** What one member is told grows with who comes and goes in its room, and with its epochs, and with nothing else; and epochs end. */
  #checkRoom(room: string): void {
    const tabs = [...this.tabs.values()].filter((tab) => tab.room === room)
    const epochs = [...this.epochs.keys()].filter((key) => key.startsWith(room)).length
    // Of an epoch: assigned, running, over. Of a member: it came, it went or was detached.
    const updates = tabs.reduce((sum, tab) => sum + tab.updates, 0)
    const mostLobbies =
      2 * tabs.length +
      3 * epochs +
      Math.min(updates, this.scenario.lastingMs / limits.lobbyUpdateMs)
    const pings = this.scenario.lastingMs / limits.pingMs
    const mostOthers = tabs.length + 4 * epochs + pings + 4
    for (const { messages, lobbies, signals, epoch, isGone } of tabs) {
      if (lobbies > mostLobbies || messages - lobbies - signals > mostOthers)
        this.violate(
          `one of ${tabs.length} members was told ${messages} messages in ${epochs} epochs, ${lobbies} of them lobbies`,
        )
      const { assignedMs = Number.POSITIVE_INFINITY } = this.epochs.get(`${room}/${epoch}`) ?? {}
      if (!isGone && this.env.now() - assignedMs > longestEpochMs)
        this.violate(`epoch ${room}/${epoch} has not ended for ${longestEpochMs} ms`)
    }
  }

  /** Ranks are dense and unique, and both sides of each link know it alike. */
  #checkEpoch(key: string, { worldSize, ranks, links }: Epoch): void {
    if (ranks.size !== worldSize)
      this.violate(`epoch ${key} has ${worldSize} ranks, and ${ranks.size} tabs were told one`)
    for (let rank = 0; rank < worldSize; rank++)
      for (const { peerRank, initiator, kind } of links.get(rank) ?? []) {
        const back = links.get(peerRank)?.find((link) => link.peerRank === rank)
        if (!back || back.initiator === initiator || back.kind !== kind)
          this.violate(`epoch ${key}: ranks ${rank} and ${peerRank} do not agree about their link`)
      }
  }
}

/** One tab: what it does when the server tells it something, and what the server may tell it then. */
class Tab {
  isGone = true
  messages = 0
  lobbies = 0
  signals = 0
  /** What it has said anew of itself. */
  updates = 0
  readonly room: string
  readonly #world: RoomsSimulation
  readonly #id: string
  readonly #fault: TabFault | undefined
  readonly #draw: Draw
  readonly #latencyMs: number
  #memberId = ''
  /** As the server has told it: the epoch it is in, and the last it was in. */
  epoch = 0
  #lastEpoch = 0
  #rank = -1
  #peers: number[] = []
  #hasStruck = false
  #inMs = 0
  #outMs = 0

  constructor(
    world: RoomsSimulation,
    id: string,
    room: string,
    fault: TabFault | undefined,
    draw: Draw,
  ) {
    this.#world = world
    this.#id = id
    this.room = room
    this.#fault = fault
    this.#draw = draw
    this.#latencyMs = fault === 'slow' ? draw.pick([200, 1000, 3000]) : 5
    if (fault === 'slow') this.#strike('slow')
  }

  come(): void {
    this.isGone = false
    this.#world.tabs.set(this.#id, this)
    this.#world.server.open(this.#id)
  }

  go(isBye: boolean): void {
    if (this.isGone) return
    if (isBye) this.#say({ type: 'bye' })
    else this.#lose()
  }

  #lose(): void {
    this.isGone = true
    this.#world.note(`${this.#id} loses its socket`)
    this.#world.server.lost(this.#id, 'its connection ended (1006)')
  }

  #strike(fault: TabFault): void {
    this.#hasStruck = true
    this.#world.fired[fault] += 1
    this.#world.note(`!! ${fault} strikes ${this.#id}`)
  }

  /** Whether it is time for this fault, which strikes a tab once. */
  #isStruck(fault: TabFault): boolean {
    if (this.#fault !== fault || this.#hasStruck) return false
    this.#strike(fault)
    return true
  }

  /** Everything travels for a while, and in order. */
  #later(lastMs: number, run: () => void): number {
    const { env } = this.#world
    const atMs = Math.max(lastMs, env.now() + this.#latencyMs * this.#draw.whole(1, 3))
    env.after(atMs - env.now(), run)
    return atMs
  }

  #say(message: ClientMessage): void {
    const { server } = this.#world
    this.#outMs = this.#later(this.#outMs, () => {
      if (this.isGone) return
      this.#world.note(`${this.#id} says ${message.type}`)
      server.receive(this.#id, JSON.stringify(message))
    })
  }

  #sayIn(ms: number, epoch: number, message: ClientMessage): void {
    this.#world.env.after(ms, () => {
      if (!this.isGone && this.epoch === epoch) this.#say(message)
    })
  }

  /** The server has sent `message`: it is judged now, and heard later. */
  told(message: ServerMessage): void {
    this.messages += 1
    if (message.type === 'signal') this.signals += 1
    if (message.type !== 'ping') this.#world.note(`${this.#id} is told ${message.type}`)
    this.#judge(message)
    this.#inMs = this.#later(this.#inMs, () => {
      if (!this.isGone) this.#hear(message)
    })
  }

  #judge(message: ServerMessage): void {
    const world = this.#world
    switch (message.type) {
      case 'welcome':
        this.#memberId = message.id
        return
      case 'lobby': {
        this.lobbies += 1
        const { state, maker, members } = message
        const isOn = state === 'assigned' || state === 'running'
        if (members[0]?.id !== maker) world.violate(`${this.#id}: the maker is not the first`)
        if (!members.some(({ id }) => id === this.#memberId))
          world.violate(`${this.#id} is told of a lobby without it`)
        const ranks = members.flatMap(({ rank }) => (rank === null ? [] : [rank]))
        if (!isOn && ranks.length > 0)
          world.violate(`${this.#id} is told of ranks in a room that is ${state}`)
        if (new Set(ranks).size !== ranks.length)
          world.violate(`${this.#id} is told of a rank twice`)
        return
      }
      case 'assign': {
        const { epoch, rank, worldSize, links } = message
        if (this.epoch > 0)
          world.violate(`${this.#id} is told of epoch ${epoch} while in epoch ${this.epoch}`)
        if (epoch <= this.#lastEpoch)
          world.violate(`${this.#id} is told of epoch ${epoch} after ${this.#lastEpoch}`)
        this.epoch = this.#lastEpoch = epoch
        this.#rank = rank
        this.#peers = links.map(({ peerRank }) => peerRank)
        const key = `${this.room}/${epoch}`
        const all = world.epochs.get(key) ?? {
          assignedMs: world.env.now(),
          worldSize,
          ranks: new Map(),
          links: new Map(),
        }
        world.epochs.set(key, all)
        if (all.ranks.has(rank) || rank < 0 || rank >= worldSize || worldSize !== all.worldSize)
          world.violate(`${this.#id} is told rank ${rank} of ${worldSize}, which is not its own`)
        all.ranks.set(rank, this)
        all.links.set(rank, links)
        return
      }
      case 'start':
      case 'signal':
        if (message.epoch !== this.epoch)
          world.violate(
            `${this.#id} in epoch ${this.epoch} is told ${message.type} of ${message.epoch}`,
          )
        return
      case 'finished':
      case 'abort':
        if (message.epoch !== this.epoch)
          world.violate(`${this.#id} in epoch ${this.epoch} is told of the end of ${message.epoch}`)
        if (message.type === 'abort' && !/rank \d/.test(message.text))
          world.violate(`${this.#id} is told no rank: ${message.text}`)
        if (this.#rank === 0) world[message.type === 'abort' ? 'aborted' : 'finished'] += 1
        this.epoch = 0
        return
      case 'error': {
        // These say that its message crossed a change of the room.
        const isCrossing = [...crossings, ...(this.#fault === 'slow' ? ['too-slow'] : [])]
        if (!isCrossing.includes(message.code))
          world.violate(`${this.#id} is refused: ${message.code}, ${message.text}`)
      }
    }
  }

  #hear(message: ServerMessage): void {
    const draw = this.#draw
    switch (message.type) {
      case 'challenge':
        this.#enter(message.nonce)
        return
      case 'error':
        // Someone else was first, or the last one has left: the other way round.
        if (message.about === 'create' || message.about === 'join') this.go(true)
        return
      case 'ping':
        if (this.#fault === 'deaf' && (this.#hasStruck || this.#isStruck('deaf'))) return
        this.#say({ type: 'pong' })
        return
      case 'lobby':
        this.#lobby(message)
        return
      case 'assign': {
        const { epoch } = message
        if (this.epoch !== epoch || this.#isStruck('never-ready')) return
        for (const to of this.#peers)
          this.#say({ type: 'signal', epoch, to, attempt: 1, box: 'offer' })
        this.#sayIn(5 * draw.whole(0, 100), epoch, { type: 'ready', epoch })
        return
      }
      case 'start':
        if (this.epoch !== message.epoch) return
        if (draw.isOneIn(4)) {
          this.updates += 1
          this.#say({ type: 'update', info: infoOf(this.#id, { hidden: draw.isOneIn(2) }) })
        }
        this.#train(message.epoch)
    }
  }

  #enter(nonce: string): void {
    const { made } = this.#world
    const room = this.room
    const info = infoOf(this.#id)
    if (!made.has(room)) {
      made.add(room)
      this.#say({ type: 'create', version: protocolVersion, room, authKey, info })
      return
    }
    const proof = hmac(authKey, proofText(room, nonce))
    this.#say({ type: 'join', version: protocolVersion, room, proof, info })
  }

  #lobby({ state, maker, members }: Told<'lobby'>): void {
    const isWaiting = state !== 'assigned' && state !== 'running'
    if (maker !== this.#memberId || !isWaiting || members.length < 2) return
    const { env } = this.#world
    env.after(5 * this.#draw.whole(100, 800), () => {
      if (!this.isGone && this.epoch === 0) this.#say({ type: 'start', settings: null })
    })
  }

  #train(epoch: number): void {
    const draw = this.#draw
    const ms = 5 * draw.whole(10, 600)
    if (this.#isStruck('bye')) this.#sayIn(ms, epoch, { type: 'bye' })
    else if (this.#isStruck('abort'))
      this.#sayIn(ms, epoch, { type: 'abort', epoch, text: 'the GPU was lost' })
    else if (this.#peers.length > 0 && this.#isStruck('link-down')) {
      const peerRank = draw.pick(this.#peers)
      this.#sayIn(ms, epoch, { type: 'linkDown', epoch, peerRank, text: 'silent for 8000 ms' })
      // Nobody minds where the other was done: then it has all it needs.
      this.#sayIn(ms + 5000, epoch, { type: 'done', epoch })
    } else if (this.#isStruck('lost') || this.#isStruck('detached')) {
      // Its neighbours miss it too where it is lost; the ring runs on where only its signaling is.
      const neighbours = this.#fault === 'lost' ? this.#neighbours(epoch) : []
      this.#world.env.after(ms, () => {
        if (!this.isGone) this.#lose()
        for (const { tab, peerRank } of neighbours)
          tab.#sayIn(8000, epoch, { type: 'linkDown', epoch, peerRank, text: 'silent for 8000 ms' })
      })
    } else this.#sayIn(ms, epoch, { type: 'done', epoch })
  }

  #neighbours(epoch: number): { tab: Tab; peerRank: number }[] {
    const ranks = this.#world.epochs.get(`${this.room}/${epoch}`)?.ranks
    const peerRank = this.#rank
    return this.#peers.flatMap((rank) => {
      const tab = ranks?.get(rank)
      return tab ? [{ tab, peerRank }] : []
    })
  }
}
