import { noteOnAllRanks } from '../../graph/plan/agreement.ts'
import { type ErrorCode, TabringError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'

/** A rank whose gradients are not finite in this many steps in a row is evicted from the run. */
export const maxRepeatedFaults = 3

/** Counts the steps in a row in which ranks had gradients that were not finite; the same on all ranks of a group. */
export class RepeatedFaults {
  #group: object | undefined
  #step = 0
  #counts: ReadonlyMap<number, number> = new Map()

  /** Returns those of `ranks` that have reached `maxRepeatedFaults` with `step`. Ranks of another group begin at 0. */
  count(group: object, step: number, ranks: readonly number[]): readonly number[] {
    const isNext = group === this.#group && step === this.#step + 1
    const before = isNext ? this.#counts : new Map<number, number>()
    this.#counts = new Map(ranks.map((rank) => [rank, (before.get(rank) ?? 0) + 1]))
    this.#group = group
    this.#step = step
    return ranks.filter((rank) => this.#counts.get(rank)! >= maxRepeatedFaults)
  }
}

/** Thrown on all ranks when an elastic run continues without some, which failed again and again. */
export class Eviction extends TabringError {
  static override name = 'TabringError'
  /** In the group. */
  readonly ranks: readonly number[]

  constructor(code: ErrorCode, message: string, ranks: readonly number[]) {
    super(code, message)
    this.ranks = ranks
  }
}

export const evictionForValues = (step: number, ranks: readonly number[]): Eviction =>
  new Eviction(
    'train.nan',
    `step ${step}: the gradients of ${formatRanks(ranks)} were not finite in ${maxRepeatedFaults} steps in a row. Check data and GPU there, then reload the tab.`,
    ranks,
  )

/** Of ranks whose gradients others have computed again, and got other ones. `text`: names them and the step. */
export const evictionForGradients = (text: string, ranks: readonly number[]): Eviction =>
  new Eviction(
    'train.diverged',
    `${text}. Reload the tab there; if it comes again, its browser or CPU computes wrong numbers.`,
    ranks,
  )

/** The error of a run in which ranks compute other gradients than others, and cannot be evicted. */
export const gradientsDiffer = (text: string): TabringError =>
  noteOnAllRanks(
    new TabringError(
      'train.diverged',
      `${text}. Start again without the rank that computes wrong gradients.`,
    ),
  )
