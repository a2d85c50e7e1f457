/**
 * The contract between a transport and everything above it.
 *
 * A link joins two ranks. It is ordered, reliable and carries whole binary messages. It knows nothing of
 * frames, credits, epochs or collectives: those are the session's (session.ts).
 */

export type LinkKind = 'webrtc' | 'port' | 'relay' | 'memory'

/** Why a link ended; every link ends exactly once. */
export type LinkEnd = {
  /** bye: the other side said goodbye. closed: the transport reported the end. local: we closed it. */
  why: 'bye' | 'closed' | 'failed' | 'timeout' | 'protocol' | 'local'
  detail: string
}

export interface LinkStats {
  /** Payload bytes handed to the transport, and received from it, as the transport itself counts them. */
  bytesSent: number
  bytesReceived: number
  messagesSent: number
  messagesReceived: number
}

export interface Link {
  readonly kind: LinkKind
  /** Whether `send(..., true)` gives the buffer away instead of copying it; worth a fresh buffer per message then. */
  readonly transfers?: boolean
  /** Over how many lanes (lanes.ts) it travels, 1 by default; so many times wider is a session's window. */
  readonly laneCount?: number
  /** The largest message in bytes that `send` takes. */
  readonly maxMessageBytes: number
  /** Bytes that may be sent now without queueing above the high-water mark; 0 or less means wait. */
  room(): number
  /**
   * Sends one message. The bytes are copied (or, with `transfer`, the buffer is given away) before it returns.
   * Callers check `room()` first; a full queue is never an exception. After the end it does nothing.
   */
  send(message: Uint8Array<ArrayBuffer>, transfer?: boolean): void
  /** Called for each message, never on the sender's stack. The buffer belongs to the receiver. */
  onmessage: (message: Uint8Array<ArrayBuffer>) => void
  /** Called when `room()` has become positive again. */
  onroom: () => void
  /** Called once, with the reason. */
  onend: (end: LinkEnd) => void
  /** Ends the link; idempotent. */
  close(detail: string): void
  stats(): Promise<LinkStats>
}
