import type { Env } from '../../../src/util/env.ts'
import { graceMs, isEcho, nearest } from '../../nearest-failure.ts'
import { failsAgain, type Restarts } from '../../restarts.ts'
import type { Failure, LauncherMember, Order, Part, Report } from './messages.ts'

export interface LeaderOptions {
  env: Env
  /** How many launchers the run has, at most. */
  launchers: number
  /** With fewer the run waits. It begins with them when no more have come within `lastCallMs`. Default: `launchers`. */
  min?: number
  /** units: ms. Default: 30 s, torchrun's. */
  lastCallMs?: number
  restarts: Restarts
  /** True if one rank's failure closes the others' tabs at once. */
  isKilling: boolean
  /** The largest number of ranks that one room takes. */
  maxRanks: number
  /** How long launchers may take to come. */
  joinTimeoutMs: number
  /** Takes a line for people. */
  log: (line: string) => void
}

/** One launcher, as the leader sees it. */
interface LauncherSlot {
  readonly member: LauncherMember
  readonly send: (order: Order) => void
  isRunning: boolean
  isLost: boolean
}

/** What a launcher that has come says from then on. */
export interface LauncherHandle {
  receive(report: Report): void
  /** Its connection has ended. */
  lost(text: string): void
}

/** A launcher that received a stop has this long to close its tabs; longer than its own limits on that together. units: ms. */
const stopMs = 30_000

const defaultLastCallMs = 30_000

/** How often launchers may come to a run that is on: each start has a room, and a server has a limit of rooms. */
export const maxComings = 1000

/**
 * Decides for all launchers of a run when ranks start, stop, start again, and how the run ended.
 *
 *   GATHERING -all there-> RUNNING(0) -all ended, none failed-> OVER
 *                             | one failed, or its launcher is lost
 *                          STOPPING -all ended-> RUNNING(n + 1), or OVER when there is no restart left
 *
 * A run of `min` to `launchers` launchers starts again with those that are left when one is lost, as a restart, and with one more when it
 * comes, as torchrun does. It is GATHERING again when too few are left. Other runs are OVER with the first lost launcher.
 *
 * It knows no sockets: `join` takes what sends, and returns what receives. The failure that is reported is the first by time of arrival; one that is
 * the echo of another (a lost neighbour) only when nothing better came within 0.7 s.
 */
export class Leader {
  readonly #options: LeaderOptions
  readonly #slots: LauncherSlot[] = []
  #state: 'gathering' | 'running' | 'stopping' | 'over' = 'gathering'
  readonly #min: number
  #attempt = 0
  #failures: Failure[] = []
  #hasLost = false
  /** Launchers that have come to the run while it was on. */
  #comings = 0
  /** The ranks were stopped for one that has come. */
  #hasCome = false
  #cancelGrace: () => void = () => undefined
  #cancelStop: () => void = () => undefined
  #cancelJoin: () => void
  #cancelLastCall: (() => void) | null = null

  constructor(options: LeaderOptions) {
    this.#options = options
    this.#min = options.min ?? options.launchers
    this.#cancelJoin = this.#awaitOthers()
  }

  #awaitOthers(): () => void {
    const { env, joinTimeoutMs } = this.#options
    return env.after(joinTimeoutMs, () => this.#missing())
  }

