import { virtualRows } from '../../data/shares.ts'
import { type GradientExchange, Unsettled } from '../../graph/trace/exchange.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import type { Module } from '../../nn/module.ts'
import {
  type ExactTraining,
  exactTrainings,
  type HostForm,
} from '../../optim/exact/exact-training.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { TabringError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { mustFit } from '../exact/check-supported.ts'
import { evenWorkers } from '../exact/even-workers.ts'
import type { ExactModel } from '../exact/exact-model.ts'

/** How a model trains with `exact`. */
export interface ExactOptions {
  /** The parts of a batch that are each computed alone, by whichever rank; another number gives other bits. At least the ranks that shall have work. Default 8. */
  virtualWorkers?: number
  /** The most that the norm of all gradients may be, in place of `clipGradNorm`. Default: anything. */
  clipNorm?: number
}

/** A rank's rows of a batch; see `DistributedDataParallel.exactShare`. */
export interface ExactShare {
  /** Of a virtual worker: what the step is compiled for. */
  readonly rows: number
  /** This rank's rows of the batch are those from `start` up to `end`. */
  readonly start: number
  readonly end: number
}

/** The remedy for options that a model with `exact` cannot have. */
type Conflicts = Readonly<Record<string, { readonly isSet: boolean; readonly why: string }>>

/** errors: `config.invalid`, naming the option that does not go with `exact`, and why. */
export function refuseConflicts(conflicts: Conflicts): void {
  const found = Object.entries(conflicts).find(([, { isSet }]) => isSet)
  if (!found) return
  const [name, { why }] = found
  throw new TabringError(
    'config.invalid',
    `DistributedDataParallel: exact does not go with ${name}: ${why}. Remove one of the two.`,
  )
}

/** Training with `exact` of a model of DistributedDataParallel, whose code loads when a step is compiled. */
export class ModelExactTraining implements ExactTraining {
  /** In words, to be the same on all ranks. */
  readonly words: string
  readonly #virtualWorkers: number
  readonly #load: () => Promise<ExactModel>
  #model: ExactModel | undefined
  readonly #group: CollectiveGroup

  /** errors: `config.invalid` for wrong options, and for a model that cannot train so. */
  constructor(
    module: Module,
    exchange: GradientExchange<Parameter>,
    group: CollectiveGroup,
    options: ExactOptions,
    bucketCapMb: number | undefined,
  ) {
    const where = 'DistributedDataParallel: exact'
    checkOptions(where, options, { virtualWorkers: true, clipNorm: true })
    const { virtualWorkers = 8, clipNorm } = options
    checkNumber(where, 'virtualWorkers', virtualWorkers, isCount, 'a whole number above 0')
    checkNumber(where, 'clipNorm', clipNorm, (norm) => norm > 0, 'above 0')
    mustFit(module)
    this.words = `${virtualWorkers} virtual workers, clipNorm ${clipNorm ?? 'none'}`
    this.#virtualWorkers = virtualWorkers
    this.#group = group
    const bucketElements = bucketCapMb && Math.max(1, Math.floor(bucketCapMb * 2 ** 18))
    this.#load = async () => {
      const part = await loadPart('exact training', () => import('../exact/exact-model.ts'))
      this.#model = new part.ExactModel({
        ...{ group, exchange, virtualWorkers, clipNorm, bucketElements },
      })
      return this.#model
    }
    for (const parameter of module.parameters()) exactTrainings.set(parameter, this)
  }

  step(optimizer: HostForm): void {
    if (!this.#model) throw new Unsettled('exact training', this.#load())
    this.#model.update(optimizer)
  }

  refusal(where: string): TabringError {
    return new TabringError(
      'graph.misuse',
      `${where}: the model is wrapped with exact, whose gradients are summed as whole numbers after the function. Clip with { exact: { clipNorm } }, and train in float32 without a GradScaler.`,
    )
  }

  share(batchSize: number, samples: number): ExactShare {
    const where = 'exactShare'
    checkNumber(where, 'batchSize', batchSize, isCount, 'a whole number above 0', true)
    const isPart = (count: number) => Number.isInteger(count) && count >= 0 && count <= batchSize
    checkNumber(where, 'samples', samples, isPart, `a whole number from 0 to ${batchSize}`, true)
    const rows = virtualRows(batchSize, this.#virtualWorkers)
    const { first, count } = evenWorkers(this.#virtualWorkers, rows, this.#group)
    const rowOf = (worker: number) => Math.min(samples, worker * rows)
    return { rows, start: rowOf(first), end: rowOf(first + count) }
  }

  /** Compares what the ranks have after step number `step`. errors: `train.diverged`; those of the group. */
  async compare(step: number): Promise<void> {
    await this.compiled.compare(this.#group, step)
  }

  /** errors: `graph.misuse` before a step is compiled. */
  get compiled() {
    const step = this.#model?.step
    if (step) return step
    throw new TabringError(
      'graph.misuse',
      'verifySync: no step that updates this model has been compiled. Compile it first.',
    )
  }
}
