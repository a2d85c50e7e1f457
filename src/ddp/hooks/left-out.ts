import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { isRecord } from '../../util/kind-of.ts'
import { ownOf } from '../../util/own-of.ts'
import { type Aggregation, medianOf } from './aggregate.ts'

/** Trust in the ranks to send the gradients of their own samples. */
export type Trust = 'members' | 'strangers'

export const trusts: readonly Trust[] = ['members', 'strangers']

export interface RobustOptions {
  readonly aggregation: Aggregation
  readonly trust: Trust
}

/** Tells whether ranks may be left out of a step: where gradients are more than averaged. */
export const mayLeaveOut = ({ aggregation = 'mean', trust = 'members' }: Partial<RobustOptions>) =>
  aggregation !== 'mean' || trust !== 'members'

/** Ranks whose gradients were left out of a step, in one bucket. */
export interface LeftOut {
  /** In the model's group. */
  readonly ranks: readonly number[]
  /**
   * Those of them whose gradients were not finite, as they say themselves or as most ranks have measured; the others' were too large, or not
   * finite in a part.
   */
  readonly notFinite: readonly number[]
}

/** Norms of the ranks' gradients of a bucket, which all ranks know. */
export interface BucketNorms {
  /** Of the whole bucket, by rank, as each reports its gradients. */
  readonly claimed: readonly number[]
  /** By rank, of the range that one rank updates, as that one has measured them: a row for each range that is not empty. */
  readonly measured: readonly (readonly number[])[]
}

/** The largest median of norms so far, by bucket. */
export type Limits = Readonly<Record<string, number>>

const nobody: LeftOut = { ranks: [], notFinite: [] }

/** How large a rank's gradients may be: this many times the median of the others' norms, or the largest median so far. */
const maxTimes = 10

/**
 * Among strangers a gradient counts at most this many times the median norm: reversed, it takes back no more than that. Of so few
 * ranks that two of them outweigh the rest, as much as the median.
 */
const maxWeight = 2
const fewRanks = 4

/** A rank knows its own norm: one that has measured more of another's, beyond rounding, measures wrong or received a wrong value. */
const roundings = 1.001

const maxBuckets = 10_000

/**
 * Decides which ranks a bucket's gradients leave out: those that are not finite, and among strangers those that are far too large.
 *
 * The measuring ranks say how large a rank's gradients are; the limit comes from the norms that all ranks say of themselves. So a rank that lies
 * can raise what it measured and get others left out, but hides nothing: a few lies do not move a median, and the other rows stay as they are. A
 * row that accuses more than half of the ranks does not count. Where the sums over rows accuse more than half, only ranks that a single row
 * accuses are left out.
 *
 * The limit never falls: late in training, when most norms are near 0, an honest rank may still meet a sample that the model gets wrong.
 * Where more than half of the ranks say that theirs are not finite, nobody is left out: then the training fails, and not a rank.
 */
export class LeftOutRanks {
  readonly #trust: Trust
  readonly #largest = new Map<string, number>()
  #loaded: Limits = {}

  constructor(trust: Trust) {
    this.#trust = trust
  }

  /** Judges bucket `index` of `elements` gradients. All ranks decide the same. */
  judge(index: number, elements: number, { claimed, measured }: BucketNorms): LeftOut {
    const ranks = [...claimed.keys()]
    const isMost = (some: readonly unknown[]) => 2 * some.length > ranks.length
    if (isMost(claimed.filter((norm) => !Number.isFinite(norm)))) return nobody
    const limits = this.#limits(`${index}: ${elements}`, claimed)
    // NaN is within no limit.
    const isWrong = (norms: readonly number[], rank: number) => !(norms[rank] <= limits[rank])
    const rows = measured.filter((row) => !isMost(ranks.filter((rank) => isWrong(row, rank))))
    const whole = ranks.map((rank) => Math.hypot(...rows.map((row) => row[rank])))
    let found = ranks.filter((rank) => isWrong(whole, rank))
    if (isMost(found)) found = ranks.filter((rank) => rows.some((row) => isWrong(row, rank)))
    const isNotFinite = (rank: number) => {
      const { length: count } = rows.filter((row) => !Number.isFinite(row[rank]))
      // One rank alone cannot say it of another.
      return !Number.isFinite(claimed[rank]) || (count > 1 && 2 * count > rows.length)
    }
    return { ranks: found, notFinite: found.filter(isNotFinite) }
  }

  /**
   * By rank, by what its gradients of a bucket are multiplied, from 0 to 1, so that none is far longer than the others'. The limit is of this step
   * alone: where most gradients are small by now, a large one would undo what they do.
   */
  scales({ claimed, measured }: BucketNorms): number[] {
    const { length: size } = claimed
    const limit =
      (size > fewRanks ? maxWeight : 1) * (medianOf(claimed.filter(Number.isFinite)) ?? 0)
    if (this.#trust === 'members' || size < 3 || limit === 0) return claimed.map(() => 1)
    const isMore = (row: readonly number[], rank: number) =>
      !(row[rank] <= roundings * claimed[rank])
    const rows = measured.filter((row) => 2 * row.filter((_, at) => isMore(row, at)).length <= size)
    return claimed.map((own, rank) => {
      const norm = Math.max(own, Math.hypot(...rows.map((row) => row[rank])))
      return norm > limit ? limit / norm : 1
    })
  }

  /** How large the norm of each rank may be. */
  #limits(bucket: string, claimed: readonly number[]): number[] {
    const { MAX_VALUE: finite } = Number
    if (this.#trust === 'members') return claimed.map(() => finite)
    const others = (rank: number) =>
      medianOf(claimed.filter((norm, other) => other !== rank && Number.isFinite(norm))) ?? 0
    const before = this.#largest.get(bucket) ?? this.#loadedOf(bucket)
    const largest = Math.max(before, others(-1))
    this.#largest.set(bucket, largest)
    return claimed.map((_, rank) => maxTimes * Math.max(largest, others(rank)) || finite)
  }

  /** Where buckets were cut otherwise, that of the whole model: of a part of it the median may have been as large. */
  #loadedOf(bucket: string): number {
    return this.#loaded[bucket] ?? Math.hypot(...Object.values(this.#loaded))
  }

  /** Returns the state that the next step's decisions depend on, the same on all ranks. */
  stateDict(): Limits {
    return this.#largest.size > 0 ? Object.fromEntries(this.#largest) : this.#loaded
  }

  /** Restores what `stateDict` returned. */
  loadStateDict(limits: Limits): void {
    this.#largest.clear()
    this.#loaded = limits
  }

  /**
   * Takes the median of what the ranks hold, so that all hold the same and no few of them decide it. All ranks call it, between steps.
   *
   * errors: the group's; `peer.protocol` for a rank that sends no limits.
   */
  async agree(group: CollectiveGroup): Promise<void> {
    const claimed = await gatherJson('limits of gradients', group, this.stateDict(), areLimits)
    const buckets = [...new Set(claimed.flatMap((one) => Object.keys(one)))]
    const medians = buckets.map((bucket) => [
      bucket,
      medianOf(claimed.map((one) => ownOf(one, bucket) ?? 0)),
    ])
    this.loadStateDict(Object.fromEntries(medians.filter(([, limit]) => limit !== 0)))
  }
}

/** Tells whether `value` may be what `stateDict` has returned, on another rank or in a file. */
export const areLimits = (value: unknown): value is Limits =>
  isRecord(value) &&
  Object.keys(value).length <= maxBuckets &&
  Object.values(value).every((limit) => Number.isFinite(limit) && (limit as number) >= 0)
