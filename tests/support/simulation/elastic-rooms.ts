import type { ClientMessage, RunNow } from '../../../src/peer/room/client-messages.ts'
import { meshLimit } from '../../../src/peer/room/edges.ts'
import { limits, protocolVersion, type ServerMessage } from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import { Rendezvous } from '../../../src/peer/server/rendezvous.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { infoOf } from '../member-info.ts'
import { authKey, hmac, roomA } from '../rendezvous-world.ts'
import { Draw } from './draw.ts'
import type { Trace } from './trace.ts'

/** What may happen to a tab, or to all. */
export const elasticFaults = [
  'bye',
  'cut',
  'half-open',
  'late',
  'linkDown',
  'abort',
  'out',
  'ranks',
  'done',
  'end',
  'restart',
] as const
export type ElasticFault = (typeof elasticFaults)[number]

export interface ElasticOutcome {
  readonly violations: readonly string[]
  readonly fired: Readonly<Record<ElasticFault, number>>
  readonly linkings: number
  readonly joined: number
  /** How many lobbies were sent to tabs in another run than the room's. */
  readonly strangers: number
}

/** Refusals of what was right when it was said. */
const crossings = ['wrong-epoch', 'wrong-state', 'not-the-host', 'unknown-room', 'room-exists']

const settings = { steps: 3 }
/** The world lasts so long with faults, and then so long without. */
const times = { faultyMs: 120_000, quietMs: limits.prepareMs + 60_000 }

type Report<T extends ServerMessage['type']> = Extract<ServerMessage, { type: T }>

/** One room with an elastic run: tabs come, go and come back, also to a new server, and say at random what a member may say. */
export class ElasticRooms {
  readonly env: VirtualEnv
  readonly draw: Draw
  readonly trace: Trace | undefined
  server: Rendezvous
  readonly violations: string[] = []
  readonly fired = Object.fromEntries(elasticFaults.map((name) => [name, 0])) as Record<
    ElasticFault,
    number
  >
  readonly byConnection = new Map<string, Tab>()
  connections = 0
  servers = 0
  linkings = 0
  joined = 0
  strangers = 0
  /** By the run's key: what its members have decided last, as all of them know it. */
  readonly elasticMembers = new Map<string, { run: number; ballot: number; ids: string[] }>()
  /** By server, epoch and members: the assignment of each rank. */
  readonly links = new Map<string, Map<number, Report<'assign'>>>()
  isQuiet = false
  tabs: readonly Tab[] = []

  constructor(seed: number, trace?: Trace) {
    this.trace = trace
    this.env = new VirtualEnv(seed)
    this.draw = new Draw(seed)
    this.server = this.#newServer()
  }

  #newServer(): Rendezvous {
    this.servers += 1
    const server: Rendezvous = new Rendezvous(this.env, {
      send: (id, message) => {
        if (server === this.server) this.byConnection.get(id)?.received(message, id)
      },
      close: (id) => this.byConnection.get(id)?.closed(id),
      verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
    })
    return server
  }

  violate(text: string): void {
    this.violations.push(`${this.env.now()} ms: ${text}`)
    this.note(`VIOLATION ${text}`)
  }

  note(text: string): void {
    this.trace?.note(this.env.now(), text)
  }

  restart(): void {
    this.note('!! the server is another')
    this.fired.restart += 1
    const before = this.server
    const all = [...this.byConnection]
    this.server = this.#newServer()
    for (const [id, tab] of all) {
      before.lost(id, 'its process ended')
      tab.closed(id)
    }
  }

  async run(): Promise<ElasticOutcome> {
    const { env, draw } = this
    const tabs = Array.from({ length: draw.whole(2, 8) }, (_, at) => new Tab(this, `t${at}`))
    this.tabs = tabs
    for (const tab of tabs.slice(0, draw.whole(1, tabs.length))) tab.come()
    while (env.now() < times.faultyMs) {
      await env.advance(draw.pick([5, 50, 500, 2000]))
      if (draw.isOneIn(150)) this.restart()
      else draw.pick(tabs).act()
    }
    this.isQuiet = true
    this.note('-- quiet')
    const quietFromMs = env.now()
    while (env.now() < quietFromMs + times.quietMs) {
      await env.advance(500)
      for (const tab of tabs) tab.beQuiet()
    }
    for (const tab of tabs) if (!tab.isRank) this.violate(`${tab.name} has not become a rank`)
    for (const tab of tabs) tab.say({ type: 'bye' })
    await env.advance(2 * limits.backMs)
    const { rooms, connections } = this.server.counts
    if (rooms + connections + env.timers > 0)
      this.violate(`${rooms} rooms, ${connections} connections, ${env.timers} timers are left`)
    const { violations, fired, linkings, joined, strangers } = this
    return { violations, fired, linkings, joined, strangers }
  }
}

