/**
 * Collectives over the ring: one `ProcessGroup` is one rank's membership in one epoch.
 *
 * Map: options - ProcessGroup: collectives, launching, frames, the pump, deadlines, failing, leaving.
 *
 * How neighbours meet. A rank that launches a collective sends START (a fingerprint: operation, element type, length,
 * alignment, root, reduction; epoch, sequence and bucket are in the header) to both neighbours at once, ahead of all
 * data. Each compares it with its own before a byte is written. START from the *next* rank also says that it is ready,
 * so that data for it will be consumed the moment it arrives. Until then a sender may send only *eager* data: over all
 * collectives that the next rank has not started, at most half of the window. The receiver holds eager data un-credited.
 *
 * Why nothing deadlocks. Frames on a link are FIFO and share one window, so frames that nobody takes could shut out
 * those that are awaited (head-of-line blocking). Three facts prevent that. (1) A frame of a collective that is launched
 * here is consumed on arrival: its bytes go into the caller's buffer, and passing them on needs no memory, so its credit
 * always comes back. (2) Frames of collectives not launched here fill at most half of the window, so the other half
 * always serves launched ones. (3) A collective that both neighbours have launched therefore always advances; it ends
 * once all ranks have launched it. What a launch waits for is acyclic: reduce-scatter of bucket k waits for this rank's
 * GPU alone, all-gather of bucket k for its own reduce-scatter and the GPU. So launch order may differ between ranks.
 * CREDIT, PING, START and ABORT are not subject to the window (session.ts).
 */
import type { Env } from '../util/env.ts'
import { type ErrorCode, errorCodes, messageOf, PeerError } from '../util/errors.ts'
import { type Codec, float32Codec } from './codec.ts'
import type { Link, LinkEnd } from './link.ts'
import { type Reduction, RingCollective } from './ring.ts'
import { type ChunkRange, chunkRange, type RingPattern } from './schedule.ts'
import { Session, type SessionConfig, type SessionStats } from './session.ts'
import {
  type AbortRecord,
  decodeFingerprint,
  encodeFingerprint,
  type Fingerprint,
  type FrameHeader,
  FrameType,
  headerBytes,
} from './wire.ts'

export interface GroupConfig {
  session: Partial<SessionConfig>
  /** A collective that makes no progress for this long fails on every rank. */
  deadlineMs: number
  /** Share of a window that may hold data of collectives which the receiver has not launched. Below 1. */
  eagerShare: number
}

export const groupDefaults: GroupConfig = { session: {}, deadlineMs: 30_000, eagerShare: 0.5 }

/** When one collective's parts happened on this rank; `Env.now()` milliseconds, NaN for what never happened. */
export interface CollectiveSpan {
  operation: string
  sequence: number
  bucket: number
  payloadBytes: number
  launchedMs: number
  firstSentMs: number
  lastReceivedMs: number
  endedMs: number
}

export interface GroupOptions {
  rank: number
  size: number
  epoch: number
  /** One link for each neighbour in the ring, by rank; one alone for a group of two, none for a group of one. */
  links: Map<number, Link>
  env: Env
  config?: Partial<GroupConfig>
  codec?: Codec
  /** Called for each collective that ends well. */
  onspan?: (span: CollectiveSpan) => void
}

/**
 * Which collective this is, and how it runs. Ranks agree by the key (`sequence`, `bucket`), not by launch order.
 *
 * Without `sequence` the group counts: then all ranks must launch such collectives in the same order. Counted and
 * explicit keys never clash. A key is used once per epoch; a reduce-scatter and an all-gather may share one.
 */
export interface CollectiveOptions {
  /** 0 to 2^32 - 1. */
  sequence?: number
  /** 0 to 65000. Default 0. */
  bucket?: number
  /** Chunk starts are multiples of this many elements. Default 1; 64 where chunks are bound on the GPU. */
  alignment?: number
  deadlineMs?: number
  /** Default `sum`. `mean` divides each finished sum by the size, on its owner. */
  reduction?: Reduction
}

