import { codeServerSchema } from '../../../src/peer/room/code-messages.ts'
import {
  parseMessage,
  parseServerMessage,
  type ServerMessage,
} from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import { type Limits, limits } from '../../../src/peer/server/limits.ts'
import { infoOf } from '../member-info.ts'
import { authKey, hmac, RendezvousWorld, roomA, roomB } from '../rendezvous-world.ts'
import { Draw } from '../simulation/draw.ts'
import type { Trace } from '../simulation/trace.ts'
import { drawMessage, type Known } from './client-messages.ts'
import { garbage, mutatedJson, mutatedText } from './mutate.ts'
import { Findings, type FuzzOutcome, type FuzzTarget, whereOf } from './target.ts'

/** Half of the seeds have a server with small limits, so that each limit is reached. */
const smallLimits: Partial<Limits> = {
  messageBurst: 12,
  messageBytes: 8 * 1024,
  membersPerRoom: 6,
  guestsPerRoom: 2,
  rooms: 4,
  storeCallBurst: 10,
  storeKeysPerRoom: 4,
  storeBytesPerRoom: 4 * 1024,
  storeWaits: 2,
  relayEndsPerRoom: 3,
  relayQueueBytes: 4 * 1024,
  relayBytesPerSec: 4 * 1024,
  reachBurst: 3,
  asksPerRoom: 2,
  declinesPerRoom: 1,
  addressesKept: 2,
  seatsPerRun: 3,
  halvesPerRun: 1,
  leftOutPerRun: 1,
  endedRunsPerRoom: 1,
}

/** Longer than the server waits for anything but an idle room. units: ms. */
const quietMs = 150_000

/** Members of room A, and the host of room B: none of them does anything wrong. */
const bystanders: readonly string[] = ['t0', 't1']
const host = 'u0'
/** A rank of the host's tab: what attackers know of it lets none of them in where the host is asked, nor gives them its seat. */
const rank = 'u1'
const rankToken = 'dc'.repeat(16)

/** A host that starts more of them in so short a time would be refused itself. */
const maxRuns = 4

/** Of attackers alone. */
const roomC = 'cc'.repeat(16)

interface Attacker {
  /** Of which it has the link; null for none, and it knows A's name. */
  readonly room: string | null
  /** What it sends is right in its form, mostly. */
  readonly isCareful: boolean
}

/** Attackers with the link of room B, of a room of theirs or with none, beside honest members of A and the honest host of B. */
class Attack {
  readonly findings: Findings
  readonly #draw: Draw
  readonly #world: RendezvousWorld
  readonly #marker: string
  readonly #largest: number
  readonly #hasRoomKey: boolean
  /** The host lets in nobody but its rank. */
  readonly #asks: boolean
  /** Those that are connected. */
  readonly #attackers = new Map<string, Attacker>()
  #opened = 0
  #passed = 0
  #runs = 0
  /** Runs that the host has started: their keys, or their epochs where they are not elastic. */
  readonly #started = new Set<string | number>()
  readonly #isSmall: boolean
  /** Of the newest connection of `rank`, and of the elastic run in which it has its seat; it may be away. */
  #rankId = ''
  #rankKey = ''
  #isRankAway = false

  constructor(seed: number, trace?: Trace) {
    this.findings = new Findings(trace)
    this.#draw = new Draw(seed)
    this.#marker = `fuzz-${seed}`
    this.#isSmall = this.#draw.isOneIn(2)
    const own = this.#isSmall ? smallLimits : {}
    this.#largest = own.messageBytes ?? limits.messageBytes
    this.#hasRoomKey = this.#draw.isOneIn(4)
    this.#asks = this.#draw.isOneIn(4)
    this.#world = new RendezvousWorld(own, {
      ...(this.#hasRoomKey && { roomKey: 'known to the honest alone' }),
      hasRelay: this.#draw.isOneIn(2),
      asks: this.#asks,
    })
    if (this.#asks && this.#draw.isOneIn(2)) this.#world.addressOf = () => 'one'
    this.#world.givesRoomKey = this.#hasRoomKey
  }

  async run(): Promise<FuzzOutcome> {
    try {
      await this.#attack()
    } catch (thrown) {
      this.#violate(`an exception left the server: ${whereOf(thrown)}`)
    }
    return this.findings
  }

