import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import type { Link } from '../link/link.ts'
import { encodeFingerprint } from '../link/wire.ts'
import type { FrameStart } from '../session/frames.ts'
import { Session } from '../session/session.ts'
import type { SessionConfig, SessionStats } from '../session/session-config.ts'
import type { Run } from './pending-collectives.ts'

export interface PeersOptions {
  rank: number
  size: number
  epoch: number
  /** By rank; the neighbours in the ring at least. */
  links: Map<number, Link>
  env: Env
  config: Partial<SessionConfig>
}

/** The sessions with the ranks that this one is linked to: its neighbours in the ring, and others where more links were formed. */
export class Peers {
  readonly sessions: readonly Session[]
  private readonly byRank = new Map<number, Session>()
  private readonly rank: number
  private readonly size: number

  /** errors: `peer.unreachable` when a neighbour's link is missing. */
  constructor(options: PeersOptions) {
    const { rank, size, links } = options
    this.rank = rank
    this.size = size
    const neighbours = size === 1 ? [] : [(rank + size - 1) % size, (rank + 1) % size]
    const missing = neighbours.find((peer) => !links.has(peer))
    if (missing !== undefined)
      throw new PeerError(
        'peer.unreachable',
        `process group: rank ${rank} has no link to its neighbour rank ${missing}, only to [${[...links.keys()].join(', ')}]. Link each rank to its neighbours in the ring.`,
      )
    const { epoch, env, config } = options
    if (size > 1)
      for (const [peerRank, link] of links)
        this.byRank.set(peerRank, new Session({ link, env, epoch, rank, peerRank, size, config }))
    this.sessions = [...this.byRank.values()]
  }

  /** True if every rank is linked to this one. */
  get isComplete(): boolean {
    return this.sessions.length === this.size - 1
  }

  has(rank: number): boolean {
    return this.byRank.has(rank)
  }

  /** errors: `peer.unreachable` without a link. */
  get(rank: number): Session {
    const session = this.byRank.get(rank)
    if (!session)
      throw new PeerError(
        'peer.unreachable',
        `process group: rank ${this.rank} has no link to rank ${rank}, only to [${[...this.byRank.keys()].join(', ')}]. Add the link, or use a collective that needs only a ring.`,
      )
    return session
  }

  /** Resolves when all have said HELLO. */
  async ready(): Promise<void> {
    await Promise.all(this.sessions.map((session) => session.ready))
  }

  /** Returns START as it goes to all whom it concerns: to the next rank in the ring also how many before this one have begun, as far as it is known. */
  startOf(run: Run, begun = begunUpTo(run)): FrameStart {
    const { entry, own } = run
    entry.begunSent = begun
    return { begun, fingerprint: encodeFingerprint(own.fingerprint) }
  }

  /** Says that this rank has begun a collective to all that have not heard it with their first data. */
  sendStart(run: Run, start: FrameStart): void {
    for (const peer of run.unsent) this.get(peer).sendStart(run.route, start)
    run.unsent.clear()
  }

  /** Reports to the next rank when more are known to have begun than was reported last. At most N - 3 times for a collective. */
  passOnBegun(run: Run): void {
    const { entry, route, ring } = run
    const begun = begunUpTo(run)
    if (!ring || begun <= entry.begunSent) return
    this.get(ring.next).sendStart(route, this.startOf(run, begun), true)
  }

  /** How long this rank itself stood still, if it has just woken and the others must have given it up; else 0. units: ms. */
  get stoodStillMs(): number {
    return Math.max(0, ...this.sessions.map((session) => session.stoodStillMs))
  }

  /** A snapshot, by rank. */
  stats(): Map<number, SessionStats> {
    return new Map(this.sessions.map(({ peerRank, stats }) => [peerRank, { ...stats }]))
  }

  async leave(detail: string): Promise<void> {
    await Promise.all(this.sessions.map((session) => session.leave(detail)))
  }

  close(detail: string): void {
    for (const session of this.sessions) session.close(detail)
  }
}

/** This rank and those before it that have begun; the next one needs no more than N - 2, since it hears of the others itself. */
function begunUpTo({ begunBefore, ring }: Run): number {
  return ring ? Math.max(1, Math.min(begunBefore + 1, ring.size - 2)) : 1
}
