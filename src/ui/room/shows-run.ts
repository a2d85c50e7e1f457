import { messageOf } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'
import type { Store } from '../state/store.ts'
import { partsOf } from './watch-words.ts'
import { changesOf } from './watched-run.ts'

/** From one message to the next: a picture that changes twice a second is one that moves. units: ms. */
const everyMs = 500
/** Onlookers say this often that they are there, and a rank that hears nothing for three times as long shows nothing. units: ms. */
export const askMs = 4000
/** A look at the model takes time of its rank: onlookers together have one in this time. units: ms. */
const lookEveryMs = 1000
const maxLooks = 16

/** Question of an onlooker's picture. */
export interface Look {
  readonly name: string
  readonly input: unknown
}

/** What an onlooker says. */
export interface Ask {
  /** Number of the newest message that it has; null where it begins. */
  readonly knows: number | null
  /** What it would like to know of the model, now. */
  readonly looks: readonly Look[]
}

/** What a rank says to all onlookers. */
export interface Shown {
  readonly number: number
  /** Number of the message that `run` adds to; null for a whole one. */
  readonly since: number | null
  readonly run: unknown
  readonly answers: readonly {
    readonly key: string
    readonly answer?: unknown
    readonly failure?: string
  }[]
}

export const keyOf = ({ name, input }: Look): string => JSON.stringify([name, input ?? null])

export interface ShowsRunOptions {
  readonly store: Pick<Store, 'snapshot'>
  readonly query: Acts['query']
  /** To all onlookers. */
  readonly send: (said: JsonValue) => void
}

/** A rank's tab shows its run to all onlookers, with as few bytes as pictures need and however many watch. */
export class ShowsRun {
  readonly #options: ShowsRunOptions
  #askedMs = Number.NEGATIVE_INFINITY
  #number = 0
  #sent: Run | null = null
  #isWhole = true
  /** The oldest first. */
  readonly #looks = new Map<string, Look>()
  #lookedMs = Number.NEGATIVE_INFINITY
  #isOn = false

  constructor(options: ShowsRunOptions) {
    this.#options = options
  }

  /** An onlooker has said that it is there. */
  take(said: unknown): void {
    const { knows, looks } = Object(said) as Ask
    this.#askedMs = performance.now()
    if (knows === null || knows < this.#number - 8) this.#isWhole = true
    for (const look of Array.isArray(looks) ? looks.slice(0, maxLooks) : []) {
      const { name, input } = Object(look) as Look
      const key = keyOf({ name, input })
      if (this.#looks.size < maxLooks && !this.#looks.has(key))
        this.#looks.set(key, { name: String(name), input })
    }
    if (!this.#isOn) void this.#show()
  }

  async #show(): Promise<void> {
    this.#isOn = true
    while (performance.now() - this.#askedMs < 3 * askMs) {
      const beganMs = performance.now()
      const answers = await this.#look()
      const { run } = this.#options.store.snapshot
      const isNew = this.#isWhole || run !== this.#sent || answers.length > 0
      if (isNew) await this.#send(run, answers)
      const leftMs = everyMs - (performance.now() - beganMs)
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, leftMs)))
    }
    this.#isOn = false
    this.#isWhole = true
    this.#looks.clear()
  }

  /** Asks the one that has waited longest. */
  async #look(): Promise<Shown['answers']> {
    const [first] = this.#looks
    const nowMs = performance.now()
    const isEarly = nowMs - this.#lookedMs < lookEveryMs
    if (!first || isEarly || this.#options.store.snapshot.run === null) return []
    this.#lookedMs = nowMs
    const [key, look] = first
    this.#looks.delete(key)
    try {
      return [{ key, answer: await this.#options.query(look.name, look.input) }]
    } catch (thrown) {
      return [{ key, failure: messageOf(thrown) }]
    }
  }

  async #send(run: Run | null, answers: Shown['answers']): Promise<void> {
    const isWhole = this.#isWhole || run?.id !== this.#sent?.id
    const since = isWhole ? null : this.#number
    const number = ++this.#number
    const changes = run && changesOf(isWhole ? null : this.#sent, run)
    this.#isWhole = false
    this.#sent = run
    const shown: Shown = { number, since, run: changes, answers }
    const parts = await partsOf(number, shown)
    for (const part of parts) this.#options.send(part as unknown as JsonValue)
  }
}
