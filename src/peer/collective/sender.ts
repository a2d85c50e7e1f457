import { headerBytes } from '../link/wire.ts'
import type { Session } from '../session/session.ts'
import type { Run } from './pending-collectives.ts'

/** The most data that START takes along: it must not wait for a long message to travel. */
const maxWithStart = 16 * 1024

export interface SenderOptions {
  /** All ranks that this one is linked to. */
  sessions: readonly Session[]
  /** Bytes of a window that may hold data of collectives which the receiver has not launched. */
  eagerLimit: (windowBytes: number) => number
  /** Launched and not ended, in launch order. */
  active: () => readonly Run[]
  /** Bytes of a run have moved; returns now. */
  progress: (run: Run) => number
  /** A run has sent what it could; it may be complete. */
  onsent: (run: Run) => void
}

/**
 * Hands everything that may go to the links: to each rank in launch order, so that older buckets are not delayed by younger
 * ones; one that the other rank has not started stands back when the eager allowance is used up. START goes in the first data
 * frame where that is small.
 */
export class Sender {
  private readonly options: SenderOptions
  private isPumping = false
  private pumpsAgain = false

  constructor(options: SenderOptions) {
    this.options = options
  }

  pump(): void {
    if (this.isPumping) {
      this.pumpsAgain = true
      return
    }
    this.isPumping = true
    try {
      do {
        this.pumpsAgain = false
        for (const session of this.options.sessions) if (session.isReady) this.pumpTo(session)
      } while (this.pumpsAgain)
    } finally {
      this.isPumping = false
    }
  }

  private pumpTo(session: Session): void {
    const { peerRank } = session
    const active = this.options.active()
    const limitBytes = this.options.eagerLimit(session.windowBytes)
    let eagerBytes = 0
    for (const { entry, eagerBytes: bytes } of active)
      if (!entry.from.has(peerRank)) eagerBytes += bytes.get(peerRank) ?? 0
    for (const run of active) {
      const { entry, exchange, span, unsent } = run
      if (!exchange.isSendingTo(peerRank)) continue
      for (;;) {
        const start = unsent.has(peerRank) ? run.start : undefined
        const startBytes = start?.fingerprint.length ?? 0
        const segment = exchange.nextSegment(peerRank, session.maxPayloadBytes - startBytes)
        if (!segment) break
        if (start && (segment.length > maxWithStart || segment.length <= 0)) break
        const frameBytes = headerBytes + startBytes + segment.length
        const isEager = !entry.from.has(peerRank)
        if (isEager && eagerBytes + frameBytes > limitBytes) break
        if (!session.hasRoom(startBytes + segment.length)) return
        session.sendData(run.route, segment, exchange, start)
        unsent.delete(peerRank)
        exchange.markSent(segment)
        if (isEager) {
          eagerBytes += frameBytes
          run.eagerBytes.set(peerRank, (run.eagerBytes.get(peerRank) ?? 0) + frameBytes)
        }
        const now = this.options.progress(run)
        if (Number.isNaN(span.firstSentMs)) span.firstSentMs = now
      }
      this.options.onsent(run)
    }
  }
}
