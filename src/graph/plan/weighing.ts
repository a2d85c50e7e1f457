import { TabringError } from '../../util/errors.ts'
import type { GivenInputs } from '../memory/host-values.ts'
import type { GradientWeighing, Tally } from '../trace/exchange.ts'
import type { SettingsConsistency } from '../trace/settings-check.ts'
import { type Counts, type CountsRule, type Factors, StepNotes } from '../trace/step-notes.ts'
import type { MeanOver, ScalarBlock } from '../trace/trace.ts'
import { commonMean, countIn, fullCount } from './mean-over.ts'

export const newTally = (): Tally => ({ runs: 0, weighed: 0, weights: 0, count: 0 })

/** Weights travel in these units, exactly where they are sums of few. */
const weightUnit = 2 ** -22
/** No weight that can be right is beyond it. */
const maxUnits = 2 ** 24
/** Allowed error of a sum of weights: users divide in floats. */
const weightTolerance = 1e-4

const unitsOf = (weight: number): number =>
  Number.isNaN(weight)
    ? maxUnits
    : Math.max(-maxUnits, Math.min(maxUnits, Math.round(weight / weightUnit)))
const low = (count: number): number => count % 0x10000
const high = (count: number): number => Math.floor(count / 0x10000)

/** Facts about the group that weighing needs. */
interface Ranks {
  readonly size: number
  /** True if steps that some ranks have no batch for still divide by all ranks. */
  readonly dividesByAll: boolean
}

/**
 * Weights of one program's gradients, run by run: where the loss is a mean over counted samples or class numbers, in proportion to
 * how many counted, on all ranks and in all micro-steps of an update.
 *
 * A rank does not know the others' counts when it begins. So backward begins with its count over what all ranks count in full batches,
 * which is right where nothing is left out, and the sum over ranks is multiplied by what the counts, sent along with the first bucket, show
 * to be missing: 1 as a rule.
 * order: counts are added as whole numbers, so all ranks come to the same factor.
 */
export class Weighing implements GradientWeighing, CountsRule {
  readonly #mean: MeanOver | undefined
  readonly #scalars: ScalarBlock
  readonly #name: string
  /** Weight of a micro-step's gradient; 1 without accumulation. */
  readonly #part: number
  readonly #tally: Tally | undefined
  readonly #isMicroStep: boolean
  readonly #ranks: () => Ranks
  readonly #consistency: SettingsConsistency
  /** Counts of full batches, by rank and the same on all ranks. */
  #maxByRank: readonly number[]
  #max: number
  /** Of the run under way: what its update has counted on this rank, and what it counts itself. */
  #own = newTally()
  #last = 0
  #isShadow = false
  /** The factor of an accumulation's sum, where no ranks exchange it. */
  #takeFactor = 1

  constructor(options: {
    readonly means: readonly MeanOver[]
    readonly scalars: ScalarBlock
    /** The step scalar by which backward begins. */
    readonly name: string
    readonly part?: 'add' | 'take' | undefined
    readonly partWeight?: number | undefined
    readonly tally?: Tally | undefined
    readonly ranks: () => Ranks
    readonly consistency: SettingsConsistency
  }) {
    this.#mean = commonMean(options.means)
    this.#scalars = options.scalars
    this.#name = options.name
    this.#part = options.partWeight ?? 1
    this.#tally = options.tally
    this.#isMicroStep = options.part === 'add'
    this.#ranks = options.ranks
    this.#consistency = options.consistency
    const { samples = 0 } = this
    const { size } = options.ranks()
    this.#maxByRank = new Array(size).fill(samples)
    this.#max = samples * size
  }

  /** Count of this rank's full batch; undefined where runs have equal weights. */
  get samples(): number | undefined {
    return this.#mean && fullCount(this.#mean)
  }

  get takeFactor(): number {
    return this.#takeFactor
  }

  /** Takes what counts in full batches on each rank. */
  settle(samples: readonly number[]): void {
    this.#maxByRank = samples
    this.#max = samples.reduce((sum, next) => sum + next, 0)
  }

