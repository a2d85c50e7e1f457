import { messageOf, PeerError } from '../../util/errors.ts'
import {
  decodeFingerprint,
  type FrameHeader,
  FrameType,
  fingerprintBytes,
  headerBytes,
} from '../link/wire.ts'
import type { Session } from '../session/session.ts'
import {
  type Announcement,
  type CollectiveKey,
  nameOf,
  operationOf,
  pairOf,
} from './announcement.ts'
import type { Peers } from './peers.ts'
import type { Entries, Entry, Run } from './pending-collectives.ts'

/** A rank that announces more collectives than this without our launching any is broken. */
const maxAnnounced = 65_536

export interface ReceiverOptions {
  rank: number
  peers: Peers
  entries: Entries
  /** Bytes of a window that may hold data of collectives which this rank has not launched. */
  eagerLimit: (windowBytes: number) => number
  /** Bytes of a run have moved; returns now. */
  progress: (run: Run) => number
}

/**
 * Takes START and DATA frames from other ranks: checks them, and brings bytes into the buffers of what is launched
 * here. What came too early is held, un-credited, until the launch.
 *
 * errors: `peer.protocol`, `peer.mismatch`; nothing has been written then.
 */
export class Receiver {
  private readonly options: ReceiverOptions
  /** Messages held because they came too early, by rank. units: bytes of whole messages. */
  readonly heldBytes = new Map<number, number>()
  /** The most that was ever held of one rank. */
  peakHeldBytes = 0

  constructor(options: ReceiverOptions) {
    this.options = options
  }

  /** Returns the entry of whose collective more is known or here now; undefined where that has ended here. */
  receive(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
  ): Entry | undefined {
    if (header.type === FrameType.start) {
      const announcement = this.decodeStart(session, header, message.subarray(headerBytes))
      return this.receiveStart(session, header, announcement, header.step, header.offset > 0)
    }
    if (header.begun === 0) return this.receiveData(session, header, message, headerBytes)
    // Compared before a byte of the data is looked at.
    const dataAt = headerBytes + fingerprintBytes
    const announcement = this.decodeStart(session, header, message.subarray(headerBytes, dataAt))
    try {
      this.receiveStart(session, header, announcement, header.begun)
    } catch (thrown) {
      // The group may end by it while the link serves others.
      session.consumed(message.length)
      throw thrown
    }
    return this.receiveData(session, header, message, dataAt)
  }

  /** Brings in what came before the launch. */
  takeHeld(run: Run): void {
    for (const { from, step, offset, message, dataAt } of run.entry.held) {
      this.hold(from, -message.length)
      this.take(run, from, step, offset, message, dataAt)
    }
    run.entry.held = []
  }

  /** Forgets what is held of a collective that will not begin here. */
  drop(entry: Entry): void {
    for (const { from, message } of entry.held) {
      this.hold(from, -message.length)
      this.options.peers.get(from).consumed(message.length)
    }
    entry.held = []
  }

  /** Bytes that are held of a rank, after this change. */
  private hold(from: number, changeBytes: number): number {
    const bytes = (this.heldBytes.get(from) ?? 0) + changeBytes
    this.heldBytes.set(from, bytes)
    this.peakHeldBytes = Math.max(this.peakHeldBytes, bytes)
    return bytes
  }

  private receiveStart(
    session: Session,
    header: FrameHeader,
    announcement: Announcement,
    begun: number,
    isAgain = false,
  ): Entry | undefined {
    const { entries } = this.options
    const { peerRank } = session
    const key = this.keyFor(session, header, announcement.fingerprint.root)
    if (isAgain) return this.receiveBegun(session, header, key)
    const entry = entries.open(key)
    if (entries.announced > maxAnnounced)
      throw this.error(session, `more than ${maxAnnounced} collectives announced`)
    if (entry.from.has(peerRank)) throw this.error(session, `a second START for ${nameIn(header)}`)
    entry.from.set(peerRank, announcement)
    this.noteBegun(entry, peerRank, begun)
    entry.run?.compare()
    return entry
  }

  /** More ranks have begun what the previous one has begun before; it may be long done here, where no bytes were to come. */
  private receiveBegun(
    session: Session,
    header: FrameHeader,
    key: CollectiveKey,
  ): Entry | undefined {
    const { peerRank } = session
    const entry = this.options.entries.find(key)
    if (!entry?.from.has(peerRank)) return undefined
    if (entry.run && entry.run.ring?.previous !== peerRank)
      throw this.error(session, `START against the ring's direction for ${nameIn(header)}`)
    this.noteBegun(entry, peerRank, header.step)
    entry.run?.compare()
    return entry
  }

  private noteBegun(entry: Entry, from: number, begun: number): void {
    entry.begun.set(from, Math.max(entry.begun.get(from) ?? 0, begun))
    if (entry.run) this.options.peers.passOnBegun(entry.run)
  }

  private receiveData(
    session: Session,
    header: FrameHeader,
    message: Uint8Array<ArrayBuffer>,
    dataAt: number,
  ): Entry {
    const { rank, entries, eagerLimit } = this.options
    const { peerRank } = session
    const entry = entries.find(this.keyFor(session, header, peerRank))
    const announced = entry?.from.get(peerRank)
    if (!entry || !announced)
      throw this.error(
        session,
        `data for ${nameIn(header)}, which the sender has not started or has already ended`,
      )
    if (announced.kind !== header.kind)
      throw this.error(
        session,
        `expected kind ${announced.kind} for ${nameIn(header)}, got ${header.kind}`,
      )
    const { step, offset } = header
    if (entry.run) {
      this.take(entry.run, peerRank, step, offset, message, dataAt)
      return entry
    }
    const heldBytes = this.hold(peerRank, message.length)
    const limitBytes = eagerLimit(session.ownWindow)
    if (heldBytes > limitBytes)
      throw this.error(
        session,
        `${heldBytes} bytes for collectives that rank ${rank} has not started; at most ${limitBytes} are allowed`,
      )
    entry.held.push({ from: peerRank, step, offset, message, dataAt })
    return entry
  }

  private take(
    run: Run,
    from: number,
    step: number,
    offset: number,
    message: Uint8Array<ArrayBuffer>,
    dataAt: number,
  ): void {
    run.exchange.receive(from, step, offset, message.length - dataAt, message, dataAt)
    run.span.lastReceivedMs = this.options.progress(run)
    this.options.peers.get(from).consumed(message.length)
  }

  /** A message between two has a separate slot; `sender` is one of them. errors: `peer.protocol` for a third. */
  private keyFor(session: Session, header: FrameHeader, sender: number): CollectiveKey {
    const { kind, group, sequence, bucket } = header
    if (operationOf(kind) !== 'send') return { group, kind, sequence, bucket }
    const { rank } = this.options
    const { peerRank } = session
    if (sender !== rank && sender !== peerRank)
      throw this.error(
        session,
        `${nameIn(header)} from rank ${sender}, which is neither its sender nor its receiver`,
      )
    const pair = pairOf(sender, sender === rank ? peerRank : rank)
    return { group, kind, sequence, bucket, pair }
  }

  private decodeStart(session: Session, header: FrameHeader, payload: Uint8Array): Announcement {
    try {
      return { kind: header.kind, fingerprint: decodeFingerprint(payload) }
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

function nameIn({ kind, sequence, bucket, group }: FrameHeader): string {
  return nameOf(operationOf(kind), sequence, bucket, group)
}
