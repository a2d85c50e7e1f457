import { messageOf } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'
import type { Store } from '../state/store.ts'
import { type Ask, refusalToShow } from './shown-queries.ts'
import { partsOf } from './watch-words.ts'
import { changesOf } from './watched-run.ts'

/** From one message to the next: a picture that changes twice a second is one that moves. units: ms. */
const everyMs = 500
/** Onlookers say this often that they are there, and a rank that hears nothing for three times as long shows nothing. units: ms. */
export const askMs = 4000
/** A query takes time of its rank: onlookers together have one in this time. units: ms. */
const queryEveryMs = 1000
const maxQueries = 16
/** Parts of a message that go at once. */
const partsAtOnce = 12
/** Between the parts after those: the server drops what is faster. units: ms. */
const partEveryMs = 270

/** Message of an onlooker. */
export interface Asked {
  /** Number of the newest message that it has; null where it begins. */
  readonly knows: number | null
  /** Queries that it has no answer to yet. */
  readonly asks: readonly Ask[]
}

/** Message of a rank to all onlookers that ask it. */
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

export const keyOf = ({ name, input }: Ask): string => JSON.stringify([name, input ?? null])

export interface ShowsRunOptions {
  readonly store: Pick<Store, 'snapshot'>
  readonly query: Acts['query']
  /** To all onlookers that ask this rank. */
  readonly send: (message: JsonValue) => void
}

/** Shows the run of a rank's tab to all onlookers that ask it, with as few bytes as pictures need and however many watch. */
export class ShowsRun {
  readonly #options: ShowsRunOptions
  #askedMs = Number.NEGATIVE_INFINITY
  #number = 0
  #sent: Run | null = null
  #isWhole = true
  /** The oldest first. */
  readonly #asks = new Map<string, Ask>()
  #queriedMs = Number.NEGATIVE_INFINITY
  #isOn = false

  constructor(options: ShowsRunOptions) {
    this.#options = options
  }

  /** A message of an onlooker has come. */
  take(message: unknown): void {
    const { knows, asks } = Object(message) as Asked
    this.#askedMs = performance.now()
    if (knows === null || knows < this.#number - 8) this.#isWhole = true
    for (const ask of Array.isArray(asks) ? asks.slice(0, maxQueries) : []) {
      const { name, input } = Object(ask) as Ask
      const key = keyOf({ name, input })
      if (this.#asks.size < maxQueries && !this.#asks.has(key))
        this.#asks.set(key, { name: String(name), input })
    }
    // After an error the next message tries again.
    if (!this.#isOn) this.#show().catch(() => undefined)
  }

  async #show(): Promise<void> {
    this.#isOn = true
    try {
      await this.#showAll()
    } finally {
      this.#isOn = false
      this.#isWhole = true
      this.#asks.clear()
    }
  }

  async #showAll(): Promise<void> {
    while (performance.now() - this.#askedMs < 3 * askMs) {
      const beganMs = performance.now()
      const answers = await this.#answer()
      const { run } = this.#options.store.snapshot
      const isNew = this.#isWhole || run !== this.#sent || answers.length > 0
      if (isNew) await this.#send(run, answers)
      const leftMs = everyMs - (performance.now() - beganMs)
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, leftMs)))
    }
  }

  /** Asks the one that has waited longest. */
  async #answer(): Promise<Shown['answers']> {
    const [first] = this.#asks
    const nowMs = performance.now()
    const isEarly = nowMs - this.#queriedMs < queryEveryMs
    if (!first || isEarly || this.#options.store.snapshot.run === null) return []
    this.#queriedMs = nowMs
    const [key, ask] = first
    this.#asks.delete(key)
    const refusal = refusalToShow(ask, this.#options.store.snapshot.run.config)
    if (refusal !== undefined) return [{ key, failure: refusal }]
    try {
      return [{ key, answer: await this.#options.query(ask.name, ask.input) }]
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
    for (const [at, part] of parts.entries()) {
      if (at >= partsAtOnce) await new Promise((resolve) => setTimeout(resolve, partEveryMs))
      this.#options.send(part as unknown as JsonValue)
    }
  }
}
