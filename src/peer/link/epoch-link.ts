import type { Link, LinkEnd, LinkStats } from './link.ts'
import { LinkBase } from './link-base.ts'
import { fieldOffset, headerBytes } from './wire.ts'

/** Bound of a room's epochs, so that those that follow on the same links differ from all of them. */
const stride = 2 ** 16

/** The epoch that follows `epoch` on the same links: the same ranks, after a failure that the links have outlived. */
export const followingEpoch = (epoch: number): number => epoch + stride

/** The epoch in a frame's header; undefined for what is too short to be one. cost: no allocation. */
function epochOf(message: Uint8Array): number | undefined {
  if (message.length < headerBytes) return undefined
  const at = fieldOffset.epoch
  const low = message[at]! | (message[at + 1]! << 8) | (message[at + 2]! << 16)
  return (low | (message[at + 3]! << 24)) >>> 0
}

/** The epoch of control messages: they belong to the transport, and to no epoch of a group. */
const controlEpoch = 2 ** 32 - 1

/**
 * Bytes of control messages that may wait for room. The largest burst is a measurement of a link, of 1 MiB; of an end that reads nothing, and has
 * others answer it again and again, there are more.
 */
export const maxUnsentBytes = 2 ** 22

/** Each counts 1 KiB at least: it bounds how many wait, since taking the first of very many takes long. */
const unsentBytesOf = ({ length }: Uint8Array): number => Math.max(2 ** 10, length)

/**
 * Bytes of messages that may wait for an epoch which this side has not opened, and likewise of control messages that nobody hears yet: of a session
 * that nobody has answered there are a few small ones.
 */
export const maxEarlyBytes = 2 ** 20
/** Each message counts this much at least: it bounds how many wait. */
const minBytes = 2 ** 12

/** Returns whether one more may wait. */
const hasRoom = (waiting: readonly Uint8Array[], next: Uint8Array): boolean =>
  [...waiting, next].reduce((sum, { length }) => sum + Math.max(minBytes, length), 0) <=
  maxEarlyBytes

/**
 * One transport for several epochs, one after the other: a group that has ended is given up, and the next one uses the same links, while frames
 * of the old one may still be on their way. Beside them go control messages, which no epoch sees.
 *
 * Ranks are not there at the same moment: what comes for a later epoch waits until this side opens it. All other frames go to the open epoch,
 * whose session judges them, and drops those of earlier ones.
 */
export class EpochLinks {
  /** Called once, when the transport has ended. */
  onend: (end: LinkEnd) => void = () => undefined
  readonly #transport: Link
  readonly #skips: boolean
  #epoch = 0
  #open: EpochLink | undefined
  #waiting: { epoch: number; message: Uint8Array<ArrayBuffer> }[] = []
  #ended: LinkEnd | undefined
  /** Control messages that the transport has no room for, the oldest first. */
  #unsent: Uint8Array<ArrayBuffer>[] = []
  #unsentBytes = 0
  #oncontrol: ((payload: Uint8Array<ArrayBuffer>) => void) | undefined
  readonly #early: Uint8Array<ArrayBuffer>[] = []

