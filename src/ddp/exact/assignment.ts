/** A rank's speed is the median of this many steps, so that one slow step changes nothing. */
const measuredSteps = 8
/** Minimum steps from one assignment to the next, and how much faster the next one must be: steps also differ by chance. */
const fewestSteps = 20
const minGain = 1.2
/**
 * Steps from one trial to the next: a rank without virtual workers may have become faster, and gets one for a step. One that was measured in no
 * step gets it after `fewestSteps`.
 */
const trialSteps = 200

/** Time that a rank takes for a virtual worker, as it reports when a group forms. */
export interface MeasuredTime {
  /** A whole number. */
  readonly us: number
  /** Of the one that it computed to prove its bits, as long as it has been measured in no step. */
  readonly isOfProof: boolean
}

/**
 * How many virtual workers each rank computes: by measured speed, so that all finish at about the same time. A rank gets none if it takes longer for one than the others take for all.
 *
 *     8 workers on 3 ranks of 10 ms a worker and one of 100 ms:   2 2 2 2, 200 ms a step   ->   3 3 2 0, 30 ms
 *
 * A pure function of the times that all ranks send with their sums: they assign the same without a message.
 */
export class Assignment {
  /** By rank. */
  counts: readonly number[]
  readonly #workers: number
  /** By rank, the newest last. units: µs a virtual worker. */
  readonly #measured: number[][]
  /** By rank, until it is measured here. units: µs a virtual worker. */
  #reported: readonly number[] = []
  /** Ranks that were measured in no step. */
  readonly #unknown = new Set<number>()
  #sinceAssignment = 0
  #sinceTrial = 0
  #trials = 0
  #isTrial = false

  /** `counts`: of the first assignment, by rank. */
  constructor(counts: readonly number[]) {
    this.counts = counts
    this.#workers = counts.reduce((sum, count) => sum + count, 0)
    this.#measured = counts.map(() => [])
  }

  /**
   * Assigns for the first step by the ranks' reports, where one of them was measured in steps: else their proofs are all that is known, and
   * came while all were starting. A rank that has reported nothing counts as the median of the others. `received`: by rank, the same on all of them.
   */
  begin(received: readonly (MeasuredTime | undefined)[]): void {
    if (!received.some((took) => took?.isOfProof === false)) return
    const usual = median(received.flatMap((took) => (took ? [took.us] : [])))
    this.#reported = received.map((took) => took?.us ?? usual)
    for (const [rank, took] of received.entries())
      if (took?.isOfProof !== false) this.#unknown.add(rank)
    const best = fastest(this.#workers, this.#speeds)
    if (isWorthwhile(this.counts, best, this.#speeds)) this.counts = best
  }

  /** Returns a rank's time for a virtual worker in the steps so far; undefined where it has been measured in none. units: µs. */
  usOf(rank: number): number | undefined {
    const own = this.#measured[rank]
    return own.length > 0 ? median(own) : undefined
  }

  get #speeds(): number[] {
    return this.counts.map(
      (_, rank) => this.usOf(rank) ?? this.#reported[rank] ?? Number.POSITIVE_INFINITY,
    )
  }

  /** The first virtual worker of a rank. */
  firstOf(rank: number): number {
    return this.counts.slice(0, rank).reduce((sum, count) => sum + count, 0)
  }

  /** The rank that computes a virtual worker. */
  rankOf(worker: number): number {
    return this.counts.findIndex((count, rank) => worker < this.firstOf(rank) + count)
  }

  /** Takes how long each virtual worker of a step took, in whole µs, 0 for one without rows, and assigns for the next step. Returns whether that changes anything. */
  take(tookUs: ArrayLike<number>): boolean {
    const before = this.counts
    for (const [rank, own] of this.#measured.entries()) {
      const took = tookUs[this.firstOf(rank)]
      if (this.counts[rank] === 0 || took === 0) continue
      own.push(took)
      this.#unknown.delete(rank)
      if (own.length > measuredSteps) own.shift()
    }
    const speeds = this.#speeds
    const best = fastest(this.#workers, speeds)
    const isDue = ++this.#sinceAssignment >= fewestSteps
    const idle = this.counts.flatMap((count, rank) => (count === 0 ? [rank] : []))
    const unknown = idle.find((rank) => this.#unknown.has(rank))
    const untilTrial = unknown === undefined ? trialSteps : fewestSteps
    if (this.#isTrial) {
      this.#isTrial = false
      this.counts = best
    } else if (isDue && isWorthwhile(this.counts, best, speeds)) {
      this.#sinceAssignment = 0
      this.counts = best
    } else if (idle.length > 0 && ++this.#sinceTrial >= untilTrial) {
      this.#sinceTrial = 0
      this.#isTrial = true
      const tried = unknown ?? idle[this.#trials++ % idle.length]
      // It counts as it is now.
      this.#measured[tried] = []
      const fullest = this.counts.indexOf(Math.max(...this.counts))
      this.counts = this.counts.map((count, rank) =>
        rank === tried ? 1 : rank === fullest ? count - 1 : count,
      )
    }
    return this.counts.some((count, rank) => count !== before[rank])
  }
}

/** The assignment after which the last rank finishes soonest; each worker goes to the rank that would finish it first, of equal ones to the lower. */
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

/** Tells whether an assignment is faster by more than chance. */
const isWorthwhile = (
  counts: readonly number[],
  best: readonly number[],
  speeds: readonly number[],
): boolean => longest(counts, speeds) >= minGain * longest(best, speeds)

/** The lower one of two; of at least one. */
function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[(sorted.length - 1) >> 1]
}
