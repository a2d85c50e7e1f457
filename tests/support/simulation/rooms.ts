import type { ClientMessage } from '../../../src/peer/room/client-messages.ts'
import { limits, protocolVersion, type ServerMessage } from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import { Rendezvous } from '../../../src/peer/server/rendezvous.ts'
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
  /** One tab in this many has a fault. */
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

/** What makers do with their rooms besides starting runs. */
export const makerActs = ['reload', 'handOver', 'remove'] as const
export type MakerAct = (typeof makerActs)[number]

export interface RoomsOutcome {
  readonly violations: readonly string[]
  readonly fired: Readonly<Record<TabFault, number>>
  /** Those that the server took. */
  readonly acts: Readonly<Record<MakerAct, number>>
  readonly epochs: number
  readonly finished: number
  readonly aborted: number
  /** From the server, to all and to the one that received the max. */
  readonly messages: number
  readonly maxToOne: number
  /** Lobbies, to the one that received the max. */
  readonly maxLobbies: number
  /** The most that were connected at a time. */
  readonly peakMembers: number
  /** Ranks of the largest epoch. */
  readonly peakRanks: number
}

/** Refusals of what was right when it was said. */
const crossings = [
  'wrong-epoch',
  'wrong-state',
  'not-the-host',
  'unknown-member',
  'unknown-room',
  'room-exists',
]

type Report<T extends ServerMessage['type']> = Extract<ServerMessage, { type: T }>

/** To be ready, to run, to be missed by a neighbour or by the server, and for slow messages both ways. */
const longestEpochMs = limits.readyMs + 3000 + limits.goneMs + limits.pingMs + 20_000

interface Epoch {
  readonly assignedMs: number
  readonly worldSize: number
  readonly ranks: Map<number, Tab>
  readonly links: Map<number, Report<'assign'>['links']>
}

/** A room's makers by their tokens, as its lobbies name them, and since when each has a claim to it. */
interface Reigns {
  readonly sinceMs: Map<string, number>
  /** Of the last lobby. */
  maker: string
  makerLeftAtMs: number
  /** Who came and went before a lobby could name it as the maker: those have a claim that no member knows. */
  readonly unseen: Set<string>
  handOvers: number
}

