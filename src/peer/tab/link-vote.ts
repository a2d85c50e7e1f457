import * as v from 'valibot'
import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'

/** How long one side of a connection may be up before the other. units: ms. */
const voteMs = 25_000

const voteSchema = v.strictObject({ isUp: v.boolean() })

/** Returns the state of the other side's connection by a signal; undefined for one of the connection's own. */
export function voteIn(signal: unknown): boolean | undefined {
  const vote = v.safeParse(voteSchema, signal)
  return vote.success ? vote.output.isUp : undefined
}

/**
 * Decides whether a connection that the relay may replace is up on both sides: each sends the other its result, and it stays if it is up on
 * both.
 */
export class LinkVote {
  readonly #env: Env
  readonly #heard: Promise<boolean>
  #hear!: (isUp: boolean) => void

  constructor(env: Env) {
    this.#env = env
    this.#heard = new Promise((resolve) => {
      this.#hear = resolve
    })
  }

  /** Takes the other side's vote. */
  receive(isUp: boolean): void {
    this.#hear(isUp)
  }

  /**
   * Resolves when it is settled; a side that has no connection settles it for both at once. `send` takes this side's vote to the other.
   *
   * errors: `peer.unreachable` where the other side does not vote in time.
   */
  async areUp(
    connecting: Promise<unknown>,
    send: (isUp: boolean) => void,
    peerName: string,
  ): Promise<boolean> {
    const own = connecting.then(
      () => true,
      () => false,
    )
    const isUp = await Promise.race([own, this.#heard.then((isThere) => isThere && own)])
    send(isUp)
    return isUp && this.#inTime(peerName)
  }

  async #inTime(peerName: string): Promise<boolean> {
    let cancel!: () => void
    const late = new Promise<never>((_, reject) => {
      const text = `link to ${peerName}: the other tab did not confirm the connection within ${voteMs} ms. Is it still open?`
      cancel = this.#env.after(voteMs, () => reject(new PeerError('peer.unreachable', text)))
    })
    try {
      return await Promise.race([this.#heard, late])
    } finally {
      cancel()
    }
  }
}
