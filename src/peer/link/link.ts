/**
 * The contract between a transport and everything above it.
 *
 * A link joins two ranks. It is ordered, reliable and carries whole binary messages. It knows nothing of
 * frames, credits, epochs or collectives: those are the session's (session.ts).
 */

/** Transport of a link. */
export type LinkKind = 'webrtc' | 'port' | 'relay' | 'memory'

/** Why a link ended; every link ends exactly once. */
export type LinkEnd = {
  /** bye: the other side said goodbye. closed: the transport reported the end. local: this side closed it. */
  why: 'bye' | 'closed' | 'failed' | 'timeout' | 'protocol' | 'local'
  detail: string
}

/** Traffic of a link so far. */
export interface LinkStats {
  /** Payload bytes passed to the transport, as the transport counts them. */
  bytesSent: number
  /** Payload bytes received from the transport, as the transport counts them. */
  bytesReceived: number
  messagesSent: number
  messagesReceived: number
}

/** Sums the traffic of several links. */
export function sumStats(all: Iterable<LinkStats>): LinkStats {
  const total = { bytesSent: 0, bytesReceived: 0, messagesSent: 0, messagesReceived: 0 }
  for (const stats of all)
    for (const field of Object.keys(total) as (keyof LinkStats)[]) total[field] += stats[field]
  return total
}

/** A connection between two ranks: ordered, reliable, and carrying whole binary messages. */
export interface Link {
  readonly kind: LinkKind
  /** True if `send(..., true)` transfers the buffer instead of copying it; callers then allocate a buffer for each message. */
  readonly transfers?: boolean
  /** Number of lanes (lanes.ts), default 1. A session's window is that many times larger. */
  readonly laneCount?: number
  /** Largest message that `send` accepts. units: bytes. */
  readonly maxMessageBytes: number
  /** Returns how many bytes may be sent now without exceeding the high-water mark; 0 or less means wait. */
  room(): number
  /**
   * Sends one message. Copies the bytes (or, with `transfer`, transfers the buffer) before it returns.
   * Check `room()` first; a full queue never throws. After the end it does nothing.
   */
  send(message: Uint8Array<ArrayBuffer>, transfer?: boolean): void
  /** Called for each message, never on the sender's stack. The buffer belongs to the receiver. */
  onmessage: (message: Uint8Array<ArrayBuffer>) => void
  /** Called when `room()` is positive again. */
  onroom: () => void
  /** Called once, with the reason. */
  onend: (end: LinkEnd) => void
  /** Ends the link; idempotent. */
  close(detail: string): void
  /** Returns what the link has carried so far. */
  stats(): Promise<LinkStats>
}