/** Members of many rooms of one server, with separate latencies and faults, checked at each message of the server. */
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
  readonly acts = Object.fromEntries(makerActs.map((name) => [name, 0])) as Record<MakerAct, number>
  /** Members that a maker has taken out. */
  readonly #removed = new Set<string>()
  readonly #reigns = new Map<string, Reigns>()
  /** By member: the token that it came with. */
  readonly tokens = new Map<string, string>()
  epochs = new Map<string, Epoch>()
  isEnding = false
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
        else tab.received(message)
      },
      close: (id) => {
        const tab = this.tabs.get(id)
        if (!tab || tab.isGone) return
        tab.isGone = true
        this.left(tab)
      },
      verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
    })
  }

  reignsOf(room: string): Reigns {
    const reigns = this.#reigns.get(room) ?? {
      sinceMs: new Map(),
      maker: '',
      makerLeftAtMs: Number.NEGATIVE_INFINITY,
      unseen: new Set(),
      handOvers: 0,
    }
    this.#reigns.set(room, reigns)
    return reigns
  }

  left({ room, token }: Tab): void {
    const reigns = this.reignsOf(room)
    const now = this.env.now()
    if (token === reigns.maker) reigns.makerLeftAtMs = now
    else if (now - reigns.makerLeftAtMs <= limits.lobbyDelayMs) {
      reigns.unseen.add(token)
      reigns.makerLeftAtMs = now
    }
  }

  /** Who had the room once and is here has it, rather than who had it later or never, until it is handed over. */
  checkMaker(room: string, { state, members }: Report<'lobby'>): void {
    const reigns = this.reignsOf(room)
    const { sinceMs, unseen } = reigns
    if (members.some(({ id }) => this.#removed.has(id)))
      this.violate(`${room} still has a member that was removed`)
    const tokenOf = (id: string) => this.tokens.get(id)!
    const maker = tokenOf(members[0]!.id)
    const claims = members.flatMap(({ id }) => sinceMs.get(tokenOf(id)) ?? [])
    const ownMs = sinceMs.get(maker) ?? this.env.now()
    const isWaiting = state !== 'assigned' && state !== 'running'
    if (isWaiting && !unseen.has(maker) && claims.some((ms) => ms < ownMs))
      this.violate(`${room}: ${maker} has the room, which one that is here had before`)
    // Not in a run, where it would take pause and stop out of the maker's hands.
    const isAttached = members.some(({ id, attached }) => attached && tokenOf(id) === reigns.maker)
    if (!isWaiting && maker !== reigns.maker && isAttached)
      this.violate(`${room}: ${maker} takes the room from ${reigns.maker} in a run`)
    if (!sinceMs.has(maker)) sinceMs.set(maker, this.env.now())
    reigns.maker = maker
  }

  /** The server has taken what a maker wanted. */
  acted(room: string, maker: string, message: ClientMessage): void {
    const { sinceMs, unseen } = this.reignsOf(room)
    if (message.type === 'handOver') {
      this.acts.handOver += 1
      sinceMs.clear()
      unseen.clear()
      sinceMs.set(this.tokens.get(message.id)!, this.env.now())
      this.reignsOf(room).maker = this.tokens.get(message.id)!
      this.reignsOf(room).handOvers += 1
    } else if (message.type === 'remove') {
      this.acts.remove += 1
      this.#removed.add(message.id)
      const removed = this.tokens.get(message.id)!
      unseen.delete(removed)
      if ((sinceMs.get(removed) ?? 0) > (sinceMs.get(maker) ?? this.env.now()))
        sinceMs.delete(removed)
    }
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
      const token = i.toString(16).padStart(32, '0')
      const tab = new Tab(this, `t${i}`, room, token, fault, new Draw(seed, i))
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
    this.isEnding = true
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
      acts: this.acts,
      epochs: this.epochs.size,
      finished: this.finished,
      aborted: this.aborted,
      messages: this.messages,
      maxToOne: all.reduce((max, tab) => Math.max(max, tab.messages), 0),
      maxLobbies: all.reduce((max, tab) => Math.max(max, tab.lobbies), 0),
      peakMembers,
      peakRanks: [...this.epochs.values()].reduce((max, one) => Math.max(max, one.worldSize), 0),
    }
  }

  /** Checks that messages to one member grow with those that come and go in its room, and with its epochs, and with nothing else; and that epochs end. */
  #checkRoom(room: string): void {
    const tabs = [...this.tabs.values()].filter((tab) => tab.room === room)
    const epochs = [...this.epochs.keys()].filter((key) => key.startsWith(room)).length
    // Of an epoch: assigned, running, over. Of a member: it came, it went or was detached.
    const updates = tabs.reduce((sum, tab) => sum + tab.updates, 0)
    const maxLobbies =
      2 * tabs.length +
      3 * epochs +
      this.reignsOf(room).handOvers +
      Math.min(updates, this.scenario.lastingMs / limits.lobbyUpdateMs)
    const pings = this.scenario.lastingMs / limits.pingMs
    const maxOthers = tabs.length + 4 * epochs + pings + 4
    for (const { messages, lobbies, signals, epoch, isGone } of tabs) {
      if (lobbies > maxLobbies || messages - lobbies - signals > maxOthers)
        this.violate(
          `one of ${tabs.length} members was told ${messages} messages in ${epochs} epochs, ${lobbies} of them lobbies`,
        )
      const { assignedMs = Number.POSITIVE_INFINITY } = this.epochs.get(`${room}/${epoch}`) ?? {}
      if (!isGone && this.env.now() - assignedMs > longestEpochMs)
        this.violate(`epoch ${room}/${epoch} has not ended for ${longestEpochMs} ms`)
    }
  }

  /** Checks that ranks are dense and unique, and that both sides of each link have equal facts. */
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

/** One tab: how it answers the server's messages, and which the server may send it then. */
class Tab {
  isGone = true
  messages = 0
  lobbies = 0
  signals = 0
  /** How often it has changed what it says of itself. */
  updates = 0
  readonly room: string
  readonly token: string
  readonly #world: RoomsSimulation
  readonly #id: string
  readonly #fault: TabFault | undefined
  readonly #draw: Draw
  readonly #latencyMs: number
  #memberId = ''
  /** By the server: the epoch it is in, and the last it was in. */
  epoch = 0
  #lastEpoch = 0
  #rank = -1
  #peers: number[] = []
  #hasInjected = false
  /** True if the server refused the last message. */
  #isRefused = false
  #inMs = 0
  #outMs = 0

  constructor(
    world: RoomsSimulation,
    id: string,
    room: string,
    token: string,
    fault: TabFault | undefined,
    draw: Draw,
  ) {
    this.#world = world
    this.#id = id
    this.room = room
    this.token = token
    this.#fault = fault
    this.#draw = draw
    this.#latencyMs = fault === 'slow' ? draw.pick([200, 1000, 3000]) : 5
    if (fault === 'slow') this.#inject('slow')
  }

  come(): void {
    this.isGone = false
    this.#world.tabs.set(this.#id, this)
    this.#world.server.open(this.#id, this.#id)
  }

  /** Comes back as a reloaded page does: another connection, the same token. */
  comeAgain(inMs: number): void {
    const world = this.#world
    const again = new Tab(world, `${this.#id}'`, this.room, this.token, undefined, this.#draw)
    world.env.after(inMs, () => {
      if (!world.isEnding) again.come()
    })
  }

  go(isBye: boolean): void {
    if (this.isGone) return
    if (isBye) this.#say({ type: 'bye' })
    else this.#lose()
  }

  #lose(): void {
    this.isGone = true
    this.#world.note(`${this.#id} loses its socket`)
    this.#world.left(this)
    this.#world.server.lost(this.#id, 'its connection ended (1006)')
  }