class Tab {
  readonly name: string
  readonly #world: ElasticRooms
  readonly #token: string | undefined
  #connection: string | null = null
  #id = ''
  /** The elastic run that it is in, by the epoch with which it began. */
  #run = 0
  lastEpoch = 0
  #linking: (Report<'assign'> & { sinceMs: number; isReady: boolean }) | null = null
  #lobby: Report<'lobby'> | null = null
  /** The last linking, or the run, ended without it. */
  #isLeftOut = false
  /** That of the run, or of the last one. */
  #key = ''
  /** It has said that the run is over for it. */
  #hasEnded = false
  /** It has said `out` of the run with that key, and waits to be linked. */
  #outOf = ''

  constructor(world: ElasticRooms, name: string) {
    this.#world = world
    this.name = name
    if (world.draw.isOneIn(2)) this.#token = name.charCodeAt(1).toString(16).repeat(16)
  }

  get isRank(): boolean {
    return this.#lobby?.members.some(({ id, rank }) => id === this.#id && rank !== null) ?? false
  }

  say(message: ClientMessage): void {
    if (this.#connection === null) return
    this.#world.note(`${this.name} says ${JSON.stringify(message).slice(0, 200)}`)
    this.#world.server.receive(this.#connection, JSON.stringify(message))
  }

  come(): void {
    const id = `c${++this.#world.connections}`
    this.#world.byConnection.set(id, this)
    this.#connection = id
    this.#linking = null
    this.#world.server.open(id, id)
  }

  closed(id: string): void {
    this.#world.byConnection.delete(id)
    if (this.#connection !== id) return
    this.#connection = null
    this.#linking = null
  }

  #cut(): void {
    const id = this.#connection!
    this.closed(id)
    this.#world.server.lost(id, 'its connection ended')
  }

  /** It is a page that was loaded just now. */
  #forget(): void {
    this.#id = ''
    this.#run = 0
    this.lastEpoch = 0
    this.#outOf = ''
    this.#isLeftOut = false
  }

  act(): void {
    const world = this.#world
    const { draw } = world
    if (this.#connection === null) {
      if (draw.isOneIn(5)) this.#forget()
      this.come()
      return
    }
    const linking = this.#linking
    if (linking && !linking.isReady && !draw.isOneIn(4)) {
      if (draw.isOneIn(20)) this.#inject('late')
      else this.#ready()
      return
    }
    if (!draw.isOneIn(3)) {
      this.beQuiet()
      return
    }
    this.#inject(draw.pick(elasticFaults))
  }

