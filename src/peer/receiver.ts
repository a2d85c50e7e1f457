import { messageOf, PeerError } from '../util/errors.ts'
import { type Announcement, nameOf, operationOf } from './announcement.ts'
import type { Entries, Entry, Run } from './entries.ts'
import type { Neighbours } from './neighbours.ts'
import type { Session } from './session.ts'
import { decodeFingerprint, type FrameHeader, FrameType, headerBytes } from './wire.ts'

/** A neighbour that announces more collectives than this without our launching any is broken. */
const maxAnnounced = 65_536

export interface ReceiverOptions {
  rank: number
  neighbours: Neighbours
  entries: Entries
  /** Bytes of a window that may hold data of collectives which this rank has not launched. */
  eagerLimit: (windowBytes: number) => number
  /** Bytes have moved; returns now. */
  progress: () => number
}

/**
 * Takes START and DATA frames from the neighbours: checks them, and brings bytes into the buffers of what is launched
 * here. What came too early is held, un-credited, until the launch.
 *
 * errors: `peer.protocol`, `peer.mismatch`; nothing has been written then.
 */
export class Receiver {
  private readonly options: ReceiverOptions
  private heldBytes = 0

  constructor(options: ReceiverOptions) {
    this.options = options
  }

  /** Returns the entry of whose collective more is known or here now; undefined where that has ended here. */
  receive(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
  ): Entry | undefined {
    return header.type === FrameType.start
      ? this.receiveStart(session, header, message)
      : this.receiveData(session, header, message)
  }

  /** Brings in what came before the launch. */
  takeHeld(run: Run): void {
    for (const { step, offset, length, message } of run.entry.held) {
      this.heldBytes -= message.length
      this.take(run, step, offset, length, message)
    }
    run.entry.held = []
  }

  private receiveStart(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
  ): Entry | undefined {
    const { entries, neighbours } = this.options
    const announcement = this.decodeStart(session, header, message)
    if (header.offset > 0) return this.receiveBegun(session, header)
    const entry = entries.open(header.kind, header.sequence, header.bucket)
    if (entries.announced > maxAnnounced)
      throw this.error(session, `more than ${maxAnnounced} collectives announced`)
    if (session === neighbours.previous) {
      if (entry.fromPrevious) throw this.error(session, `a second START for ${nameIn(header)}`)
      entry.fromPrevious = announcement
      this.noteBegun(entry, header.step)
    }
    if (session === neighbours.next) {
      if (entry.fromNext) throw this.error(session, `a second START for ${nameIn(header)}`)
      entry.fromNext = announcement
    }
    entry.run?.compare()
    return entry
  }

  /** More ranks have begun what the previous one has begun before; it may be long done here, where no bytes were to come. */
  private receiveBegun(session: Session, header: FrameHeader): Entry | undefined {
    const { entries, neighbours } = this.options
    if (session !== neighbours.previous)
      throw this.error(session, `START against the ring's direction for ${nameIn(header)}`)
    const entry = entries.find(header.kind, header.sequence, header.bucket)
    if (!entry?.fromPrevious) return undefined
    this.noteBegun(entry, header.step)
    entry.run?.compare()
    return entry
  }

  private noteBegun(entry: Entry, begun: number): void {
    entry.begunBefore = Math.max(entry.begunBefore, begun)
    if (entry.run) this.options.neighbours.passOnBegun(entry.run)
  }

  private receiveData(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
  ): Entry {
    const { rank, entries, neighbours, eagerLimit } = this.options
    const entry = entries.find(header.kind, header.sequence, header.bucket)
    if (session !== neighbours.previous)
      throw this.error(session, `data against the ring's direction for ${nameIn(header)}`)
    if (!entry?.fromPrevious)
      throw this.error(session, `data for ${nameIn(header)}, which it has not started or has ended`)
    if (entry.fromPrevious.kind !== header.kind)
      throw this.error(
        session,
        `expected kind ${entry.fromPrevious.kind} for ${nameIn(header)}, got ${header.kind}`,
      )
    const { step, offset, length } = header
    if (entry.run) {
      this.take(entry.run, step, offset, length, message)
      return entry
    }
    this.heldBytes += message.length
    const limitBytes = eagerLimit(session.ownWindow)
    if (this.heldBytes > limitBytes)
      throw this.error(
        session,
        `${this.heldBytes} bytes for collectives that rank ${rank} has not started, at most ${limitBytes} may be`,
      )
    entry.held.push({ step, offset, length, message })
    return entry
  }

  private take(
    run: Run,
    step: number,
    offset: number,
    length: number,
    message: Uint8Array<ArrayBuffer>,
  ): void {
    run.ring.receive(step, offset, length, message, headerBytes)
    run.span.lastReceivedMs = this.options.progress()
    this.options.neighbours.previous!.consumed(message.length)
  }

  private decodeStart(session: Session, header: FrameHeader, message: Uint8Array): Announcement {
    try {
      return {
        kind: header.kind,
        fingerprint: decodeFingerprint(message.subarray(headerBytes)),
      }
    } catch (thrown) {
      throw this.error(session, messageOf(thrown))
    }
  }

  private error(session: Session, text: string): PeerError {
    return new PeerError(
      'peer.protocol',
      `rank ${this.options.rank} got a bad frame from rank ${session.peerRank}: ${text.replace(/\.$/, '')}.`,
    )
  }
}

function nameIn(header: FrameHeader): string {
  return nameOf(operationOf(header.kind), header.sequence, header.bucket)
}
