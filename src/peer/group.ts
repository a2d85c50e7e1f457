/**
 * `ProcessGroup` is one rank's membership in one epoch: the collectives as their callers see them, and how it all ends.
 *
 * Map: options - ProcessGroup: collectives, failing, leaving. collectives.ts runs them and says why nothing deadlocks.
 */
import type { Env } from '../util/env.ts'
import { messageOf, PeerError } from '../util/errors.ts'
import { countedBucket, countedDataBucket } from './announcement.ts'
import { type Codec, float32Codec } from './codec.ts'
import { type CollectiveOptions, Collectives } from './collectives.ts'
import type { CollectiveSpan } from './entries.ts'
import { epochError, recordOf } from './failure.ts'
import type { Link } from './link.ts'
import { Neighbours } from './neighbours.ts'
import { type ChunkRange, chunkRange } from './schedule.ts'
import type { Session } from './session.ts'
import type { SessionConfig, SessionStats } from './session-config.ts'
import type { AbortRecord } from './wire.ts'

export type { CollectiveOptions } from './collectives.ts'
export type { CollectiveSpan } from './entries.ts'

export interface GroupConfig {
  session: Partial<SessionConfig>
  /** A collective that makes no progress for this long fails on every rank. */
  deadlineMs: number
  /** Share of a window that may hold data of collectives which the receiver has not launched. Below 1. */
  eagerShare: number
}

export const groupDefaults: GroupConfig = { session: {}, deadlineMs: 30_000, eagerShare: 0.5 }

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

export interface GroupStats {
  payloadBytesSent: number
  payloadBytesReceived: number
  collectives: number
  /** Failures after the first, which is the one that is reported. */
  suppressedFailures: number
  /** By the neighbour's rank. */
  links: Map<number, SessionStats>
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

  private readonly neighbours: Neighbours
  private readonly collectives: Collectives
  private failure: PeerError | undefined
  private isDestroyed = false
  private settleFailed!: (error: PeerError) => void
  private suppressedFailures = 0
  private sequencesTaken = 0

  constructor(options: GroupOptions) {
    const { rank, size, epoch, links, env, onspan, codec = float32Codec } = options
    const { session, deadlineMs, eagerShare } = { ...groupDefaults, ...options.config }
    this.rank = rank
    this.size = size
    this.epoch = epoch
    this.failed = new Promise((resolve) => {
      this.settleFailed = resolve
    })
    if (!Number.isInteger(size) || size < 1 || !Number.isInteger(rank) || rank < 0 || rank >= size)
      throw new PeerError(
        'peer.protocol',
        `process group: expected a rank from 0 to ${size - 1}, got ${rank}.`,
      )
    const attempt = (action: () => void) => this.attempt(action)
    this.neighbours = new Neighbours({
      rank,
      size,
      epoch,
      links,
      env,
      config: session,
      events: {
        onframe: (from, header, message) => {
          if (!this.failure) attempt(() => this.collectives.receive(from, header, message))
        },
        onabort: (from, record) => this.end(record, undefined, from),
        onwritable: () => attempt(() => this.collectives.pump()),
        onsuspect: (who, isSuspect, silentMs) => this.onsuspect(who, isSuspect, silentMs),
        onerror: (error) => this.fail(error),
        onend: (from, end) => {
          if (!this.failure && !this.isDestroyed) attempt(() => this.collectives.lose(from, end))
        },
      },
    })
    this.collectives = new Collectives({
      rank,
      size,
      epoch,
      env,
      codec,
      deadlineMs,
      eagerShare,
      neighbours: this.neighbours,
      onspan,
      attempt,
    })
  }

  /** The error that ended the epoch, if one has. */
  get error(): PeerError | undefined {
    return this.failure
  }

  /** How long a collective that names no deadline may stand still before it fails; for those launched from now on. units: ms. */
  get deadlineMs(): number {
    return this.collectives.deadlineMs
  }
  set deadlineMs(value: number) {
    this.collectives.deadlineMs = value
  }

  /** Resolves when both neighbours have said HELLO. errors: `peer.timeout`, `peer.lost`, `peer.mismatch`, `peer.protocol`. */
  async ready(): Promise<void> {
    if (this.failure) throw this.failure
    await this.neighbours.ready()
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
    return this.collectives.launch('reduceScatter', buffer, options)
  }

  /** Fills `buffer` on every rank with each rank's chunk. cost: N-1 steps; (N-1)/N of the bytes sent. errors: `peer.*`. */
  allGather(buffer: Float32Array, options: CollectiveOptions = {}): Promise<void> {
    return this.collectives.launch('allGather', buffer, options)
  }

  /**
   * Sums `buffer` over the ranks, on every rank with the same bits.
   *
   * cost: 2(N-1) steps; 2(N-1)/N of the bytes sent. order: chunk c sums rank c+1, c+2, ..., c. errors: `peer.*`.
   */
  allReduce(buffer: Float32Array, options: CollectiveOptions = {}): Promise<void> {
    return this.collectives.launch('allReduce', buffer, options)
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
    return this.collectives.launch('broadcast', buffer, options, root)
  }

