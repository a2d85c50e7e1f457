import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { FrameType, fieldOffset } from '../../../src/peer/link/wire.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { ifMember } from '../members.ts'
import { Draw } from '../simulation/draw.ts'
import type { Call, Operation } from '../simulation/operations.ts'
import {
  drawScenario,
  launchOrder,
  type Scenario,
  type WorldBounds,
} from '../simulation/scenario.ts'
import type { Trace } from '../simulation/trace.ts'
import { HostileLink, type Injection, injections } from './hostile-link.ts'
import { Findings, type FuzzOutcome, type FuzzTarget, whereOf } from './target.ts'

const bounds: WorldBounds = { sizes: [2, 4], maxInMesh: 4, maxElements: 2000, maxOperations: 4 }

/** Ranks that run a program of collectives, one of which is hostile: its frames are not what its session has written. */
class HostileRing {
  readonly findings: Findings
  readonly #scenario: Scenario
  readonly #env: VirtualEnv
  readonly #trace: Trace | undefined
  readonly #hostile: number
  readonly #plan = new Map<number, Injection>()
  readonly #groups: readonly ProcessGroup[]
  readonly #waiting = new Set<string>()
  #sent = 0
  /** It has lied about data: then sums are its own, and nobody can know. */
  #hasLied = false

  constructor(seed: number, trace?: Trace) {
    this.findings = new Findings(trace)
    this.#trace = trace
    this.#scenario = drawScenario(seed, bounds)
    this.#env = new VirtualEnv(seed)
    const draw = new Draw(seed, 1)
    const { size } = this.#scenario
    this.#hostile = draw.whole(0, size - 1)
    const reach = draw.pick([4, 12, 40])
    for (let left = draw.pick([1, 1, 2, 3, 6]); left > 0; left--)
      this.#plan.set(draw.whole(0, reach), draw.pick(injections))
    const links = this.#link(draw)
    this.#groups = links.map((own, rank) => this.#group(rank, own))
  }

