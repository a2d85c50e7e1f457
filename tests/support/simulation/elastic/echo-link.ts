import type { Link, LinkEnd } from '../../../../src/peer/link/link.ts'
import {
  decodeHeader,
  emptyHeader,
  fieldOffset,
  headerBytes,
} from '../../../../src/peer/link/wire.ts'

/** In the frames of messages that belong to no group. */
export const controlEpoch = 2 ** 32 - 1

/** Messages of each roster that are kept: the first ones and the last ones. */
const maxKept = 8
/** Of them arrive again each time. */
const maxAgain = 2

const header = emptyHeader()

/** One end of a link, which hands its owner messages once more when they are old, and counts those that come early. */
export class EchoLink implements Link {
  readonly kind
  readonly maxMessageBytes
  readonly #inner: Link
  readonly #kept = new Map<number, Uint8Array<ArrayBuffer>[]>()
  #listener: (message: Uint8Array<ArrayBuffer>) => void = () => undefined
  #isUp = true
  /** The newest roster that its owner has entered. */
  #entered = 0
  /** Called when it has ended. */
  onended: (detail: string) => void = () => undefined
  /** Messages of the newest roster after that: those that wait at this end. */
  early = 0
  #earlyBallot = 0

  constructor(inner: Link) {
    this.kind = inner.kind
    this.maxMessageBytes = inner.maxMessageBytes
    this.#inner = inner
  }

  room(): number {
    return this.#inner.room()
  }

  send(message: Uint8Array<ArrayBuffer>, transfer?: boolean): void {
    this.#inner.send(message, transfer)
  }

  set onmessage(listener: (message: Uint8Array<ArrayBuffer>) => void) {
    this.#listener = listener
    this.#inner.onmessage = (message) => {
      this.#keep(message)
      listener(message)
    }
  }

  set onroom(listener: () => void) {
    this.#inner.onroom = listener
  }

  set onend(listener: (end: LinkEnd) => void) {
    this.#inner.onend = (end) => {
      this.#isUp = false
      this.onended(end.detail)
      listener(end)
    }
  }

  close(detail: string): void {
    this.#inner.close(detail)
  }

  stats(): ReturnType<Link['stats']> {
    return this.#inner.stats()
  }

  get isUp(): boolean {
    return this.#isUp
  }

  /** Its owner has entered a roster: what was early is not any more. */
  entered(ballot: number): void {
    this.#entered = ballot
    this.early = 0
  }

  #keep(message: Uint8Array<ArrayBuffer>): void {
    const epoch = epochOf(message)
    const ballot = ballotOf(message, epoch)
    if (ballot === undefined) return
    if (epoch !== controlEpoch && ballot > this.#entered) this.#countEarly(ballot)
    const kept = this.#kept.get(ballot) ?? []
    this.#kept.set(ballot, kept)
    if (kept.length === maxKept) kept.splice(maxKept / 2, 1)
    kept.push(message.slice())
  }

  #countEarly(ballot: number): void {
    if (ballot > this.#earlyBallot) this.early = 0
    this.#earlyBallot = Math.max(this.#earlyBallot, ballot)
    this.early++
  }

  /** Some messages of rosters and calls before the one that its owner has entered arrive once more. Returns how many. */
  echo(): number {
    let count = 0
    for (const [ballot, kept] of this.#kept) {
      if (ballot >= this.#entered || !this.#isUp) continue
      const again = kept.splice(0, maxAgain)
      if (kept.length === 0) this.#kept.delete(ballot)
      count += again.length
      for (const message of again) this.#listener(message)
    }
    return count
  }
}

/** 0 for what is too short to have one. */
export function epochOf(message: Uint8Array): number {
  if (message.length < headerBytes) return 0
  return new DataView(message.buffer, message.byteOffset).getUint32(fieldOffset.epoch, true)
}

const probeBegin = new TextEncoder().encode('{"type":"prob')

/** Whether it is of a link's test: those are many, of 32 KiB, and belong to no roster. */
export const isProbe = (message: Uint8Array): boolean =>
  probeBegin.every((byte, at) => message[headerBytes + at] === byte)

/** The number of the roster or the call that a message belongs to; undefined for one that is broken, or belongs to none. */
function ballotOf(message: Uint8Array, epoch: number): number | undefined {
  try {
    if (epoch !== controlEpoch) {
      decodeHeader(message, header)
      return epoch
    }
    if (isProbe(message)) return undefined
    const said = JSON.parse(new TextDecoder().decode(message.subarray(headerBytes)))
    return said.ballot ?? said.roster?.ballot
  } catch {
    return undefined
  }
}
