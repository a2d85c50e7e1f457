import { PeerError } from '../../util/errors.ts'
import { Sections } from '../../util/sections.ts'
import type { StepNotes } from '../trace/exchange.ts'
import { type Alike, alikeWords, areUnlike, settingsError } from '../trace/settings-check.ts'
import { noteToldToAll } from './agreement.ts'

/** What a rank's gradients and outputs count for, see `Weighing`. */
const counts = {
  shadows: 1,
  runs: 1,
  weighed: 1,
  weights: 1,
  partWeights: 1,
  countLow: 1,
  countHigh: 1,
  lastLow: 1,
  lastHigh: 1,
} as const

/** What a rank sends with a step's first bucket. Whole numbers all of them, so that their sums are the same in any order. */
export const noteSections = new Sections({ ...counts, settings: alikeWords, flags: 1 })

/** The counts of a rank, or their sums. */
export type Counts = Record<keyof typeof counts, number>

/** What a rank's sum of gradients, and its means of scalar outputs, are multiplied by. */
export interface Factors {
  readonly gradients: number
  readonly outputs: number
}

/** What counts say. */
export interface CountsRule {
  /** errors: `graph.misuse`. */
  factors(sums: Counts): Factors
  /** The first rank whose counts cannot be right, or -1. */
  firstWrong(all: readonly Counts[]): number
}

/** For steps in which nothing is weighed. */
const unweighed: CountsRule = {
  factors: () => ({ gradients: 1, outputs: 1 }),
  firstWrong: (all) =>
    all.findIndex((own) => Object.keys(counts).some((name) => own[name as keyof Counts] !== 0)),
}

/** A step's notes on their way, and what comes of them. */
export class SentNotes implements StepNotes {
  readonly words: Float32Array<ArrayBuffer>
  readonly settled: Promise<number>
  outputs = 1
  flags = 0
  isRefused = false
  readonly #rule: CountsRule
  readonly #settings: () => readonly string[]
  readonly #resolve: (factor: number) => void
  readonly #reject: (error: unknown) => void

  /** `flags`: what this rank asks of all. */
  constructor(flags: number, own?: Counts, rule: CountsRule = unweighed, alike?: Alike) {
    this.words = noteSections.write(new Float32Array(noteSections.length), {
      ...own,
      settings: alike?.words() ?? [],
      flags,
    })
    this.#settings = alike?.told() ?? (() => [])
    this.#rule = rule
    let resolve: (factor: number) => void = () => undefined
    let reject: (error: unknown) => void = () => undefined
    this.settled = new Promise<number>((onResolve, onReject) => {
      resolve = onResolve
      reject = onReject
    })
    // Whoever waits hears of it.
    this.settled.catch(() => undefined)
    this.#resolve = resolve
    this.#reject = reject
  }

  check(all: readonly Float32Array<ArrayBuffer>[], ranks: readonly number[]): void {
    const wrong = this.#rule.firstWrong(all.map((words) => noteSections.read(words)))
    if (wrong < 0) return
    throw this.#refuse(
      new PeerError(
        'peer.protocol',
        `rank ${ranks[wrong]}: what it tells of its samples and micro-steps cannot be right, and decides what all gradients count for. Run about as many micro-steps on all ranks, or start again without it.`,
      ),
    )
  }

  async compare(
    sums: Float32Array<ArrayBuffer>,
    size: number,
    gather: (own: readonly string[]) => Promise<readonly (readonly string[])[]>,
  ): Promise<void> {
    if (!areUnlike(noteSections.of(sums, 'settings'), size)) return
    throw this.#refuse(settingsError(await gather(this.#settings())))
  }

  settle(sums: Float32Array<ArrayBuffer>): number {
    const read = noteSections.read(sums)
    try {
      const { gradients, outputs } = this.#rule.factors(read)
      this.flags = read.flags
      this.outputs = outputs
      this.#resolve(gradients)
      return gradients
    } catch (error) {
      throw this.#refuse(error)
    }
  }

  fail(error: unknown): void {
    this.#reject(error)
  }

  /** Ends the step on this rank, as the same sums do on all others. Returns the error. */
  #refuse(error: unknown): unknown {
    noteToldToAll(error)
    this.isRefused = true
    this.#reject(error)
    return error
  }
}