export interface GroupStats {
  payloadBytesSent: number
  payloadBytesReceived: number
  collectives: number
  /** Failures after the first, which is the one that is reported. */
  suppressedFailures: number
  /** By the neighbour's rank. */
  links: Map<number, SessionStats>
}

const operations = [
  'none',
  'reduceScatter',
  'allGather',
  'allReduce',
  'broadcast',
  'barrier',
  'allGatherBytes',
  'allGatherU32',
] as const
type Operation = Exclude<(typeof operations)[number], 'none'>

const patterns: Record<Operation, RingPattern> = {
  reduceScatter: 'reduceScatter',
  allGather: 'allGather',
  allReduce: 'allReduce',
  broadcast: 'broadcast',
  barrier: 'allGather',
  allGatherBytes: 'allGather',
  allGatherU32: 'allGather',
}

const lastExplicitBucket = 65_000
/** Buckets of collectives that the group counts itself. */
const countedBucket = 65_535
const countedDataBucket = 65_534
/** A neighbour that announces more collectives than this without our launching any is broken. */
const maxAnnounced = 65_536

interface Announcement {
  kind: number
  fingerprint: Fingerprint
}

interface Departed {
  rank: number
  detail: string
}

/** A collective as this rank knows it: announced by a neighbour, launched here, or both. */
interface Entry {
  key: number
  sequence: number
  bucket: number
  fromPrevious?: Announcement
  fromNext?: Announcement
  /** Eager data that came before the launch here. */
  held: { step: number; offset: number; length: number; message: Uint8Array<ArrayBuffer> }[]
  run?: Run
}

interface Run {
  operation: Operation
  label: string
  own: Announcement
  collective: RingCollective
  /** DATA bytes sent to the next rank before its START. */
  eagerBytes: number
  deadlineMs: number
  isOver: boolean
  span: CollectiveSpan
  resolve: () => void
  reject: (error: PeerError) => void
}

/**
 * One rank's collectives with its ring neighbours.
 *
 * All collectives work in place on the caller's Float32Array, run in the background, and many may be under way at once;
 * the buffer is the group's until the promise settles. Any failure (timeout, lost rank, bad frame, disagreement,
 * `abort`) rejects every pending and every later collective on every rank with one cause; buffers' contents are then
 * undefined and the epoch is over.
 */
export class ProcessGroup {
  readonly rank: number
  readonly size: number
  readonly epoch: number
  /** Called once, with the error that ended the epoch. */
  onfailure: (error: PeerError) => void = ignore
  /** A neighbour has been silent for some seconds, or is heard again. */
  onsuspect: (rank: number, isSuspect: boolean, silentMs: number) => void = ignore
  /** Resolves (never rejects) with the error that ended the epoch. */
  readonly failed: Promise<PeerError>

  private readonly env: Env
  private readonly config: GroupConfig
  private readonly codec: Codec
  private readonly onspan: ((span: CollectiveSpan) => void) | undefined
  private readonly sessions = new Map<number, Session>()
  private readonly previous: Session | undefined
  private readonly next: Session | undefined
  private readonly entries = new Map<number, Entry>()
  /** Launched and not ended, in launch order. */
  private active: Entry[] = []
  private nextSequence = 0
  private eagerBytes = 0
  private heldBytes = 0
  private isPumping = false
  private pumpsAgain = false
  private failure: PeerError | undefined
  private isDestroyed = false
  /** Neighbours that said goodbye. */
  private readonly departed = new Map<Session, Departed>()
  private lastProgressMs: number
  private deadlineAtMs = Number.POSITIVE_INFINITY
  private cancelDeadline: () => void = ignore
  private settleFailed!: (error: PeerError) => void
  private collectives = 0
  private suppressedFailures = 0

