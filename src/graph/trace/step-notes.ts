import { PeerError } from '../../util/errors.ts'
import { Sections } from '../../util/sections.ts'
import { areUnlike, type SettingsConsistency, settingsHashWords } from './settings-check.ts'

/** Weights of a rank's gradients and outputs, see `Weighing`. */
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

/** Words that a rank sends with a step's first bucket. Whole numbers all of them, so that their sums are the same in any order. */
export const noteSections = new Sections({ ...counts, settings: settingsHashWords, flags: 1 })

/** The counts of a rank, or their sums. */
export type Counts = Record<keyof typeof counts, number>

/** Factors of a rank's sum of gradients, and of its means of scalar outputs. */
export interface Factors {
  readonly gradients: number
  readonly outputs: number
}

/** Rule by which counts become factors. */
export interface CountsRule {
  /** errors: `graph.misuse`. */
  factors(sums: Counts): Factors
  /** The first rank whose counts cannot be right, or -1. */
  firstWrong(all: readonly Counts[]): number
}

/** Notes that ranks send with a step's first bucket, and their results. Errors of `check`, `compare` and `settle` are the same on all ranks, before anything is updated. */
export class StepNotes {
  /** This rank's: whole numbers, equally many on all ranks. */
  readonly words: Float32Array<ArrayBuffer>
  /** Factor of the sums of gradients. errors: those of the methods. */
  readonly settled: Promise<number>
  /** Factor of the sums of scalar outputs, once it is settled. */
  outputs = 1
  /** The sum of all ranks' flags, once it is settled. */
  flags = 0
  /** Why the ranks have refused the step. */
  refusal: unknown
  readonly #rule: CountsRule | undefined
  readonly #consistency: SettingsConsistency | undefined
  readonly #comparison: ReturnType<SettingsConsistency['comparison']> | undefined
  readonly #resolve: (factor: number) => void
  readonly #reject: (error: unknown) => void

  /** `flags`: what this rank asks of all. `own`, `rule`: undefined for steps in which nothing is weighed. */
  constructor(flags: number, own?: Counts, rule?: CountsRule, consistency?: SettingsConsistency) {
    this.words = noteSections.write(new Float32Array(noteSections.length), {
      ...own,
      settings: consistency?.words() ?? [],
      flags,
    })
    this.#consistency = consistency
    this.#comparison = consistency?.comparison()
    this.#rule = rule
    let resolve: (factor: number) => void = () => undefined
    let reject: (error: unknown) => void = () => undefined
    this.settled = new Promise<number>((onResolve, onReject) => {
      resolve = onResolve
      reject = onReject
    })
    // Those that await it get the error.
    this.settled.catch(() => undefined)
    this.#resolve = resolve
    this.#reject = reject
  }

  /** Looks at the words of all ranks, in their order: what a lying one says scales all gradients. errors: `peer.protocol`, naming one that cannot be right. */
  check(all: readonly Float32Array<ArrayBuffer>[], ranks: readonly number[]): void {
    const wrong = this.#rule?.firstWrong(all.map((words) => noteSections.read(words))) ?? -1
    if (wrong < 0) return
    throw this.#refuse(
      new PeerError(
        'peer.protocol',
        `rank ${ranks[wrong]}: what it tells of its samples and micro-steps cannot be right, and decides what all gradients count for. Run about as many micro-steps on all ranks, or start again without it.`,
      ),
    )
  }

  /**
   * Looks whether the sums of all `size` ranks' words say that settings of the update differ; `gather` then gets every rank's. errors:
   * `peer.mismatch`.
   */
  async compare(
    sums: Float32Array<ArrayBuffer>,
    size: number,
    gather: (own: readonly string[]) => Promise<readonly (readonly string[])[]>,
  ): Promise<void> {
    try {
      if (areUnlike(noteSections.of(sums, 'settings'), size)) await this.#comparison?.(gather)
      this.#consistency?.agreed()
    } catch (error) {
      throw this.#refuse(error)
    }
  }

  /** Takes the sums of all ranks' words; returns what `settled` resolves with. errors: `graph.misuse` where the weights that runs gave do not add up. */
  settle(sums: Float32Array<ArrayBuffer>): number {
    const read = noteSections.read(sums)
    try {
      const { gradients, outputs } = this.#rule?.factors(read) ?? { gradients: 1, outputs: 1 }
      this.flags = read.flags
      this.outputs = outputs
      this.#resolve(gradients)
      return gradients
    } catch (error) {
      throw this.#refuse(error)
    }
  }

  /** The sums will not come. */
  fail(error: unknown): void {
    this.#reject(error)
  }

  #refuse(error: unknown): unknown {
    this.refusal = error
    this.#reject(error)
    return error
  }
}
