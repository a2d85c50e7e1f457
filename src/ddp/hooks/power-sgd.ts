import type { Parameter } from '../../graph/trace/parameter.ts'
import { isOf, isRecord } from '../../util/kind-of.ts'
import { checkFlag, checkNumber, checkOptions, isCount, isNotNegative } from '../../util/options.ts'
import { uniform } from '../../util/random.ts'
import type { CommHook } from './comm-hooks.ts'
import type { GradBucket } from './grad-bucket.ts'
import { checkHook, HookState, type HookStateDict } from './hook-state.ts'

/** Options of `PowerSgdState`. */
export interface PowerSgdOptions {
  /** Number of columns of the two factors that are sent instead of a gradient. Default 1. */
  matrixApproximationRank?: number
  /** Number of first steps whose gradients are sent uncompressed. Default 1000, as in PyTorch. */
  startPowerSgdIter?: number
  /** Gradients are compressed only if their factors are at least this many times smaller. Default 2. */
  minCompressionRate?: number
  /** True if the compression error is added to the next gradient. Default true. */
  useErrorFeedback?: boolean
  /** True if a step starts from the factors of the step before. Default true. */
  warmStart?: boolean
  /** Added to the norm by which the columns of a factor are divided. Default 0. */
  orthogonalizationEpsilon?: number
  /** Seed of the first factors; the same on all ranks. Default 0. */
  randomSeed?: number
}

const isWhole = (value: number) => Number.isInteger(value) && value >= 0

/** State of `powerSgdHook` on this rank. Use one per model, and save it in checkpoints. */
export class PowerSgdState extends HookState {
  readonly matrixApproximationRank: number
  readonly startPowerSgdIter: number
  readonly minCompressionRate: number
  readonly useErrorFeedback: boolean
  readonly warmStart: boolean
  readonly orthogonalizationEpsilon: number
  readonly randomSeed: number
  #iter = 0
  /** Factors from which the next step starts; the same on all ranks. */
  readonly factors = new Map<Parameter, Float32Array<ArrayBuffer>>()

  constructor(options: PowerSgdOptions = {}) {
    super()
    const name = 'PowerSgdState'
    checkOptions(name, options, {
      matrixApproximationRank: true,
      startPowerSgdIter: true,
      minCompressionRate: true,
      useErrorFeedback: true,
      warmStart: true,
      orthogonalizationEpsilon: true,
      randomSeed: true,
    })
    const whole = 'a whole number of 0 or more'
    const { matrixApproximationRank, orthogonalizationEpsilon: epsilon } = options
    checkNumber(name, 'matrixApproximationRank', matrixApproximationRank, isCount, 'whole, above 0')
    checkNumber(name, 'startPowerSgdIter', options.startPowerSgdIter, isWhole, whole)
    checkNumber(name, 'minCompressionRate', options.minCompressionRate, isNotNegative, '0 or more')
    checkNumber(name, 'orthogonalizationEpsilon', epsilon, isNotNegative, '0 or more')
    checkNumber(name, 'randomSeed', options.randomSeed, isWhole, whole)
    checkFlag(name, 'useErrorFeedback', options.useErrorFeedback)
    checkFlag(name, 'warmStart', options.warmStart)
    this.matrixApproximationRank = matrixApproximationRank ?? 1
    this.startPowerSgdIter = options.startPowerSgdIter ?? 1000
    this.minCompressionRate = options.minCompressionRate ?? 2
    this.useErrorFeedback = options.useErrorFeedback ?? true
    this.warmStart = options.warmStart ?? true
    this.orthogonalizationEpsilon = epsilon ?? 0
    this.randomSeed = options.randomSeed ?? 0
  }

  /** Number of steps started. */
  get iter(): number {
    return this.#iter
  }

  /** @internal Returns the number of this step, which counts once its last bucket is here. */
  stepOf(bucket: GradBucket): number {
    return bucket.isLast() ? this.#iter++ : this.#iter
  }

  protected override ownState(parameters: readonly Parameter[]) {
    const factors: Record<string, Float32Array<ArrayBuffer>> = {}
    for (const [place, parameter] of parameters.entries()) {
      const factor = this.factors.get(parameter)
      if (factor) factors[place] = factor.slice()
    }
    return { iter: this.iter, factors }
  }

  protected override ownLoading(
    { iter, factors }: HookStateDict,
    parameters: readonly Parameter[],
  ): (() => void) | undefined {
    const isOwn =
      typeof iter === 'number' &&
      isWhole(iter) &&
      isRecord(factors) &&
      Object.values(factors).every((factor) => isOf(factor, Float32Array))
    if (!isOwn) return undefined
    const own = parameters.flatMap((parameter, place) =>
      factors[place] ? [[parameter, factors[place].slice()] as const] : [],
    )
    return () => {
      this.#iter = iter
      this.factors.clear()
      for (const [parameter, factor] of own) this.factors.set(parameter, factor)
    }
  }
}

/** A gradient as a matrix [rows, columns], and its factors. */
interface Factored {
  readonly parameter: Parameter
  readonly values: Float32Array
  readonly rows: number
  readonly columns: number
  readonly rank: number
  /** [columns, rank] */
  q: Float32Array
  /** [rows, rank] */
  p: Float32Array
}