  constructor(options: GroupOptions) {
    const { rank, size, epoch, links } = options
    this.rank = rank
    this.size = size
    this.epoch = epoch
    this.env = options.env
    this.config = { ...groupDefaults, ...options.config }
    this.codec = options.codec ?? float32Codec
    this.onspan = options.onspan
    this.lastProgressMs = this.env.now()
    this.failed = new Promise((resolve) => {
      this.settleFailed = resolve
    })
    if (!Number.isInteger(size) || size < 1 || !Number.isInteger(rank) || rank < 0 || rank >= size)
      throw new PeerError(
        'peer.protocol',
        `process group: expected a rank from 0 to ${size - 1}, got ${rank}.`,
      )
    if (size === 1) return
    const previousRank = (rank + size - 1) % size
    const nextRank = (rank + 1) % size
    for (const peerRank of new Set([previousRank, nextRank])) {
      const link = links.get(peerRank)
      if (!link)
        throw new PeerError(
          'peer.unreachable',
          `process group (epoch ${epoch}): rank ${rank} has no link to its neighbour rank ${peerRank}, only to [${[...links.keys()].join(', ')}].`,
        )
      this.sessions.set(peerRank, this.openSession(link, peerRank))
    }
    this.previous = this.sessions.get(previousRank)
    this.next = this.sessions.get(nextRank)
  }

  /** The error that ended the epoch, if one has. */
  get error(): PeerError | undefined {
    return this.failure
  }

  /** Resolves when both neighbours have said HELLO. errors: `peer.timeout`, `peer.lost`, `peer.mismatch`, `peer.protocol`. */
  async ready(): Promise<void> {
    if (this.failure) throw this.failure
    await Promise.all([...this.sessions.values()].map((session) => session.ready))
  }

  /** This rank's chunk of a buffer of `length` elements: what it owns after reduceScatter. units: elements. */
  ownRange(length: number, alignment = 1): ChunkRange {
    return chunkRange(length, this.size, this.rank, alignment)
  }

  // Collectives

  /**
   * Sums `buffer` over the ranks; afterwards this rank's chunk (`ownRange`) holds the sum, the rest is undefined.
   *
   * cost: N-1 steps; (N-1)/N of the buffer's bytes sent per rank. order: chunk c sums rank c+1, c+2, ..., c.
   * errors: `peer.*`, see the class.
   */
  reduceScatter(buffer: Float32Array, options: CollectiveOptions = {}): Promise<void> {
    return this.launch('reduceScatter', buffer, options)
  }

  /** Fills `buffer` on every rank with each rank's chunk. cost: N-1 steps; (N-1)/N of the bytes sent. errors: `peer.*`. */
  allGather(buffer: Float32Array, options: CollectiveOptions = {}): Promise<void> {
    return this.launch('allGather', buffer, options)
  }

  /**
   * Sums `buffer` over the ranks, on every rank with the same bits.
   *
   * cost: 2(N-1) steps; 2(N-1)/N of the bytes sent. order: chunk c sums rank c+1, c+2, ..., c. errors: `peer.*`.
   */
  allReduce(buffer: Float32Array, options: CollectiveOptions = {}): Promise<void> {
    return this.launch('allReduce', buffer, options)
  }

  /**
   * Copies `buffer` from rank `root` to all. cost: N-1 steps, pipelined; all bytes sent once by all ranks but the last.
   * At the root it resolves when everything has been handed to the link and the next rank has called it.
   * errors: `peer.*`.
   */
  broadcast(buffer: Float32Array, root: number, options: CollectiveOptions = {}): Promise<void> {
    if (!Number.isInteger(root) || root < 0 || root >= this.size)
      return Promise.reject(
        new PeerError(
          'peer.mismatch',
          `broadcast: expected a root from 0 to ${this.size - 1}, got ${root}.`,
        ),
      )
    return this.launch('broadcast', buffer, options, root)
  }

  /** Resolves when every rank has called it. cost: N-1 steps of 4 bytes. errors: `peer.*`. */
  barrier(options: CollectiveOptions = {}): Promise<void> {
    return this.launch('barrier', new Float32Array(this.size), { ...options, alignment: 1 })
  }

  /** Returns every rank's `values`, in rank order; all ranks give equally many. For hashes and counts. errors: `peer.*`. */
  async allGatherU32(values: Uint32Array, options: CollectiveOptions = {}): Promise<Uint32Array> {
    const all = new Uint32Array(values.length * this.size)
    all.set(values, values.length * this.rank)
    await this.launch('allGatherU32', new Float32Array(all.buffer), { ...options, alignment: 1 })
    return all
  }

