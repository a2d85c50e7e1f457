import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { NonGroupMember } from '../../../src/peer/group/non-group-member.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import { messageOf, PeerError } from '../../../src/util/errors.ts'
import { ifMember } from '../members.ts'
import { causeViolations } from './causes.ts'
import { Draw } from './draw.ts'
import type { FaultPlan } from './fault-plan.ts'
import type { Operation } from './operations.ts'
import { launchOrder, type Phase, type Scenario } from './scenario.ts'
import type { Trace } from './trace.ts'
import { World } from './world.ts'

/** What a seed came to. */
export interface Outcome {
  readonly violations: readonly string[]
  readonly fired: readonly FaultPlan[]
  readonly resolved: number
  readonly rejected: number
  /** Wrong results behind a bit that was turned on the way. */
  readonly spoilt: number
  readonly messages: number
}

/** Runs a scenario to its end, and checks it. */
export async function simulate(scenario: Scenario, trace?: Trace): Promise<Outcome> {
  return new Simulation(scenario, trace).run()
}

/** How long after the last sign of life everything must have ended. */
export function patienceMs({ deadlineMs, faults, size }: Scenario, hopMs: number): number {
  const { deadMs, pingMs, leaveMs, helloMs } = sessionDefaults
  const late = faults.reduce((sum, { ms, kind }) => sum + (kind === 'slow' ? 2 * ms : ms), 0)
  return Math.max(deadlineMs, helloMs) + deadMs + 2 * pingMs + leaveMs + 2 * size * hopMs + 2 * late
}

class Simulation {
  readonly #scenario: Scenario
  readonly #world: World
  readonly #violations: string[] = []
  /** Who has begun each operation. */
  readonly #begun = new Map<Operation, Set<number>>()
  /** Those that some rank has called otherwise. */
  readonly #odd = new Set<Operation>()
  /** By rank and group: why it has ended, where the epoch had not. */
  readonly #ends = new Map<string, unknown>()
  #unsettled = new Map<number, Set<string>>()
  #finished = new Set<number>()
  #onfinished: () => void = () => undefined
  readonly #allFinished: Promise<void>
  #resolved = 0
  #rejected = 0
  #spoilt = 0

