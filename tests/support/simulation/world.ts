import { type GroupConfig, ProcessGroup } from '../../../src/peer/group/group.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { type Fault, type FaultKind, memoryPair } from '../../../src/peer/link/memory-link.ts'
import { FrameType, fieldOffset } from '../../../src/peer/link/wire.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import type { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { type FaultPlan, isOfPhase, isOnLink } from './fault-plan.ts'
import { RankPlace } from './rank-place.ts'
import type { Scenario } from './scenario.ts'
import type { Trace } from './trace.ts'

/** How a rank heard that its epoch is over. */
export interface Failure {
  readonly atMs: number
  readonly error: PeerError
  /** True if this rank noticed it, and did not receive it. */
  readonly isOwn: boolean
}

/** How a rank begins that says it was suspended. */
export const stoodStill = (rank: number): string => `rank ${rank} stood still for `

/** Ranks, the links between them, and their faults. */
export class World {
  readonly env: VirtualEnv
  readonly places: readonly RankPlace[]
  readonly groups: readonly ProcessGroup[]
  readonly failures = new Map<number, Failure>()
  /** By rank: when it began to leave. */
  readonly leavingMs = new Map<number, number>()
  /** When each fault was injected. */
  readonly fired = new Map<FaultPlan, number>()
  /** When data last moved, a call was made, or a rank ran again after standing still. */
  activeMs = 0
  messages = 0
  readonly #scenario: Scenario
  readonly #trace: Trace | undefined
  /** Called for each message that is sent. */
  readonly #watchers: ((from: number, message: Uint8Array) => void)[] = []
  readonly #split = new Set<number>()

  constructor(scenario: Scenario, trace?: Trace) {
    const { seed, size, deadlineMs, windowBytes, choice, machines } = scenario
    this.#scenario = scenario
    this.#trace = trace
    this.env = new VirtualEnv(seed)
    this.places = Array.from({ length: size }, () => new RankPlace(this.env))
    for (const place of this.places) {
      place.onheard = (message) => {
        if (message[fieldOffset.type] === FrameType.data) this.isActive()
      }
    }
    for (const plan of scenario.faults) if (!isOnLink(plan)) this.#watch(plan)
    const links = this.#link()
    this.groups = this.places.map((env, rank) => {
      const session: GroupConfig['session'] = {
        windowBytes: { ...sessionDefaults.windowBytes, memory: windowBytes[rank]! },
      }
      const config = { deadlineMs, session }
      const own = { rank, links: links[rank]!, env }
      const group = new ProcessGroup({ ...own, size, epoch: 3, machines, config })
      if (choice) group.choice = choice
      group.onfailure = (error) => this.#failed(rank, error)
      return group
    })
  }

  isActive(): void {
    this.activeMs = this.env.now()
  }

  note(text: string): void {
    this.#trace?.note(this.env.now(), text)
  }

  inject(plan: FaultPlan): void {
    this.fired.set(plan, this.env.now())
    this.note(`!! ${plan.kind} strikes rank ${plan.rank}, peer ${plan.peer}`)
  }

  #failed(rank: number, error: PeerError): void {
    // One that stood still reports that in the place of what it receives.
    const isOwn = error.cause !== undefined || error.message.startsWith(stoodStill(rank))
    this.failures.set(rank, { atMs: this.env.now(), error, isOwn })
    this.note(`rank ${rank} ${isOwn ? 'notices' : 'hears'}: ${error.message}`)
  }

  #link(): Map<number, Link>[] {
    const { size, isMesh, maxMessageBytes, highWaterBytes } = this.#scenario
    const links = this.places.map(() => new Map<number, Link>())
    for (let first = 0; first < size; first++)
      for (let second = first + 1; second < size; second++) {
        const isNext = second === first + 1 || second - first === size - 1
        if (!isMesh && !isNext) continue
        const [there, back] = memoryPair(this.env, {
          delayMs: () => this.#delayMs(),
          maxMessageBytes,
          highWaterBytes,
          forward: this.#faults(first, second),
          backward: this.#faults(second, first),
        })
        links[first]!.set(second, this.places[first]!.linked(there))
        links[second]!.set(first, this.places[second]!.linked(back))
      }
    return links
  }

  /** In halves of a millisecond, so that some things happen at the same moment. */
  #delayMs(): number {
    const { delayMs, jitterMs } = this.#scenario
    return delayMs + Math.floor(this.env.chance() * (2 * jitterMs + 1)) / 2
  }

  /** What may befall messages from one rank to another. */
  #faults(from: number, to: number): Fault[] {
    const watch: Fault = {
      kind: 'drop',
      matches: (message) => {
        this.messages += 1
        this.#trace?.frame(this.env.now(), from, to, message)
        for (const watcher of this.#watchers) watcher(from, message)
        return false
      },
    }
    const own = this.#scenario.faults.filter(
      (plan) => isOnLink(plan) && plan.rank === from && plan.peer === to,
    )
    const split: Fault = {
      kind: 'freeze',
      matches: () => this.#split.size > 0 && this.#split.has(from) !== this.#split.has(to),
    }
    return [watch, ...own.map((plan) => this.#linkFault(plan)), split]
  }

  #linkFault(plan: FaultPlan): Fault {
    let seen = 0
    return {
      kind: plan.kind as FaultKind,
      delayMs: plan.ms,
      bit: plan.bit,
      matches: (message) => {
        if (!isOfPhase(plan.phase, message)) return false
        seen += 1
        if (seen !== plan.nth) return false
        this.inject(plan)
        return true
      },
    }
  }

  /** Injects a fault once its rank has sent the nth message of its phase. */
  #watch(plan: FaultPlan): void {
    if (plan.kind === 'odd-call') return
    let seen = 0
    this.#watchers.push((from, message) => {
      if (from !== plan.rank || !isOfPhase(plan.phase, message)) return
      seen += 1
      if (seen !== plan.nth) return
      this.env.after(0, () => {
        this.inject(plan)
        this.#befall(plan)
      })
    })
  }

  #befall({ kind, rank, ms }: FaultPlan): void {
    const place = this.places[rank]!
    const { size } = this.#scenario
    switch (kind) {
      case 'crash':
        place.isCrashed = true
        return
      case 'pause':
        place.pause()
        this.env.after(ms, () => {
          this.isActive()
          this.note(`rank ${rank} goes on`)
          place.goOn()
        })
        return
      case 'jump':
        place.jump(ms)
        return
      case 'partition':
        for (let i = 0; i < Math.ceil(size / 2); i++) this.#split.add((rank + i) % size)
        return
      case 'abort':
        this.groups[rank]!.abort('the simulation wants it so')
        return
      case 'leave':
        this.groups[rank]!.destroy('the simulation wants it so')
    }
  }
}