  #inject(fault: TabFault): void {
    this.#hasInjected = true
    this.#world.fired[fault] += 1
    this.#world.note(`!! ${fault} strikes ${this.#id}`)
  }

  /** Returns whether it is time for this fault, which a tab has once. */
  #isInjected(fault: TabFault): boolean {
    if (this.#fault !== fault || this.#hasInjected) return false
    this.#inject(fault)
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
      this.#isRefused = false
      server.receive(this.#id, JSON.stringify(message))
      if (!this.#isRefused) this.#world.acted(this.room, this.token, message)
    })
  }

  #sayIn(ms: number, epoch: number, message: ClientMessage): void {
    this.#world.env.after(ms, () => {
      if (!this.isGone && this.epoch === epoch) this.#say(message)
    })
  }

  /** The server has sent `message`: it is judged now, and heard later. */
  received(message: ServerMessage): void {
    this.messages += 1
    if (message.type === 'signal' || message.type === 'reach') this.signals += 1
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
        world.tokens.set(message.id, this.token)
        return
      case 'reach':
        if (this.epoch > 0) world.violate(`${this.#id} is told reach in epoch ${this.epoch}`)
        return
      case 'lobby': {
        world.checkMaker(this.room, message)
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
        this.#isRefused = true
        if (message.code === 'removed') {
          this.comeAgain(5 * this.#draw.whole(100, 600))
          return
        }
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
        if (this.#fault === 'deaf' && (this.#hasInjected || this.#isInjected('deaf'))) return
        this.#say({ type: 'pong' })
        return
      case 'lobby':
        this.#lobby(message)
        return
      case 'assign': {
        const { epoch } = message
        if (this.epoch !== epoch || this.#isInjected('never-ready')) return
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
    const token = this.token
    if (!made.has(room)) {
      made.add(room)
      this.#say({ type: 'create', version: protocolVersion, room, authKey, info, token })
      return
    }
    const proof = hmac(authKey, proofText(room, nonce))
    this.#say({ type: 'join', version: protocolVersion, room, proof, info, token })
  }

  #lobby({ state, maker, members }: Report<'lobby'>): void {
    const isWaiting = state !== 'assigned' && state !== 'running'
    if (!isWaiting || members.length < 2) return
    const draw = this.#draw
    const { id: other } = draw.pick(members.filter(({ id }) => id !== this.#memberId))
    // To a neighbour, or to a former one.
    if (draw.isOneIn(8)) this.#say({ type: 'reach', to: other, box: 'offer' })
    if (maker !== this.#memberId) return
    this.#world.env.after(5 * draw.whole(100, 800), () => {
      if (this.isGone || this.epoch > 0) return
      const act = draw.isOneIn(3) ? draw.pick(makerActs) : 'start'
      if (act === 'start') this.#say({ type: 'start', settings: null })
      else if (act === 'reload') this.#reload()
      else this.#say({ type: act, id: other })
    })
  }

  #reload(): void {
    this.#world.acts.reload += 1
    this.comeAgain(5 * this.#draw.whole(2, 400))
    this.go(this.#draw.isOneIn(2))
  }

  #train(epoch: number): void {
    const draw = this.#draw
    const ms = 5 * draw.whole(10, 600)
    // Rank 0 is the maker.
    if (this.#rank === 0 && this.#peers.length > 0 && draw.isOneIn(12)) {
      const { ranks } = this.#world.epochs.get(`${this.room}/${epoch}`)!
      const id = ranks.get(draw.pick(this.#peers))!.#memberId
      this.#sayIn(draw.whole(1, ms), epoch, { type: 'remove', id })
    }
    if (this.#isInjected('bye')) this.#sayIn(ms, epoch, { type: 'bye' })
    else if (this.#isInjected('abort'))
      this.#sayIn(ms, epoch, { type: 'abort', epoch, text: 'the GPU was lost' })
    else if (this.#peers.length > 0 && this.#isInjected('link-down')) {
      const peerRank = draw.pick(this.#peers)
      this.#sayIn(ms, epoch, { type: 'linkDown', epoch, peerRank, text: 'silent for 8000 ms' })
      // Nobody minds where the other was done: then it has all it needs.
      this.#sayIn(ms + 5000, epoch, { type: 'done', epoch })
    } else if (this.#isInjected('lost') || this.#isInjected('detached')) {
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

/** How long members keep joining, and the world lasts. */
export const roomTimes = { joiningMs: 20_000, lastingMs: 90_000 }

/** The world of a seed, to be run by `checkSeed`. */
export const runRooms = (given: Omit<RoomsScenario, 'seed'>) => (seed: number, trace?: Trace) =>
  new RoomsSimulation({ ...given, seed }, trace).run()
