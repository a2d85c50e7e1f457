import type { Env } from '../../util/env.ts'
import { NewestMap } from '../../util/newest-map.ts'
import type { Signer } from '../room/life-keys.ts'
import { TokenBucket } from '../room/token-bucket.ts'
import { inOrder, type PassableMessage, type PassedMessage, signedText } from './messages.ts'

/** The part of a member's links that passing on needs. */
export interface PassingHost {
  readonly env: Env
  readonly self: string
  readonly signer: Signer
  /** Members with a link that is up. */
  readonly up: readonly string[]
  /** Tells whether that member is in the ring in which this one is. */
  mayPass(id: string): boolean
  send(to: readonly string[], message: PassedMessage): void
  heard(from: string, body: PassableMessage): void
  /** That neighbour has passed on what the one from which it should be has not said. */
  forged(by: string): void
}

/** Origins that are remembered: all of the ring, and some that are not known to be in it yet. */
export const maxOrigins = 256
/** By origin: numbers below its highest that are kept one by one; what is older counts as seen. */
const window = 64
/** Messages of one origin that are passed on: a second, and at once. Those that are not known to be in the ring have together as much as one. */
const perSec = 64
export const burst = 1024

interface Origin {
  highest: number
  readonly seen: Set<number>
  /** The neighbour over which its newest message came first: the way back. */
  via: string
  readonly bucket: TokenBucket
}

/**
 * Messages between members that have no link to each other, which others pass on.
 *
 * A message to several members goes to all neighbours, and from each of them on, once: it arrives as long as any way is left, and the one over which
 * it came first is the way back. A message to one member takes that way, and goes everywhere where there is none. This is flooding with reverse
 * paths (Dalal and Metcalfe, 1978).
 *
 * Its origin signs it: who passes it on can keep it back, and cannot change it. Each member checks it first, so whoever passes on a false one is the
 * liar.
 *
 * order: messages that come over one link are taken in their order, and those of one origin as they come.
 * cost: of n links each carries a message to several at most twice, and each member checks one signature. Nothing is sent again: who calls and hears
 * nothing calls again.
 */
export class Passing {
  readonly #host: PassingHost
  readonly #origins: NewestMap<string, Origin>
  /** Of all origins that are not known to be in the ring. */
  readonly #strangers: TokenBucket
  #number = 0
  #unsigned = 0
  /** The newest message that is being signed, and the newest one that is being checked: one after the other. */
  #signed: Promise<void> = Promise.resolve()
  #checked: Promise<void> = Promise.resolve()

  constructor(host: PassingHost) {
    this.#host = host
    this.#origins = new NewestMap(maxOrigins, (id) => !host.mayPass(id))
    this.#strangers = new TokenBucket(host.env, perSec, burst)
  }

  /** Sends to members to which there is no link, and calls `run` in the same moment. */
  send(to: readonly string[], body: PassableMessage, run: () => void = () => undefined): void {
    const { self, signer } = this.#host
    const message = {
      type: 'pass',
      from: self,
      number: ++this.#number,
      to,
      body: inOrder(body),
    } as const
    this.#unsigned++
    this.#signed = this.#signed.then(async () => {
      const signature = await signer.sign(signedText(message))
      run()
      this.#forward({ ...message, ...signature }, self)
      this.#unsigned--
    })
  }

  /** Calls `run` now, or once all is on its way that was to be sent. */
  whenSent(run: () => void): void {
    if (this.#unsigned === 0) run()
    else void this.#signed.then(run)
  }

  /** Takes what the neighbour `by` has sent or passed on. Resolves once that is done. */
  take(by: string, message: PassedMessage): Promise<void> {
    const taken = this.#checked.then(() => this.#take(by, message))
    this.#checked = taken.catch(() => undefined)
    return taken
  }

  async #take(by: string, message: PassedMessage): Promise<void> {
    const { self, signer } = this.#host
    const { from, number, to, body } = message
    const origin = this.#origins.get(from) ?? this.#newOrigin()
    const bucket = this.#host.mayPass(from) ? origin.bucket : this.#strangers
    if (from === self || isSeen(origin, number) || bucket.waitMs > 0) return
    if (!(await signer.verify(from, signedText(message), message))) {
      this.#host.forged(by)
      return
    }
    bucket.take()
    this.#remember(from, origin, number, by)
    if (to.some((id) => id !== self)) this.#forward(message, by)
    if (to.includes(self)) this.#host.heard(from, body)
  }

  #forward(message: PassedMessage, by: string): void {
    const { self, up } = this.#host
    const { from, to } = message
    const neighbours = up.filter((id) => id !== by && id !== from)
    const others = to.filter((id) => id !== self)
    const areLinked = others.every((id) => neighbours.includes(id))
    const via = to.length === 1 ? this.#origins.get(to[0]!)?.via : undefined
    const next = areLinked
      ? others
      : via !== undefined && neighbours.includes(via)
        ? [via]
        : neighbours
    this.#host.send(next, message)
  }

  #newOrigin(): Origin {
    const bucket = new TokenBucket(this.#host.env, perSec, burst)
    return { highest: 0, seen: new Set(), via: '', bucket }
  }

  #remember(from: string, origin: Origin, number: number, by: string): void {
    const { seen } = origin
    seen.add(number)
    if (number > origin.highest) {
      origin.highest = number
      origin.via = by
      for (const one of seen) if (one <= number - window) seen.delete(one)
    }
    this.#origins.set(from, origin)
  }
}

const isSeen = ({ seen, highest }: Origin, number: number): boolean =>
  seen.has(number) || number <= highest - window
