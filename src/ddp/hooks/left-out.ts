import { medianOf } from './aggregate.ts'

/** Whether the ranks are trusted to send the gradients of their own samples. */
export type Trust = 'members' | 'strangers'

export const trusts: readonly Trust[] = ['members', 'strangers']

/** Ranks whose gradients were left out of a step, in one bucket. */
export interface LeftOut {
  /** In the model's group. */
  readonly ranks: readonly number[]
  /** Those of them whose gradients were not finite; the others' were too large. */
  readonly notFinite: readonly number[]
}

const nobody: LeftOut = { ranks: [], notFinite: [] }

/** How large a rank's gradients may be: this many times the median of the others' norms, or the largest median so far. */
const mostTimes = 10

/**
 * Decides which ranks a bucket's gradients leave out: those that are not finite, and among strangers those that are far too large.
 *
 * The limit never falls: late in training, when most norms are near 0, an honest rank may still meet a sample that the model gets wrong.
 * Where more than half of the ranks are not finite, nobody is left out: then the training fails, and not a rank.
 */
export class LeftOutRanks {
  readonly #trust: Trust
  /** The largest median of norms so far, by bucket. */
  readonly #largest = new Map<number, number>()

  constructor(trust: Trust) {
    this.#trust = trust
  }

  /** `norms`: of the ranks' gradients of bucket `index`, by rank. */
  judge(index: number, norms: readonly number[]): LeftOut {
    const ranks = [...norms.keys()]
    const notFinite = ranks.filter((rank) => !Number.isFinite(norms[rank]))
    if (2 * notFinite.length > norms.length) return nobody
    if (this.#trust === 'members') return { ranks: notFinite, notFinite }
    const others = (rank: number) =>
      norms.filter((norm, other) => other !== rank && Number.isFinite(norm))
    const largest = Math.max(this.#largest.get(index) ?? 0, medianOf(others(-1)) ?? 0)
    this.#largest.set(index, largest)
    const isTooLarge = (rank: number) => {
      const limit = mostTimes * Math.max(largest, medianOf(others(rank)) ?? 0)
      return limit > 0 && norms[rank] > limit
    }
    const found = ranks.filter((rank) => notFinite.includes(rank) || isTooLarge(rank))
    return { ranks: found, notFinite }
  }
}
