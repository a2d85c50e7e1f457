import type { Run } from './entries.ts'
import type { Session } from './session.ts'
import { headerBytes } from './wire.ts'

export interface SenderOptions {
  /** The rank that takes our data; none in a group of one. */
  next: Session | undefined
  /** Bytes of a window that may hold data of collectives which the receiver has not launched. */
  eagerLimit: (windowBytes: number) => number
  /** Launched and not ended, in launch order. */
  active: () => readonly Run[]
  /** Bytes have moved; returns now. */
  progress: () => number
  /** A run has sent what it could; it may be complete. */
  onsent: (run: Run) => void
}

/**
 * Hands everything that may go to the link to the next rank: collectives in launch order, so that older buckets are
 * not delayed by younger ones; one that the next rank has not started stands back when the eager allowance is used up.
 */
export class Sender {
  private readonly options: SenderOptions
  private isPumping = false
  private pumpsAgain = false

  constructor(options: SenderOptions) {
    this.options = options
  }

  pump(): void {
    const { next } = this.options
    if (!next?.isReady) return
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
    const active = this.options.active()
    const limitBytes = this.options.eagerLimit(next.windowBytes)
    let eagerBytes = 0
    for (const run of active) if (!run.entry.fromNext) eagerBytes += run.eagerBytes
    for (const run of active) {
      const { entry, ring, span } = run
      if (!ring.isSending) continue
      for (;;) {
        const segment = ring.nextSegment(next.maxPayloadBytes)
        if (!segment) break
        const { step, offset, length } = segment
        const frameBytes = headerBytes + length
        if (!entry.fromNext && eagerBytes + frameBytes > limitBytes) break
        if (!next.hasRoom(length)) return
        next.sendData(run.own.kind, entry.sequence, entry.bucket, step, offset, length, ring)
        ring.markSent(segment)
        if (!entry.fromNext) {
          eagerBytes += frameBytes
          run.eagerBytes += frameBytes
        }
        const now = this.options.progress()
        if (Number.isNaN(span.firstSentMs)) span.firstSentMs = now
      }
      this.options.onsent(run)
    }
  }
}
