import type { PassableMessage, PassedMessage } from './messages.ts'

/** What passing on needs of a member's links. */
export interface PassingHost {
  readonly self: string
  /** Members with a link that is up. */
  readonly up: readonly string[]
  send(to: readonly string[], message: PassedMessage): void
  heard(from: string, body: PassableMessage): void
}

/** Origins that are remembered, the newest. */
const maxOrigins = 256
/** By origin: numbers below its highest that are told apart; what is older counts as seen. */
const window = 64

interface Origin {
  highest: number
  readonly seen: Set<number>
  /** The neighbour over which its newest message came first: the way back. */
  via: string
}

/**
 * Messages between members that have no link to each other, which others pass on.
 *
 * A message to several members goes to all neighbours, and from each of them on, once: it arrives as long as any way is left, and the one over which
 * it came first is the way back. A message to one member takes that way, and goes everywhere where there is none. This is flooding with reverse
 * paths (Dalal and Metcalfe, 1978).
 *
 * cost: of n links each carries a message to several at most twice. Nothing is sent again: who calls and hears nothing calls again.
 */
export class Passing {
  readonly #host: PassingHost
  readonly #origins = new Map<string, Origin>()
  #number = 0

  constructor(host: PassingHost) {
    this.#host = host
  }

  /** Sends to members to which there is no link. */
  send(to: readonly string[], body: PassableMessage): void {
    const { self } = this.#host
    this.#forward({ type: 'pass', from: self, number: ++this.#number, to, body }, self)
  }

  /** Takes what the neighbour `by` has sent or passed on. */
  take(by: string, message: PassedMessage): void {
    const { self } = this.#host
    const { from, number, to, body } = message
    if (from === self || !this.#isNew(from, number, by)) return
    const others = to.filter((id) => id !== self)
    if (others.length > 0) this.#forward({ ...message, to: others }, by)
    if (others.length < to.length) this.#host.heard(from, body)
  }

  #forward(message: PassedMessage, by: string): void {
    const { from, to } = message
    const neighbours = this.#host.up.filter((id) => id !== by && id !== from)
    const areLinked = to.every((id) => neighbours.includes(id))
    const via = to.length === 1 ? this.#origins.get(to[0]!)?.via : undefined
    const next = areLinked ? to : via !== undefined && neighbours.includes(via) ? [via] : neighbours
    this.#host.send(next, message)
  }

  #isNew(from: string, number: number, by: string): boolean {
    const origin = this.#origins.get(from) ?? { highest: 0, seen: new Set<number>(), via: by }
    const { highest, seen } = origin
    if (seen.has(number) || number <= highest - window) return false
    seen.add(number)
    if (number > highest) {
      origin.highest = number
      origin.via = by
      for (const one of seen) if (one <= number - window) seen.delete(one)
    }
    this.#origins.delete(from)
    this.#origins.set(from, origin)
    if (this.#origins.size > maxOrigins)
      this.#origins.delete(this.#origins.keys().next().value as string)
    return true
  }
}
