import { decodeElasticMessage } from '../../../../src/peer/elastic/messages.ts'
import type { FormerLife, PastRoster, Roster } from '../../../../src/peer/elastic/roster.ts'
import type { Link } from '../../../../src/peer/link/link.ts'
import { type Fault, memoryPair } from '../../../../src/peer/link/memory-link.ts'
import { FrameType, fieldOffset, headerBytes } from '../../../../src/peer/link/wire.ts'
import { newcomerEdges, roomEdges } from '../../../../src/peer/room/edges.ts'
import { memberOf } from '../../../../src/peer/room/lives.ts'
import { Halves } from '../../../../src/peer/server/halves.ts'
import type { RunEvent } from '../../../../src/trainer/watch/run-events.ts'
import { VirtualEnv } from '../../../../src/util/virtual-env.ts'
import { Draw } from '../draw.ts'
import { RankPlace } from '../rank-place.ts'
import type { Trace } from '../trace.ts'
import { controlEpoch, EchoLink, epochOf, isProbe } from './echo-link.ts'
import { drawLie, frameOf, type LiarPlan, type Passed, type Truth } from './liar.ts'
import { type Built, Life, type LifeEnd, type LinkTo } from './life.ts'
import { LyingServer } from './lying-server.ts'
import {
  type ElasticScenario,
  type FaultPlan,
  isPossible,
  type MomentName,
  type RoleName,
} from './plan.ts'
import { Progress } from './progress.ts'

/** From a member's end until the server links one that comes, and until it reports a goodbye. */
const serverMs = 50
/** Frames of a roster that wait at one end of a link until that member enters it, too: one a second, for 8.5 s where links of a ring cannot be made. */
const maxEarly = 12
/** Rosters after the newest proved one, and it. */
const maxBefore = 16
/** Messages of others that a liar remembers. */
const maxPassed = 32
/** A member that misses the first one in the room gives up its place after this time. */
const yieldMs = 12_000
/** A tab connects to a server that is there again within this time. */
const reconnectMs = 3000
/** A page tries to make a link for this long. */
const giveUpMs = 8000
/** Of links that members make themselves. */
const ownEpoch = -1
/** A person looks at what is undecided this long after. */
const personMs = 20_000
/** From the removal of a member until no other one has a link to it, whatever it does. */
const removedMs = 15_000

/** Tabs in a room with a server, the links between them, and what befalls them. */
export class ElasticWorld {
  readonly env: VirtualEnv
  readonly scenario: ElasticScenario
  readonly lives: Life[] = []
  readonly violations: string[] = []
  readonly injected = new Set<FaultPlan>()
  /** When a fault began last, or passed. */
  calmMs = 0
  rosters = 0
  persons = 0
  /** Links that members have made themselves. */
  linked = 0
  /** Old messages that arrived once more. */
  echoes = 0
  /** The longest that enough members were connected and ended no step. units: ms. */
  readonly progress: Progress
  readonly #trace: Trace | undefined
  /** By the two members, first the one at this end. */
  readonly #ends = new Map<string, EchoLink>()
  /** Over which messages are lost without notice. */
  readonly #cut = new Set<string>()
  /** For the messages that a life sends until its next moment. */
  readonly #armed = new Map<Life, FaultPlan>()
  readonly #seen = new Map<FaultPlan, number>()
  /** Those that had a fault, and their links. */
  readonly #touched = new Set<Life>()
  /** On one side of a split. */
  readonly #apart = new Set<Life>()
  /** A tab that lies, in one life after the other. */
  #liar: Life | undefined
  /** The host has removed it. */
  #isLiarRemoved = false
  /** The tab of the host, which removes it again from each roster that it is in with it. */
  #host: number | undefined
  readonly #lies: Draw
  #liesLeft = 0
  /** What others have passed on to it, the newest. */
  readonly #passed: Passed[] = []
  /** The newest that a member has called with. */
  #called = 0
  #isServerUp = true
  /** Without a connection to the server. */
  readonly #away = new Set<Life>()
  #halves = new Halves()
  /** The newest roster that the server has heard of. */
  #reported: Pick<Roster, 'ballot' | 'members'> = { ballot: 0, members: [] }
  /** Lives that have ended a step of a group after a later group had ended it. */
  readonly #wokeIn = new Set<string>()
  readonly #builds = new Map<number, { base: number; made: number; by: string; epoch: number }>()
  #serial = 0
  /** The newest in which the server has linked newcomers, and those with which lives have come. */
  #epoch = 1
  readonly #epochs = new Map<Life, number>()

