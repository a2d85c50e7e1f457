import type { Env } from '../../util/env.ts'
import type { Link, LinkEnd } from './link.ts'

/** Faults of the messages that a link sends. */
export interface LinkFaults {
  /** Share of messages that are lost, from 0 to 1. */
  readonly drop: number
  /** Each message leaves so much later; their order stays. */
  readonly delayMs: number
  /** Nothing is sent at all, without an error. */
  readonly isStalled: boolean
}

/** A link whose transport breaks its contract on purpose: to see what the ranks make of it. */
export class FaultyLink implements Link {
  readonly kind
  readonly maxMessageBytes
  readonly #inner: Link
  readonly #faults: LinkFaults
  readonly #env: Env
  /** Messages that were lost. */
  lost = 0

  constructor(inner: Link, faults: LinkFaults, env: Env) {
    this.kind = inner.kind
    this.maxMessageBytes = inner.maxMessageBytes
    this.#inner = inner
    this.#faults = faults
    this.#env = env
  }

  get transfers(): boolean | undefined {
    return this.#inner.transfers
  }

  get laneCount(): number | undefined {
    return this.#inner.laneCount
  }

  room(): number {
    return this.#inner.room()
  }

  send(message: Uint8Array<ArrayBuffer>, transfer = false): void {
    const { drop, delayMs, isStalled } = this.#faults
    const [draw] = new Uint32Array(this.#env.random(4).slice().buffer)
    if (isStalled || draw / 2 ** 32 < drop) {
      this.lost++
      return
    }
    if (delayMs === 0) {
      this.#inner.send(message, transfer)
      return
    }
    const own = transfer ? message : message.slice()
    this.#env.after(delayMs, () => this.#inner.send(own, true))
  }

  set onmessage(listener: (message: Uint8Array<ArrayBuffer>) => void) {
    this.#inner.onmessage = listener
  }

  set onroom(listener: () => void) {
    this.#inner.onroom = listener
  }

  set onend(listener: (end: LinkEnd) => void) {
    this.#inner.onend = listener
  }

  close(detail: string): void {
    this.#inner.close(detail)
  }

  stats(): ReturnType<Link['stats']> {
    return this.#inner.stats()
  }
}
