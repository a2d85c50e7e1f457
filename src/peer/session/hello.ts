import { PeerError } from '../../util/errors.ts'
import { decodeHello, encodeHello } from '../link/wire.ts'

export interface HandshakeOptions {
  rank: number
  peerRank: number
  size: number
  /** Limits of this side: one message, and DATA bytes under way. */
  maxMessageBytes: number
  windowBytes: number
}

/** HELLO both ways: who each side is, and how much it takes at once. */
export class Handshake {
  isSent = false
  isReceived = false
  /** The largest frame that may go to the other side, and its window; 0 before its HELLO. */
  maxFrameBytes = 0
  peerWindowBytes = 0
  private readonly options: HandshakeOptions

  constructor(options: HandshakeOptions) {
    this.options = options
  }

  get isDone(): boolean {
    return this.isSent && this.isReceived
  }

  /** Our HELLO's payload. */
  send(): Uint8Array {
    const { rank, size, maxMessageBytes, windowBytes } = this.options
    this.isSent = true
    return encodeHello({ rank, size, maxMessageBytes, windowBytes })
  }

  /** Takes the other side's. errors: `peer.mismatch` for another rank or size, else `peer.protocol`. */
  receive(payload: Uint8Array): void {
    const { peerRank, size, maxMessageBytes } = this.options
    if (this.isReceived) throw new PeerError('peer.protocol', 'received a second HELLO on one link')
    const hello = decodeHello(payload)
    if (hello.rank !== peerRank || hello.size !== size)
      throw new PeerError(
        'peer.mismatch',
        `expected HELLO from rank ${peerRank} of ${size}, got rank ${hello.rank} of ${hello.size}`,
      )
    if (hello.maxMessageBytes < 1024 || hello.windowBytes < 2 * 1024)
      throw new PeerError(
        'peer.protocol',
        `expected messages of at least 1 KiB and a window of at least 2 KiB, got ${hello.maxMessageBytes} and ${hello.windowBytes} bytes`,
      )
    // A quarter of the window at most, or the window could not hold early frames and others side by side (collectives.ts).
    const max = Math.min(maxMessageBytes, hello.maxMessageBytes, Math.floor(hello.windowBytes / 4))
    this.maxFrameBytes = max - (max % 8)
    this.peerWindowBytes = hello.windowBytes
    this.isReceived = true
  }
}