  /** Counts a run that has given its scalars; `inputs` undefined for a shadow's. errors: `graph.misuse` for weights in some micro-steps alone. */
  begin(inputs: GivenInputs | undefined, allowUpdates: boolean): void {
    const scalars = this.#scalars
    this.#isShadow = inputs === undefined
    if (!inputs) {
      this.#own = newTally()
      this.#last = 0
      return
    }
    const isWeighed = scalars.wasSet(this.#name)
    const count =
      this.#mean && !isWeighed ? countIn(this.#mean, inputs, (slot) => scalars.value(slot)) : 0
    if (this.#mean && !isWeighed) scalars.assign(this.#name, count === 0 ? 0 : count / this.#max)
    if (!allowUpdates) return
    this.#last = count
    const own = {
      runs: 1,
      weighed: isWeighed ? 1 : 0,
      weights: isWeighed ? scalars.valueOf(this.#name) : 0,
      count,
    }
    this.#own = own
    if (!this.#tally) return
    const all = this.#tally
    all.runs += own.runs
    all.weighed += own.weighed
    all.weights += own.weights
    all.count += own.count
    if (this.#isMicroStep) return
    this.#own = { ...all }
    Object.assign(all, newTally())
    if (this.#ranks().size === 1) this.#takeFactor = this.#factorsOf(this.#counts()).gradients
  }

  /** Notes that ranks send each other in the step that has begun; the same object to its end. */
  stepNotes(flags: number): StepNotes {
    return new StepNotes(flags, this.#counts(), this, this.#consistency)
  }

  firstWrong(all: readonly Counts[]): number {
    return firstWrong(all, this.#mean ? this.#maxByRank : undefined)
  }

  #counts(): Counts {
    const { runs, weighed, weights, count } = this.#own
    return {
      shadows: this.#isShadow ? 1 : 0,
      runs,
      weighed,
      weights: unitsOf(runs === 0 ? 0 : weights / runs),
      partWeights: unitsOf(weights * this.#part),
      countLow: low(count),
      countHigh: high(count),
      lastLow: low(this.#last),
      lastHigh: high(this.#last),
    }
  }

  factors(sums: Counts): Factors {
    // One rank alone has its factor from the start.
    return this.#ranks().size === 1 ? { gradients: 1, outputs: 1 } : this.#factorsOf(sums)
  }

  /** errors: `graph.misuse` for weights that do not add up. */
  #factorsOf(sums: Counts): Factors {
    const { shadows, runs, weighed } = sums
    const { size, dividesByAll } = this.#ranks()
    if (weighed > 0) {
      this.#checkWeights(sums, size)
      return { gradients: 1, outputs: 1 }
    }
    const ranks = dividesByAll ? size : size - shadows
    if (!this.#mean) return { gradients: size / ranks, outputs: size / ranks }
    const factor = (count: number, of: number) =>
      // Nothing counted: sums of nothing, whatever their factor; a mean of nothing is NaN, unless a run may count no samples.
      count === 0 ? undefined : (of * this.#max) / (count * ranks)
    const last = factor(sums.lastHigh * 0x10000 + sums.lastLow, size - shadows)
    return {
      gradients: factor(sums.countHigh * 0x10000 + sums.countLow, runs) ?? 1,
      outputs: last ?? (this.#mean.count ? 1 : Number.NaN),
    }
  }

  #checkWeights({ weighed, runs, weights, partWeights, shadows }: Counts, size: number): void {
    if (weighed < runs) {
      throw new TabringError(
        'graph.misuse',
        `${this.#name}: all ranks and micro-steps of an update must pass it, or none, but ${weighed} of ${runs} runs passed it. Pass it in all of them, or remove it: counted samples and class indices are weighted automatically.`,
      )
    }
    if (size === 1) return
    const isWhole = [weights, partWeights].some(
      (units) => Math.abs(units * weightUnit - 1) <= weightTolerance,
    )
    // Ranks that have no more batches leave their share out.
    if (isWhole || (shadows > 0 && weights * weightUnit <= 1 + weightTolerance)) return
    throw new TabringError(
      'graph.misuse',
      `${this.#name}: the weights of the ${size} ranks must add up to 1, got ${Number((weights * weightUnit).toPrecision(6))}. On each rank, divide its number of samples by the total over all ranks, or remove it: counted samples and class indices are weighted automatically.`,
    )
  }
}

/**
 * The first rank that reports more than a rank can count, or -1. `max`: what counts in a full batch, by rank; undefined where nothing is
 * counted. A rank may run some more micro-steps than most: twice as many and one.
 */
function firstWrong(all: readonly Counts[], max: readonly number[] | undefined): number {
  const runs = all.filter(({ shadows }) => shadows === 0).map((words) => words.runs)
  const usualRuns = runs.toSorted((a, b) => a - b)[(runs.length - 1) >> 1] ?? 0
  const maxRuns = max ? 2 * usualRuns + 1 : Number.MAX_SAFE_INTEGER
  const isCount = (low: number, high: number, limit: number) =>
    low >= 0 && high >= 0 && high * 0x10000 + low <= limit
  const isRight = (words: Counts, rank: number) =>
    Object.values(words).every(Number.isSafeInteger) &&
    (words.shadows === 0 || words.shadows === 1) &&
    words.runs >= 0 &&
    words.runs <= (words.shadows === 1 ? 0 : maxRuns) &&
    words.weighed >= 0 &&
    words.weighed <= words.runs &&
    isCount(words.countLow, words.countHigh, (max?.[rank] ?? 0) * words.runs) &&
    isCount(words.lastLow, words.lastHigh, max?.[rank] ?? 0)
  return all.findIndex((words, rank) => !isRight(words, rank))
}