  async #attack(): Promise<void> {
    const world = this.#world
    const draw = this.#draw
    await world.fill(2, roomA)
    if (this.#asks) this.#letIn('t0')
    await world.tick()
    const value = { box: 'honest', tag: 'T'.repeat(43) }
    world.say('t0', { type: 'store', id: 1, call: { op: 'set', key: 'k', value } })
    const epoch = draw.isOneIn(2) ? await world.run([...bystanders]) : null
    // A server that has just begun takes over what anyone brings.
    await world.env.advance(limits.backMs)
    const before = this.#memory()
    const heard = bystanders.map((id) => world.inboxes.get(id)!.length)
    world.create(host, roomB, infoOf(host), 'dd'.repeat(16))
    const withRank = this.#asks || draw.isOneIn(2)
    if (withRank) {
      world.join(rank, roomB, infoOf(rank, { tab: '0a0b0c0d' }), authKey, rankToken)
      if (this.#asks) this.#letIn(host)
      this.#rankId = world.last(rank, 'welcome').id
      if (draw.isOneIn(2)) this.#beginWithRank()
    }
    await world.env.advance(1000)
    // What attackers have put into the store of B stays as long as the room.
    const { storeBytes: _, ...beside } = this.#memory()

    for (let steps = draw.whole(40, 120); steps > 0; steps--) {
      await this.#step()
      if (this.#hasRoomKey && world.server.status.rooms > 2)
        this.#violate('an attacker without the room key has made a room')
    }
    await world.env.advance(20)
    this.#checkHost()

    for (const id of this.#attackers.keys()) world.server.lost(id, 'gone')
    if (this.#isRankAway) await this.#cutOrBringRank()
    // A run may continue with the host alone, and keeps places for those that are gone.
    const { epoch: running } = world.last(host, 'lobby')
    for (const id of running > 0 ? [host, rank] : [])
      world.say(id, { type: 'abort', epoch: running, text: 'enough' })
    await world.env.advance(quietMs)
    this.#checkMemory(beside)
    world.server.lost(host, 'gone')
    world.server.lost(rank, 'gone')
    this.#checkMemory(before)
    this.#checkBystanders(heard)
    this.#checkMessages()
    if (epoch !== null) for (const id of bystanders) world.say(id, { type: 'done', epoch })
    await world.tick()
    const next = await world.run([...bystanders])
    for (const id of bystanders)
      if (world.last(id, 'start').epoch !== next) this.#violate(`${id} cannot start a run any more`)
  }

  /** One thing that an attacker, the clock or the host of room B does. */
  async #step(): Promise<void> {
    const world = this.#world
    const draw = this.#draw
    if (this.#attackers.size === 0 || draw.isOneIn(7)) this.#open()
    else if (draw.isOneIn(12)) await world.env.advance(draw.pick([1, 20, 1000, 1000, 6000, 20_000]))
    else if (draw.isOneIn(15) && this.#runs < maxRuns) this.#actAsHost()
    else if (this.#rankKey && draw.isOneIn(10)) await this.#cutOrBringRank()
    else if (draw.isOneIn(25)) this.#leave(draw.pick([...this.#attackers.keys()]))
    else this.#send(draw.pick([...this.#attackers.keys()]))
    for (const id of world.closed.keys()) this.#attackers.delete(id)
    // What went to slow readers has left the server, or has not.
    if (draw.isOneIn(2))
      for (; this.#passed < world.passed.length; this.#passed++) {
        const [id, bytes] = world.passed[this.#passed]!
        world.server.passed(id, bytes.length)
      }
  }

  #open(): void {
    const world = this.#world
    const id = `x${this.#opened++}`
    this.findings.count('connections')
    this.#note(`${id} connects`)
    if (this.#draw.isOneIn(8)) world.deaf.add(id)
    world.open(id)
    const room = this.#draw.pick([roomB, roomB, roomB, roomC, roomC, null])
    this.#attackers.set(id, { room, isCareful: !this.#draw.isOneIn(3) })
    // Most come in first: more can go wrong in a room than at its door.
    if (room && !this.#draw.isOneIn(4)) {
      const type = this.#draw.pick(['join', 'join', 'join', 'relay', 'create'] as const)
      this.#receive(id, JSON.stringify(drawMessage(this.#draw, this.#known(id), type)))
    }
  }

  #leave(id: string): void {
    this.#note(`${id} is lost`)
    this.#attackers.delete(id)
    this.#world.server.lost(id, `${this.#marker} is lost`)
  }

  #actAsHost(isElastic = this.#draw.isOneIn(2)): void {
    const world = this.#world
    this.#runs += 1
    this.#note(`${host} starts a run`)
    const before = world.all(host, 'assign').length
    world.say(host, { type: 'start', settings: { steps: 3 }, isElastic })
    for (const { key, epoch } of world.all(host, 'assign').slice(before))
      this.#started.add(key ?? epoch)
    const epoch = world.all(host, 'assign').at(-1)?.epoch
    if (epoch !== undefined && !this.#draw.isOneIn(3)) world.say(host, { type: 'ready', epoch })
  }

  #beginWithRank(): void {
    this.#actAsHost(true)
    for (const id of [host, rank]) {
      const { epoch, key } = this.#world.last(id, 'assign')
      this.#world.say(id, { type: 'ready', epoch })
      this.#rankKey = key!
    }
  }

  /** The connection of the host's rank ends, or it comes back: it has its seat while the run is on. */
  async #cutOrBringRank(): Promise<void> {
    const world = this.#world
    this.#isRankAway = !this.#isRankAway
    if (this.#isRankAway) {
      this.#note(`${rank} is away`)
      world.server.lost(rank, 'offline')
      return
    }
    this.#note(`${rank} comes back`)
    world.server.lost(rank, 'offline')
    await world.env.advance(limits.lobbyDelayMs)
    const isOn = world.last(host, 'lobby').state === 'running'
    const ids = [world.last(host, 'welcome').id, this.#rankId]
    const run = { key: this.#rankKey, run: 1, ballot: 1, ids, settings: null }
    const again = { id: this.#rankId, epoch: 1, run }
    world.join(rank, roomB, infoOf(rank, { tab: '0a0b0c0d' }), authKey, rankToken, { again })
    const { id } = world.all(rank, 'welcome').at(-1) ?? {}
    if (id === this.#rankId) return
    const isSame = isOn && world.last(host, 'assign').key === this.#rankKey
    if (id !== undefined && isSame && !this.#isSmall)
      this.#violate(`${rank} has lost its seat in the run`)
    // Too many may be in the room.
    this.#isRankAway = id === undefined
    this.#rankId = id ?? this.#rankId
  }

  #known(id: string): Known {
    const world = this.#world
    const { room } = this.#attackers.get(id)!
    const { nonce } = world.last(id, 'challenge')
    const lobby = [id, host].map((one) => world.all(one, 'lobby').at(-1)).find(Boolean)
    const assigned = [id, host].map((one) => world.all(one, 'assign').at(-1)).find(Boolean)
    return {
      room: room ?? roomA,
      authKey: room ? authKey : '02'.repeat(32),
      proof: room ? hmac(authKey, proofText(room, nonce)) : '03'.repeat(32),
      epoch: assigned?.epoch ?? lobby?.epoch ?? 0,
      ids: [
        ...(lobby?.members.map((one) => one.id) ?? ['ab'.repeat(8)]),
        ...(this.#isRankAway ? Array(3).fill(this.#rankId) : []),
      ],
      runKey: assigned?.key ?? 'cd'.repeat(8),
      marker: this.#marker,
    }
  }

  #send(id: string): void {
    const draw = this.#draw
    const { isCareful } = this.#attackers.get(id)!
    if (draw.isOneIn(isCareful ? 30 : 8)) {
      const bytes = garbage(draw, draw.pick([0, 40, 3000]))
      this.findings.count('messages')
      this.#note(`${id} > ${bytes.length} bytes, binary`)
      this.#world.server.receiveBytes(id, bytes)
      return
    }
    const message = drawMessage(draw, this.#known(id))
    const text = JSON.stringify(message)
    const isRight = isCareful && !draw.isOneIn(12)
    const raw = draw.pick<() => string>([
      () => mutatedJson(message, draw),
      () => mutatedJson(message, draw),
      () => mutatedText(text, draw),
      () => String.fromCharCode(...garbage(draw, 60)),
      () => `${text.slice(0, -1)},"more":"${'€'.repeat(this.#largest / draw.pick([2, 4]))}"}`,
    ])
    this.#receive(id, isRight ? text : raw())
    // A flood of what is right.
    const isIn = this.#world.all(id, 'welcome').length > 0
    if (isIn && draw.isOneIn(100))
      for (let i = 0; i < 1200 && !this.#world.closed.has(id); i++) this.#receive(id, text)
  }

  #receive(id: string, raw: string): void {
    const world = this.#world
    this.findings.count('messages')
    this.#note(`${id} > ${raw.length > 2000 ? `${raw.slice(0, 2000)}… (${raw.length})` : raw}`)
    const inbox = world.inboxes.get(id)!
    const before = inbox.length
    world.server.receive(id, raw)
    for (const answer of inbox.slice(before)) {
      this.#note(`${id} <   ${JSON.stringify(answer).slice(0, 300)}`)
      if (this.#asks && this.#isEntry(id, answer))
        this.#violate(`${id} has come into a room whose host did not let it in`)
      if (answer.type !== 'error') continue
      if (answer.code === 'internal') this.#violate(`the server failed: ${answer.text}`)
      if (answer.isFatal !== world.closed.has(id))
        this.#violate(
          `${answer.code} says isFatal ${answer.isFatal}, but the connection is ${world.closed.has(id) ? 'closed' : 'open'}`,
        )
    }
  }

  /** Whether an attacker has got into a room of honest tabs: as a member, a guest or the end of a relayed link. */
  #isEntry(id: string, answer: ServerMessage): boolean {
    if (answer.type === 'welcome') return [roomA, roomB].includes(answer.room)
    return answer.type === 'relayed' && this.#attackers.get(id)!.room === roomB
  }

  /** What the server holds. */
  #memory(): Readonly<Record<string, number>> {
    const { server, env, paused } = this.#world
    const { rooms, members, guests } = server.status
    const { connections } = server.counts
    const { storeBytes, relayBytes } = server
    const timers = env.timers
    return {
      rooms,
      members,
      guests,
      connections,
      storeBytes,
      relayBytes,
      timers,
      paused: paused.size,
    }
  }

  #checkMemory(before: Readonly<Record<string, number>>): void {
    const after = this.#memory()
    for (const [name, count] of Object.entries(before))
      if (count !== after[name])
        this.#violate(`${name}: ${count} before the attack, ${after[name]} after it`)
  }

  #checkHost(): void {
    const world = this.#world
    const why = world.closed.get(host)
    if (why !== undefined) {
      this.#violate(`the host of room B lost its connection: ${why}`)
      return
    }
    const { id } = world.last(host, 'welcome')
    const { maker } = world.last(host, 'lobby')
    if (maker !== id) this.#violate('an attacker is the host of room B')
    const isOn = world.all(host, 'lobby').some(({ state }) => state === 'running')
    if (isOn && this.#started.size === 0) this.#violate('a run is on in room B without a start')
    for (const { key, epoch } of world.all(host, 'assign'))
      if (!this.#started.has(key ?? epoch))
        this.#violate(`the host of room B is in a run that it has not started: epoch ${epoch}`)
  }

  #letIn(maker: string): void {
    const { asks } = this.#world.last(maker, 'asks')
    for (const { id } of asks) this.#world.say(maker, { type: 'letIn', id, isLetIn: true })
  }

  /** Nothing of the attack is in what room A was sent, nor anything else that room A has not caused. */
  #checkBystanders(heard: readonly number[]): void {
    const world = this.#world
    for (const [at, id] of bystanders.entries()) {
      const why = world.closed.get(id)
      if (why !== undefined) this.#violate(`${id} of room A lost its connection: ${why}`)
      for (const message of world.inboxes.get(id)!.slice(heard[at]))
        if (message.type !== 'ping')
          this.#violate(`${id} of room A got ${JSON.stringify(message).slice(0, 200)}`)
    }
  }

  /** Clients understand whatever the server sends, and take messages of its length. */
  #checkMessages(): void {
    for (const [id, inbox] of this.#world.inboxes)
      for (const message of inbox) {
        if (message.type === 'error') this.findings.count(message.code)
        const text = JSON.stringify(message)
        const ofRoom = parseServerMessage(text)
        const parsed = ofRoom.ok ? ofRoom : parseMessage(codeServerSchema, text)
        if (!parsed.ok)
          this.#violate(`${id} got a ${message.type} that no client reads: ${parsed.text}`)
        if (Buffer.byteLength(text) > limits.messageBytes)
          this.#violate(`${id} got a ${message.type} of ${Buffer.byteLength(text)} bytes`)
      }
  }

  #note(text: string): void {
    this.findings.note(text, this.#world.env.now())
  }

  #violate(text: string): void {
    this.findings.violate(text, this.#world.env.now())
  }
}

export const signaling: FuzzTarget = {
  name: 'signaling',
  about: 'hostile clients of the signaling server, beside honest ones in two rooms',
  run: (seed, trace) => new Attack(seed, trace).run(),
}
