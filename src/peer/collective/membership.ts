import type { Env } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import type { Link } from '../link/link.ts'
import type { AbortRecord } from '../link/wire.ts'
import type { Session } from '../session/session.ts'
import type { LinkPeaks, SessionConfig, SessionStats } from '../session/session-config.ts'
import { type CollectiveCounts, Collectives } from './collectives.ts'
import { epochError, ownRecord, recordOf, withRank } from './failure.ts'
import { Peers } from './peers.ts'
import type { CollectiveSpan } from './pending-collectives.ts'

/** Settings of a group formed from links. */
export interface GroupConfig {
  /** Settings of each link. */
  session: Partial<SessionConfig>
  /** A collective fails on every rank if none of its bytes, nor of those ahead of it on its links, moves for this long. units: ms. */
  deadlineMs: number
  /** Share of a window that may hold data of collectives that the receiver has not launched. Below 1. */
  eagerShare: number
}

const groupDefaults: GroupConfig = { session: {}, deadlineMs: 30_000, eagerShare: 0.5 }

/** Options of `new ProcessGroup`. */
export interface GroupOptions {
  rank: number
  size: number
  epoch: number
  /** Links by rank: at least to the neighbours in the ring (one for a group of two, none for a group of one), or to all ranks. */
  links: Map<number, Link>
  env: Env
  /** Machine, or another unit of locality, of each rank. The same on all ranks. */
  machines?: readonly number[] | undefined
  config?: Partial<GroupConfig>
  /** Called for each collective that succeeds. */
  onspan?: ((span: CollectiveSpan) => void) | undefined
  /** Called once, when this rank has left; the transports of its links may then be released. */
  onleft?: (() => void) | undefined
}

/** Traffic of a group so far. */
export interface GroupStats {
  payloadBytesSent: number
  payloadBytesReceived: number
  /** Number of collectives that succeeded. */
  collectives: number
  /** Collectives in flight. */
  inFlight: CollectiveCounts
  /** Number of failures after the first; only the first is reported. */
  suppressedFailures: number
  /** Statistics of each link, by rank. */
  links: Map<number, SessionStats>
}

/** Events of a membership for its owner. */
export interface MembershipEvents {
  onfailure: (error: PeerError) => void
  onsuspect: (rank: number, isSuspect: boolean, silentMs: number) => void
}

/** One rank's place in one epoch, whatever groups its ranks form: its sessions, its collectives, and how it all ends. */
export class Membership {
  readonly rank: number
  readonly size: number
  readonly epoch: number
  readonly peers: Peers
  readonly collectives: Collectives
  readonly env: Env
  /** Resolves (never rejects) with the error that ended the epoch. */
  readonly failed: Promise<PeerError>
  failure: PeerError | undefined
  /** Groups that this rank has begun to make, that of all ranks included. */
  groups = 1
  private readonly events: MembershipEvents
  private isDestroyed = false
  private isLeaving = false
  private readonly onleft: (() => void) | undefined
  private settleFailed!: (error: PeerError) => void
  private suppressedFailures = 0

  /** errors: `peer.protocol` for an invalid rank; `peer.unreachable` without a neighbour's link. */
  constructor(options: GroupOptions, events: MembershipEvents) {
    const { rank, size, epoch, links, env, onspan } = options
    const { session, deadlineMs, eagerShare } = { ...groupDefaults, ...options.config }
    this.rank = rank
    this.size = size
    this.epoch = epoch
    this.env = env
    this.events = events
    this.onleft = options.onleft
    this.failed = new Promise((resolve) => {
      this.settleFailed = resolve
    })
    if (!Number.isInteger(size) || size < 1 || !Number.isInteger(rank) || rank < 0 || rank >= size)
      throw new PeerError(
        'peer.protocol',
        `process group: expected a rank from 0 to ${size - 1}, got ${rank}. Correct the rank or the size.`,
      )
    const attempt = (action: () => void, group?: number) => void this.attempt(action, group)
    this.peers = new Peers({ rank, size, epoch, links, env, config: session })
    this.collectives = new Collectives({
      rank,
      env,
      deadlineMs,
      eagerShare,
      peers: this.peers,
      onspan,
      attempt,
    })
    for (const one of this.peers.sessions) this.listenTo(one)
  }

