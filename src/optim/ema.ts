import type { Bucket } from '../graph/bucket.ts'
import type { Parameter } from '../graph/parameter.ts'
import { Pool } from '../graph/pool.ts'
import { activeTrace } from '../graph/trace.ts'
import { emitNode, GraphValue } from '../graph/value.ts'
import { runningAverage } from '../kernels/average/average.ts'
import type { Op } from '../kernels/op.ts'
import { TabringError } from '../util/errors.ts'
import { type Shape, sameShape, tensorType } from '../util/shape.ts'
import { checkSetting } from './settings.ts'

/** Averaged parameters by name, and how many updates they hold. */
export interface EmaState {
  readonly num_updates: number
  readonly average: Readonly<Record<string, { shape: Shape; data: Float32Array<ArrayBuffer> }>>
}

/** The average of a bucket's parameters, and how many updates it holds. */
interface Average {
  readonly pool: Pool
  updates: number
}

/**
 * A running average of parameters on the device: average <- decay * average + (1 - decay) * parameter after each update.
 *
 * A parameter's first update copies, as torch.optim.swa_utils.AveragedModel does with such an `avg_fn`. Parameters without a gradient do not
 * change and have no average. With several ranks each keeps the whole average, from the gathered parameters.
 * cost: one dispatch a bucket and step, and a copy of the parameters' memory.
 */
export class ExponentialMovingAverage {
  /** May be changed between steps. */
  decay: number
  readonly #parameters: readonly Parameter[]
  readonly #averages = new Map<Bucket, Average>()
  #updates = 0
  #isSwapped = false
  #loaded: EmaState | undefined

  constructor(parameters: readonly Parameter[], { decay = 0.999 }: { decay?: number } = {}) {
    const isValid = decay >= 0 && decay <= 1
    checkSetting('ExponentialMovingAverage', 'decay', decay, isValid, 'between 0 and 1')
    this.#parameters = parameters
    this.decay = decay
  }

  /** Adds the average's update to the function being compiled, after `optimizer.step`. errors: `graph.misuse` before it. */
  update(): void {
    const trace = activeTrace('ema.update')
    trace.refusals.push(() => {
      if (!this.#isSwapped) return
      throw new TabringError(
        'graph.misuse',
        'run: the model holds averaged parameters, expected its own. Call ema.swap() again before training goes on.',
      )
    })
    if (trace.accumulation?.part === 'add') return
    const wanted = new Set(this.#parameters)
    const buckets = trace.updates
      .map(({ bucket }) => bucket)
      .filter(({ parameters }) => parameters.some((parameter) => wanted.has(parameter)))
    if (buckets.length === 0) {
      throw new TabringError(
        'graph.misuse',
        'ema.update: expected a call after optimizer.step() in the same function, got no updated parameter. Call step() first.',
      )
    }
    const averages = buckets.map((bucket) => this.#averageOf(bucket))
    trace.beforeStep.push(() => {
      this.#updates++
      for (const average of averages) average.updates++
    })
    buckets.forEach((bucket, i) => {
      const decay = () => (averages[i].updates <= 1 ? 0 : this.decay)
      const settings = {
        decay: trace.scalars.add(decay),
        oneMinusDecay: trace.scalars.add(() => 1 - decay()),
      }
      const type = tensorType([bucket.elements])
      const of = (pool: Pool) => new GraphValue(type, { kind: 'pool', pool, start: 0 })
      const inputs = [of(averages[i].pool), of(bucket.parameterPool)]
      const attrs = { settings, start: 0, length: bucket.elements }
      trace.after.push(emitNode(runningAverage as Op, inputs, attrs))
    })
  }

  /**
   * Exchanges the parameters and their averages on the device; a second call undoes it.
   *
   * errors: `graph.misuse` before the first update.
   */
  swap(): void {
    if (this.#updates === 0) {
      throw new TabringError(
        'graph.misuse',
        'ema.swap: expected an average, got none before the first step. Train first.',
      )
    }
    for (const [bucket, { pool, updates }] of this.#averages)
      if (updates > 0) pool.swap(bucket.parameterPool)
    this.#isSwapped = !this.#isSwapped
  }

  /** Runs `body` with the averaged parameters in the model, as torch_ema's average_parameters. */
  async averaged<T>(body: () => Promise<T>): Promise<T> {
    this.swap()
    try {
      return await body()
    } finally {
      this.swap()
    }
  }

  /** The averages by parameter name, on the host. errors: `graph.misuse` while swapped. */
  async stateDict(): Promise<EmaState> {
    if (this.#isSwapped) {
      throw new TabringError(
        'graph.misuse',
        'ema.stateDict: expected averages in their place, got swapped ones. Call ema.swap() first.',
      )
    }
    const average: Record<string, { shape: Shape; data: Float32Array<ArrayBuffer> }> = {}
    for (const [bucket, { pool, updates }] of this.#averages) {
      if (updates === 0) continue
      const contents = (await pool.read()) as Float32Array<ArrayBuffer>
      bucket.parameters.forEach(({ name, shape, count }, i) => {
        const start = bucket.starts[i]
        average[name] = { shape, data: contents.slice(start, start + count) }
      })
    }
    return { num_updates: this.#updates, average: { ...this.#loaded?.average, ...average } }
  }

  /** Takes averages over, before or after compiling. errors: `data.malformed` for another shape. */
  loadStateDict(state: EmaState): void {
    for (const { name, shape } of this.#parameters) {
      const saved = state.average[name]
      if (saved && !sameShape(saved.shape, shape)) {
        throw new TabringError(
          'data.malformed',
          `ema.loadStateDict: "${name}" must be [${shape.join(', ')}], got [${saved.shape.join(', ')}]. Load averages of this model.`,
        )
      }
    }
    this.#updates = state.num_updates
    this.#loaded = state
    for (const [bucket, average] of this.#averages) this.#fill(bucket, average)
  }

  #averageOf(bucket: Bucket): Average {
    const known = this.#averages.get(bucket)
    if (known) return known
    const pool = new Pool(`average of bucket ${bucket.index}`, bucket.elements)
    const average = { pool, updates: 0 }
    this.#averages.set(bucket, average)
    this.#fill(bucket, average)
    return average
  }

  /** Takes over what was loaded for a bucket. errors: `graph.misuse` where that is a part of it. */
  #fill(bucket: Bucket, average: Average): void {
    const saved = bucket.parameters.map(({ name }) => this.#loaded?.average[name])
    const missing = saved.indexOf(undefined)
    if (missing < 0) average.updates = this.#updates
    else if (saved.some((entry) => entry)) {
      throw new TabringError(
        'graph.misuse',
        `ema.loadStateDict: expected averages of all parameters that update together, got none of "${bucket.parameters[missing].name}". Load the optimizer's state too, before compiling.`,
      )
    } else average.updates = 0
    saved.forEach((entry, i) => {
      if (entry) average.pool.write(entry.data, bucket.starts[i])
    })
  }
}
