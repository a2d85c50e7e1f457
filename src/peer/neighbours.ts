import type { Env } from '../util/env.ts'
import { PeerError } from '../util/errors.ts'
import type { Entry, Run } from './entries.ts'
import type { Link, LinkEnd } from './link.ts'
import { Session } from './session.ts'
import type { SessionConfig, SessionStats } from './session-config.ts'
import { type AbortRecord, encodeFingerprint, type FrameHeader } from './wire.ts'

/** What the sessions tell; see `Session`. */
export interface NeighbourEvents {
  onframe: (session: Session, header: FrameHeader, message: Uint8Array<ArrayBuffer>) => void
  onabort: (session: Session, record: AbortRecord) => void
  onwritable: () => void
  onsuspect: (rank: number, isSuspect: boolean, silentMs: number) => void
  onerror: (error: PeerError) => void
  onend: (session: Session, end: LinkEnd) => void
}

export interface NeighboursOptions {
  rank: number
  size: number
  epoch: number
  /** By rank. */
  links: Map<number, Link>
  env: Env
  config: Partial<SessionConfig>
  events: NeighbourEvents
}

/** The sessions with the ranks before and after this one: one and the same in a group of two, none in a group of one. */
export class Neighbours {
  /** Sends data to us. */
  readonly previous: Session | undefined
  /** Takes data from us. */
  readonly next: Session | undefined
  private readonly sessions: Session[] = []
  private readonly size: number

  /** errors: `peer.unreachable` when a link is missing. */
  constructor(options: NeighboursOptions) {
    const { rank, size, epoch, links } = options
    this.size = size
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
      this.sessions.push(openSession(options, link, peerRank))
    }
    this.previous = this.sessions[0]
    this.next = this.sessions.at(-1)
  }

  /** Resolves when all have said HELLO. */
  async ready(): Promise<void> {
    await Promise.all(this.sessions.map((session) => session.ready))
  }

  /** Says to both neighbours that this rank has begun a collective, and to the next one how many before it have, as far as it is known. */
  sendStart({ entry, own }: Run): void {
    const payload = encodeFingerprint(own.fingerprint)
    entry.begunTold = this.begunUpTo(entry)
    for (const session of this.sessions)
      session.sendStart(own.kind, entry.sequence, entry.bucket, payload, entry.begunTold)
  }

  /** Tells the next rank when more are known to have begun than it was told. At most N - 3 times for a collective. */
  passOnBegun({ entry, own }: Run): void {
    const begun = this.begunUpTo(entry)
    if (begun <= entry.begunTold) return
    entry.begunTold = begun
    const payload = encodeFingerprint(own.fingerprint)
    this.next?.sendStart(own.kind, entry.sequence, entry.bucket, payload, begun, true)
  }

  /** This rank and those before it that have begun; the next one needs no more than N - 2, since it hears of the others itself. */
  private begunUpTo({ begunBefore }: Entry): number {
    return Math.max(1, Math.min(begunBefore + 1, this.size - 2))
  }

  /** Both ways round the ring, but not back to where it came from. */
  sendAbort(record: AbortRecord, from?: Session): void {
    for (const session of this.sessions) if (session !== from) session.sendAbort(record)
  }

  /** A snapshot, by the neighbour's rank. */
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

function openSession(options: NeighboursOptions, link: Link, peerRank: number): Session {
  const { rank, size, epoch, env, config, events } = options
  const session = new Session({ link, env, epoch, rank, peerRank, size, config })
  session.onframe = (header, message) => events.onframe(session, header, message)
  session.onabort = (record) => events.onabort(session, record)
  session.onwritable = events.onwritable
  session.onsuspect = (isSuspect, silentMs) => events.onsuspect(peerRank, isSuspect, silentMs)
  session.onerror = events.onerror
  session.onend = (end) => events.onend(session, end)
  return session
}
