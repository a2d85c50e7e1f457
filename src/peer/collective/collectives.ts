/**
 * All collectives of one rank in one epoch: launching them, matching them with the neighbours', ending them.
 *
 * How calls are matched. A rank that launches a collective sends START (a fingerprint: operation, element type, length, alignment,
 * root, reduction, algorithm, what it is called for; epoch, group, sequence and bucket are in the header) at once, ahead of all data, to
 * its neighbours in the ring and to those with whom it exchanges. Where the first data for a rank are few (sender.ts), they
 * travel in one message with START, behind the fingerprint. Each rank compares it with its own before a byte is written, and
 * ends no collective before it has compared all: where calls differ the data are dropped.
 * START from a rank that takes our data also says that it is ready, so that data for it will be consumed the moment it
 * arrives. Until then a sender may send only *eager* data: over all collectives that the other has not started, at most
 * half of the window. The receiver holds eager data un-credited.
 *
 * START is also passed on: it says to the next rank how many ranks up to the sender have begun, and when more become known
 * another START says so. With the next rank's own START a rank knows when all have begun (`onstarted`), and so what it waits
 * for: a late rank, anywhere in the ring, or bytes. That is at most N - 3 small frames a collective, none for 3 ranks.
 *
 * Why nothing deadlocks. Frames on a link are FIFO and share one window, so frames that nobody takes could shut out
 * those that are awaited (head-of-line blocking). Three facts prevent that. (1) A frame of a collective that is launched
 * here is consumed on arrival: its bytes go into the caller's buffer, and passing them on needs no memory, so its credit
 * always comes back. (2) Frames of collectives not launched here fill at most half of the window, so the other half
 * always serves launched ones. (3) What two ranks have both launched therefore always advances; a collective ends once all
 * of its ranks have launched it. What a launch waits for is acyclic: reduce-scatter of bucket k waits for this rank's
 * GPU alone, all-gather of bucket k for its own reduce-scatter and the GPU. So launch order may differ between ranks.
 * CREDIT, PING, START and ABORT are not subject to the window (session.ts).
 *
 * In code: (1) and the holding are receiver.ts, (2) is sender.ts and again, as a check, receiver.ts.
 */
