import type { Link, LinkEnd } from './link.ts'
import { LinkBase } from './link-base.ts'
import { fieldOffset, headerBytes } from './wire.ts'

/** What a room's epochs stay below, so that those that follow on the same links differ from all of them. */
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

/**
 * One transport for several epochs, one after the other: a group that has failed is given up, and the next one of the same ranks goes on
 * over the same links, while frames of the old one may still be on their way.
 *
 * Ranks are not there at the same moment: what comes for a following epoch waits until this side opens it. All other frames go to the
 * open epoch, whose session judges them, and drops those of earlier ones.
 */
export class EpochLinks {
  readonly #transport: Link
  #epoch = 0
  #open: EpochLink | undefined
  #waiting: { epoch: number; message: Uint8Array<ArrayBuffer> }[] = []
  #ended: LinkEnd | undefined

  constructor(transport: Link) {
    this.#transport = transport
    transport.onmessage = (message) => this.#receive(message)
    transport.onroom = () => this.#open?.passRoom()
    transport.onend = (end) => {
      this.#ended = end
      this.#open?.pass(end)
    }
  }

  /** The link of an epoch. The one before it falls silent: it sends nothing, and closing it leaves the transport open. */
  open(epoch: number): Link {
    this.#open?.pass({ why: 'local', detail: `epoch ${epoch} continues on this link` })
    const link = new EpochLink(this.#transport)
    this.#epoch = epoch
    this.#open = link
    const waiting = this.#waiting
    this.#waiting = waiting.filter((one) => this.#isFollowing(one.epoch))
    for (const one of waiting) if (one.epoch === epoch) link.passMessage(one.message)
    if (this.#ended) link.pass(this.#ended)
    return link
  }

  #receive(message: Uint8Array<ArrayBuffer>): void {
    const epoch = epochOf(message)
    if (!this.#open || (epoch !== undefined && this.#isFollowing(epoch))) {
      this.#waiting.push({ epoch: epoch ?? this.#epoch, message })
    } else {
      this.#open.passMessage(message)
    }
  }

  #isFollowing(epoch: number): boolean {
    return epoch > this.#epoch && (epoch - this.#epoch) % stride === 0
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