  #group(rank: number, links: Map<number, Link>): ProcessGroup {
    const { size, deadlineMs, windowBytes, machines, choice } = this.#scenario
    const session = { windowBytes: { ...sessionDefaults.windowBytes, memory: windowBytes[rank]! } }
    const config = { deadlineMs, session }
    const group = new ProcessGroup({
      rank,
      size,
      epoch: 3,
      links,
      env: this.#env,
      config,
      machines,
    })
    if (choice) group.choice = choice
    return group
  }

  #link(draw: Draw): Map<number, Link>[] {
    const { size, isMesh, delayMs, maxMessageBytes, highWaterBytes } = this.#scenario
    const all = Array.from({ length: size }, () => new Map<number, Link>())
    for (let a = 0; a < size; a++)
      for (let b = a + 1; b < size; b++) {
        if (!isMesh && b - a !== 1 && b - a !== size - 1) continue
        const pair = memoryPair(this.#env, {
          delayMs: () => delayMs,
          maxMessageBytes,
          highWaterBytes,
        })
        for (const [at, rank, peer] of [
          [0, a, b],
          [1, b, a],
        ] as const)
          all[rank]!.set(
            peer,
            rank === this.#hostile ? this.#hostileEnd(pair[at], draw, peer) : pair[at],
          )
      }
    return all
  }

  #hostileEnd(inner: Link, draw: Draw, peer: number): Link {
    const next = () => this.#plan.get(this.#sent++)
    return new HostileLink(inner, draw, next, (message, inject) => {
      this.findings.count('frames')
      if (inject) {
        this.findings.count('hostile frames')
        this.findings.note(`!! ${inject}`, this.#env.now())
        const type = message[fieldOffset.type]
        if (type === FrameType.data || type === FrameType.start || inject === 'bytes')
          this.#hasLied = true
      }
      this.#trace?.frame(this.#env.now(), this.#hostile, peer, message)
    })
  }

  async run(): Promise<FuzzOutcome> {
    const { deadlineMs } = this.#scenario
    try {
      const ends = this.#groups.map((_, rank) => this.#play(rank))
      // A collective that makes no progress ends after its deadline, a silent link before that, and a leave after its own time.
      const limitMs = 40 * deadlineMs + 60_000
      await this.#env.until(Promise.all(ends), limitMs).catch((thrown: Error) => {
        if (!thrown.message.startsWith('virtual env')) throw thrown
        this.#violate(`within ${limitMs} ms did not end: ${[...this.#waiting].join(', ')}`)
      })
      await this.#env.advance(60_000)
      this.#checkMemory()
    } catch (thrown) {
      this.#violate(`an exception left a rank: ${whereOf(thrown)}`)
    }
    return this.findings
  }

  /** One rank's program; never rejects. */
  async #play(rank: number): Promise<void> {
    const own = this.#groups[rank]!
    const { phases, seed } = this.#scenario
    const draw = new Draw(seed, rank + 2)
    const groups: (CollectiveGroup | undefined)[] = [own]
    const calls: Promise<unknown>[] = []
    for (const { newGroup, operations, isAwaited } of phases) {
      if (newGroup) {
        const at = groups.push(undefined) - 1
        const making = own.newGroup(newGroup).then((made) => {
          groups[at] = ifMember(made)
        })
        await this.#track(rank, 'newGroup', making)
      }
      for (const operation of launchOrder(draw, operations)) {
        const group = groups[operation.group]
        const place = group ? operation.ranks.indexOf(group.rank) : -1
        if (group && place >= 0) calls.push(this.#start(rank, group, operation))
      }
      if (isAwaited) await Promise.all(calls)
    }
    await Promise.all(calls)
    await this.#track(rank, 'leave', own.leave())
  }

  #start(rank: number, group: CollectiveGroup, operation: Operation): Promise<unknown> {
    let call: Call
    try {
      call = operation.start(group.rank, group, () => undefined, false)
    } catch (thrown) {
      this.#checkError(rank, operation.name, thrown)
      return Promise.resolve()
    }
    const judged = call.promise.then(() => {
      this.findings.count('collectives that ended well')
      if (!this.#hasLied && !call.isRight())
        this.#violate(`rank ${rank}: ${operation.name} ended well with a wrong result`)
    })
    return this.#track(rank, operation.name, judged)
  }

  #track(rank: number, name: string, promise: Promise<unknown>): Promise<void> {
    const what = `rank ${rank}: ${name}`
    // What its own program makes of it is the attacker's affair.
    if (rank === this.#hostile) return promise.then(ignore, ignore)
    this.#waiting.add(what)
    return promise
      .catch((thrown) => this.#checkError(rank, name, thrown))
      .then(() => void this.#waiting.delete(what))
  }

  #checkError(rank: number, name: string, thrown: unknown): void {
    if (rank === this.#hostile) return
    this.findings.count('collectives that failed')
    const received = `rank ${rank}: ${name} rejects with`
    const defect = defectIn(thrown)
    if (defect) this.#violate(`${received} a defect: ${whereOf(defect)}`)
    else if (!(thrown instanceof PeerError))
      this.#violate(`${received} no PeerError: ${whereOf(thrown)}`)
    else if (!/\brank \d/.test(thrown.message))
      this.#violate(`${received} "${thrown.message}", which names no rank`)
    else if (/[^\P{Cc}\n\t]/u.test(thrown.message))
      this.#violate(`${received} control characters in ${JSON.stringify(thrown.message)}`)
    else if (thrown.message.length > 6000)
      this.#violate(`${received} ${thrown.message.length} characters`)
  }

  #checkMemory(): void {
    const { windowBytes } = this.#scenario
    for (const [rank, group] of this.#groups.entries()) {
      if (rank === this.#hostile) continue
      const { inFlight } = group.stats()
      if (inFlight.peakHeldBytes > windowBytes[rank]! / 2 + this.#scenario.maxMessageBytes)
        this.#violate(
          `rank ${rank} held ${inFlight.peakHeldBytes} bytes of one rank, its window is ${windowBytes[rank]}`,
        )
      const { launched, startedByPeers, heldBytes } = inFlight
      if (launched + startedByPeers + heldBytes > 0)
        this.#violate(
          `rank ${rank} is left with ${launched} collectives, ${startedByPeers} announced, ${heldBytes} bytes`,
        )
    }
    if (this.#env.timers > 0) this.#violate(`${this.#env.timers} timers are left`)
  }

  #violate(text: string): void {
    this.findings.violate(text, this.#env.now())
  }
}

/** The error of the language that some error was made of. */
function defectIn(thrown: unknown): unknown {
  for (let error = thrown; error instanceof Error; error = error.cause)
    if (
      error instanceof TypeError ||
      error instanceof RangeError ||
      error instanceof ReferenceError
    )
      return error
  return undefined
}

function ignore(): undefined {
  return undefined
}

export const frames: FuzzTarget = {
  name: 'frames',
  about: 'ranks of which one sends frames that its session has not written',
  run: (seed, trace) => new HostileRing(seed, trace).run(),
}