  /**
   * Returns every rank's `bytes`, in rank order; lengths may differ. For records. Uses the key twice, for lengths in
   * `bucket` and for bytes in `bucket` + 1. cost: 2(N-1) steps; N-1 times the longest. errors: `peer.*`.
   */
  async allGatherBytes(bytes: Uint8Array, options: CollectiveOptions = {}): Promise<Uint8Array[]> {
    const isCounted = options.sequence === undefined
    const sequence = options.sequence ?? this.countSequence()
    const lengths = await this.allGatherU32(Uint32Array.of(bytes.length), {
      ...options,
      sequence,
      bucket: isCounted ? countedBucket : (options.bucket ?? 0),
    })
    const slotBytes = 4 * Math.ceil(Math.max(...lengths) / 4)
    const all = new Uint8Array(slotBytes * this.size)
    all.set(bytes, slotBytes * this.rank)
    await this.launch('allGatherBytes', new Float32Array(all.buffer), {
      ...options,
      alignment: 1,
      sequence,
      bucket: isCounted ? countedDataBucket : (options.bucket ?? 0) + 1,
    })
    return Array.from(lengths, (length, rank) =>
      all.subarray(rank * slotBytes, rank * slotBytes + length),
    )
  }

  // Launching

  private countSequence(): number {
    const sequence = this.nextSequence
    this.nextSequence = (this.nextSequence + 1) >>> 0
    return sequence
  }

  private launch(
    operation: Operation,
    buffer: Float32Array,
    options: CollectiveOptions,
    root = 0,
  ): Promise<void> {
    const isCounted = options.sequence === undefined
    const sequence = options.sequence ?? this.countSequence()
    const bucket = isCounted ? countedBucket : (options.bucket ?? 0)
    const alignment = options.alignment ?? 1
    const reduction = options.reduction ?? 'sum'
    const label = `${operation} #${sequence}${bucket <= lastExplicitBucket ? ` bucket ${bucket}` : ''} (epoch ${this.epoch})`
    if (this.failure) return Promise.reject(named(label, this.failure))
    if (this.isDestroyed)
      return Promise.reject(
        new PeerError('peer.aborted', `${label}: rank ${this.rank} has left the group.`),
      )
    const isReserved = bucket === countedBucket || bucket === countedDataBucket
    if (!isReserved && !(bucket >= 0 && bucket <= lastExplicitBucket))
      return Promise.reject(
        new PeerError(
          'peer.mismatch',
          `${label}: expected a bucket from 0 to ${lastExplicitBucket}, got ${bucket}.`,
        ),
      )
    if (this.size === 1) return Promise.resolve()

    const key = keyOf(operations.indexOf(operation), sequence, bucket)
    const entry = this.entryOf(key, sequence, bucket)
    if (entry.run)
      return Promise.reject(
        new PeerError(
          'peer.mismatch',
          `${label}: expected a key that is not in use, got that of ${entry.run.label}. Give each collective its own sequence or bucket.`,
        ),
      )
    const own: Announcement = {
      kind: operations.indexOf(operation) | (this.codec.typeCode << 4),
      fingerprint: {
        elements: buffer.length,
        alignment,
        root,
        reduction: reduction === 'mean' ? 1 : 0,
      },
    }
    const promise = new Promise<void>((resolve, reject) => {
      entry.run = {
        operation,
        label,
        own,
        collective: new RingCollective({
          pattern: patterns[operation],
          label,
          rank: this.rank,
          size: this.size,
          root,
          buffer,
          alignment,
          reduction,
          codec: this.codec,
        }),
        eagerBytes: 0,
        deadlineMs: options.deadlineMs ?? this.config.deadlineMs,
        isOver: false,
        span: {
          operation,
          sequence,
          bucket,
          payloadBytes: buffer.byteLength,
          launchedMs: this.env.now(),
          firstSentMs: Number.NaN,
          lastReceivedMs: Number.NaN,
          endedMs: Number.NaN,
        },
        resolve,
        reject,
      }
    })
    // A failure is reported through `failed` and `onfailure`; a bucket that nobody awaits yet is no unhandled rejection.
    promise.catch(ignore)
    this.active.push(entry)
    this.attempt(() => {
      const payload = encodeFingerprint(own.fingerprint)
      for (const session of this.sessions.values())
        session.sendStart(own.kind, sequence, bucket, payload)
      this.compare(entry)
      this.takeHeld(entry)
      for (const [session, departed] of this.departed)
        if (this.needs(entry, session)) throw this.lost(departed)
      this.endIfComplete(entry)
      this.watchDeadline(entry)
      this.pump()
    })
    return promise
  }