/** a [n, m] times b [m, r], summed in float64; with `isTransposed` a is [m, n]. */
function product(
  a: Float32Array,
  b: Float32Array,
  [n, m, r]: readonly [number, number, number],
  isTransposed = false,
): Float32Array<ArrayBuffer> {
  const result = new Float32Array(n * r)
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < r; k++) {
      let sum = 0
      for (let j = 0; j < m; j++) sum += a[isTransposed ? j * n + i : i * m + j] * b[j * r + k]
      result[i * r + k] = sum
    }
  }
  return result
}

/** Makes the columns of p [rows, rank] orthonormal, in place, by Gram and Schmidt; a column of zeros stays. The same bits wherever it runs. */
export function orthogonalize(p: Float32Array, rows: number, rank: number, epsilon: number): void {
  for (let column = 0; column < rank; column++) {
    for (let earlier = 0; earlier < column; earlier++) {
      let dot = 0
      for (let i = 0; i < rows; i++) dot += p[i * rank + earlier] * p[i * rank + column]
      for (let i = 0; i < rows; i++) p[i * rank + column] -= dot * p[i * rank + earlier]
    }
    let square = 0
    for (let i = 0; i < rows; i++) square += p[i * rank + column] ** 2
    const length = Math.sqrt(square) + epsilon
    if (length === 0) continue
    for (let i = 0; i < rows; i++) p[i * rank + column] /= length
  }
}

function concatenated(arrays: readonly Float32Array[]): Float32Array<ArrayBuffer> {
  const all = new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const array of arrays) {
    all.set(array, at)
    at += array.length
  }
  return all
}

/** The sums over ranks of some arrays, in one exchange. */
async function sums(bucket: GradBucket, arrays: readonly Float32Array[]): Promise<Float32Array[]> {
  if (arrays.length === 0) return []
  const all = await bucket.allReduce(concatenated(arrays))
  let at = 0
  return arrays.map(({ length }) => {
    at += length
    return all.subarray(at - length, at)
  })
}

/** The first right factor of a gradient in a step: the last one, or one drawn identically on all ranks. */
function firstFactor(
  state: PowerSgdState,
  parameter: Parameter,
  stream: number,
  length: number,
): Float32Array {
  const last = state.warmStart ? state.factors.get(parameter) : undefined
  if (last?.length === length) return last
  return uniform(state.randomSeed, stream, length, -1, 1)
}

/**
 * Averages gradients, sending matrices as two thin factors: (rows + columns) x rank numbers instead of rows x columns.
 *
 * Biases, and matrices that would save too little, are sent whole, in float32. The compression error is added to the next gradient. All
 * ranks compute the same approximation. Norms and clipping use it, not the original gradients.
 * source: Vogels, Karimireddy, Jaggi, "PowerSGD", arXiv 1905.13727, algorithms 1 and 2; torch's powerSGD_hook.
 * cost: 4 x rank multiply-adds per element, on the host.
 */
export const powerSgdHook: CommHook<PowerSgdState> = async (state, bucket) => {
  checkHook('powerSgdHook', bucket, state, PowerSgdState)
  const step = state.stepOf(bucket)
  const buffer = bucket.weighed()
  if (step < state.startPowerSgdIter) return bucket.reduceScatter()
  state.addErrors(bucket)
  const errors = new Float32Array(buffer.length)
  const whole: Float32Array[] = []
  const factored: Factored[] = []
  for (const [i, parameter] of bucket.parameters().entries()) {
    const values = bucket.gradients()[i]
    const { shape, count } = parameter
    const rows = shape[0] ?? 1
    const columns = count / rows
    const rank = Math.min(rows, columns, state.matrixApproximationRank)
    const isFactored =
      shape.length > 1 && (rows + columns) * rank * state.minCompressionRate < rows * columns
    if (!isFactored) {
      whole.push(values)
      continue
    }
    const stream = bucket.index() * 1000 + i + step * 1_000_000
    const q = firstFactor(state, parameter, stream % 2 ** 32, columns * rank)
    const p = product(values, q, [rows, columns, rank])
    factored.push({ parameter, values, rows, columns, rank, q, p })
  }
  const first = await sums(bucket, [...whole, ...factored.map(({ p }) => p)])
  for (const [i, values] of whole.entries()) values.set(first[i])
  for (const [i, one] of factored.entries()) {
    one.p = first[whole.length + i]
    orthogonalize(one.p, one.rows, one.rank, state.orthogonalizationEpsilon)
    one.q = product(one.values, one.p, [one.columns, one.rows, one.rank], true)
  }
  const right = await sums(
    bucket,
    factored.map(({ q }) => q),
  )
  for (const [i, { parameter, values, rows, columns, rank, p }] of factored.entries()) {
    const q = right[i]
    // A step that overflowed, which loss scaling leaves out, is no place to begin the next one.
    if (q.every(Number.isFinite)) state.factors.set(parameter, Float32Array.from(q))
    const start = (values.byteOffset - buffer.byteOffset) / 4
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        let sum = 0
        for (let k = 0; k < rank; k++) sum += p[row * rank + k] * q[column * rank + k]
        const at = row * columns + column
        const value = Math.fround(sum)
        // The sum holds every rank's gradient, of which each keeps its part of what is left out.
        errors[start + at] = values[at] - value / bucket.size
        values[at] = value
      }
    }
  }
  if (state.useErrorFeedback) state.keepErrors(bucket, errors)
  return buffer
}
