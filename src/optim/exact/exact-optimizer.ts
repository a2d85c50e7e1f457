import type { Parameter } from '../../graph/trace/parameter.ts'
import { blocksOf } from '../../kernels/encode/encode.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import {
  type OptimizerStateDict,
  requireState,
  type SettingValue,
  type StateEntry,
  type StateTensor,
  stepsIn,
} from '../state-dict.ts'
import { type Floats, type HostUpdate, scalarArrays } from './host-update.ts'
import { vectorArrays } from './vector-update.ts'

export type ExactSettings =
  | {
      readonly kind: 'adamw'
      readonly lr: number
      readonly betas: readonly [number, number]
      readonly eps: number
      readonly weightDecay: number
    }
  | { readonly kind: 'sgd'; readonly lr: number; readonly momentum: number }

const { fround } = Math
/** A state that says more is not believed: its powers are computed one by one. */
const maxSteps = 1e9

const stateNames = { adamw: ['exp_avg', 'exp_avg_sq'], sgd: ['momentum_buffer'] } as const

/**
 * AdamW or SGD with momentum, on the host: every rank updates all parameters from the same sums, and all get the same bits.
 *
 * Its state dict has PyTorch's layout and keys, and besides the exponents of the gradients' blocks, which the next step's bits depend on.
 * memory: 12 or 8 bytes a parameter, on the host.
 */
export class ExactOptimizer {
  /** For those that ask what travels together: nothing does by parameter. */
  readonly buckets: readonly never[] = []
  /** Its one group of parameters; a learning rate that is set here counts from the next step on. */
  readonly paramGroups: readonly [{ lr: number }]
  /** Of all blocks of all parameters, in order; undefined before any gradient was seen. */
  exponents: Int32Array<ArrayBuffer> | undefined
  readonly #settings: ExactSettings
  /** Those that are trained, and where each is among all that it was given. */
  readonly #parameters: readonly Parameter[]
  readonly #numbers: readonly number[]
  readonly #givenCount: number
  readonly #host: HostUpdate
  /** The parameters' contents, once they have been read from the device. */
  readonly #values: readonly Floats[]
  /** Of the parameters, as this has read or left them. */
  readonly #revisions: (number | undefined)[]
  readonly #states: readonly (readonly Floats[])[]
  /** Parameters that have been updated, by number. */
  readonly #updated = new Set<number>()
  readonly #gradient: Floats
  #steps = 0
  /** betas ** steps, by multiplication: engines differ in powers. */
  #powers: [number, number] = [1, 1]

  /** `given`: frozen ones have no state. `group`: whose learning rate counts. */
  constructor(
    given: readonly Parameter[],
    settings: ExactSettings,
    group: { lr: number } = { lr: settings.lr },
  ) {
    this.#numbers = given.flatMap(({ requiresGrad }, i) => (requiresGrad ? [i] : []))
    this.#givenCount = given.length
    const parameters = this.#numbers.map((i) => given[i])
    this.#parameters = parameters
    this.#settings = settings
    this.paramGroups = [group]
    this.#revisions = parameters.map(() => undefined)
    const counts = parameters.map(({ count }) => count)
    const states = stateNames[settings.kind]
    const lengths = [...counts, ...states.flatMap(() => counts), Math.max(0, ...counts)]
    const { arrays, update } = vectorArrays(lengths) ?? scalarArrays(lengths)
    this.#host = update
    this.#values = arrays.slice(0, counts.length)
    this.#states = counts.map((_, i) => states.map((_, at) => arrays[(at + 1) * counts.length + i]))
    this.#gradient = arrays[lengths.length - 1]
  }

  /** Begun so far. */
  get steps(): number {
    return this.#steps
  }

  /** Those that are trained. */
  get parameters(): readonly Parameter[] {
    return this.#parameters
  }

  /** Of all parameters, in order. */
  get moments(): readonly Floats[] {
    return this.#states.flat()
  }

