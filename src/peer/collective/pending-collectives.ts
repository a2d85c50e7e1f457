/**
 * The collectives that a rank knows of and that have not ended, and whom each waits for.
 *
 * Map: CollectiveSpan - Entry: what was heard of one - Run: its launch here - Entries: all of them.
 */
import { PeerError } from '../../util/errors.ts'
import type { FrameRoute, FrameStart } from '../session/frames.ts'
import {
  type Announcement,
  type CollectiveKey,
  disagreement,
  keyOf,
  nameOf,
  operationOf,
} from './announcement.ts'
import type { Exchange } from './exchange.ts'
import { goesBefore } from './stalled-collectives.ts'

/** Times of one collective on this rank, as `Env.now()` milliseconds; NaN for what did not happen. */
export interface CollectiveSpan {
  operation: string
  /** Number of its group; 0 for the group of all ranks. */
  group: number
  sequence: number
  bucket: number
  payloadBytes: number
  launchedMs: number
  firstSentMs: number
  lastReceivedMs: number
  endedMs: number
}

/** A collective as this rank knows it: announced by a neighbour, launched here, or both. */
export interface Entry {
  readonly key: string
  readonly group: number
  /** By rank, of all ranks. */
  readonly from: Map<number, Announcement>
  /** By rank: the place of its START among all that came. */
  readonly startNumbers: Map<number, number>
  /** By rank: how many in the ring, one after the other up to that one, have begun by its report. */
  readonly begun: Map<number, number>
  /** How many have begun, this one included, by the last report to the next rank. */
  begunSent: number
  /** Eager data that came before the launch here, in order of arrival. */
  held: HeldData[]
  run?: Run
}

export interface HeldData {
  from: number
  step: number
  offset: number
  message: Uint8Array<ArrayBuffer>
  /** Where its data begin in the message. */
  dataAt: number
}

/** The ranks on both sides in the ring, of all ranks. */
export interface RingPlace {
  readonly previous: number
  readonly next: number
  /** How many the ring has. */
  readonly size: number
}

export interface RunOptions {
  entry: Entry
  route: FrameRoute
  rank: number
  own: Announcement
  exchange: Exchange
  /** Its ranks as a ring; none for a message between two. */
  ring: RingPlace | undefined
  payloadBytes: number
  deadlineMs: number
  launchedMs: number
  /** Called once, when all ranks are known to have begun it. */
  onstarted?: (() => void) | undefined
}

/** A collective that was launched here. */
export class Run {
  readonly entry: Entry
  readonly route: FrameRoute
  /** As errors show it: `allReduce #42 bucket 0`. */
  readonly name: string
  readonly own: Announcement
  readonly exchange: Exchange
  readonly ring: RingPlace | undefined
  /** All with whom it exchanges, and its neighbours in the ring: they are to agree. */
  readonly peers: readonly number[]
  readonly deadlineMs: number
  /** The place of its launch among all of this rank's. */
  launchNumber = 0
  /** When bytes of it moved last, or of an ended run that went before it; at first its launch. */
  stillSinceMs: number
  readonly span: CollectiveSpan
  /** The caller's. */
  readonly promise: Promise<void>
  /** DATA bytes sent to a rank before its START. */
  readonly eagerBytes = new Map<number, number>()
  /** Of `peers`: who has not been sent START. */
  readonly unsent: Set<number>
  /** START as it was sent to those. */
  start: FrameStart | undefined
  isOver = false
  /** All ranks are known to have begun it: what is awaited now is bytes. */
  hasBegun = false
  private isCompared = false
  private readonly rank: number
  private readonly onstarted: (() => void) | undefined
  private settle!: { resolve: () => void; reject: (error: PeerError) => void }

  constructor(options: RunOptions) {
    const { entry, route, own, exchange, ring, payloadBytes, deadlineMs, launchedMs, onstarted } =
      options
    const operation = operationOf(own.kind)
    const { group, sequence, bucket } = route
    this.entry = entry
    this.route = route
    this.rank = options.rank
    this.name = nameOf(operation, sequence, bucket, group, own.fingerprint.label)
    this.own = own
    this.exchange = exchange
    this.ring = ring
    this.peers = [...new Set([...(ring ? [ring.previous, ring.next] : []), ...exchange.peers])]
    this.unsent = new Set(this.peers)
    this.deadlineMs = deadlineMs
    this.stillSinceMs = launchedMs
    this.onstarted = onstarted
    this.span = {
      operation,
      group,
      sequence,
      bucket,
      payloadBytes,
      launchedMs,
      firstSentMs: Number.NaN,
      lastReceivedMs: Number.NaN,
      endedMs: Number.NaN,
    }
    this.promise = new Promise((resolve, reject) => {
      this.settle = { resolve, reject }
    })
    // A failure is reported through `failed` and `onfailure`; a bucket that nobody awaits yet is no unhandled rejection.
    this.promise.catch(() => undefined)
  }

