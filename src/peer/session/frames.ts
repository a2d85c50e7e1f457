import { PeerError } from '../../util/errors.ts'
import type { Link } from '../link/link.ts'
import {
  decodeHeader,
  emptyHeader,
  encodeHeader,
  type FrameHeader,
  FrameType,
  frameTypeName,
  headerBytes,
} from '../link/wire.ts'

/** Which collective a frame belongs to. */
export interface FrameRoute {
  readonly kind: number
  readonly group: number
  readonly sequence: number
  readonly bucket: number
}

/** Where a DATA frame's bytes lie: as in its header. */
export interface FramePart {
  readonly step: number
  readonly offset: number
  readonly length: number
}

/** Where the bytes of a DATA frame come from; they are written straight into the message. */
export interface SegmentSource<Part extends FramePart = FramePart> {
  writeSegment(part: Part, target: Uint8Array<ArrayBuffer>, at: number): void
}

/** START, where it travels in a DATA frame. */
export interface FrameStart {
  /** Ranks known to have begun, the sender included: above 0. */
  readonly begun: number
  readonly fingerprint: Uint8Array
}

export interface FrameWriterOptions {
  link: Link
  epoch: number
  /** The credit for a frame that leaves now. */
  stampCredit: () => number
}

/** Writes this side's frames: numbers them, stamps epoch and credit, and hands them to the link. */
export class FrameWriter {
  private readonly options: FrameWriterOptions
  private readonly isTransferring: boolean
  private readonly out = emptyHeader()
  private readonly scratch: Uint8Array<ArrayBuffer>
  private framesSent = 0

  constructor(options: FrameWriterOptions) {
    const { link } = options
    this.options = options
    this.isTransferring = link.transfers === true
    this.scratch = new Uint8Array(this.isTransferring ? headerBytes : link.maxMessageBytes)
  }

  /** cost: one copy, from the source into the message. */
  data<Part extends FramePart>(
    route: FrameRoute,
    part: Part,
    source: SegmentSource<Part>,
    start?: FrameStart,
  ): void {
    const startBytes = start?.fingerprint.length ?? 0
    const frameBytes = headerBytes + startBytes + part.length
    const { out } = this
    out.type = FrameType.data
    out.kind = route.kind
    out.group = route.group
    out.sequence = route.sequence
    out.bucket = route.bucket
    out.step = part.step
    out.offset = part.offset
    out.length = startBytes + part.length
    out.begun = start?.begun ?? 0
    const message = this.isTransferring
      ? new Uint8Array(frameBytes)
      : frameBytes === this.scratch.length
        ? this.scratch
        : this.scratch.subarray(0, frameBytes)
    if (start) message.set(start.fingerprint, headerBytes)
    source.writeSegment(part, message, headerBytes + startBytes)
    this.transmit(out, message)
  }

  /** Any other frame. */
  control(fields: Partial<FrameHeader>, payload?: Uint8Array): void {
    const length = payload?.length ?? 0
    const message = new Uint8Array(headerBytes + length)
    if (payload) message.set(payload, headerBytes)
    this.transmit({ ...emptyHeader(), ...fields, length }, message)
  }

  private transmit(header: FrameHeader, message: Uint8Array<ArrayBuffer>): void {
    const { link, epoch, stampCredit } = this.options
    header.epoch = epoch
    header.number = this.framesSent
    header.credit = stampCredit()
    this.framesSent = (this.framesSent + 1) >>> 0
    encodeHeader(header, message)
    link.send(message, this.isTransferring)
  }
}

/** Reads the other side's frames, and notices when one is lost, doubled or out of order. */
export class FrameReader {
  /** The frame read last. Reused. */
  readonly header = emptyHeader()
  private framesReceived = 0

  constructor(private readonly epoch: number) {}

  /** Returns whether the message is a frame of this epoch. errors: `peer.protocol` when it is not well formed or not the next. */
  read(message: Uint8Array): boolean {
    const { header } = this
    decodeHeader(message, header)
    if (header.epoch !== this.epoch) return false
    if (header.number !== this.framesReceived)
      throw new PeerError(
        'peer.protocol',
        `expected frame ${this.framesReceived}, got frame ${header.number} (${frameTypeName(header.type)}): the link lost, duplicated or reordered a message`,
      )
    this.framesReceived = (this.framesReceived + 1) >>> 0
    return true
  }
}
