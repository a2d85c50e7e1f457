import { type Env, toHex } from '../../util/env.ts'
import type { Refusal } from '../room/refusals.ts'
import { keepNewest } from './keep-newest.ts'

/** A member that asks to be let in, and what is done with its connection. */
export interface Ask {
  readonly connectionId: string
  readonly address: string
  readonly name: string
  /** The ranks of a tab have the same. */
  readonly token: string | undefined
  enter(): void
  /** For good: it may not ask again over this connection. */
  refuse(code: Refusal, text: string): void
}

interface Waiting extends Ask {
  readonly id: string
  readonly cancel: () => void
}

/** As in `limits`. */
export interface AskLimits {
  asksPerRoom: number
  askMs: number
  askAgainMs: number
  askAgainMaxMs: number
  declinesPerRoom: number
}

export interface RoomAsksOptions {
  readonly env: Env
  readonly limits: AskLimits
  /** Others wait now. */
  changed(): void
}

/** Those who have the key of a room and wait for its maker to let them in. */
export class RoomAsks {
  readonly #options: RoomAsksOptions
  /** In the order in which they came. */
  #waiting: readonly Waiting[] = []
  /** By address, since the maker let one of it in: how long it was to wait after it was declined last, and until when. */
  readonly #declined = new Map<string, { waitMs: number; untilMs: number }>()

  constructor(options: RoomAsksOptions) {
    this.#options = options
  }

  /** For the maker to see. */
  get list(): { id: string; name: string }[] {
    return this.#waiting.map(({ id, name }) => ({ id, name }))
  }

  /** Returns whether it waits now; refused where its address was declined just now, or has its part of the places where all are taken. */
  add(ask: Ask): boolean {
    const { env, limits } = this.#options
    const { asksPerRoom, askMs } = limits
    const waitMs = (this.#declined.get(ask.address)?.untilMs ?? 0) - env.now()
    if (waitMs > 0) {
      const text = `the host declined the last one who asked from ${ask.address}. Try again in ${Math.ceil(waitMs / 1000)} s.`
      ask.refuse('declined', text)
      return false
    }
    if (this.#waiting.length >= asksPerRoom) {
      const refused = this.#lastOfMost(ask.address) ?? ask
      this.forget(refused.connectionId)
      const text = `${asksPerRoom} others already wait to be let into this room. Try again later.`
      refused.refuse('too-many', text)
      if (refused === ask) return false
    }
    const id = toHex(env.random(8))
    const cancel = env.after(askMs, () => {
      this.forget(ask.connectionId)
      const text = `the host did not let this tab in within ${askMs / 60_000} minutes. Ask the host, then try again.`
      ask.refuse('declined', text)
    })
    this.#waiting = [...this.#waiting, { ...ask, id, cancel }]
    this.#options.changed()
    return true
  }

  /** The newest that waits of the address with the most of them; null where that has no more than `address` would have. */
  #lastOfMost(address: string): Ask | null {
    const counts = new Map([[address, 1]])
    for (const one of this.#waiting) counts.set(one.address, (counts.get(one.address) ?? 0) + 1)
    const [max, count] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a))
    const last = this.#waiting.findLast((one) => one.address === max)
    return last && count > counts.get(address)! ? last : null
  }

  /** Returns how long the address is to wait now. units: ms. */
  #decline(address: string): number {
    const { env, limits } = this.#options
    const { askAgainMs, askAgainMaxMs, declinesPerRoom } = limits
    const before = this.#declined.get(address)
    const waitMs = before ? Math.min(2 * before.waitMs, askAgainMaxMs) : askAgainMs
    keepNewest(this.#declined, address, { waitMs, untilMs: env.now() + waitMs }, declinesPerRoom)
    return waitMs
  }

  /** The maker's answer, for all ranks of that tab. False where nobody of that id waits, as it may have gone. */
  answer(id: string, isLetIn: boolean): boolean {
    const named = this.#waiting.find((waiting) => waiting.id === id)
    if (!named) return false
    const { address, token } = named
    const waitMs = isLetIn ? 0 : this.#decline(address)
    if (isLetIn) this.#declined.delete(address)
    const text = `the host declined to let this tab in. It may ask again in ${waitMs / 1000} s.`
    const isMate = (one: Ask) => one === named || (token !== undefined && one.token === token)
    for (const one of this.#waiting.filter(isMate)) {
      this.forget(one.connectionId)
      if (isLetIn) one.enter()
      else one.refuse('declined', text)
    }
    return true
  }

  /** It has gone, or waits no more. */
  forget(connectionId: string): void {
    const gone = this.#waiting.find((one) => one.connectionId === connectionId)
    if (!gone) return
    gone.cancel()
    this.#waiting = this.#waiting.filter((one) => one !== gone)
    this.#options.changed()
  }

  /** The last member has left. Nobody takes the room over for having waited: its host may just reload its page. */
  close(): void {
    const all = this.#waiting
    this.#waiting = []
    for (const { cancel, refuse } of all) {
      cancel()
      refuse('declined', 'everyone left this room while this tab waited.')
    }
  }
}