  /** Resolves when every rank has called it. cost: N-1 steps of 4 bytes. errors: `peer.*`. */
  barrier(options: CollectiveOptions = {}): Promise<void> {
    return this.collectives.launch('barrier', new Float32Array(this.size), {
      ...options,
      alignment: 1,
    })
  }

  /** Returns every rank's `values`, in rank order; all ranks give equally many. For hashes and counts. errors: `peer.*`. */
  async allGatherU32(values: Uint32Array, options: CollectiveOptions = {}): Promise<Uint32Array> {
    const all = new Uint32Array(values.length * this.size)
    all.set(values, values.length * this.rank)
    await this.collectives.launch('allGatherU32', new Float32Array(all.buffer), {
      ...options,
      alignment: 1,
    })
    return all
  }

  /**
   * Returns every rank's `bytes`, in rank order; lengths may differ. For records. Uses the key twice, for lengths in
   * `bucket` and for bytes in `bucket` + 1. cost: 2(N-1) steps; N-1 times the longest. errors: `peer.*`.
   */
  async allGatherBytes(bytes: Uint8Array, options: CollectiveOptions = {}): Promise<Uint8Array[]> {
    const isCounted = options.sequence === undefined
    const sequence = options.sequence ?? this.collectives.countSequence()
    const lengths = await this.allGatherU32(Uint32Array.of(bytes.length), {
      ...options,
      sequence,
      bucket: isCounted ? countedBucket : (options.bucket ?? 0),
    })
    const slotBytes = 4 * Math.ceil(Math.max(...lengths) / 4)
    const all = new Uint8Array(slotBytes * this.size)
    all.set(bytes, slotBytes * this.rank)
    await this.collectives.launch('allGatherBytes', new Float32Array(all.buffer), {
      ...options,
      alignment: 1,
      sequence,
      bucket: isCounted ? countedDataBucket : (options.bucket ?? 0) + 1,
    })
    return Array.from(lengths, (length, rank) =>
      all.subarray(rank * slotBytes, rank * slotBytes + length),
    )
  }

  /** What `takeSequence` will return. */
  get nextSequence(): number {
    return this.sequencesTaken + 1
  }

  /**
   * A sequence for collectives that name theirs, from 1: new in this epoch if all that name one take it here.
   *
   * Ranks that take them in the same order have the same.
   */
  takeSequence(): number {
    this.sequencesTaken += 1
    return this.sequencesTaken
  }

  // Failing

  /** Ends the epoch from outside: every pending and later collective on every rank rejects, naming `reason`. Idempotent. */
  abort(reason: PeerError | string): void {
    this.fail(
      typeof reason === 'string'
        ? new PeerError('peer.aborted', `rank ${this.rank} aborted: ${reason}`)
        : reason,
    )
  }

  private fail(error: PeerError): void {
    this.end(recordOf(error, this.rank, this.epoch), error)
  }

  /** ABORT goes both ways round the ring; a rank that hears it passes it on, away from where it came. */
  private end(record: AbortRecord, cause?: PeerError, from?: Session): void {
    if (this.isDestroyed) return
    if (this.failure) {
      this.suppressedFailures += 1
      return
    }
    const error = epochError(record, this.epoch, cause)
    this.failure = error
    this.neighbours.sendAbort(record, from)
    this.collectives.close(record, error)
    this.settleFailed(error)
    this.onfailure(error)
  }

  /** Runs `action`; what it throws ends the epoch. */
  private attempt(action: () => void): void {
    try {
      action()
    } catch (thrown) {
      this.fail(
        thrown instanceof PeerError
          ? thrown
          : new PeerError('peer.protocol', messageOf(thrown), { cause: thrown }),
      )
    }
  }

  // Leaving

  /** Bytes and frames so far; a snapshot. */
  stats(): GroupStats {
    const links = this.neighbours.stats()
    const all = [...links.values()]
    return {
      payloadBytesSent: all.reduce((sum, link) => sum + link.payloadBytesSent, 0),
      payloadBytesReceived: all.reduce((sum, link) => sum + link.payloadBytesReceived, 0),
      collectives: this.collectives.completed,
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
    if (!this.failure) await this.neighbours.leave(detail)
    this.destroy(detail)
  }

  /** Leaves at once: pending collectives here reject with `peer.aborted`, the neighbours hear a goodbye. Idempotent. */
  destroy(detail = 'the group was destroyed'): void {
    if (this.isDestroyed) return
    this.isDestroyed = true
    const text = `rank ${this.rank} left: ${detail}.`
    const record: AbortRecord = { origin: this.rank, code: 'peer.aborted', text }
    this.collectives.close(record, epochError(record, this.epoch))
    this.neighbours.close(detail)
  }
}

function ignore(): undefined {
  return undefined
}