  #inject(fault: ElasticFault): void {
    const world = this.#world
    const { draw } = world
    const elastic = world.elasticMembers.get(this.#key)
    const linking = this.#linking
    const run = this.#run
    const injections = (): true => {
      world.note(`!! ${fault} strikes ${this.name}`)
      world.fired[fault] += 1
      return true
    }
    switch (fault) {
      case 'bye':
        injections()
        this.say({ type: 'bye' })
        this.#forget()
        return
      case 'cut':
        injections()
        this.#cut()
        return
      case 'half-open':
        if (this.#token && this.#id && injections()) this.come()
        return
      case 'late':
        if (linking && injections()) linking.isReady = true
        return
      case 'linkDown':
        if (linking && linking.links.length > 0 && injections()) {
          const { peerRank } = draw.pick(linking.links)
          this.say({ type: 'linkDown', epoch: linking.epoch, peerRank, text: 'no way' })
        }
        return
      case 'abort':
        if (linking && linking.rank >= linking.worldSize - (linking.joining ?? 0) && injections())
          this.say({ type: 'abort', epoch: linking.epoch, text: 'no data' })
        return
      case 'out':
        if (run && injections()) {
          this.#sayOut()
        }
        return
      case 'ranks': {
        if (!run || !elastic || !injections()) return
        // They name whom they have links to.
        const ids = draw.shuffled(
          world.tabs.flatMap((tab) => (tab.#key === this.#key && tab.#run ? [tab.#id] : [])),
        )
        elastic.ids = ids.slice(0, draw.whole(1, Math.min(ids.length, meshLimit)))
        elastic.ballot += draw.whole(0, 3)
        this.#tellRanks()
        return
      }
      case 'done':
        if (run && injections()) {
          this.#hasEnded = true
          this.say({ type: 'done', epoch: Math.max(run, draw.isOneIn(2) ? this.lastEpoch : 0) })
        }
        return
      case 'end':
        if (run && draw.isOneIn(10) && injections()) {
          this.#hasEnded = true
          this.say({ type: 'abort', epoch: run, text: 'the loss is NaN' })
        }
    }
  }

  /** Tabs that train in the room's run now. */
  get #ranks(): readonly Tab[] {
    const { state, members = [] } = this.#lobby ?? {}
    const isRank = (tab: Tab) => members.some(({ id, rank }) => id === tab.#id && rank !== null)
    return state === 'running' ? this.#world.tabs.filter((tab) => tab.#run && isRank(tab)) : []
  }

  /** Whether it is in another run than the room's. */
  get #isStranger(): boolean {
    return this.#run > 0 && this.#ranks.some((tab) => tab.#key !== this.#key)
  }

  /** Takes the end of its run from the server. */
  #end(): void {
    const epoch = this.#run
    this.#run = 0
    this.#world.env.after(5, () => this.say({ type: 'abort', epoch, text: 'ended' }))
  }

  #tellRanks(): void {
    const { ballot, ids } = this.#world.elasticMembers.get(this.#key)!
    if (this.#run && ids.length > 0) this.say({ type: 'ranks', key: this.#key, ballot, ids })
  }

  #ready(): void {
    const linking = this.#linking!
    linking.isReady = true
    this.say({ type: 'ready', epoch: linking.epoch })
  }

