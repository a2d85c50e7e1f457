import { type Bucket, layOutBuckets } from '../graph/bucket.ts'
import type { Parameter } from '../graph/parameter.ts'
import { Pool } from '../graph/pool.ts'
import { activeTrace, type Trace } from '../graph/trace.ts'
import { type GraphNode, GraphValue } from '../graph/value.ts'
import { TabringError } from '../util/errors.ts'
import { tensorType } from '../util/shape.ts'

/** Parameters that share settings. `lr` may be changed between steps; it is read anew for each. */
export interface ParameterGroup {
  readonly parameters: readonly Parameter[]
  lr: number
}

/** The part of a bucket that this rank updates, and values for it. */
export interface Slice {
  readonly bucket: Bucket
  readonly length: number
  readonly parameter: GraphValue
  readonly gradient: GraphValue
  /** This rank's part of an optimizer state, zero at first. */
  state(name: string): GraphValue
}

/**
 * The base of all optimizers: buckets, slices and step counting are here, the update rule is the subclass's.
 *
 * With several ranks each updates its own slice with its own slice of the state, and the program gathers the rest.
 */
export abstract class Optimizer<Group extends ParameterGroup = ParameterGroup> {
  readonly groups: readonly Group[]
  /** Steps begun so far; 1 during the first. */
  stepCount = 0
  readonly #buckets = new Map<Group, Bucket[]>()
  #bucketCount = 0

  constructor(groups: readonly Group[]) {
    this.groups = groups
    const all = groups.flatMap(({ parameters }) => parameters)
    if (all.length === 0 || new Set(all).size !== all.length) {
      throw new TabringError(
        'graph.misuse',
        `${this.constructor.name}: expected at least one parameter and none twice, got ${all.length}. Pass model.parameters().`,
      )
    }
  }

  /** Forgets the gradients that `backward` gave so far in the function being compiled. */
  zeroGrad(): void {
    const trace = activeTrace('zeroGrad')
    for (const { parameters } of this.groups) {
      for (const parameter of parameters) trace.gradients.delete(parameter)
    }
  }

  /** Adds the update of every parameter that has a gradient. errors: `graph.misuse` when none has. */
  step(): void {
    const trace = activeTrace('optimizer.step')
    trace.beforeStep.push(() => {
      this.stepCount++
    })
    let updated = 0
    for (const group of this.groups) {
      for (const bucket of this.#bucketsOf(group, trace)) {
        const gradients = bucket.parameters.map((parameter) => {
          const gradient = trace.gradients.get(parameter)
          if (!gradient) throw gradientMissing(parameter)
          return gradient
        })
        const slice = sliceOf(bucket, trace)
        const nodes = slice.length === 0 ? [] : this.update(trace, slice, group)
        trace.updates.push({ bucket, gradients, nodes })
        updated += bucket.parameters.length
      }
    }
    if (updated === 0) {
      throw new TabringError(
        'graph.misuse',
        'optimizer.step: no parameter has a gradient. Call loss.backward() before it in the same function.',
      )
    }
  }

  /** All buckets made so far, in the order in which they are exchanged. */
  get buckets(): Bucket[] {
    return [...this.#buckets.values()].flat().sort((a, b) => a.index - b.index)
  }

  /** Emits the update of one slice. */
  protected abstract update(trace: Trace, slice: Slice, group: Group): GraphNode[]

  #bucketsOf(group: Group, trace: Trace): Bucket[] {
    const exchange = group.parameters[0]?.exchange
    if (group.parameters.some((parameter) => parameter.exchange !== exchange)) {
      throw new TabringError(
        'graph.misuse',
        'optimizer.step: some parameters of a group are wrapped for data parallel, some are not. Wrap the whole model.',
      )
    }
    trace.exchange = exchange
    const known = this.#buckets.get(group)
    if (known) return known
    const ordered = group.parameters
      .filter((parameter) => trace.gradients.has(parameter))
      .sort((a, b) => completionOf(trace, a) - completionOf(trace, b))
    const cap = exchange && exchange.size > 1 ? exchange.bucketCapBytes : Number.POSITIVE_INFINITY
    const buckets = layOutBuckets(ordered, cap, this.#bucketCount)
    this.#bucketCount += buckets.length
    this.#buckets.set(group, buckets)
    return buckets
  }
}

const completionOf = (trace: Trace, parameter: Parameter): number =>
  trace.gradients.get(parameter)!.node?.id ?? 0

const gradientMissing = (parameter: Parameter) =>
  new TabringError(
    'graph.misuse',
    `optimizer.step: "${parameter.name}" had a gradient when the buckets were laid out and has none now. Make every compiled step use the same parameters.`,
  )

function sliceOf(bucket: Bucket, trace: Trace): Slice {
  const { start, end } = bucket.ownSlice(trace.exchange)
  const length = end - start
  const part = (pool: Pool, from: number) =>
    new GraphValue(tensorType([length]), { kind: 'pool', pool, start: from })
  return {
    bucket,
    length,
    parameter: part(bucket.parameterPool, start),
    gradient: part(bucket.gradientPool, start),
    state(name) {
      let pool = bucket.state.get(name)
      if (!pool) {
        pool = new Pool(`${name} of bucket ${bucket.index}`, length)
        bucket.state.set(name, pool)
      }
      return part(pool, 0)
    },
  }
}