  private entryOf(key: number, sequence: number, bucket: number): Entry {
    let entry = this.entries.get(key)
    if (!entry) {
      entry = { key, sequence, bucket, held: [] }
      this.entries.set(key, entry)
    }
    return entry
  }

  /** errors: `peer.mismatch` when a neighbour's START differs from ours; names both sides. */
  private compare(entry: Entry): void {
    if (!entry.run) return
    const { own, label } = entry.run
    for (const [theirs, session] of [
      [entry.fromPrevious, this.previous!],
      [entry.fromNext, this.next!],
    ] as const) {
      if (!theirs || isSame(own, theirs)) continue
      throw new PeerError(
        'peer.mismatch',
        `${label}: ranks disagree: rank ${this.rank} runs ${describe(own)}, rank ${session.peerRank} runs ${describe(theirs)}. Every rank must call the same collectives with the same lengths.`,
      )
    }
  }

  private takeHeld(entry: Entry): void {
    for (const { step, offset, length, message } of entry.held) {
      this.heldBytes -= message.length
      this.takeData(entry.run!, step, offset, length, message)
    }
    entry.held = []
  }

  // Frames

  private openSession(link: Link, peerRank: number): Session {
    const session = new Session({
      link,
      env: this.env,
      epoch: this.epoch,
      rank: this.rank,
      peerRank,
      size: this.size,
      config: this.config.session,
    })
    session.onframe = (header, message) => {
      if (this.failure) return
      this.attempt(() =>
        header.type === FrameType.start
          ? this.receiveStart(session, header, message)
          : this.receiveData(session, header, message),
      )
    }
    session.onabort = (record) => this.receiveAbort(session, record)
    session.onwritable = () => this.attempt(() => this.pump())
    session.onsuspect = (isSuspect, silentMs) => this.onsuspect(peerRank, isSuspect, silentMs)
    session.onerror = (error) => this.fail(error)
    session.onend = (end) => this.receiveEnd(session, end)
    return session
  }

  private receiveStart(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
  ): void {
    const announcement: Announcement = {
      kind: header.kind,
      fingerprint: decodeFingerprint(message.subarray(headerBytes)),
    }
    const key = keyOf(header.kind & 15, header.sequence, header.bucket)
    const entry = this.entryOf(key, header.sequence, header.bucket)
    if (this.entries.size > maxAnnounced + this.active.length)
      throw this.protocol(session, `more than ${maxAnnounced} collectives announced`)
    if (session === this.previous) {
      if (entry.fromPrevious)
        throw this.protocol(session, `a second START for ${this.nameOf(header)}`)
      entry.fromPrevious = announcement
    }
    if (session === this.next) {
      if (entry.fromNext) throw this.protocol(session, `a second START for ${this.nameOf(header)}`)
      entry.fromNext = announcement
      this.eagerBytes -= entry.run?.eagerBytes ?? 0
    }
    this.compare(entry)
    if (entry.run) this.endIfComplete(entry)
    this.pump()
  }