  constructor(scenario: ElasticScenario, trace?: Trace) {
    this.scenario = scenario
    this.#trace = trace
    this.env = new VirtualEnv(scenario.seed)
    this.progress = new Progress(this)
    this.#lies = new Draw(scenario.seed, 2)
    const ids = scenario.founders.map((_, tab) => `m${tab}.1`)
    const roster = { ballot: 1, members: ids }
    this.#reported = roster
    for (const id of ids) this.#halves.heard(memberOf(id))
    for (const [tab, own] of scenario.founders.entries())
      this.#begin(new Life(this, new RankPlace(this.env), { ...own, tab, id: ids[tab]! }, roster))
    const links = this.lives.map((): LinkTo[] => [])
    for (const [at, other] of roomEdges(this.lives.length)) {
      const [there, back] = this.#link(this.lives[at]!, this.lives[other]!)
      links[at]!.push(there)
      links[other]!.push(back)
    }
    for (const [rank, life] of this.lives.entries()) void life.run(links[rank]!)
    for (const [at, { atMs, ...own }] of scenario.joiners.entries())
      this.env.after(atMs, () => this.#open({ ...own, tab: scenario.founders.length + at }))
    if (scenario.liar) this.#beginLying(scenario.liar)
  }

  note(text: string): void {
    this.#trace?.note(this.env.now(), text)
  }

  violate(text: string): void {
    this.violations.push(text)
    this.note(`VIOLATION ${text}`)
  }

  get alive(): Life[] {
    return this.lives.filter((life) => life.isAlive)
  }

  sleep(life: Life, ms: number): Promise<void> {
    return new Promise((resolve) => life.place.after(ms, resolve))
  }

  compute(life: Life): Promise<void> {
    return this.sleep(life, this.scenario.stepMs * (0.5 + this.env.chance()))
  }

  /** Nothing is left that waits. */
  end(): void {
    for (const life of this.lives) life.isEnding = true
    for (const { group, elastic } of this.lives) {
      group?.destroy('the simulation is over')
      elastic?.end(false)
      elastic?.closeLinks('the simulation is over')
    }
  }

  // --- tabs ---

  #begin(life: Life): void {
    this.lives.push(life)
  }

