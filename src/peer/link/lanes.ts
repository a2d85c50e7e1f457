import { type Env, systemEnv } from '../../util/env.ts'
import type { Link, LinkEnd, LinkKind, LinkStats } from './link.ts'
import { LinkBase } from './link-base.ts'

/** Length of the number behind each message on a link of several lanes: 32 bits, little-endian. */
const numberBytes = 4
/** After one lane has ended, the others have this long to bring what was sent before. units: ms. */
const lastWordsMs = 200
/** Messages that may wait for an earlier one; what the windows of lanes let through in frames of 36 bytes and more stays below. */
const maxHeld = 2 ** 17
/** And their bytes: above eight windows, and what a measurement of a link sends. */
const maxHeldBytes = 2 ** 24

/**
 * Several links between the same two ranks as one: each message travels on the lane with the most room and carries its number, by which
 * the other side puts them in order again.
 *
 * A connection's rate over a long way is what it may have under way in one round trip, so several carry more than one. A lane that ends
 * before it has carried anything is left out; one that ends later ends the link. Both sides make the lanes before the first message.
 *
 * source: Multipath TCP (RFC 8684) numbers the bytes of its subflows likewise.
 */
export class LaneLink extends LinkBase {
  readonly kind: LinkKind
  readonly maxMessageBytes: number
  readonly #lanes: Lane[] = []
  /** Those that have ended too, for their counts. */
  readonly #everyLink: Link[] = []
  readonly #env: Env
  #nextSent = 0
  #nextReceived = 0
  /** Arrived before an earlier message, by number. */
  readonly #held = new Map<number, Uint8Array<ArrayBuffer>>()
  #heldBytes = 0
  #firstEnd: LinkEnd | undefined
  #cancelLastWords: () => void = () => undefined

  constructor(first: Link, env: Env = systemEnv) {
    super()
    this.kind = first.kind
    this.maxMessageBytes = first.maxMessageBytes - numberBytes
    this.#env = env
    this.add(first)
  }

  /** Takes one more link; before the first message. */
  add(link: Link): void {
    const lane: Lane = { link, isUsed: false }
    this.#lanes.push(lane)
    this.#everyLink.push(link)
    link.onmessage = (message) => this.#receive(lane, message)
    link.onroom = () => this.roomAgain()
    link.onend = (end) => this.#laneEnded(lane, end)
  }

  /** Those that have not ended. */
  get laneCount(): number {
    return this.#lanes.length
  }

  room(): number {
    if (this.ended || this.#firstEnd) return 0
    return Math.max(0, ...this.#lanes.map(({ link }) => link.room()))
  }

  override async stats(): Promise<LinkStats> {
    const counts = await super.stats()
    const lanes = await Promise.all(this.#everyLink.map((link) => link.stats()))
    const carriedBytes = lanes.reduce((sum, { bytesSent }) => sum + bytesSent, 0)
    // A queued message has been numbered, and not carried.
    const bytesSent = Math.min(counts.bytesSent, carriedBytes)
    return { ...counts, bytesSent }
  }

  protected transmit(message: Uint8Array<ArrayBuffer>): void {
    let best = this.#lanes[0]
    if (!best) return
    // Of equal ones the first: on an idle link all messages keep to one path.
    for (const lane of this.#lanes) if (lane.link.room() > best.link.room()) best = lane
    const numbered = new Uint8Array(message.length + numberBytes)
    numbered.set(message)
    new DataView(numbered.buffer).setUint32(message.length, this.#nextSent, true)
    this.#nextSent = (this.#nextSent + 1) >>> 0
    best.isUsed = true
    best.link.send(numbered, true)
  }

  protected shut(detail: string): void {
    this.#cancelLastWords()
    // Taken out first: their end is then not handled as a loss.
    for (const { link } of this.#lanes.splice(0)) link.close(detail)
  }

  #receive(lane: Lane, message: Uint8Array<ArrayBuffer>): void {
    if (this.ended) return
    lane.isUsed = true
    const length = message.length - numberBytes
    const number =
      length < 0
        ? Number.NaN
        : new DataView(message.buffer, message.byteOffset).getUint32(length, true)
    const ahead = (number - this.#nextReceived) >>> 0
    const isTooFar = ahead >= maxHeld || this.#heldBytes > maxHeldBytes
    if (length < 0 || isTooFar || this.#held.has(number)) {
      this.#endAs({
        why: 'failed',
        detail: `expected message ${this.#nextReceived}, got ${number}`,
      })
      return
    }
    const body = message.subarray(0, length)
    if (ahead > 0) {
      this.#held.set(number, body)
      this.#heldBytes += length
      return
    }
    for (let next: Uint8Array<ArrayBuffer> | undefined = body; next && !this.ended; ) {
      this.#nextReceived = (this.#nextReceived + 1) >>> 0
      this.deliver(next)
      next = this.#held.get(this.#nextReceived)
      this.#held.delete(this.#nextReceived)
      this.#heldBytes -= next?.length ?? 0
    }
  }

  #laneEnded(lane: Lane, end: LinkEnd): void {
    const at = this.#lanes.indexOf(lane)
    if (at < 0) return
    this.#lanes.splice(at, 1)
    if (!lane.isUsed && this.#lanes.length > 0 && !this.#firstEnd) return
    this.#firstEnd ??= end
    const first = this.#firstEnd
    this.#cancelLastWords()
    if (this.#lanes.length === 0) this.#endAs(first)
    else this.#cancelLastWords = this.#env.after(lastWordsMs, () => this.#endAs(first))
  }

  #endAs(end: LinkEnd): void {
    this.shut(end.detail)
    this.finish(end)
  }
}

interface Lane {
  link: Link
  /** True if it has carried a message in either direction. */
  isUsed: boolean
}

/** Adds a transport of number `lane` to the link before it: lane 0 takes its place, the others join it. */
export function withLane(before: Link | undefined, link: Link, lane: number): Link {
  if (!before || lane === 0) return link
  const lanes = before instanceof LaneLink ? before : new LaneLink(before)
  lanes.add(link)
  return lanes
}