  constructor(scenario: Scenario, trace?: Trace) {
    this.#scenario = scenario
    this.#world = new World(scenario, trace)
    this.#allFinished = new Promise((resolve) => {
      this.#onfinished = resolve
    })
  }

  async run(): Promise<Outcome> {
    const { env, places, groups, fired } = this.#world
    const { size } = this.#scenario
    const ended = new Set<number>()
    for (let rank = 0; rank < size; rank++)
      this.#play(rank).then(
        () => ended.add(rank),
        (thrown) => {
          ended.add(rank)
          this.#violate(`rank ${rank}: ${messageOf(thrown)}`)
        },
      )
    const patience = patienceMs(this.#scenario, this.#hopMs)
    const isOver = () => places.every((place, rank) => place.isCrashed || ended.has(rank))
    await env.advance(0)
    while (!isOver()) {
      const isLeft = await env.step()
      if (this.#liveFinished) this.#onfinished()
      if (isOver() || (isLeft && env.now() <= this.#world.activeMs + patience)) continue
      if (!isLeft) await env.advance(0)
      if (isOver()) break
      this.#violate(
        `nothing ends within ${patience} ms of the last sign of life: ${this.#waiting()}`,
      )
      break
    }
    this.#checkMemory()
    if (this.#violations.length === 0) {
      this.#violations.push(...causeViolations(this.#scenario, this.#world, this.#hopMs))
      if (fired.size === 0) this.#checkNothingLeft()
      for (const [rank, group] of groups.entries())
        if (!places[rank]!.isCrashed) group.destroy('the simulation is over')
      await env.advance(60_000)
      if (env.timers > 0) this.#violate(`${env.timers} timers are left`)
    }
    return {
      violations: this.#violations,
      fired: [...fired.keys()],
      resolved: this.#resolved,
      rejected: this.#rejected,
      spoilt: this.#spoilt,
      messages: this.#world.messages,
    }
  }

  get #hopMs(): number {
    const { delayMs, jitterMs } = this.#scenario
    return delayMs + jitterMs + 1
  }

  get #liveFinished(): boolean {
    return this.#world.places.every((place, rank) => place.isCrashed || this.#finished.has(rank))
  }

  #violate(text: string): void {
    this.#violations.push(text)
    this.#world.note(`VIOLATION ${text}`)
  }

  #waiting(): string {
    const { places } = this.#world
    return [...this.#unsettled]
      .filter(([rank, names]) => !places[rank]!.isCrashed && names.size > 0)
      .map(([rank, names]) => `rank ${rank} waits for ${[...names].join(', ')}`)
      .join('; ')
  }

  /** One rank's program, from joining to leaving. */
  async #play(rank: number): Promise<void> {
    const { seed, phases, leavesTogether } = this.#scenario
    const draw = new Draw(seed, rank + 1)
    const own = this.#world.groups[rank]!
    const groups: (CollectiveGroup | undefined)[] = [own]
    if (draw.isOneIn(2)) await this.#track(rank, 'ready', own.ready())
    const calls: Promise<unknown>[] = []
    for (const [at, phase] of phases.entries()) {
      if (phase.newGroup) groups.push(await this.#makeGroup(rank, own, phase.newGroup))
      for (const operation of launchOrder(draw, phase.operations)) {
        if (draw.isOneIn(3)) await this.#sleep(rank, draw.whole(0, draw.pick([3, 40, 600])))
        const group = groups[operation.group]
        const place = group ? operation.ranks.indexOf(group.rank) : -1
        if (group && place >= 0) calls.push(this.#start(rank, group, operation, at))
      }
      if (phase.isAwaited) await Promise.all(calls)
    }
    await Promise.all(calls)
    this.#finished.add(rank)
    if (this.#liveFinished) this.#onfinished()
    if (leavesTogether) await this.#allFinished
    this.#world.note(`rank ${rank} leaves`)
    this.#world.leavingMs.set(rank, this.#world.env.now())
    await this.#track(rank, 'leave', own.leave())
  }

  #sleep(rank: number, ms: number): Promise<void> {
    return new Promise((resolve) => this.#world.places[rank]!.after(ms, resolve))
  }

  async #makeGroup(
    rank: number,
    own: { newGroup(ranks: readonly number[]): Promise<CollectiveGroup | NonGroupMember> },
    ranks: NonNullable<Phase['newGroup']>,
  ): Promise<CollectiveGroup | undefined> {
    let made: CollectiveGroup | undefined
    const making = own.newGroup(ranks).then((group) => {
      made = ifMember(group)
      if (made && this.#scenario.choice) made.choice = this.#scenario.choice
    })
    await this.#track(rank, 'newGroup', making)
    return made
  }

  #start(rank: number, group: CollectiveGroup, operation: Operation, phase: number): Promise<void> {
    const begun = this.#begun.get(operation) ?? new Set()
    this.#begun.set(operation, begun.add(group.rank))
    const hasAllBegun = () => operation.ranks.every((one) => begun.has(one))
    let met = 0
    const onstarted = () => {
      met += 1
      if (met > 1 && !operation.name.startsWith('bucket'))
        this.#violate(`rank ${rank}: ${operation.name} met ${met} times`)
      // The number of ranks that have begun may be what was corrupted.
      if (!hasAllBegun() && !this.#hasFired('corrupt'))
        this.#violate(`rank ${rank}: ${operation.name} met before all had begun`)
    }
    const odd = this.#scenario.faults.find(
      (plan) => plan.kind === 'odd-call' && plan.rank === rank && plan.program === phase,
    )
    // Of two ranks that call oddly, both would do as the other.
    const canBeOdd = operation.canBeOdd && group.size > 1 && !this.#odd.has(operation)
    const isOdd = odd !== undefined && !this.#world.fired.has(odd) && canBeOdd
    if (isOdd) {
      this.#odd.add(operation)
      this.#world.inject(odd)
    }
    this.#world.isActive()
    this.#world.note(`rank ${rank} begins ${operation.name}`)
    const call = operation.start(group.rank, group, onstarted, isOdd)
    const onresolved = () => {
      if (operation.isBarrier && !hasAllBegun())
        this.#violate(`rank ${rank}: ${operation.name} ended before all had begun`)
      if (call.isRight()) return
      if (this.#hasFired('corrupt')) this.#spoilt += 1
      else this.#violate(`rank ${rank}: ${operation.name} ended well with a wrong result`)
    }
    return this.#track(rank, operation.name, call.promise, onresolved, operation.group)
  }

  #hasFired(kind: FaultPlan['kind']): boolean {
    return [...this.#world.fired.keys()].some((plan) => plan.kind === kind)
  }

  /** Never rejects. */
  #track(
    rank: number,
    name: string,
    promise: Promise<unknown>,
    onresolved?: () => void,
    group = 0,
  ): Promise<void> {
    const names = this.#unsettled.get(rank) ?? new Set()
    this.#unsettled.set(rank, names.add(name))
    const begunMs = this.#world.env.now()
    const settled = (how: string) => {
      names.delete(name)
      const overMs = this.#world.failures.get(rank)?.atMs ?? begunMs
      const lateMs = this.#world.env.now() - Math.max(begunMs, overMs)
      if (this.#world.failures.has(rank) && name !== 'leave' && lateMs > 0)
        this.#violate(`rank ${rank}: ${name} ${how} ${lateMs} ms after the epoch was over`)
    }
    return promise.then(
      () => {
        settled('ends')
        this.#resolved += 1
        this.#world.note(`rank ${rank} ends ${name}`)
        onresolved?.()
      },
      (error) => {
        settled('rejects')
        this.#rejected += 1
        this.#checkError(rank, name, error, group)
      },
    )
  }

  #checkError(rank: number, name: string, error: unknown, group: number): void {
    const received = `rank ${rank}: ${name} rejects with ${messageOf(error)}`
    if (this.#world.fired.size === 0) this.#violate(`${received}, without a fault`)
    else if (this.#hasFired('corrupt')) return
    else if (!(error instanceof PeerError)) this.#violate(`${received}, which is no PeerError`)
    else if (!/\brank \d/.test(error.message)) this.#violate(`${received}, which names no rank`)
    else if (name !== 'ready' && !/(^|\()(\w+ via )?\w+ #\d+/.test(error.message))
      this.#violate(`${received}, which names no operation`)
    else {
      const ended = this.#world.groups[rank]!.error
      const cause = name === 'ready' ? error : error.cause
      if (this.#hasFired('leave') || cause === ended) return
      // A group that failed before has its own end, and one only.
      const key = `${rank}/${group}`
      if (group > 0 && !this.#ends.has(key)) this.#ends.set(key, cause)
      const end = group > 0 ? this.#ends.get(key) : ended
      if (cause !== end) this.#violate(`${received}, and the group with ${messageOf(end)}`)
    }
  }

  #checkMemory(): void {
    const { windowBytes } = this.#scenario
    // A bit that is turned in HELLO makes another window.
    if (this.#hasFired('corrupt')) return
    for (const [rank, group] of this.#world.groups.entries()) {
      const { links, inFlight } = group.stats()
      if (inFlight.peakHeldBytes > windowBytes[rank]! / 2)
        this.#violate(`rank ${rank} held ${inFlight.peakHeldBytes} bytes of one rank`)
      for (const [peer, { peakInFlightBytes }] of links)
        if (peakInFlightBytes > windowBytes[peer]!)
          this.#violate(`rank ${rank} had ${peakInFlightBytes} bytes under way to rank ${peer}`)
    }
  }

  #checkNothingLeft(): void {
    for (const [rank, group] of this.#world.groups.entries()) {
      const { launched, startedByPeers, heldBytes } = group.stats().inFlight
      if (launched + startedByPeers + heldBytes > 0)
        this.#violate(
          `rank ${rank} has ${launched} collectives, ${startedByPeers} announced, ${heldBytes} bytes held at its end`,
        )
    }
  }
}