  private receiveData(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
  ): void {
    const entry = this.entries.get(keyOf(header.kind & 15, header.sequence, header.bucket))
    if (session !== this.previous)
      throw this.protocol(session, `data against the ring's direction for ${this.nameOf(header)}`)
    if (!entry?.fromPrevious)
      throw this.protocol(
        session,
        `data for ${this.nameOf(header)}, which it has not started or has ended`,
      )
    if (entry.fromPrevious.kind !== header.kind)
      throw this.protocol(
        session,
        `expected kind ${entry.fromPrevious.kind} for ${this.nameOf(header)}, got ${header.kind}`,
      )
    const { step, offset, length } = header
    if (entry.run) {
      this.takeData(entry.run, step, offset, length, message)
      this.endIfComplete(entry)
      this.pump()
      return
    }
    this.heldBytes += message.length
    if (this.heldBytes > this.eagerLimit(session.ownWindow))
      throw this.protocol(
        session,
        `${this.heldBytes} bytes for collectives that rank ${this.rank} has not started, at most ${this.eagerLimit(session.ownWindow)} may be`,
      )
    entry.held.push({ step, offset, length, message })
  }

  private takeData(
    run: Run,
    step: number,
    offset: number,
    length: number,
    message: Uint8Array<ArrayBuffer>,
  ): void {
    run.collective.receive(step, offset, length, message, headerBytes)
    this.lastProgressMs = run.span.lastReceivedMs = this.env.now()
    this.previous!.consumed(message.length)
  }

  // The pump

  private eagerLimit(windowBytes: number): number {
    return Math.floor(windowBytes * this.config.eagerShare)
  }

  /**
   * Hands everything that may go to the link to the next rank: collectives in launch order, so that older buckets are
   * not delayed by younger ones; one that the next rank has not started stands back when the eager allowance is used up.
   */
  private pump(): void {
    const next = this.next
    if (this.failure || !next?.isReady) return
    if (this.isPumping) {
      this.pumpsAgain = true
      return
    }
    this.isPumping = true
    try {
      do {
        this.pumpsAgain = false
        this.pumpOnce(next)
      } while (this.pumpsAgain)
    } finally {
      this.isPumping = false
    }
  }

  private pumpOnce(next: Session): void {
    const eagerLimit = this.eagerLimit(next.windowBytes)
    // `endIfComplete` replaces `active`, so this loop may go on over the old array.
    for (const entry of this.active) {
      const run = entry.run!
      if (!run.collective.isSending) continue
      for (;;) {
        const segment = run.collective.nextSegment(next.maxPayloadBytes)
        if (!segment) break
        const frameBytes = headerBytes + segment.length
        if (!entry.fromNext && this.eagerBytes + frameBytes > eagerLimit) break
        if (!next.hasRoom(segment.length)) return
        next.sendData(
          run.own.kind,
          entry.sequence,
          entry.bucket,
          segment.step,
          segment.offset,
          segment.length,
          run.collective,
        )
        run.collective.markSent(segment)
        if (!entry.fromNext) {
          this.eagerBytes += frameBytes
          run.eagerBytes += frameBytes
        }
        this.lastProgressMs = this.env.now()
        if (Number.isNaN(run.span.firstSentMs)) run.span.firstSentMs = this.lastProgressMs
      }
      this.endIfComplete(entry)
    }
  }

  /** All bytes in and out, and compared with both neighbours. */
  private isComplete({ run, fromPrevious, fromNext }: Entry): boolean {
    const { collective } = run!
    return !collective.isReceiving && !collective.isSending && !!fromPrevious && !!fromNext
  }

  private endIfComplete(entry: Entry): void {
    const run = entry.run!
    if (run.isOver || !this.isComplete(entry)) return
    run.isOver = true
    run.span.endedMs = this.env.now()
    this.collectives += 1
    this.active = this.active.filter((other) => other !== entry)
    this.entries.delete(entry.key)
    run.resolve()
    this.onspan?.(run.span)
  }

  // Deadlines

  /** One timer for all: progress does not re-arm it, it looks again when it fires. */
  private watchDeadline(entry: Entry): void {
    if (entry.run!.isOver || this.failure) return
    const atMs = this.env.now() + entry.run!.deadlineMs
    if (atMs >= this.deadlineAtMs) return
    this.cancelDeadline()
    this.deadlineAtMs = atMs
    this.cancelDeadline = this.env.after(entry.run!.deadlineMs, () => this.checkDeadlines())
  }