  /** Launchers that are not lost. */
  get #here(): LauncherSlot[] {
    return this.#slots.filter(({ isLost }) => !isLost)
  }

  get #isElastic(): boolean {
    return this.#min < this.#options.launchers
  }

  /** Takes a launcher in; or the text why not. The run starts with the last of them, or again with one that comes later. */
  join(
    member: LauncherMember,
    launchers: number,
    send: (order: Order) => void,
  ): { handle: LauncherHandle } | { refusal: string } {
    const refusal = this.#refusal(member, launchers)
    if (refusal) return { refusal }
    const slot: LauncherSlot = { member, send, isRunning: false, isLost: false }
    this.#slots.push(slot)
    if (this.#state === 'gathering') this.#gather()
    else {
      this.#comings++
      this.#hasCome = true
      this.#options.log(`${member.name} joins: all ranks start again`)
      this.#stop()
    }
    return {
      handle: {
        receive: (report) => this.#receive(slot, report),
        lost: (text) => this.#lose(slot, text),
      },
    }
  }

  /** Ends the run for everyone, as failed. */
  abort(failure: Failure): void {
    if (this.#state === 'over') return
    this.#failures = [failure]
    this.#finish()
  }

  /** Begins when all are there, or enough of them and no more come. */
  #gather(): void {
    const { env, launchers, lastCallMs = defaultLastCallMs } = this.#options
    const count = this.#here.length
    if (count === launchers) this.#begin()
    else if (count >= this.#min) this.#cancelLastCall ??= env.after(lastCallMs, () => this.#begin())
    else this.#endLastCall()
  }

  #endLastCall(): void {
    this.#cancelLastCall?.()
    this.#cancelLastCall = null
  }

  #refusal({ index, name, tabs }: LauncherMember, launchers: number): string | null {
    const { launchers: expected, maxRanks } = this.#options
    const here = this.#here
    if (launchers !== expected) {
      return `expected a launcher of ${expected}, got one of ${launchers}. Use the same --nnodes everywhere`
    }
    if (this.#state === 'over') return 'the run is over'
    const isClosed = !this.#isElastic || this.#comings >= maxComings
    if (here.length === expected || (this.#state !== 'gathering' && isClosed))
      return `the run already has its ${expected} launchers`
    const ranks = here.reduce((sum, { member }) => sum + member.tabs, tabs)
    if (this.#isElastic && ranks > maxRanks)
      return `expected at most ${maxRanks} ranks, got ${ranks} with its own. Lower --nproc-per-node`
    if (index === null) return null
    if (index >= expected) return `expected a node rank below ${expected}, got ${index}`
    const same = here.find((slot) => slot.member.index === index)
    return same
      ? `${same.member.name} already has node rank ${index}, and ${name} came later. Choose another --node-rank`
      : null
  }

  /** Launchers in the order of their ranks: where they asked for, then those that take any place, as they came. */
  #ordered(): LauncherSlot[] {
    const places: (LauncherSlot | undefined)[] = Array.from({ length: this.#options.launchers })
    for (const slot of this.#here) {
      if (slot.member.index !== null) places[slot.member.index] = slot
    }
    for (const slot of this.#here) {
      if (slot.member.index === null) places[places.indexOf(undefined)] = slot
    }
    return places.filter((slot) => slot !== undefined)
  }

  #begin(): void {
    this.#cancelJoin()
    this.#endLastCall()
    this.#cancelGrace()
    this.#failures = []
    this.#hasCome = false
    const slots = this.#ordered()
    const worldSize = slots.reduce((sum, { member }) => sum + member.tabs, 0)
    const { maxRanks } = this.#options
    if (worldSize > maxRanks) {
      this.abort({
        rank: null,
        host: slots[0].member.name,
        code: 'config.invalid',
        text: `launcher: expected at most ${maxRanks} ranks, got ${worldSize}. Lower --nproc-per-node.`,
      })
      return
    }
    this.#state = 'running'
    let firstRank = 0
    slots.forEach((slot, index) => {
      const { tabs, place } = slot.member
      const own = place ?? { nodeRank: index, localRank: 0, localWorldSize: tabs }
      const part: Part = { ...own, attempt: this.#attempt, firstRank, worldSize }
      firstRank += tabs
      slot.isRunning = true
      slot.send({ type: 'start', part })
    })
  }

  #receive(slot: LauncherSlot, report: Report): void {
    const isNow = report.attempt === this.#attempt && slot.isRunning
    if (!isNow || this.#state === 'over') return
    if (report.type === 'failed') this.#fail(report.failure)
    else {
      slot.isRunning = false
      this.#settle()
    }
  }

  #lose(slot: LauncherSlot, text: string): void {
    if (slot.isLost || this.#state === 'over') return
    slot.isLost = true
    if (this.#state === 'gathering') {
      this.#slots.splice(this.#slots.indexOf(slot), 1)
      this.#gather()
      return
    }
    // It has come for the next start, or its ranks have ended well.
    if (this.#isElastic && !slot.isRunning) return
    slot.isRunning = false
    this.#hasLost = !this.#isElastic
    this.#fail({
      rank: null,
      host: slot.member.name,
      code: 'worker.dead',
      text: `the launcher on ${slot.member.name} ended before the run did (${text}). Check its output.`,
    })
    this.#settle()
  }

  #fail(failure: Failure): void {
    this.#failures.push(failure)
    if (this.#state !== 'running' || !this.#options.isKilling) return
    if (!isEcho(failure.code)) this.#stop()
    else if (this.#failures.length === 1) {
      this.#cancelGrace = this.#options.env.after(graceMs, () => this.#stop())
    }
  }

  #stop(): void {
    this.#cancelGrace()
    if (this.#state !== 'running') return
    this.#state = 'stopping'
    this.#cancelStop = this.#options.env.after(stopMs, () => {
      for (const slot of this.#slots.filter((one) => one.isRunning)) {
        this.#lose(slot, `it did not stop its tabs within ${stopMs / 1000} s`)
      }
    })
    for (const slot of this.#slots)
      if (slot.isRunning) slot.send({ type: 'stop', attempt: this.#attempt })
  }

  /** Goes on when nobody runs any more. */
  #settle(): void {
    if (this.#state === 'over' || this.#slots.some((slot) => slot.isRunning)) return
    this.#cancelGrace()
    this.#cancelStop()
    const { restarts, log } = this.#options
    const first = nearest(this.#failures)
    if (first) {
      const isFinal = this.#hasLost || failsAgain(first.code, first.hasTrained ?? true)
      const restart = isFinal ? null : restarts.take()
      if (!restart) {
        this.#finish()
        return
      }
      const [line] = first.text.split('\n')
      const who = first.rank === null ? '' : `rank ${first.rank} failed first: `
      log(`${who}${line}`)
      log(restart)
    } else if (!this.#hasCome) {
      this.#finish()
      return
    }
    this.#attempt++
    this.#again()
  }

  /** With those that are here, once they are enough. */
  #again(): void {
    const { log, joinTimeoutMs } = this.#options
    const count = this.#here.length
    if (count >= this.#min) {
      this.#begin()
      return
    }
    this.#state = 'gathering'
    this.#cancelJoin = this.#awaitOthers()
    log(
      `${count} of at least ${this.#min} launchers left; waiting for another, at most ${joinTimeoutMs / 1000} s`,
    )
  }

  #finish(): void {
    this.#state = 'over'
    this.#cancelGrace()
    this.#cancelStop()
    this.#cancelJoin()
    this.#endLastCall()
    const failure = nearest(this.#failures) ?? null
    for (const slot of this.#slots) slot.send({ type: 'finish', failure })
  }

  #missing(): void {
    if (this.#state !== 'gathering') return
    const { joinTimeoutMs } = this.#options
    const launchers = this.#min
    const slots = this.#here
    const taken = new Set(slots.map(({ member }) => member.index))
    const open = Array.from({ length: launchers }, (_, i) => i).filter((i) => !taken.has(i))
    const isAny = taken.has(null) || this.#isElastic
    const missing = isAny
      ? `${launchers - slots.length} of ${launchers} launchers`
      : `node ${open.length === 1 ? 'rank' : 'ranks'} ${open.join(', ')} of ${launchers}`
    const here = slots.map(({ member }) => member.name).join(', ')
    this.abort({
      rank: null,
      host: slots[0]?.member.name ?? '',
      code: 'peer.timeout',
      text: `launcher: ${missing} did not join within ${joinTimeoutMs / 1000} s (${slots.length} joined: ${here}). Start ${launchers - slots.length === 1 ? 'it' : 'them'}, or raise --rdzv-conf join_timeout.`,
    })
  }
}