  private listenTo(session: Session): void {
    const { peerRank } = session
    session.onframe = (header, message) => {
      if (this.failure) return
      const receive = () => this.collectives.receive(session, header, message)
      const thrown = this.attempt(receive, header.group)
      // The session ends its link: who has sent a wrong frame may do so in each group that follows.
      if (thrown instanceof PeerError && thrown.code === 'peer.protocol') throw thrown
    }
    session.onabort = (received) => {
      // No rank has a group before all have begun to make it.
      if (received.group >= this.groups)
        throw new PeerError(
          'peer.protocol',
          `expected ABORT of one of ${this.groups} groups, got group ${received.group}`,
        )
      // Any rank may send any number: one that is no rank names nobody.
      const lost = received.lost !== null && received.lost < this.size ? received.lost : null
      this.end(withRank({ ...received, lost }, peerRank), undefined, session)
    }
    session.onwritable = () => this.attempt(() => this.collectives.pump())
    session.onsuspect = (isSuspect, silentMs) =>
      this.events.onsuspect(peerRank, isSuspect, silentMs)
    session.onerror = (error) => this.fail(error)
    session.onend = (end) => {
      // Where the other side does not answer a goodbye the link ends by us; nobody is lost by that.
      const isLeft = this.isDestroyed || (this.isLeaving && end.why === 'local')
      if (!this.failure && !isLeft) this.attempt(() => this.collectives.lose(session, end))
    }
  }

  /** True if this rank leaves, or has left. */
  get isOver(): boolean {
    return this.isLeaving || this.isDestroyed
  }

  /** Resolves when all linked ranks have said HELLO; rejects as soon as the epoch ends. errors: `peer.timeout`, `peer.lost`, `peer.mismatch`, `peer.protocol`. */
  async ready(): Promise<void> {
    const ended = this.collectives.ended
    if (ended) throw ended
    const over = this.failed.then((error) => Promise.reject(error))
    try {
      await Promise.race([this.peers.ready(), over])
    } catch (error) {
      throw this.failure ?? error
    }
  }

  /** Ends a group on every rank, with this rank's error; with group 0, or where a rank or a link is lost, the epoch. */
  fail(error: PeerError, group = 0): void {
    this.end(recordOf(error, this.rank, this.epoch, group), error)
  }

  /** ABORT goes to all, in the group or not; a rank that hears it passes it on, away from where it came. */
  private end(received: AbortRecord, cause?: PeerError, from?: Session): void {
    if (this.isDestroyed) return
    if (this.collectives.hasEnded(received.group)) {
      this.suppressedFailures += 1
      return
    }
    const record = ownRecord(received, this.rank, this.peers.stoodStillMs)
    const error = epochError(record, cause)
    const isOfAll = record.group === 0
    if (isOfAll) this.failure = error
    // Before anything that may fail: those that wait here hear of the end.
    this.collectives.close(record, error)
    for (const session of this.peers.sessions) if (session !== from) session.sendAbort(record)
    if (!isOfAll) return
    this.settleFailed(error)
    this.events.onfailure(error)
  }

  /** Runs `action`; what it throws ends the group, or the epoch: see `fail`. Returns that. */
  private attempt(action: () => void, group?: number): unknown {
    try {
      action()
      return undefined
    } catch (thrown) {
      this.fail(
        thrown instanceof PeerError
          ? thrown
          : new PeerError('peer.protocol', messageOf(thrown), { cause: thrown }),
        group,
      )
      return thrown
    }
  }

  stats(): GroupStats {
    const links = this.peers.stats()
    const all = [...links.values()]
    return {
      payloadBytesSent: all.reduce((sum, link) => sum + link.payloadBytesSent, 0),
      payloadBytesReceived: all.reduce((sum, link) => sum + link.payloadBytesReceived, 0),
      collectives: this.collectives.completed,
      inFlight: this.collectives.counts,
      suppressedFailures: this.suppressedFailures,
      links,
    }
  }

  /** See `ProcessGroup.takeLinkPeaks`. */
  takeLinkPeaks(rank: number): LinkPeaks | undefined {
    if (!this.peers.has(rank)) return undefined
    const session = this.peers.get(rank)
    return { ...session.takeRecentPeaks(), windowBytes: session.windowBytes }
  }

  /** See `ProcessGroup.leave`. */
  async leave(detail: string): Promise<void> {
    if (this.isDestroyed) return
    this.isLeaving = true
    if (!this.failure) await this.peers.leave(detail)
    this.destroy(detail)
  }

  /** See `ProcessGroup.destroy`. */
  destroy(detail: string): void {
    if (this.isDestroyed) return
    this.isDestroyed = true
    const text = `rank ${this.rank} left: ${detail}.`
    const code = 'peer.aborted'
    const record: AbortRecord = { group: 0, origin: this.rank, lost: null, code, text }
    const remedy = 'Train, save and evaluate before destroyProcessGroup(), or form a new group.'
    this.collectives.close(record, epochError(record), { ...record, text: `${text} ${remedy}` })
    this.peers.close(detail)
    this.onleft?.()
  }
}