  get launchedMs(): number {
    return this.span.launchedMs
  }

  /** For its data, to take ours, or to compare its START. */
  needs(peer: number): boolean {
    const { exchange, entry } = this
    return exchange.isReceivingFrom(peer) || exchange.isSendingTo(peer) || !entry.from.has(peer)
  }

  /** Ranks before this one in the ring, one after the other, that are known to have begun it. */
  get begunBefore(): number {
    return this.ring ? (this.entry.begun.get(this.ring.previous) ?? 0) : 0
  }

  /** All bytes in and out, and compared with all. */
  get isComplete(): boolean {
    return this.isCompared && !this.peers.some((peer) => this.needs(peer))
  }

  /** Compares the STARTs that are there. errors: `peer.mismatch` when one differs from ours; names both sides. */
  compare(): void {
    const { entry, ring } = this
    for (const [theirRank, theirs] of entry.from) {
      const text = disagreement(this.rank, this.own, theirRank, theirs)
      if (text) throw new PeerError('peer.mismatch', `${this.name}: ${text}`)
    }
    this.isCompared = true
    const hasBegun = ring
      ? entry.from.has(ring.previous) &&
        entry.from.has(ring.next) &&
        this.begunBefore >= ring.size - 2
      : entry.from.size > 0
    if (!hasBegun || this.hasBegun) return
    this.hasBegun = true
    this.onstarted?.()
  }

  /** Whom a launch that makes no progress waits for, and for what, in words. */
  get awaited(): { peer: number; text: string; hasStarted: boolean } {
    const { exchange, entry } = this
    const receive = exchange.awaited
    const send = exchange.unsent
    const waiting = (peer: number, text: string) => ({
      peer,
      text,
      hasStarted: entry.from.has(peer),
    })
    const silent = this.peers.find((peer) => !entry.from.has(peer))
    if (receive)
      return waiting(receive.peer, `for chunk ${receive.chunk} from rank ${receive.peer}`)
    if (send) return waiting(send.peer, `for rank ${send.peer} to take chunk ${send.chunk}`)
    return waiting(silent!, `for rank ${silent}`)
  }

  resolve(): void {
    this.isOver = true
    this.settle.resolve()
  }

  reject(error: PeerError): void {
    this.isOver = true
    this.settle.reject(error)
  }
}

export class Entries {
  private readonly byKey = new Map<string, Entry>()
  private launched: Run[] = []
  private launches = 0
  private starts = 0

  /** Launched and not ended, in launch order. When one ends this is another array: a loop over the old one may continue. */
  get active(): readonly Run[] {
    return this.launched
  }

  /** How many neighbours have announced that were not launched here. */
  get announced(): number {
    return this.byKey.size - this.launched.length
  }

  /** Those of other ranks that were not launched here. */
  get elsewhere(): Entry[] {
    return this.announced === 0 ? [] : [...this.byKey.values()].filter(({ run }) => !run)
  }

  find(key: CollectiveKey): Entry | undefined {
    return this.byKey.get(keyOf(key))
  }

  /** The entry, made if it is not there. */
  open(given: CollectiveKey): Entry {
    const key = keyOf(given)
    let entry = this.byKey.get(key)
    if (!entry) {
      entry = {
        ...{ key, group: given.group, from: new Map(), startNumbers: new Map(), begun: new Map() },
        ...{ begunSent: 0, held: [] },
      }
      this.byKey.set(key, entry)
    }
    return entry
  }

  launch(run: Run): void {
    run.entry.run = run
    run.launchNumber = this.launches++
    this.launched.push(run)
  }

  /** Something came from a rank: its START, if it is the first. */
  noteStart({ startNumbers }: Entry, from: number): void {
    if (!startNumbers.has(from)) startNumbers.set(from, this.starts++)
  }

  end(run: Run, nowMs: number): void {
    this.remove([run], nowMs)
    this.byKey.delete(run.entry.key)
  }

  /** Forgets a group's, all for group 0; returns what was known, and what was active in launch order. */
  clear(group: number, nowMs: number): { entries: Entry[]; runs: Run[] } {
    const isOf = (one: number) => group === 0 || one === group
    const entries = [...this.byKey.values()].filter((entry) => isOf(entry.group))
    for (const { key } of entries) this.byKey.delete(key)
    const runs = this.launched.filter(({ route }) => isOf(route.group))
    this.remove(runs, nowMs)
    return { entries, runs }
  }

  /** Removes `runs`; those that stood behind them may move from now on. */
  private remove(runs: readonly Run[], nowMs: number): void {
    this.launched = this.launched.filter((run) => !runs.includes(run))
    for (const other of this.launched)
      if (runs.some((run) => goesBefore(run, other))) other.stillSinceMs = nowMs
  }
}
