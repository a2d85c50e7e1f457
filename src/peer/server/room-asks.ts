import { type Env, toHex } from '../../util/env.ts'
import type { Refusal } from '../room/refusals.ts'

/** Who asks to be let in, and what becomes of the connection. */
export interface Ask {
  readonly connectionId: string
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

export interface RoomAsksOptions {
  readonly env: Env
  /** How many may wait at once, and how long each may. */
  readonly most: number
  readonly waitMs: number
  /** Others wait now. */
  changed(): void
}

/** Those who have the key of a room and wait for its maker to let them in. */
export class RoomAsks {
  readonly #options: RoomAsksOptions
  /** In the order in which they came. */
  #waiting: readonly Waiting[] = []

  constructor(options: RoomAsksOptions) {
    this.#options = options
  }

  /** For the maker to see. */
  get list(): { id: string; name: string }[] {
    return this.#waiting.map(({ id, name }) => ({ id, name }))
  }

  /** Returns whether it waits now; refused where too many do. */
  add(ask: Ask): boolean {
    const { env, most, waitMs } = this.#options
    if (this.#waiting.length >= most) {
      const text = `${most} others already wait to be let into this room. Try again later.`
      ask.refuse('too-many', text)
      return false
    }
    const id = toHex(env.random(8))
    const cancel = env.after(waitMs, () => {
      this.forget(ask.connectionId)
      const text = `the host did not let this tab in within ${waitMs / 60_000} minutes. Ask the host, then try again.`
      ask.refuse('declined', text)
    })
    this.#waiting = [...this.#waiting, { ...ask, id, cancel }]
    this.#options.changed()
    return true
  }

  /** The maker's answer, for all ranks of that tab. False where nobody of that id waits, as it may have gone. */
  answer(id: string, isLetIn: boolean): boolean {
    const named = this.#waiting.find((waiting) => waiting.id === id)
    if (!named) return false
    const { token } = named
    const isMate = (one: Ask) => one === named || (token !== undefined && one.token === token)
    for (const one of this.#waiting.filter(isMate)) {
      this.forget(one.connectionId)
      if (isLetIn) one.enter()
      else one.refuse('declined', 'the host declined to let this tab in.')
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