  /** The parameters' contents; call it before `begin`. errors: `device.mismatch`, `gpu.*`. */
  async read(): Promise<readonly Floats[]> {
    const read = async (parameter: Parameter, i: number) => {
      const { revision } = parameter
      if (this.#revisions[i] === revision) return
      this.#values[i].set(await parameter.readHome())
      this.#revisions[i] = revision
    }
    await Promise.all(this.#parameters.map(read))
    return this.#values
  }

  /** What the host has of parameter `i`; undefined until it is read. */
  hostValues(i: number): Floats | undefined {
    return this.#revisions[i] === this.#parameters[i].revision ? this.#values[i] : undefined
  }

  /** As `hashWords`, and faster for what `read` and `moments` give. */
  hash(words: Uint32Array): [number, number] {
    return this.#host.hash(words)
  }

  /** Begins a step. */
  begin(): void {
    this.#steps++
    if (this.#settings.kind !== 'adamw') return
    const { betas } = this.#settings
    this.#powers = [this.#powers[0] * betas[0], this.#powers[1] * betas[1]]
  }

  /**
   * Updates parameter `i` of those that are trained, on the host and on the device, by what all ranks have summed. `count`: the samples in it, a float32; more clips.
   *
   * `exponents`: of the blocks of this parameter, by which the sums were encoded.
   */
  update(i: number, sums: Int32Array, exponents: Int32Array, count: number): void {
    this.#updated.add(i)
    const values = this.#values[i]
    const gradient = this.#gradient.subarray(0, values.length)
    this.#host.decode(sums, exponents, count, gradient)
    const [first, second] = this.#states[i]
    const settings = this.#settings
    const [{ lr }] = this.paramGroups
    if (settings.kind === 'sgd') {
      this.#host.sgd(values, gradient, first, {
        momentum: fround(settings.momentum),
        lr: fround(lr),
      })
    } else {
      const { eps, weightDecay } = settings
      const [beta1, beta2] = settings.betas
      const [left1, left2] = this.#powers.map((power) => 1 - power)
      this.#host.adam(values, gradient, first, second, {
        decay: fround(1 - lr * weightDecay),
        beta1: fround(beta1),
        oneMinusBeta1: fround(1 - beta1),
        beta2: fround(beta2),
        oneMinusBeta2: fround(1 - beta2),
        stepSize: fround((lr * Math.sqrt(left2)) / left1),
        eps: fround(eps * Math.sqrt(left2)),
      })
    }
    const parameter = this.#parameters[i]
    parameter.receive(values)
    this.#revisions[i] = parameter.revision
  }

  /** Parameters that have not been updated are missing in `state`, as in PyTorch. */
  async stateDict(): Promise<OptimizerStateDict> {
    const settings = this.#settings
    const names = stateNames[settings.kind]
    const tensorsOf = (i: number) =>
      names.map((name, at): [string, StateTensor] => {
        const { shape } = this.#parameters[i]
        return [name, { shape, data: this.#states[i][at].slice() }]
      })
    const params = Array.from({ length: this.#givenCount }, (_, i) => i)
    const updated = this.#parameters.map((_, i) => i).filter((i) => this.#updated.has(i))
    const entries = updated.map((i): [number, StateEntry] => {
      const tensors: StateEntry = Object.fromEntries(tensorsOf(i))
      const entry = settings.kind === 'adamw' ? { step: this.#steps, ...tensors } : tensors
      return [this.#numbers[i], entry]
    })
    return {
      state: Object.fromEntries(entries),
      param_groups: [
        {
          ...inPyTorch(settings),
          lr: this.paramGroups[0].lr,
          params,
          exact_steps: this.#steps,
          exact_exponents: [...(this.exponents ?? [])],
        },
      ],
    }
  }

  /**
   * Loads what `stateDict` gave, on any ranks. The state of AdamW or SGD does too; then the next step measures its gradients first. Parameters
   * that `state` lacks, such as frozen ones, begin with zeros.
   *
   * errors: `data.malformed` for a state of other parameters, or of another optimizer.
   */
  loadStateDict(saved: OptimizerStateDict): void {
    this.prepareLoad(saved)()
  }

  /** Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(saved: OptimizerStateDict): () => void {
    const { kind } = this.#settings
    const names = stateNames[kind]
    const known = Object.fromEntries(names.map((name) => [name, true as const]))
    requireState('exact training', saved, [this.#givenCount], known, kind === 'adamw')
    const [group] = saved.param_groups
    const params = group['params'] as readonly number[]
    const entries = this.#numbers.map((i) => saved.state[params[i]])
    const refuse = (problem: string) =>
      new TabringError(
        'data.malformed',
        `loadStateDict: ${problem}. Load the state of the same model and optimizer.`,
      )
    const stepsOf = Object.values(saved.state).map((entry) => stepsIn(entry) ?? 1)
    const { exact_steps: steps = Math.max(0, ...stepsOf), exact_exponents: exponents = [] } = group
    const blocks = this.#parameters.reduce((sum, { count }) => sum + blocksOf(count), 0)
    const isOfBlocks =
      Array.isArray(exponents) &&
      [0, blocks].includes(exponents.length) &&
      exponents.every(Number.isSafeInteger)
    const isCounted = Number.isSafeInteger(steps) && Number(steps) >= 0 && Number(steps) <= maxSteps
    if (typeof steps !== 'number' || !isCounted || !isOfBlocks)
      throw refuse(`expected exact_steps and exact_exponents of ${blocks} blocks`)
    const contents = this.#parameters.map(({ name, count }, i) =>
      names.map((key) => {
        const tensor = entries[i]?.[key]
        if (entries[i] && (typeof tensor !== 'object' || tensor?.data.length !== count))
          throw refuse(`${key} of "${clipped(name)}" must have ${count} elements`)
        return typeof tensor === 'object' ? tensor?.data : undefined
      }),
    )
    return () => {
      this.#updated.clear()
      for (const [i, own] of contents.entries()) {
        if (entries[i]) this.#updated.add(i)
        for (const [at, data] of own.entries()) {
          if (data) this.#states[i][at].set(data)
          else this.#states[i][at].fill(0)
        }
      }
      this.exponents = exponents.length > 0 ? Int32Array.from(exponents) : undefined
      this.#revisions.fill(undefined)
      this.#steps = 0
      this.#powers = [1, 1]
      while (this.#steps < steps) this.begin()
    }
  }
}

/** The settings besides the learning rate, with PyTorch's names, and its own for what is always off. */
function inPyTorch(settings: ExactSettings): Record<string, SettingValue> {
  if (settings.kind === 'sgd') {
    const { momentum } = settings
    return { momentum, dampening: 0, weight_decay: 0, nesterov: false }
  }
  const { betas, eps, weightDecay } = settings
  return { betas, eps, weight_decay: weightDecay, amsgrad: false }
}
