/** A rank's speed is the median of this many steps, so that one slow step changes nothing. */
const measuredSteps = 8
/** Fewest steps from one deal to the next, and how much faster the next one must be: steps also differ by chance. */
const fewestSteps = 20
const leastGain = 1.2
/** Steps from one trial to the next: a rank without virtual workers may have become faster, and gets one for a step. */
const trialSteps = 200

/**
 * How many virtual workers each rank computes: from some step on by measured speed, so that all finish at about the same time. A rank gets none if it takes longer for one than the others take for all.
 *
 *     8 workers on 3 ranks of 10 ms a worker and one of 100 ms:   2 2 2 2, 200 ms a step   ->   3 3 2 0, 30 ms
 *
 * A pure function of what all ranks have told with their sums: they deal the same without a message.
 */
export class Deal {
  /** By rank. */
  counts: readonly number[]
  readonly #workers: number
  /** By rank, the newest last. units: µs a virtual worker. */
  readonly #measured: number[][]
  #sinceDeal = 0
  #sinceTrial = 0
  #trials = 0
  #isTrial = false

  /** `counts`: of the first deal, by rank. */
  constructor(counts: readonly number[]) {
    this.counts = counts
    this.#workers = counts.reduce((sum, count) => sum + count, 0)
    this.#measured = counts.map(() => [])
  }

  /** The first virtual worker of a rank. */
  firstOf(rank: number): number {
    return this.counts.slice(0, rank).reduce((sum, count) => sum + count, 0)
  }

  /** The rank that computes a virtual worker. */
  rankOf(worker: number): number {
    return this.counts.findIndex((count, rank) => worker < this.firstOf(rank) + count)
  }

  /** Takes how long each virtual worker of a step took, in whole µs, 0 for one without rows, and deals for the next step. Returns whether that changes anything. */
  take(tookUs: ArrayLike<number>): boolean {
    const before = this.counts
    for (const [rank, own] of this.#measured.entries()) {
      const took = tookUs[this.firstOf(rank)]
      if (this.counts[rank] === 0 || took === 0) continue
      own.push(took)
      if (own.length > measuredSteps) own.shift()
    }
    const speeds = this.#measured.map(median)
    const best = fastest(this.#workers, speeds)
    const isDue = ++this.#sinceDeal >= fewestSteps
    const idle = this.counts.flatMap((count, rank) => (count === 0 ? [rank] : []))
    if (this.#isTrial) {
      this.#isTrial = false
      this.counts = best
    } else if (isDue && longest(this.counts, speeds) >= leastGain * longest(best, speeds)) {
      this.#sinceDeal = 0
      this.counts = best
    } else if (idle.length > 0 && ++this.#sinceTrial >= trialSteps) {
      this.#sinceTrial = 0
      this.#isTrial = true
      const tried = idle[this.#trials++ % idle.length]
      // It counts as it is now.
      this.#measured[tried] = []
      const most = this.counts.indexOf(Math.max(...this.counts))
      this.counts = this.counts.map((count, rank) =>
        rank === tried ? 1 : rank === most ? count - 1 : count,
      )
    }
    return this.counts.some((count, rank) => count !== before[rank])
  }
}

/** The deal after which the last rank finishes soonest; each worker goes to the rank that would finish it first, of equal ones to the lower. */
function fastest(workers: number, speeds: readonly number[]): number[] {
  const counts = speeds.map(() => 0)
  for (let i = 0; i < workers; i++) {
    const ends = speeds.map((us, rank) => us * (counts[rank] + 1))
    counts[ends.indexOf(Math.min(...ends))]++
  }
  return counts
}

/** How long the rank takes that finishes last. */
const longest = (counts: readonly number[], speeds: readonly number[]): number =>
  Math.max(...counts.map((count, rank) => (count === 0 ? 0 : count * speeds[rank])))

/** The lower one of two; infinite for a rank that has not been measured. */
function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[(sorted.length - 1) >> 1] ?? Number.POSITIVE_INFINITY
}
