import { Pool } from '../graph/memory/pool.ts'
import type { Bucket } from '../graph/trace/bucket.ts'
import type { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { activeTrace } from '../graph/trace/trace.ts'
import { emitNode, GraphValue } from '../graph/trace/value.ts'
import { runningAverage } from '../kernels/average/average.ts'
import type { Op } from '../kernels/op.ts'
import { TabringError } from '../util/errors.ts'
import { isRecord, quoted } from '../util/kind-of.ts'
import { checkArgument, checkOptions, isShare } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { tensorType } from '../util/shape.ts'
import {
  averagesByIndex,
  type EmaState,
  malformed,
  positionsOf,
  wholeAverages,
} from './ema-state.ts'
import { checkSetting } from './settings.ts'

export interface EmaOptions {
  /** Weight of the old average in an update; default 0.999. */
  decay?: number
  /** True if float buffers of the model, such as running statistics, are averaged and swapped too; default false. Needs the model. */
  useBuffers?: boolean
}

/** What to average: a model or parameters. */
export interface Averaged {
  parameters(): readonly Parameter[]
  buffers(): readonly ModuleBuffer[]
}

const isAveraged = (averaged: readonly Parameter[] | Averaged): averaged is Averaged =>
  isRecord(averaged) && typeof averaged.parameters === 'function'

type Floats = Float32Array<ArrayBuffer>

const checkDecay = (decay: number) =>
  checkSetting('ExponentialMovingAverage', 'decay', decay, isShare(decay), 'between 0 and 1')

/** The average of a bucket's parameters, and how many updates it holds. */
interface Average {
  readonly pool: Pool
  updates: number
}

/**
 * A running average of parameters on the device: average <- decay * average + (1 - decay) * parameter after each update.
 *
 * Takes a model or parameters. The first update of a parameter copies it, like torch.optim.swa_utils.AveragedModel with such an `avg_fn`.
 * Parameters without a gradient do not change and have no average. Buffers keep the model's own values unless `useBuffers` (AveragedModel's
 * `use_buffers`) is set: then float buffers are averaged like parameters, and integer ones keep their values. With several ranks each one
 * holds the whole average of the gathered parameters, and of the buffers that it has itself.
 * cost: one dispatch per bucket and step, and a copy of the parameters' memory; one more dispatch per buffer.
 */
export class ExponentialMovingAverage {
  /** Can be changed between steps. */
  decay: number
  readonly #positions: ReadonlyMap<Parameter, number>
  readonly #buffers: readonly ModuleBuffer[]
  readonly #averages = new Map<Bucket, Average>()
  readonly #bufferAverages = new Map<ModuleBuffer, Average>()
  #updates = 0
  #isSwapped = false
  /** What was loaded, by index. */
  #loaded = new Map<number, Floats>()
  #loadedBuffers = new Map<number, Floats>()

  constructor(averaged: readonly Parameter[] | Averaged, options: EmaOptions = {}) {
    const known = { decay: true, useBuffers: 'flag' } as const
    const where = 'ExponentialMovingAverage'
    const { decay = 0.999, useBuffers = false } = checkOptions(where, options, known)
    checkDecay(decay)
    const isModel = isAveraged(averaged)
    const isKnown = isModel || Array.isArray(averaged)
    checkArgument(where, 'averaged', averaged, isKnown, 'a model, or a list of parameters')
    if (useBuffers && !isModel) {
      throw new TabringError(
        'config.invalid',
        `${where}: useBuffers needs the model, got parameters. Pass the model instead.`,
      )
    }
    this.#positions = positionsOf(isModel ? averaged.parameters() : averaged)
    const buffers = useBuffers && isModel ? averaged.buffers() : []
    this.#buffers = buffers.filter(({ dtype }) => dtype === 'f32')
    this.decay = decay
  }

  /** Adds the update of the average to the function being compiled. errors: `graph.misuse` if called before `optimizer.step`. */
  update(): void {
    const trace = activeTrace('ema.update')
    trace.refusals.push(() => {
      checkDecay(this.decay)
      if (!this.#isSwapped) return
      throw new TabringError(
        'graph.misuse',
        'run: the model holds its averaged parameters. Call ema.swap() again before training continues.',
      )
    })
    if (trace.accumulation?.part === 'add') return
    const isWanted = (parameter: Parameter) => this.#positions.has(parameter)
    const buckets = trace.updates
      .map(({ bucket }) => bucket)
      .filter(({ parameters }) => parameters.some(isWanted))
    if (buckets.length === 0) {
      const [other] = trace.updates.flatMap(({ bucket }) => bucket.parameters)
      const problem = other
        ? `none of the parameters that it averages is updated in this function, but others, as ${other.title}. Create it with the parameters that the optimizer has.`
        : 'no parameter has been updated in this function. Call optimizer.step() before it, in the same function.'
      throw new TabringError('graph.misuse', `ema.update: ${problem}`)
    }
    const other = buckets
      .flatMap(({ parameters }) => parameters)
      .find((parameter) => !isWanted(parameter))
    if (other) {
      throw new TabringError(
        'graph.misuse',
        `ema.update: all parameters of an optimizer's group must be averaged together, but "${other.name}" is missing. Average them all, or put the ones you want into a separate group.`,
      )
    }
    const averages = [
      ...buckets.map((bucket) => this.#averageOf(bucket)),
      ...this.#buffers.map((buffer, i) => this.#averageOfBuffer(buffer, i)),
    ]
    trace.beforeStep.push(() => {
      this.#updates++
      for (const average of averages) average.updates++
    })
    const current = [
      ...buckets.map(({ elements, parameterPool }) => {
        const leaf = { kind: 'pool', pool: parameterPool, start: 0 } as const
        return new GraphValue(tensorType([elements]), leaf)
      }),
      ...this.#buffers.map(
        (buffer) => new GraphValue(tensorType([buffer.count]), { kind: 'buffer', buffer }),
      ),
    ]
    current.forEach((value, i) => {
      const average = averages[i]
      const decay = () => (average.updates <= 1 ? 0 : this.decay)
      const settings = {
        decay: trace.scalars.add(decay),
        oneMinusDecay: trace.scalars.add(() => 1 - decay()),
      }
      const pooled = new GraphValue(value.type, { kind: 'pool', pool: average.pool, start: 0 })
      const attrs = { settings, start: 0, length: value.type.shape[0] }
      trace.after.push(emitNode(runningAverage as Op, [pooled, value], attrs))
    })
  }

  /**
   * Swaps the parameters with their averages on the device; a second call undoes it.
   *
   * errors: `graph.misuse` before the first update.
   */
  swap(): void {
    if (this.#updates === 0) {
      throw new TabringError(
        'graph.misuse',
        'ema.swap: there is no average before the first step. Train first.',
      )
    }
    const averaged = [...this.#averages].filter(([, { updates }]) => updates > 0)
    if (averaged.some(([{ parameterPool }]) => !parameterPool.memory)) {
      throw new TabringError(
        'graph.misuse',
        'ema.swap: the parameters have been moved to another device since the last step. Move the model back, and run a step first.',
      )
    }
    for (const [bucket, { pool }] of averaged) pool.swap(bucket.parameterPool)
    for (const [buffer, { pool, updates }] of this.#bufferAverages)
      if (updates > 0 && buffer.home) pool.swap(buffer.home.pool)
    this.#isSwapped = !this.#isSwapped
  }

  /** Runs `body` with the averaged parameters in the model, like torch_ema's average_parameters. */
  async averageParameters<T>(body: () => Promise<T>): Promise<T> {
    if (this.#isSwapped) {
      throw new TabringError(
        'graph.misuse',
        'ema.averageParameters: the averages are in the model already. Await the call under way, or the swap back, first.',
      )
    }
    this.swap()
    try {
      return await body()
    } finally {
      this.swap()
    }
  }

  /**
   * Returns the averages by parameter index, on the host. Where ranks divide the model, all of them call it between the same steps, and each gets
   * the whole. errors: `graph.misuse` while swapped; `peer.*`.
   */
  async stateDict(): Promise<EmaState> {
    if (this.#isSwapped) {
      throw new TabringError(
        'graph.misuse',
        'ema.stateDict: the averages are swapped into the model. Call ema.swap() first.',
      )
    }
    const current = new Map(this.#loaded)
    for (const [bucket, { pool, updates }] of this.#averages) {
      if (updates === 0) continue
      const contents = (await pool.read()) as Floats
      bucket.parameters.forEach((parameter, i) => {
        const start = bucket.starts[i]
        const data = contents.slice(start, start + parameter.count)
        current.set(this.#positions.get(parameter)!, data)
      })
    }
    const average = await wholeAverages([...this.#positions.keys()], current)
    const ofBuffers = new Map(this.#loadedBuffers)
    for (const [i, buffer] of this.#buffers.entries()) {
      const own = this.#bufferAverages.get(buffer)
      if (own?.updates) ofBuffers.set(i, (await own.pool.read()) as Floats)
    }
    const buffers = await wholeAverages(this.#buffers, ofBuffers)
    return {
      num_updates: this.#updates,
      average: Object.fromEntries(average),
      ...(this.#buffers.length > 0 && { buffers: Object.fromEntries(buffers) }),
    }
  }

  /**
   * Loads averages, before or after compiling. Also reads older files that are keyed by names, if each name belongs to one parameter.
   *
   * errors: `data.malformed` for a wrong shape or an unknown tensor; then nothing changes. `graph.misuse` while swapped.
   */
  loadStateDict(state: EmaState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: EmaState): () => void {
    if (this.#isSwapped) {
      throw new TabringError(
        'graph.misuse',
        'ema.loadStateDict: the averages are swapped into the model. Call ema.swap() first.',
      )
    }
    if (!isRecord(state) || !Number.isInteger(state.num_updates) || state.num_updates < 0)
      throw malformed(`expected num_updates and average, got ${quoted(state)}.`)
    const loaded = averagesByIndex(state.average, [...this.#positions.keys()])
    const loadedBuffers = averagesByIndex(state.buffers ?? {}, this.#buffers)
    for (const bucket of this.#averages.keys()) this.#loadedOf(bucket, loaded)
    return () => {
      this.#updates = state.num_updates
      this.#loaded = loaded
      this.#loadedBuffers = loadedBuffers
      for (const [bucket, average] of this.#averages) this.#fill(bucket, average)
      this.#buffers.forEach((buffer, i) => {
        const average = this.#bufferAverages.get(buffer)
        if (average) this.#fillBuffer(i, average)
      })
    }
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

  #averageOfBuffer(buffer: ModuleBuffer, index: number): Average {
    const known = this.#bufferAverages.get(buffer)
    if (known) return known
    const average = {
      pool: new Pool(`average of ${buffer.name || 'buffer'}`, buffer.count),
      updates: 0,
    }
    this.#bufferAverages.set(buffer, average)
    this.#fillBuffer(index, average)
    return average
  }

  #fillBuffer(index: number, average: Average): void {
    const saved = this.#loadedBuffers.get(index)
    average.updates = saved ? this.#updates : 0
    if (saved) average.pool.write(saved)
  }

  /** Takes over what was loaded for a bucket. errors: those of `#loadedOf`. */
  #fill(bucket: Bucket, average: Average): void {
    const saved = this.#loadedOf(bucket, this.#loaded)
    average.updates = saved.length > 0 ? this.#updates : 0
    saved.forEach((entry, i) => {
      average.pool.write(entry, bucket.starts[i])
    })
  }

  /** The averages of a bucket's parameters, or none. errors: `graph.misuse` where only some are loaded. */
  #loadedOf({ parameters }: Bucket, loaded: ReadonlyMap<number, Floats>): Floats[] {
    const saved = parameters.flatMap(
      (parameter) => loaded.get(this.#positions.get(parameter)!) ?? [],
    )
    if (saved.length === 0 || saved.length === parameters.length) return saved
    const missing = parameters.find((parameter) => !loaded.has(this.#positions.get(parameter)!))
    throw new TabringError(
      'graph.misuse',
      `ema.loadStateDict: the state has averages of only some parameters that the step updates together, none of "${missing!.name}". Load the optimizer's state too, before compiling.`,
    )
  }
}

countArguments(ExponentialMovingAverage)