  /** A tab opens the room's link, or wants in again: as soon as the server is there it is linked to all members. */
  #open(own: { tab: number; device: number; machine: number }, former?: FormerLife): void {
    const place = new RankPlace(this.env)
    const life = new Life(
      this,
      place,
      { ...own, id: `m${own.tab}.${100 + ++this.#serial}` },
      null,
      former,
    )
    this.#begin(life)
    this.note(`${life.id} opens the link`)
    this.#admit(life)
  }

  #admit(life: Life): void {
    if (!life.isAlive) return
    if (this.#isLiarRemoved && this.isLiar(life)) {
      this.ended(life, 'left out')
      return
    }
    const members = this.lives.filter(
      (one) => this.#reported.members.includes(one.id) && one.isAlive,
    )
    const canReach = this.#isServerUp && members.length > 0 && this.#apart.size === 0
    if (!canReach) {
      // The run has ended, or nobody is left who was in it.
      const isOver = !this.alive.some(({ elastic }) => elastic?.roster)
      if (isOver || this.lives.some(({ end }) => end === 'done')) {
        this.ended(life, 'failed')
        return
      }
      life.place.after(1000, () => this.#admit(life))
      return
    }
    const ranks = newcomerEdges(members.length, members.length + 1).flat()
    const linked = members.filter((_, rank) => ranks.includes(rank))
    const epoch = this.nextEpoch()
    this.#epochs.set(life, epoch)
    const links = linked.map((member) => {
      const [there, back] = this.#link(member, life)
      member.place.event(() => member.admit(there, epoch))
      return { ...back, id: null }
    })
    void life.run(links)
    this.moment(life, 'joining')
  }

  nextEpoch(): number {
    return ++this.#epoch
  }

  epochOf(life: Life): number {
    return this.#epochs.get(life) ?? 1
  }

  /** The ends at `a` and at `b`. */
  #link(a: Life, b: Life): [LinkTo, LinkTo] {
    const { delayMs } = this.scenario
    for (const [from, to] of [
      [a, b],
      [b, a],
    ])
      this.#cut.delete(`${from.id} ${to.id}`)
    const [there, back] = memoryPair(this.env, {
      delayMs: () => delayMs * (1 + Math.floor(this.env.chance() * 4) / 4),
      forward: this.#faults(a, b),
      backward: this.#faults(b, a),
    })
    const end = (at: Life, from: Life, transport: Link): LinkTo => {
      const link = new EchoLink(at.place.linked(transport))
      link.entered(at.elastic?.roster?.ballot ?? 0)
      link.onended = (detail) => this.#linkEnded(at, from, detail)
      this.#ends.set(`${at.id} ${from.id}`, link)
      return { id: from.id, member: memberOf(from.id), link }
    }
    return [end(a, b, there), end(b, a, back)]
  }

  /** Nothing but a fault ends a link between two that train together. */
  #linkEnded(at: Life, from: Life, detail: string): void {
    const isFaulty = [at, from].some(
      (life) =>
        !life.isAlive ||
        life.isEnding ||
        this.#touched.has(life) ||
        (this.#isLiarRemoved && this.isLiar(life)),
    )
    const isTogether =
      at.elastic?.roster?.members.includes(from.id) && from.elastic?.roster?.members.includes(at.id)
    if (isTogether && !isFaulty)
      this.violate(
        `the link between ${at.id} and ${from.id} ended, which no fault had struck: ${detail}`,
      )
  }

  #endsOf(life: Life): EchoLink[] {
    return this.lives.flatMap(({ id }) => this.#ends.get(`${life.id} ${id}`) ?? [])
  }

  /** Whether messages between them arrive. */
  areConnected(a: Life, b: Life): boolean {
    const isUp = (from: Life, to: Life) => {
      const name = `${from.id} ${to.id}`
      return this.#ends.get(name)?.isUp === true && !this.#cut.has(name)
    }
    return isUp(a, b) && isUp(b, a)
  }

  /** Old messages arrive once more: they change nothing. */
  #echo(life: Life): void {
    const stateOf = () =>
      [life.step, life.hash, life.end, life.group?.error, life.elastic?.roster?.ballot].join()
    // What a liar has said may cost it its link the second time.
    const honest = this.lives.filter((one) => !this.isLiar(one))
    const ends = honest.flatMap(({ id }) => this.#ends.get(`${life.id} ${id}`) ?? [])
    const before = stateOf()
    const up = ends.filter(({ isUp }) => isUp).length
    const count = ends.reduce((sum, end) => sum + end.echo(), 0)
    this.echoes += count
    if (stateOf() !== before || ends.filter(({ isUp }) => isUp).length !== up)
      this.violate(`${life.id}: of ${count} old messages one made "${stateOf()}" of "${before}"`)
  }

  #faults(from: Life, to: Life): Fault[] {
    const watch: Fault = {
      kind: 'drop',
      matches: (message) => {
        this.#watch(from, to, message)
        return false
      },
    }
    const isArmed = (kind: FaultPlan['kind']) => {
      const plan = this.#armed.get(from)
      if (plan?.kind !== kind) return false
      this.#armed.delete(from)
      this.#inject(plan, from)
      if (kind === 'one-way') this.#cut.add(`${from.id} ${to.id}`)
      this.#touched.add(to)
      return true
    }
    const kinds = ['drop', 'duplicate', 'reorder', 'truncate', 'one-way'] as const
    const split: Fault = {
      kind: 'freeze',
      matches: () => {
        const isSplit = this.#apart.size > 0 && this.#apart.has(from) !== this.#apart.has(to)
        if (isSplit) this.#cut.add(`${from.id} ${to.id}`)
        return isSplit
      },
    }
    // Ports between the tabs of one browser lose nothing.
    if (from.machine === to.machine) return [watch]
    const slow: Fault = { kind: 'slow', delayMs: 200, matches: () => isArmed('slow') }
    return [watch, ...kinds.map((kind) => ({ kind, matches: () => isArmed(kind) })), slow, split]
  }

  #watch(from: Life, to: Life, message: Uint8Array): void {
    if (epochOf(message) === controlEpoch) {
      if (isProbe(message)) return
      const said = decodeElasticMessage(message.subarray(headerBytes))
      this.note(`${from.id} > ${to.id} ${JSON.stringify(said)}`)
      if (said.type === 'call') this.#called = Math.max(this.#called, said.ballot)
      // From then on the others may end their links to it.
      if (said.type === 'bye') this.#touched.add(from)
      if (this.isLiar(from)) return
      if (this.isLiar(to) && said.type === 'pass') this.#passed.push(said)
      if (this.#passed.length > maxPassed) this.#passed.shift()
      if (said.type === 'report') this.moment(from, 'report')
      if (said.type === 'roster') {
        const { ballot, before } = said.roster
        if (before.length > maxBefore)
          this.violate(`${from.id} keeps ${before.length} rosters before ${ballot}`)
        this.moment(from, 'decision')
      }
      return
    }
    const size = from.group?.size ?? 1
    if (message[fieldOffset.type] !== FrameType.data || !from.isTraining) return
    const step = message[fieldOffset.step]!
    this.moment(from, step < size - 1 ? 'scatter' : 'gather')
  }

  /** A group of that roster begins to form. */
  entered(life: Life, ballot: number): void {
    this.rosters++
    const { members } = life.elastic.roster!
    this.note(`${life.id} enters ${ballot}: ${members.join(' ')}`)
    const removed = this.#liar && memberOf(this.#liar.id)
    if (life.tab === this.#host && members.some((id) => memberOf(id) === removed))
      life.place.event(() => life.elastic.remove(removed!))
    for (const end of this.#endsOf(life)) {
      if (end.early > maxEarly) this.violate(`${life.id}: ${end.early} frames of a link waited`)
      end.entered(ballot)
    }
    this.#echo(life)
  }

  /** In which roster this life is. */
  tellServer(life: Life): void {
    const { ballot, members } = life.roster
    if (ballot === 0 || !life.isAlive || !this.#reachesServer(life)) return
    this.env.after(serverMs, () => {
      if (!this.#isServerUp) return
      this.#halves.heard(memberOf(life.id))
      if (ballot > this.#reported.ballot) this.#reported = { ballot, members }
    })
  }

  /** Those that can reach the server connect to it again, one after the other. */
  #reconnect(): void {
    for (const life of this.#away)
      life.place.after(reconnectMs * this.env.chance(), () => {
        if (!this.#isServerUp || this.#apart.has(life)) return
        this.#away.delete(life)
        if (!life.mayBeAhead) this.tellServer(life)
      })
  }

  #reachesServer(life: Life): boolean {
    return !this.#away.has(life)
  }

  askForHalf(life: Life, { ballot, alive, lives }: Extract<RunEvent, { event: 'half' }>): void {
    if (!this.#reachesServer(life)) {
      life.elastic.firstHalf(ballot, undefined)
      return
    }
    this.env.after(serverMs, () => {
      if (!this.#reachesServer(life)) return
      const newest = {
        ballot: this.#reported.ballot,
        members: this.#reported.members.map(memberOf),
      }
      const first = this.#halves.first({ ballot, alive, lives }, newest)
      life.place.after(0, () => {
        life.mayBeAhead = first?.includes(life.id) === true
        life.elastic.firstHalf(ballot, first)
      })
    })
  }

  ended(life: Life, end: LifeEnd): void {
    life.end = end
    this.note(`${life.id}: ${end} at step ${life.step}`)
  }

  /** The others continue without it: it comes in again, as another life. */
  out(life: Life): void {
    this.ended(life, 'left out')
    const entered = life.roster.ballot
    life.place.after(serverMs, () => this.#open(life, { id: life.id, entered }))
  }

  undecided(life: Life, missing: readonly string[] | null): void {
    if (missing && !life.undecided) life.undecidedMs = this.env.now()
    life.undecided = missing
    this.note(`${life.id} undecided: ${missing?.join(' ') ?? 'no more'}`)
    if (!missing) return
    life.place.after(serverMs, () => this.#askServer(life))
    life.place.after(personMs, () => this.#askPerson(life))
  }

  /**
   * The server knows the newest roster, and whether the run has ended. `known`: what it said a second ago. A member that is in a newer roster and
   * has not heard of it until then has no link over which it could.
   */
  #askServer(life: Life, known = 0): void {
    if (!life.undecided || !life.isAlive) return
    const { ballot, members } = this.#reported
    if (this.#reachesServer(life)) {
      if (this.lives.some(({ end }) => end === 'done')) {
        life.leave('The run has ended without this tab.')
        return
      }
      const isNamed = members.includes(life.id)
      if (ballot > life.roster.ballot && (!isNamed || ballot === known)) {
        life.elastic.leftOut('the others continue')
        return
      }
      const isThere = (id: string) =>
        this.alive.some((one) => one.id === id && this.#reachesServer(one))
      const first = life.roster.members.find(isThere)
      const isLong = this.env.now() - life.undecidedMs > yieldMs
      if (isLong && first && life.undecided.includes(first)) {
        life.elastic.leftOut('it has lost its links')
        return
      }
    }
    life.place.after(1000, () => this.#askServer(life, ballot))
  }

  /** A person who sees all tabs continues without those that are gone, where no others train. */
  #askPerson(life: Life): void {
    if (!life.undecided || !life.isAlive) return
    const isHere = (id: string) => this.lives.some((one) => one.id === id && one.isAlive)
    const own = life.elastic.roster?.ballot ?? 0
    const isBehind = this.lives.some(
      ({ elastic, end, isAlive }) =>
        end === 'done' || (isAlive && elastic?.roster && elastic.roster.ballot > own),
    )
    if (isBehind || life.undecided.some(isHere)) {
      life.place.after(personMs, () => this.#askPerson(life))
      return
    }
    this.persons++
    if (this.scenario.liar && this.scenario.faults.length === 0 && !this.isLiar(life))
      this.violate(`${life.id} waits for a person because of a liar alone`)
    // What others had built is lost, as the page has warned.
    this.#builds.clear()
    this.note(`a person continues with ${life.id}`)
    life.elastic.continueWithout()
  }

  // --- what is checked while they train ---

  /** Every group that ends a step builds on the one state of the step before, and does none again: only the newest may have died with its makers. */
  built(life: Life, { step, base, made }: Built, workers: Int32Array): void {
    if (workers.some((count) => count !== 1))
      this.violate(`${life.id}: step ${step} counted its virtual workers ${workers.join()} times`)
    const before = this.#builds.get(step - 1)
    if (before && before.made !== base) this.#otherBase(life, step, base, before)
    const known = this.#builds.get(step)
    if (known && known.base !== base)
      this.violate(
        `${life.id} built step ${step} on ${base}, ${known.by} on ${known.base}: two groups trained`,
      )
    const { epoch } = life.group!
    // One that slept has what it needs for the end of the step in which it fell asleep, and of no other.
    const place = `${life.id} in ${epoch}`
    if (known && epoch < known.epoch && !this.#wokeIn.has(place)) {
      this.#wokeIn.add(place)
      return
    }
    const last = Math.max(0, ...this.#builds.keys())
    if (step < last && known?.epoch !== epoch && this.persons === 0)
      this.violate(
        `${life.id} trains on from step ${step - 1}: steps up to ${last} are lost, and no person has decided that`,
      )
    this.#builds.set(step, { base, made, by: life.id, epoch })
  }

  /** The step before was made twice, on unlike devices: nobody may have built on the other one. */
  #otherBase(life: Life, step: number, base: number, before: { made: number; by: string }): void {
    const isMixed = new Set(this.lives.map(({ device }) => device)).size > 1
    if (!isMixed || this.#builds.has(step))
      this.violate(
        `${life.id} built step ${step} on ${base}, but ${before.by} had made ${before.made}`,
      )
  }

  took(life: Life): void {
    this.note(`${life.id} takes step ${life.step}, ${life.hash}`)
  }

  // --- lies ---

  /** Whether what it does and suffers is a liar's. */
  isLiar({ tab }: Life): boolean {
    return tab === this.#liar?.tab
  }

  #beginLying({ role, lies, everyMs, removedMs }: LiarPlan): void {
    this.#liesLeft = lies
    if (removedMs !== undefined) this.env.after(removedMs, () => this.#removeLiar())
    const server = role === 'server' ? new LyingServer(this, this.#lies) : undefined
    if (!server) {
      this.#liar = role === 'member' ? this.#lies.pick(this.lives) : this.#stranger()
      this.#touched.add(this.#liar)
    }
    const next = () =>
      this.env.after(everyMs * 2 * this.#lies.share(), () => {
        if (this.#liesLeft === 0) return
        this.calmMs = this.env.now()
        if (server) {
          this.#liesLeft--
          server.lie((self) => this.#truthFor(self))
        } else this.#lie()
        next()
      })
    next()
  }

  /** The host, a rank that is no liar, removes it: the server hears it no more, and the others that its connection has ended. It does not obey. */
  #removeLiar(): void {
    const liars = () => this.alive.filter((life) => this.isLiar(life))
    const others = this.alive
      .filter(({ elastic }) => elastic?.roster)
      .filter((one) => !this.isLiar(one))
    const host = others.find(({ elastic, id }) => elastic.roster!.members.includes(id))
    // Who waits for others cannot leave out one more.
    if (!host || host.undecided) return
    this.#isLiarRemoved = true
    this.#host = host.tab
    this.calmMs = this.env.now() + removedMs
    const member = memberOf(this.#liar!.id)
    this.note(`!! ${host.id}, the host, removes ${member}`)
    for (const life of liars()) this.#away.add(life)
    this.#halves.gone(member)
    host.place.event(() => host.elastic.remove(member))
    for (const other of others) other.place.after(serverMs, () => other.elastic.doubt(member))
    this.env.after(removedMs, () => {
      for (const life of liars()) {
        for (const other of others.filter(({ isAlive }) => isAlive)) {
          const isUp = this.#ends.get(`${other.id} ${life.id}`)?.isUp
          const isIn = other.elastic.roster?.members.includes(life.id)
          if ((isUp || isIn) && this.scenario.faults.length === 0)
            this.violate(`${other.id} still has ${life.id}, which the host has removed`)
        }
        this.#crash(life)
      }
    })
  }

  /** A tab with the room's link that runs no build of this project. */
  #stranger(): Life {
    const own = { tab: -1, device: 0, machine: 0, id: `m99.${100 + ++this.#serial}` }
    const life = new Life(this, new RankPlace(this.env), own, null)
    life.end = 'left out'
    this.lives.push(life)
    return life
  }

  #truthFor(self: string): Truth {
    const ids = this.lives.map(({ id }) => id)
    const rosters = this.lives.flatMap(({ elastic }) => elastic?.roster ?? [])
    const first: PastRoster = { ballot: 1, members: ids }
    const { ballot, members } = [first, ...rosters].reduce((a, b) => (a.ballot > b.ballot ? a : b))
    const ballots = [this.#called, ballot]
    return { ids, self, ballots, roster: { ballot, members }, passed: this.#passed }
  }

  /** One message to one member, or to all; a stranger whose links have ended comes again. */
  #lie(): void {
    const draw = this.#lies
    if (
      this.scenario.liar!.role === 'newcomer' &&
      this.#endsOf(this.#liar!).every(({ isUp }) => !isUp)
    ) {
      this.#liar = this.#stranger()
      this.#touched.add(this.#liar)
      const members = this.alive.filter(
        ({ id, elastic }) => this.#reported.members.includes(id) && elastic,
      )
      const epoch = this.nextEpoch()
      for (const member of members) {
        const [there] = this.#link(member, this.#liar)
        member.place.event(() => member.admit(there, epoch))
      }
      if (draw.isOneIn(2)) return
    }
    this.#liesLeft--
    const liar = this.#liar!
    const isToAll = draw.isOneIn(2)
    const lie = drawLie(draw, this.#truthFor(liar.id))
    const to = this.#endsOf(liar)
    for (const end of isToAll ? to : to.length > 0 ? [draw.pick(to)] : [])
      if (end.isUp && end.room() > 0) end.send(frameOf(lie))
    this.note(`!! ${liar.id} lies${isToAll ? ' to all' : ''}: ${JSON.stringify(lie)}`)
  }

  // --- links that members make themselves ---

  /** Its page offers links for which it is the initiator, and gives up after a while. */
  unlinked(life: Life, { ballot, links }: Extract<RunEvent, { event: 'unlinked' }>): void {
    const { members } = life.elastic.roster!
    for (const { peerRank, initiator } of links) {
      if (initiator) life.elastic.signal(ballot, peerRank, 1, 'offer')
      const isUp = () => this.#ends.get(`${life.id} ${members[peerRank]}`)?.isUp === true
      life.place.after(giveUpMs, () => {
        if (life.isAlive && !isUp()) life.elastic.notLinked(ballot, peerRank)
      })
    }
  }

  /** An offer has come, over links and other members. */
  signalled(life: Life, { ballot, from }: Extract<RunEvent, { event: 'signal' }>): void {
    const other = this.lives.find(({ id }) => id === life.elastic.roster!.members[from])
    if (!other || this.areConnected(life, other)) return
    this.env.after(serverMs, () => {
      const canReach = this.#apart.has(life) === this.#apart.has(other)
      // Pages give up what they do for an older roster.
      const areHere = [life, other].every((one) => one.isAlive && one.roster.ballot === ballot)
      if (!canReach || !areHere || this.areConnected(life, other)) return
      const [there, back] = this.#link(life, other)
      life.place.event(() => life.admit(there, ownEpoch))
      other.place.event(() => other.admit(back, ownEpoch))
      this.linked++
      this.note(`${life.id} and ${other.id} are linked for ${ballot}`)
    })
  }

  // --- faults ---

  moment(life: Life, name: MomentName): void {
    const role = this.#roleOf(life)
    if (!isPossible(name, role) && !this.scenario.liar)
      this.violate(`${life.id}: ${name}, ${role}: this cannot be`)
    if (name === 'report') this.env.after(0, () => life.isAlive && this.#echo(life))
    // The moment has passed in which its messages were to get the fault: a later one of its kind comes.
    if (this.#armed.get(life)?.moment !== name) this.#armed.delete(life)
    for (const plan of this.scenario.faults) {
      if (this.injected.has(plan) || plan.moment !== name || role !== plan.role) continue
      const seen = (this.#seen.get(plan) ?? 0) + 1
      this.#seen.set(plan, seen)
      const isWaiting = [...this.#armed.values()].includes(plan)
      if (seen >= plan.nth && !isWaiting) this.#befall(plan, life)
    }
  }

  #roleOf(life: Life): RoleName {
    if (life.isDonor) return 'donor'
    if (!life.isFounder && !life.hasTrained) return 'joiner'
    return life.elastic?.roster?.members[0] === life.id ? 'senior' : 'ordinary'
  }

  #inject(plan: FaultPlan, life: Life): void {
    this.injected.add(plan)
    if (plan.kind !== 'gpu lost' && plan.kind !== 'server lost') this.#touched.add(life)
    this.calmMs = this.env.now()
    this.note(`!! ${plan.kind} strikes ${life.id}: ${plan.moment}, ${plan.role}`)
  }

  #passes(ms: number, run: () => void): void {
    this.env.after(ms, () => {
      this.calmMs = this.env.now()
      run()
    })
  }

  #befall(plan: FaultPlan, life: Life): void {
    const { kind, ms } = plan
    switch (kind) {
      case 'close':
        this.#inject(plan, life)
        this.env.after(0, () => this.#close(life))
        return
      case 'crash':
        this.#inject(plan, life)
        this.env.after(0, () => this.#crash(life))
        return
      case 'pause':
        this.#inject(plan, life)
        life.place.pause()
        this.#passes(ms, () => life.place.goOn())
        return
      case 'clock jump':
        this.#inject(plan, life)
        life.place.jump(ms)
        return
      case 'server lost':
        this.#inject(plan, life)
        this.#isServerUp = false
        for (const one of this.alive) this.#away.add(one)
        // Another process knows nothing but what members send it.
        if (this.env.chance() < 0.5) {
          this.#halves = new Halves()
          this.#reported = { ballot: 0, members: [] }
        }
        this.#passes(ms, () => {
          this.#isServerUp = true
          this.#reconnect()
        })
        return
      case 'partition': {
        this.#inject(plan, life)
        const others = this.lives.filter((one) => one.isAlive && one !== life)
        this.#apart.add(life)
        for (const other of others) if (this.env.chance() < 0.5) this.#apart.add(other)
        for (const one of this.#apart) this.#away.add(one)
        for (const one of this.alive) this.#touched.add(one)
        this.#passes(ms, () => {
          this.#apart.clear()
          this.#reconnect()
        })
        return
      }
      case 'gpu lost':
        this.#inject(plan, life)
        life.loseDevice()
        return
      default:
        this.#armed.set(life, plan)
    }
  }

  #close(life: Life): void {
    if (!life.isAlive) return
    // A person leaves the run, or closes the tab: then its worker ends at once.
    if (this.env.chance() < 0.5) life.elastic.end(false)
    this.#crash(life)
    for (const other of this.alive) {
      const end = this.#ends.get(`${other.id} ${life.id}`)
      other.place.after(100 * this.env.chance(), () => end?.close('the tab was closed'))
    }
    if (!this.#reachesServer(life)) return
    const ballot = this.#halves.maxBallotOf(memberOf(life.id), this.#reported.ballot)
    for (const other of this.alive)
      other.place.after(serverMs, () => other.elastic?.memberIsDead(memberOf(life.id), ballot))
  }

  /** Nothing runs there any more. On its machine the others see that its process has ended, elsewhere that the connection has. */
  #crash(life: Life): void {
    life.place.isCrashed = true
    if (this.#reachesServer(life))
      for (const other of this.alive)
        other.place.after(serverMs, () => {
          if (this.#reachesServer(other)) other.elastic?.doubt(memberOf(life.id))
        })
    for (const other of this.alive) {
      const end = this.#ends.get(`${other.id} ${life.id}`)
      if (other.machine === life.machine)
        other.place.after(20, () => other.elastic?.memberIsDead(life.id))
      other.place.after(6000 * (1 + this.env.chance()), () => end?.close('its connection failed'))
    }
  }
}