  /** Does what brings it into the run. */
  beQuiet(): void {
    const world = this.#world
    if (this.#connection === null) this.come()
    const linking = this.#linking
    if (linking && world.env.now() - linking.sinceMs > limits.prepareMs + 1000)
      world.violate(`${this.name}: epoch ${linking.epoch} neither starts nor ends`)
    if (linking) {
      if (!linking.isReady) this.#ready()
      return
    }
    const { state, maker } = this.#lobby ?? {}
    if (state !== 'assigned' && state !== 'running') {
      if (maker === this.#id) this.say({ type: 'start', settings, isElastic: true })
    } else if (this.#isLeftOut && world.isQuiet) {
      this.say({ type: 'bye' })
      this.#forget()
      this.come()
    } else if (world.isQuiet && this.#run && !this.isRank) {
      this.#sayOut()
    }
  }

  #sayOut(): void {
    this.#outOf = this.#key
    this.#run = 0
    this.say({ type: 'out', key: this.#outOf })
  }

  #runNow(): RunNow | undefined {
    const { elasticMembers, draw } = this.#world
    const elastic = elasticMembers.get(this.#key)
    if (!this.#run || !elastic || elastic.ids.length === 0) return undefined
    const ballot = Math.max(0, elastic.ballot - (draw.isOneIn(4) ? 1 : 0))
    return { key: this.#key, run: this.#run, ballot, ids: elastic.ids, settings }
  }

  received(message: ServerMessage, connection: string): void {
    const world = this.#world
    if (connection !== this.#connection) return
    if (message.type !== 'ping')
      world.note(`${this.name} hears ${JSON.stringify(message).slice(0, 200)}`)
    switch (message.type) {
      case 'challenge':
        this.#enter(message.nonce)
        return
      case 'welcome':
        this.#id = message.id
        if (this.#outOf)
          world.env.after(5, () => {
            if (this.#outOf) this.say({ type: 'out', key: this.#outOf })
          })
        return
      case 'ping':
        this.say({ type: 'pong' })
        return
      case 'lobby':
        this.#takeLobby(message)
        return
      case 'assign':
        this.#takeAssign(message)
        return
      case 'start': {
        const linking = this.#linking
        if (linking?.epoch !== message.epoch) {
          world.violate(`${this.name} hears start of ${message.epoch}, which is not its own`)
          return
        }
        this.#linking = null
        this.#hasEnded = false
        this.#key = linking.key!
        if (linking.joining === undefined && linking.rank === 0)
          world.elasticMembers.set(this.#key, {
            run: message.epoch,
            ballot: 0,
            ids: linking.members.map(({ id }) => id),
          })
        if (!this.#run) world.joined += 1
        this.#outOf = ''
        this.#run = linking.run!
        this.#isLeftOut = false
        return
      }
      case 'abort':
      case 'finished':
        if (this.#linking?.epoch === message.epoch) {
          if (!this.#run) this.#isLeftOut = true
          this.#linking = null
        }
        if (this.#linking?.run === message.epoch) this.#linking = null
        if (this.#run === message.epoch) this.#end()
        return
      case 'error':
        if (message.code === 'unknown-room') this.#enter('')
        else if (message.code === 'room-exists') this.#cut()
        else if (!crossings.includes(message.code))
          world.violate(`${this.name} is refused: ${message.code}, ${message.text}`)
    }
  }

  #enter(nonce: string): void {
    const run = this.#runNow()
    const entry = {
      version: protocolVersion,
      room: roomA,
      info: infoOf(this.name),
      token: this.#token,
      ...(this.#id && { again: { id: this.#id, epoch: this.lastEpoch, run } }),
    } as const
    if (nonce) this.say({ type: 'join', ...entry, proof: hmac(authKey, proofText(roomA, nonce)) })
    else this.say({ type: 'create', ...entry, authKey })
  }

  #takeLobby(lobby: Report<'lobby'>): void {
    const world = this.#world
    this.#lobby = lobby
    const { state, members } = lobby
    const ranks = members.flatMap(({ rank }) => (rank === null ? [] : [rank])).sort((a, b) => a - b)
    const isOn = state === 'assigned' || state === 'running'
    if (ranks.some((rank, at) => rank !== at)) world.violate(`the lobby has ranks ${ranks}`)
    if (isOn !== ranks.length > 0) world.violate(`a room that is ${state} has ranks ${ranks}`)
    const own = members.filter(({ id }) => id === this.#id)
    if (this.#isStranger) {
      world.strangers += 1
      if (this.isRank) world.violate(`${this.name} is a rank, and in another run`)
    }
    if (own.length !== 1) world.violate(`${this.name} is ${own.length} times in its lobby`)
  }

  #takeAssign(message: Report<'assign'>): void {
    const world = this.#world
    const { epoch, rank, members, links, joining, worldSize, key } = message
    if (epoch <= this.lastEpoch)
      world.violate(`${this.name} hears epoch ${epoch} after ${this.lastEpoch}`)
    // A run that has not begun is assigned again when one of its ranks goes.
    const isAgain = joining === undefined && this.#linking?.key === key
    if (this.#linking && !isAgain)
      world.violate(`${this.name} hears epoch ${epoch} while in ${this.#linking.epoch}`)
    if (members[rank]?.id !== this.#id || members.length !== worldSize || worldSize > meshLimit)
      world.violate(`${this.name} hears a rank that is not its own in epoch ${epoch}`)
    if (new Set(members.map(({ id }) => id)).size !== worldSize)
      world.violate(`epoch ${epoch} has a member twice`)
    const isNew = (at: number) => joining === undefined || at >= worldSize - joining
    const isIn = this.#run > 0 && !this.#hasEnded
    if (joining !== undefined && isIn && (this.#key !== key || isNew(rank)))
      world.violate(`${this.name}, which is in a run, is a newcomer in epoch ${epoch}`)
    const peers = members.flatMap((_, at) =>
      at !== rank && (isNew(at) || isNew(rank)) ? [at] : [],
    )
    if (
      links
        .map(({ peerRank }) => peerRank)
        .sort((a, b) => a - b)
        .join() !== peers.join()
    )
      world.violate(`${this.name} has links to ${links.map(({ peerRank }) => peerRank)}`)
    const place = `${world.servers}/${epoch}/${members.map(({ id }) => id)}`
    const others = world.links.get(place) ?? new Map<number, Report<'assign'>>()
    world.links.set(place, others.set(rank, message))
    for (const { peerRank, initiator } of links) {
      const back = others.get(peerRank)?.links.find((link) => link.peerRank === rank)
      if (others.has(peerRank) && back?.initiator !== !initiator)
        world.violate(`epoch ${epoch}: ${rank} and ${peerRank} do not agree about their link`)
    }
    if (joining !== undefined && rank === 0) world.linkings += 1
    // Another run: that of before is over for it.
    if (this.#key !== key) this.#run = 0
    this.lastEpoch = epoch
    this.#linking = { ...message, sinceMs: world.env.now(), isReady: false }
  }
}

export const runElasticRooms = (seed: number, trace?: Trace): Promise<ElasticOutcome> =>
  new ElasticRooms(seed, trace).run()
