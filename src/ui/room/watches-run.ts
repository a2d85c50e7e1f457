import type { Lobby } from '../../peer/room/messages.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { QueryAnswer } from '../../worker/api.ts'
import type { Run } from '../state/run.ts'
import type { Store } from '../state/store.ts'
import type { Ask } from './shown-queries.ts'
import { askMs, keyOf, type Shown } from './shows-run.ts'
import { Joiner, unpacked } from './watch-words.ts'
import { type RunMaking, withChanges } from './watched-run.ts'

/** An answer that has not come by then does not: it was too much, or its rank has gone. units: ms. */
const answerMs = 15_000
/** From a rank that lacks the run to the next. units: ms. */
const nextRankMs = 300
/** All questions of one message, which has one box. units: characters. */
const maxAskChars = 8000

interface Waiting extends Ask {
  readonly settle: ((answer: QueryAnswer | Error) => void)[]
}

export interface WatchesRunOptions extends RunMaking {
  readonly store: Store
  readonly send: (to: string, message: JsonValue) => void
  /** Returns whether a rank's run is not the one to be shown. */
  readonly isOther: (run: Run | null) => boolean
}

/** A tab without a rank shows the run as one of its ranks sees it: the host, or the first that answers. */
export class WatchesRun {
  readonly #options: WatchesRunOptions
  readonly #joiner = new Joiner()
  #from: string | null = null
  #heardMs = 0
  /** Ranks that did not answer. */
  readonly #mute = new Set<string>()
  #knows: number | null = null
  readonly #waiting = new Map<string, Waiting>()
  #timer: ReturnType<typeof setTimeout> | undefined
  #taking: Promise<void> = Promise.resolve()

  constructor(options: WatchesRunOptions) {
    this.#options = options
  }

  /** The room, which may be another. */
  roomIs(): void {
    if (this.#timer === undefined) this.#ask()
    else if (this.#from === null || !this.#ranks.includes(this.#from)) this.#askSoon(0)
  }

  /** Shown pictures and questions end. */
  end(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#from = null
    this.#knows = null
    for (const one of [...this.#waiting.values()])
      for (const settle of one.settle) settle(new Error('This tab watches no longer.'))
  }

  /** Ids of those that can show the run, the host first. A tab without a page, as one of the command line, measures nothing of itself. */
  get #ranks(): readonly string[] {
    const { lobby, ownId } = this.#options.store.snapshot
    const members: Lobby['members'] = lobby?.members ?? []
    const able = members.filter(
      ({ id, attached, measured }) => attached && measured && id !== ownId,
    )
    const ranks = able.filter(({ rank }) => rank !== null)
    return (ranks.length > 0 ? ranks : able).map(({ id }) => id)
  }

  #askSoon(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#ask(), ms)
  }

  #ask(): void {
    const nowMs = performance.now()
    const ranks = this.#ranks
    const isSilent = this.#from !== null && nowMs - this.#heardMs > 2 * askMs
    if (isSilent) this.#mute.add(this.#from!)
    if (this.#from === null || isSilent || !ranks.includes(this.#from)) {
      const next = ranks.find((id) => !this.#mute.has(id))
      if (next === undefined) this.#mute.clear()
      this.#from = next ?? ranks[0] ?? null
      this.#knows = null
      this.#heardMs = nowMs
    }
    let chars = 0
    const asks = [...this.#waiting].flatMap(([key, { name, input }]) => {
      chars += key.length
      return chars <= maxAskChars ? [{ name, input }] : []
    })
    const ask = { knows: this.#knows, asks } as JsonValue
    if (this.#from !== null) this.#options.send(this.#from, ask)
    this.#askSoon(askMs)
  }

  /** A part of a rank's message has come. */
  take(from: string, message: JsonValue): void {
    if (from !== this.#from) return
    this.#heardMs = performance.now()
    const text = this.#joiner.take(message)
    if (text === null) return
    this.#taking = this.#taking.then(async () => {
      try {
        if (this.#from === from) this.#show((await unpacked(text)) as Shown)
      } catch {
        // A text that is no message counts nowhere.
      }
    })
  }

  #show({ number, since, run, answers }: Shown): void {
    const { store, isOther } = this.#options
    if (since === null || since === this.#knows) {
      const { run: before, experiments } = store.snapshot
      const making = { ...this.#options, parseTrainConfig: experiments.parseTrainConfig }
      const next = run === null ? null : withChanges(since === null ? null : before, run, making)
      // A message that does not fit is dropped, and so are those that add to it.
      if (next === null && run !== null) return
      this.#knows = Number(number)
      if (isOther(next)) {
        this.#mute.add(this.#from!)
        this.#from = null
        this.#askSoon(nextRankMs)
        return
      }
      store.dispatch({ type: 'watched', run: next })
    } else if (this.#knows !== null) {
      this.#knows = null
      this.#askSoon(0)
    }
    for (const { key, answer, failure } of answers) {
      const waiting = this.#waiting.get(key)
      for (const settle of waiting?.settle ?? [])
        settle(failure === undefined ? (answer as QueryAnswer) : new Error(String(failure)))
    }
  }

  /** Answers as `Acts.query`, by the rank that is watched. */
  query(name: string, input: unknown, withinMs = answerMs): Promise<QueryAnswer> {
    const key = keyOf({ name, input })
    if (key.length > maxAskChars)
      return Promise.reject(new Error('This is too much to ask a rank that is watched.'))
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => settle(new Error('The rank has sent no answer.')), withinMs)
      const settle = (answer: QueryAnswer | Error) => {
        clearTimeout(timer)
        this.#waiting.delete(key)
        if (answer instanceof Error) reject(answer)
        else resolve(answer)
      }
      const before = this.#waiting.get(key)
      if (before) before.settle.push(settle)
      else {
        this.#waiting.set(key, { name, input, settle: [settle] })
        this.#askSoon(50)
      }
    })
  }
}