  private checkDeadlines(): void {
    this.deadlineAtMs = Number.POSITIVE_INFINITY
    if (this.failure) return
    const now = this.env.now()
    let soonestMs = Number.POSITIVE_INFINITY
    for (const entry of this.active) {
      const run = entry.run!
      const sinceMs = Math.max(run.span.launchedMs, this.lastProgressMs)
      const leftMs = sinceMs + run.deadlineMs - now
      if (leftMs <= 0) {
        this.fail(this.timeout(entry, now - sinceMs))
        return
      }
      soonestMs = Math.min(soonestMs, leftMs)
    }
    if (soonestMs === Number.POSITIVE_INFINITY) return
    this.deadlineAtMs = now + soonestMs
    this.cancelDeadline = this.env.after(soonestMs, () => this.checkDeadlines())
  }

  private timeout(entry: Entry, waitedMs: number): PeerError {
    const { collective, label } = entry.run!
    const isFromPrevious = collective.isReceiving || (!collective.isSending && !entry.fromPrevious)
    const session = isFromPrevious ? this.previous! : this.next!
    const hasStarted = isFromPrevious ? entry.fromPrevious : entry.fromNext
    const what = collective.isReceiving
      ? `for chunk ${collective.awaitedChunk} from rank ${session.peerRank}`
      : collective.isSending
        ? `for rank ${session.peerRank} to take chunk ${collective.unsentChunk}`
        : `for rank ${session.peerRank}`
    return new PeerError(
      'peer.timeout',
      `${label}: rank ${this.rank} waited ${Math.round(waitedMs)} ms ${what}; last frame ${Math.round(session.silentMs)} ms ago` +
        `${hasStarted ? '' : '; it has not started this collective'}. Is that tab in the background?`,
    )
  }

  // Failing

  /** Ends the epoch from outside: every pending and later collective on every rank rejects with `reason`. Idempotent. */
  abort(reason: PeerError | string): void {
    this.fail(
      typeof reason === 'string'
        ? new PeerError('peer.aborted', `epoch ${this.epoch}: rank ${this.rank} aborted: ${reason}`)
        : reason,
    )
  }

  private receiveAbort(session: Session, record: AbortRecord): void {
    const code = record.code in errorCodes ? (record.code as ErrorCode) : 'peer.aborted'
    this.fail(
      new PeerError(code, `rank ${record.origin} ended epoch ${this.epoch}: ${record.text}`),
      { record, from: session },
    )
  }

  private receiveEnd(session: Session, end: LinkEnd): void {
    if (this.isDestroyed || this.failure) return
    const departed = { rank: session.peerRank, detail: `${end.why}, ${end.detail}` }
    if (end.why !== 'bye') {
      this.fail(this.lost(departed))
      return
    }
    // A rank that has all it needs may say goodbye while the others still finish among themselves.
    this.departed.set(session, departed)
    if (this.active.some((entry) => this.needs(entry, session))) this.fail(this.lost(departed))
  }

  private needs({ run, fromPrevious, fromNext }: Entry, session: Session): boolean {
    return (
      (session === this.previous && (run!.collective.isReceiving || !fromPrevious)) ||
      (session === this.next && (run!.collective.isSending || !fromNext))
    )
  }

  private lost(departed: Departed): PeerError {
    return new PeerError(
      'peer.lost',
      `epoch ${this.epoch}: rank ${this.rank} lost rank ${departed.rank} (${departed.detail}). Start again without it.`,
    )
  }

  /** ABORT goes both ways round the ring; a rank that hears it passes it on, away from where it came. */
  private fail(error: PeerError, heard?: { record: AbortRecord; from: Session }): void {
    if (this.isDestroyed) return
    if (this.failure) {
      this.suppressedFailures += 1
      return
    }
    this.failure = error
    this.cancelDeadline()
    const record = heard?.record ?? { origin: this.rank, code: error.code, text: error.message }
    for (const session of this.sessions.values())
      if (session !== heard?.from) session.sendAbort(record)
    this.rejectActive(error)
    this.settleFailed(error)
    this.onfailure(error)
  }