import type { Env } from '../../util/env.ts'
import { type ErrorCode, PeerError, RunError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import type { AlgorithmChoice } from '../algorithms/algorithm-choice.ts'
import { type Algorithm, algorithms, type Operation } from '../algorithms/operations.ts'
import type { Plan } from '../algorithms/plan.ts'
import type { LinkEnd } from '../link/link.ts'
import { type AbortRecord, type FrameHeader, FrameType, labelBytes } from '../link/wire.ts'
import type { Session } from '../session/session.ts'
import { sessionDefaults } from '../session/session-config.ts'
import {
  type Announcement,
  type CollectiveKey,
  describe,
  isBucket,
  isLabel,
  keyOf,
  kindOf,
  lastExplicitBucket,
  layoutHash,
  nameOf,
  pairOf,
} from './announcement.ts'
import { Deadlines } from './deadlines.ts'
import {
  type ElementArray,
  type ElementType,
  elementTypeOf,
  type ReduceOp,
  reduceOps,
} from './element.ts'
import { Exchange } from './exchange.ts'
import { collectiveError, lostText, refusedText } from './failure.ts'
import type { Peers } from './peers.ts'
import { type CollectiveSpan, Entries, Run } from './pending-collectives.ts'
import { Receiver } from './receiver.ts'
import { Sender } from './sender.ts'
import { type Standing, standingOf } from './stalled-collectives.ts'

/**
 * The key of a collective, and how it runs. Ranks match collectives by key (`sequence`, `bucket`), not by launch order.
 *
 * Without `sequence` the group counts, so all ranks must launch such collectives in the same order. Counted and
 * explicit keys never clash. A key may be used once per epoch (`ProcessGroup.takeSequence` counts explicit sequences); a
 * reduce-scatter and an all-gather may share one.
 */
export interface CollectiveOptions {
  /** 0 to 2^32 - 1. */
  sequence?: number
  /** 0 to 65000. Default 0. */
  bucket?: number
  /** Chunks start at multiples of this many elements. Default 1; use 64 if the GPU binds the chunks. */
  alignment?: number
  /** How long it may make no progress before it fails. Default: the group's `deadlineMs`. units: ms. */
  deadlineMs?: number
  /** How a reduction combines elements; default `sum`. `avg` divides by the group's size: float16 before adding, other types once on the finished sum. */
  op?: ReduceOp
  /** How the bytes travel. Default: by size and links. All algorithms give the same bits, except sums by `hierarchical`. */
  algorithm?: Algorithm
  /** Replaces the group's `choice` for this collective; the same on all ranks. */
  choice?: AlgorithmChoice | undefined
  /**
   * Purpose of the collective, such as the name of a function that runs several. Ranks compare it, and errors show it. At most 32 ASCII
   * characters.
   */
  label?: string | undefined
  /** Called once, when all ranks are known to have started this collective; from then on it only waits for bytes. Not called for one rank. */
  onstarted?: () => void
}

/** Some of the epoch's ranks, in their order, and this one's place among them. */
export interface GroupPlace {
  /** 0: all ranks. */
  readonly id: number
  /** By rank in the group: the rank among all. */
  readonly ranks: readonly number[]
  readonly rank: number
}

/** One collective to begin. */
export interface Launch {
  operation: Operation
  place: GroupPlace
  /** In the group's ranks. */
  plan: Plan
  /** Array that is sent; default: `buffer`. */
  input?: ElementArray | undefined
  buffer: ElementArray
  /** On which ranks must agree. */
  elements: number
  /** A rank among all; default 0. */
  root?: number
  algorithm: Algorithm
  /** By rank in the group, where the plan depends on it: who shares a machine. */
  machines?: readonly number[] | undefined
  sequence: number
  bucket: number
  /** A message's receiver, a rank among all; `root` is the sender. */
  receiver?: number
}

export interface CollectivesOptions {
  rank: number
  env: Env
  /** The first `deadlineMs`. */
  deadlineMs: number
  /** Share of a window for eager data. */
  eagerShare: number
  peers: Peers
  /** Called for each collective that ends well. */
  onspan?: ((span: CollectiveSpan) => void) | undefined
  /** Runs `action`; what it throws ends the group, or the epoch: see `Membership.fail`. */
  attempt: (action: () => void, group?: number) => void
}

/** A rank whose bytes are waited for, and the payload that it has sent so far. */
export interface HeldBy {
  readonly rank: number
  readonly receivedBytes: number
}

/** Collectives in flight on one rank. */
export interface CollectiveCounts {
  /** Launched on this rank and not finished. */
  launched: number
  /** Started by other ranks, but not launched on this one. */
  startedByPeers: number
  /** Bytes received for announced collectives. */
  heldBytes: number
  /** Most bytes ever held from one rank; at most the eager share of a window. */
  peakHeldBytes: number
}

export class Collectives {
  /** How many have ended well. */
  completed = 0
  /** Of later collectives that name none. units: ms. */
  deadlineMs: number

  private readonly options: CollectivesOptions
  private readonly entries = new Entries()
  private readonly receiver: Receiver
  private readonly sender: Sender
  private readonly deadlines: Deadlines<Standing<Run>>
  /** Ranks that said goodbye. */
  private readonly departed = new Map<Session, LinkEnd>()
  /** By key: the error that ends the group where another rank begins the collective. */
  private readonly refused = new Map<string, PeerError>()
  /** By group: why it has ended. */
  private readonly ends = new Map<number, { record: AbortRecord; error: PeerError }>()

  constructor(options: CollectivesOptions) {
    this.options = options
    const { rank, env, eagerShare, peers, attempt } = options
    this.deadlineMs = options.deadlineMs
    const { entries } = this
    const eagerLimit = (windowBytes: number) => Math.floor(windowBytes * eagerShare)
    const active = () => entries.active
    const progress = (run: Run) => {
      run.stillSinceMs = env.now()
      return run.stillSinceMs
    }
    this.deadlines = new Deadlines<Standing<Run>>({
      env,
      waiting: () => standingOf(entries.active),
      onlate: ({ run }, waitedMs) =>
        attempt(() => {
          throw this.timeout(run, waitedMs)
        }, run.route.group),
    })
    this.receiver = new Receiver({ rank, peers, entries, eagerLimit, progress })
    this.sender = new Sender({
      sessions: peers.sessions,
      eagerLimit,
      active,
      progress,
      onsent: (run) => this.endIfComplete(run),
    })
  }

  /** Begins a collective, in place unless its input is a separate buffer. Rejects, and changes nothing, when it may not begin. */
  launch(launch: Launch, options: CollectiveOptions): Promise<void> {
    const { rank } = this.options
    const { operation, place, sequence, bucket, root = 0, receiver } = launch
    const label = options.label ?? ''
    const name = nameOf(operation, sequence, bucket, place.id, label)
    const refuse = (code: ErrorCode, text: string) =>
      Promise.reject(new PeerError(code, `${name}: ${text}`))
    const pair = receiver === undefined ? {} : { pair: pairOf(root, receiver) }
    const keyOfKind = (kind: number) => ({ kind, group: place.id, sequence, bucket, ...pair })
    const end = this.endOf(place.id)
    if (end) return Promise.reject(collectiveError(name, end.record, end.error))
    if (!isBucket(bucket))
      return refuse(
        'peer.mismatch',
        `expected a bucket from 0 to ${lastExplicitBucket}, got ${bucket}. Choose another bucket.`,
      )
    if (!isLabel(label))
      return Promise.reject(
        new PeerError(
          'config.invalid',
          `${operation}: expected a label of at most ${labelBytes} ASCII characters, got ${quoted(label)}. Give a shorter name.`,
        ),
      )
    let type: ElementType
    try {
      type = elementTypeOf(launch.buffer, operation)
    } catch (error) {
      return Promise.reject(error)
    }
    const size = place.ranks.length
    if (size === 1) return Promise.resolve()
    const op = options.op ?? 'sum'
    if (op === 'avg' && !type.divide) {
      const text = `op "avg" needs float32 or float16, got ${type.name}. Sum whole numbers and divide the result.`
      this.refuse(keyOfKind(kindOf(operation, type.code)), text)
      return refuse('peer.mismatch', text)
    }
    const own: Announcement = {
      kind: kindOf(operation, type.code),
      fingerprint: {
        elements: launch.elements,
        alignment: options.alignment ?? 1,
        root,
        reduction: reduceOps.indexOf(op),
        algorithm: algorithms.indexOf(launch.algorithm),
        machines: layoutHash(launch.machines),
        label,
      },
    }
    const route = { kind: own.kind, group: place.id, sequence, bucket }
    const entry = this.entries.open(keyOfKind(own.kind))
    if (entry.run)
      return refuse(
        'peer.mismatch',
        `this key is already used by ${entry.run.name}. Give each collective its own sequence or bucket.`,
      )
    const { ranks } = place
    const isDivided = op === 'avg' && type.dividesFirst === true
    if (isDivided)
      for (const array of new Set([launch.input ?? launch.buffer, launch.buffer]))
        type.divide!(array, size)
    const run = new Run({
      entry,
      route,
      rank,
      own,
      exchange: new Exchange({
        // Group 0 is all ranks.
        plan: place.id === 0 ? launch.plan : amongAll(launch.plan, ranks),
        name,
        rank,
        size,
        input: launch.input,
        buffer: launch.buffer,
        type,
        op: isDivided ? 'sum' : op,
      }),
      ring:
        receiver === undefined
          ? {
              previous: ranks[(place.rank + size - 1) % size]!,
              next: ranks[(place.rank + 1) % size]!,
              size,
            }
          : undefined,
      payloadBytes: launch.buffer.byteLength,
      deadlineMs: options.deadlineMs ?? this.deadlineMs,
      launchedMs: this.options.env.now(),
      onstarted: options.onstarted,
    })
    this.entries.launch(run)
    this.options.attempt(() => this.begin(run), place.id)
    return run.promise
  }

  /** Notes that this rank refuses a collective or message, for a reason in words: its group ends where another rank has begun it, or begins it. */
  refuse(key: CollectiveKey, reason: string): void {
    const { attempt, rank } = this.options
    if (this.hasEnded(key.group)) return
    const error = new PeerError('peer.aborted', refusedText(rank, reason))
    this.refused.set(keyOf(key), error)
    attempt(() => {
      if (this.entries.find(key)) throw error
    }, key.group)
  }

  /** A START or DATA frame of another rank. One of a group that has ended was under way, and is dropped. errors: `peer.protocol`, `peer.mismatch`. */
  receive(session: Session, header: FrameHeader, message: Uint8Array<ArrayBuffer>): void {
    if (this.hasEnded(header.group)) {
      if (header.type === FrameType.data) session.consumed(message.length)
      return
    }
    const entry = this.receiver.receive(session, header, message)
    const refused = entry && this.refused.get(entry.key)
    if (refused) throw refused
    if (entry) this.entries.noteStart(entry, session.peerRank)
    if (entry?.run) this.endIfComplete(entry.run)
    this.sender.pump()
  }

  get counts(): CollectiveCounts {
    const { active, announced } = this.entries
    const { heldBytes, peakHeldBytes } = this.receiver
    const held = [...heldBytes.values()].reduce((sum, bytes) => sum + bytes, 0)
    return { launched: active.length, startedByPeers: announced, heldBytes: held, peakHeldBytes }
  }

  /** See `ProcessGroup.heldBy`. */
  get heldBy(): HeldBy | null {
    const run = this.entries.active.find(({ hasBegun }) => hasBegun)
    if (!run) return null
    const { peer: rank } = run.awaited
    return { rank, receivedBytes: this.options.peers.get(rank).stats.payloadBytesReceived }
  }

  /** Resolves when what a group has under way here has ended, well or not. */
  async settled(group: number): Promise<void> {
    const own = this.entries.active.filter(({ route }) => route.group === group)
    await Promise.allSettled(own.map(({ promise }) => promise))
  }

  /** Sends what may go now. */
  pump(): void {
    this.sender.pump()
  }

  /**
   * A rank is gone. One that has all it needs may say goodbye while the others still finish among themselves.
   *
   * errors: `peer.lost` unless it said goodbye and nothing here needs it.
   */
  lose(session: Session, end: LinkEnd): void {
    if (end.why !== 'bye') throw this.lost(session, end)
    this.departed.set(session, end)
    for (const run of this.entries.active) this.checkDeparted(run)
  }

  /** The error that the epoch ended with on this rank; undefined until then. */
  get ended(): PeerError | undefined {
    return this.ends.get(0)?.error
  }

  /** Returns whether a group has ended, alone or with all. */
  hasEnded(group: number): boolean {
    return this.endOf(group) !== undefined
  }

  /**
   * Rejects every pending and every later collective of the group that `record` ends, of all for group 0, with what it says; `error` is
   * the group's. `later`: what later ones are rejected with instead. Idempotent.
   */
  close(record: AbortRecord, error: PeerError, later = record): void {
    const { group } = record
    if (this.hasEnded(group)) return
    this.ends.set(group, { record: later, error })
    const { entries, runs } = this.entries.clear(group, this.options.env.now())
    if (group > 0) for (const entry of entries) this.receiver.drop(entry)
    else {
      this.deadlines.stop()
      this.receiver.heldBytes.clear()
    }
    for (const run of runs) run.reject(collectiveError(run.name, record, error))
  }

  private endOf(group: number) {
    return this.ends.get(group) ?? this.ends.get(0)
  }

  private begin(run: Run): void {
    const { peers } = this.options
    run.start = peers.startOf(run)
    this.sender.pump()
    peers.sendStart(run, run.start)
    run.compare()
    this.receiver.takeHeld(run)
    this.checkDeparted(run)
    this.endIfComplete(run)
    if (!run.isOver) this.deadlines.watch(run)
    this.sender.pump()
  }

  private endIfComplete(run: Run): void {
    if (run.isOver || !run.isComplete) return
    run.span.endedMs = this.options.env.now()
    this.completed += 1
    this.entries.end(run, run.span.endedMs)
    run.resolve()
    this.options.onspan?.(run.span)
  }

  private checkDeparted(run: Run): void {
    for (const [session, end] of this.departed) {
      const { peerRank } = session
      if (run.peers.includes(peerRank) && run.needs(peerRank)) throw this.lost(session, end)
    }
  }

  private lost({ peerRank }: Session, end: LinkEnd): PeerError {
    return new RunError('peer.lost', lostText(this.options.rank, peerRank, end), {
      ranks: [peerRank],
    })
  }

  private timeout(run: Run, waitedMs: number): PeerError {
    const { rank, peers } = this.options
    const { peer, text, hasStarted } = run.awaited
    const { silentMs } = peers.get(peer)
    const other = hasStarted
      ? undefined
      : this.entries.elsewhere.map(({ from }) => from.get(peer)).find((one) => one)
    const why = other
      ? `it runs ${describe(other)}, which rank ${rank} has not called. Every rank must call the same functions in the same order.`
      : missingText(hasStarted, silentMs)
    return new PeerError(
      'peer.timeout',
      `${run.name}: rank ${rank} waited ${Math.round(waitedMs)} ms ${text}; last frame ${Math.round(silentMs)} ms ago${hasStarted ? '. ' : '; '}${why}`,
    )
  }
}

/** Why a rank is waited for, as far as its heartbeat says. */
const missingText = (hasStarted: boolean, silentMs: number): string =>
  hasStarted || silentMs >= sessionDefaults.suspectMs
    ? `${hasStarted ? '' : 'it has not started this collective. '}Is that tab in the background?`
    : 'it answers, but has not started this collective: its program has ended, or does something else. Have all ranks call the same functions.'

/** A plan in the ranks of all, from one in a group's. */
function amongAll(plan: Plan, ranks: readonly number[]): Plan {
  const among = <T extends { peer: number }>(transfer: T): T => ({
    ...transfer,
    peer: ranks[transfer.peer]!,
  })
  return { ...plan, sends: plan.sends.map(among), receives: plan.receives.map(among) }
}
