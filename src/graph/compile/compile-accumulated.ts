import { TabringError } from '../../util/errors.ts'
import { checkNumber, checkOptions } from '../../util/options.ts'
import type { InputTypes, TracedFunction } from '../plan/prepare.ts'
import {
  copyInputs,
  type RunInputs,
  type RunOutputs,
  type StepProgram,
} from '../plan/step-program.ts'
import { newTally } from '../plan/weighing.ts'
import { type CompileOptions, compile } from './compile.ts'
import { isRefusedRun } from './watched-program.ts'

export interface AccumulationOptions {
  /** How many runs make one update; default: those inside `ddp.noSync` add, each one outside of it updates. */
  readonly steps?: number
  /**
   * What each run's gradient counts for; default 1 / steps, which makes the update that of one batch of all runs' samples where all
   * runs have equally many and there are `steps` of them. Without `steps` 1, as in PyTorch, where the loss is divided by hand.
   */
  readonly weight?: number
}

/**
 * Traces a training step twice: as a micro-step that only adds its gradients to the earlier ones, and as the one that takes the sum and updates.
 *
 * `fn` is an ordinary step: forward, `zeroGrad`, `backward`, perhaps clipping, `optimizer.step`. Micro-steps exchange nothing with other ranks
 * (PyTorch's `no_sync`; `DistributedDataParallel.noSync` tells which they are, where `steps` does not), clip nothing and count no step.
 *
 * Each run counts `weight`; where the loss is a mean over counted samples or class numbers, runs count that on average, each in proportion to
 * how many it counts (docs/reference/pytorch.md). An update before `steps` runs (`last: true`) divides by `steps` all the same. To divide by what is
 * there, each run gives `{ count, gradientWeight: (count * steps) / total }`, where `total` is the number of samples in all runs of the
 * update, on all ranks.
 * cost: one more buffer of the gradients' size, one dispatch a bucket and run. errors: as compile; `config.invalid` for bad options.
 */
export async function compileAccumulated(
  fn: TracedFunction,
  inputs: InputTypes,
  { steps, weight = 1 / (steps ?? 1), ...options }: AccumulationOptions & CompileOptions = {},
): Promise<AccumulatedProgram> {
  checkNumber('compileAccumulated', 'weight', weight, Number.isFinite, 'a number')
  if (steps !== undefined && (!Number.isInteger(steps) || steps < 1)) {
    throw new TabringError(
      'config.invalid',
      `compileAccumulated: steps must be a whole number of at least 1, got ${steps}. Use 1 to update in every run.`,
    )
  }
  const tally = newTally()
  const part = (name: 'add' | 'take') =>
    compile(fn, inputs, { ...options, accumulation: { part: name, weight, tally } })
  const add = await part('add')
  return new AccumulatedProgram(add, await part('take'), steps)
}

/** A step of several runs: all but the last add gradients, the last one updates. */
export class AccumulatedProgram {
  /** The micro-step and the last run's program. */
  readonly add: StepProgram
  readonly take: StepProgram
  readonly steps: number | undefined
  #added = 0
  /** Runs begun. */
  #turn = 0
  #current: StepProgram | undefined
  /** Settles when the last run has begun, and its outputs. */
  #begun: Promise<unknown> = Promise.resolve()
  #outputs: Promise<unknown> = Promise.resolve()

  constructor(add: StepProgram, take: StepProgram, steps?: number) {
    this.add = add
    this.take = take
    this.steps = steps
  }

  /** Whether the next run updates. */
  get isLast(): boolean {
    if (this.steps !== undefined) return this.#added === this.steps - 1
    return this.#isSynchronizing
  }

  /**
   * Runs the next part on its share of the samples; outputs are of this share alone.
   *
   * `last` updates now, with what has been added so far (the end of an epoch), or puts the update off. Calls run in their order; data and
   * scalars are copied before this returns. Wrong inputs or scalars, and with `detectAnomaly` values that are not finite, count
   * as no run: the same part is next, unless others were begun since.
   * errors: as StepProgram.run; `graph.misuse` for an update inside `noSync`.
   */
  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
    options: { last?: boolean } = {},
  ): Promise<RunOutputs> {
    const { last = this.isLast } = checkOptions('run', options, { last: true })
    if (last && !this.#isSynchronizing) {
      throw new TabringError(
        'graph.misuse',
        'noSync: expected a run that adds up gradients, got the last one of an accumulation, which updates. Call it outside.',
      )
    }
    const program = last ? this.take : this.add
    program.check(inputs, scalars)
    const added = this.#added
    const turn = ++this.#turn
    this.#added = last ? 0 : added + 1
    const data = copyInputs(inputs, Object.keys(program.prepared.inputs))
    const settings = { ...scalars }
    const begun = this.#begun.then(async () => {
      // Each program keeps its own runs in order; the two would not keep to each other's.
      if (this.#current !== program) await this.#outputs.catch(() => undefined)
      this.#current = program
      const outputs = program.run(data, settings)
      this.#outputs = outputs
      outputs.catch((error) => {
        if (isRefusedRun(error) && turn === this.#turn) this.#added = added
      })
      return { outputs }
    })
    this.#begun = begun.catch(() => undefined)
    return (await begun).outputs
  }

  /** Whether this rank exchanges gradients now. */
  get #isSynchronizing(): boolean {
    return this.take.prepared.trace.exchange?.isSynchronizing ?? true
  }

  destroy(): void {
    this.add.destroy()
    this.take.destroy()
  }
}