  /**
   * `skips`: any later epoch may be opened next, and what came for those before it is not needed any more. Default: those of `followingEpoch`, one
   * after the other.
   */
  constructor(transport: Link, skips = false) {
    this.#transport = transport
    this.#skips = skips
    transport.onmessage = (message) => this.#receive(message)
    transport.onroom = () => {
      this.#sendControl()
      if (this.#transport.room() > 0) this.#open?.passRoom()
    }
    transport.onend = (end) => {
      this.#ended = end
      this.#unsent = []
      this.#unsentBytes = 0
      this.#open?.pass(end)
      // Who keeps a link that has ended does not keep its last group.
      this.#open = undefined
      this.onend(end)
    }
  }

  get kind(): Link['kind'] {
    return this.#transport.kind
  }

  #isFollowing(epoch: number, open: number): boolean {
    return epoch > open && (this.#skips || (epoch - open) % stride === 0)
  }

  get isUp(): boolean {
    return this.#ended === undefined
  }

  /** Called for each control message, also for those that came before it was set. */
  set oncontrol(handler: (payload: Uint8Array<ArrayBuffer>) => void) {
    this.#oncontrol = handler
    for (const payload of this.#early.splice(0)) handler(payload)
  }

  /** Sends a control message now, or before all else when the transport has room. */
  control(payload: Uint8Array): void {
    if (this.#ended) return
    const message = new Uint8Array(headerBytes + payload.length)
    new DataView(message.buffer).setUint32(fieldOffset.epoch, controlEpoch, true)
    message.set(payload, headerBytes)
    this.#unsent.push(message)
    this.#unsentBytes += unsentBytesOf(message)
    this.#sendControl()
    if (this.#unsentBytes > maxUnsentBytes) this.close('the other end does not read')
  }

  #sendControl(): void {
    while (this.#unsent.length > 0 && this.#transport.room() > 0) {
      const message = this.#unsent.shift()!
      this.#unsentBytes -= unsentBytesOf(message)
      this.#transport.send(message)
    }
  }

  /** The open epoch's link falls silent: it sends nothing, and closing it leaves the transport open. */
  silence(detail: string): void {
    this.#open?.pass({ why: 'local', detail })
  }

  /** The link of an epoch. The one before it falls silent. */
  open(epoch: number): Link {
    this.silence(`epoch ${epoch} continues on this link`)
    const link = new EpochLink(this.#transport)
    this.#epoch = epoch
    if (!this.#ended) this.#open = link
    const waiting = this.#waiting
    this.#waiting = waiting.filter((one) => this.#isFollowing(one.epoch, epoch))
    for (const one of waiting) if (one.epoch === epoch) link.passMessage(one.message)
    if (this.#ended) link.pass(this.#ended)
    return link
  }

  close(detail: string): void {
    this.#transport.close(detail)
  }

  stats(): Promise<LinkStats> {
    return this.#transport.stats()
  }

  #receive(message: Uint8Array<ArrayBuffer>): void {
    const epoch = epochOf(message)
    if (epoch === controlEpoch) {
      const payload = message.subarray(headerBytes)
      if (this.#oncontrol) this.#oncontrol(payload)
      else if (hasRoom(this.#early, payload)) this.#early.push(payload)
      else this.close('too many early control messages')
    } else if (!this.#open || (epoch !== undefined && this.#isFollowing(epoch, this.#epoch))) {
      this.#wait(epoch ?? this.#epoch, message)
    } else {
      this.#open.passMessage(message)
    }
  }

  #wait(epoch: number, message: Uint8Array<ArrayBuffer>): void {
    if (this.#skips) this.#waiting = this.#waiting.filter((one) => one.epoch >= epoch)
    const waiting = this.#waiting.map((one) => one.message)
    if (hasRoom(waiting, message)) this.#waiting.push({ epoch, message })
    else this.close('too many messages of another epoch')
  }
}

/** The transport as one epoch sees it, until the next one is opened. */
class EpochLink extends LinkBase {
  readonly kind
  readonly maxMessageBytes
  override readonly transfers: boolean
  readonly laneCount: number
  readonly #transport: Link

  constructor(transport: Link) {
    super()
    this.#transport = transport
    this.kind = transport.kind
    this.maxMessageBytes = transport.maxMessageBytes
    this.transfers = transport.transfers === true
    this.laneCount = transport.laneCount ?? 1
  }

  room(): number {
    return this.ended ? 0 : this.#transport.room()
  }

  passMessage(message: Uint8Array<ArrayBuffer>): void {
    this.deliver(message)
  }

  passRoom(): void {
    this.roomAgain()
  }

  pass(end: LinkEnd): void {
    this.finish(end)
  }

  protected transmit(message: Uint8Array<ArrayBuffer>, transfer: boolean): void {
    this.#transport.send(message, transfer)
  }

  protected shut(detail: string): void {
    this.#transport.close(detail)
  }
}