  private rejectActive(error: PeerError): void {
    const rejected = this.active
    this.active = []
    this.entries.clear()
    for (const { run } of rejected) {
      run!.isOver = true
      run!.reject(named(run!.label, error))
    }
  }

  /** Runs `action`; what it throws ends the epoch. */
  private attempt(action: () => void): void {
    try {
      action()
    } catch (thrown) {
      this.fail(
        thrown instanceof PeerError
          ? thrown
          : new PeerError('peer.protocol', `epoch ${this.epoch}: ${messageOf(thrown)}`, {
              cause: thrown,
            }),
      )
    }
  }

  private protocol(session: Session, text: string): PeerError {
    return new PeerError(
      'peer.protocol',
      `epoch ${this.epoch}: rank ${this.rank} got a bad frame from rank ${session.peerRank}: ${text}.`,
    )
  }

  private nameOf(header: FrameHeader): string {
    const operation = operations[header.kind & 15] ?? `operation ${header.kind & 15}`
    return `${operation} #${header.sequence} bucket ${header.bucket}`
  }

  // Leaving

  /** Bytes and frames so far; a snapshot. */
  stats(): GroupStats {
    const links = new Map<number, SessionStats>()
    let payloadBytesSent = 0
    let payloadBytesReceived = 0
    for (const [peerRank, session] of this.sessions) {
      links.set(peerRank, { ...session.stats })
      payloadBytesSent += session.stats.payloadBytesSent
      payloadBytesReceived += session.stats.payloadBytesReceived
    }
    return {
      payloadBytesSent,
      payloadBytesReceived,
      collectives: this.collectives,
      suppressedFailures: this.suppressedFailures,
      links,
    }
  }

  /**
   * Leaves in good order: waits until the neighbours have consumed what was sent (at most `leaveMs`), says goodbye and
   * closes the links. Call it after the last collective; after that closing the connection loses nothing.
   */
  async leave(detail = 'the run is over'): Promise<void> {
    if (this.isDestroyed) return
    if (this.failure) {
      this.destroy(detail)
      return
    }
    await Promise.all([...this.sessions.values()].map((session) => session.leave(detail)))
    this.destroy(detail)
  }

  /** Leaves at once: pending collectives here reject with `peer.aborted`, the neighbours hear a goodbye. Idempotent. */
  destroy(detail = 'the group was destroyed'): void {
    if (this.isDestroyed) return
    this.isDestroyed = true
    this.cancelDeadline()
    this.rejectActive(
      new PeerError('peer.aborted', `rank ${this.rank} left epoch ${this.epoch}: ${detail}.`),
    )
    for (const session of this.sessions.values()) session.close(detail)
  }
}

/** One number per (operation slot, sequence, bucket); below 2^49. An all-gather has a slot of its own (CollectiveOptions). */
function keyOf(operation: number, sequence: number, bucket: number): number {
  const slot = operations[operation] === 'allGather' ? 1 : 0
  return (sequence * 65_536 + bucket) * 2 + slot
}

function isSame(a: Announcement, b: Announcement): boolean {
  return (
    a.kind === b.kind &&
    a.fingerprint.elements === b.fingerprint.elements &&
    a.fingerprint.alignment === b.fingerprint.alignment &&
    a.fingerprint.root === b.fingerprint.root &&
    a.fingerprint.reduction === b.fingerprint.reduction
  )
}

function describe({ kind, fingerprint }: Announcement): string {
  const operation = operations[kind & 15] ?? `operation ${kind & 15}`
  const { elements, alignment, root, reduction } = fingerprint
  const details = [
    alignment === 1 ? '' : `alignment ${alignment}`,
    operation === 'broadcast' ? `root ${root}` : '',
    reduction === 1 ? 'mean' : '',
  ].filter(Boolean)
  return `${operation} of ${elements} elements of type ${kind >> 4}${details.length > 0 ? ` (${details.join(', ')})` : ''}`
}

/** `error` as one collective reports it: same code, its label in front. */
function named(label: string, error: PeerError): PeerError {
  return error.message.startsWith(label)
    ? error
    : new PeerError(error.code, `${label}: ${error.message}`, { cause: error })
}

function ignore(): undefined {
  return undefined
}
