import { calledAs } from '../../util/called-as.ts'
import { TabringError } from '../../util/errors.ts'
import { isPlain, quoted } from '../../util/kind-of.ts'
import { oneAtATime } from '../../util/next-task.ts'
import { checkArgument, checkNumber, checkOptions, isNotNegative } from '../../util/options.ts'
import { countArguments } from '../../util/plain-callers.ts'
import type { InputTypes, Outputs, TracedFunction } from '../plan/prepare.ts'
import {
  copyInputs,
  type RunInputs,
  type RunOutputs,
  type StepProgram,
} from '../plan/step-program.ts'
import { newTally } from '../plan/weighing.ts'
import { type CompileOptions, compile } from './compile.ts'
import { isRefusedRun } from './failing-together.ts'

export interface AccumulationOptions {
  /** Number of runs per update; default: runs inside `ddp.noSync` accumulate, each run outside updates. */
  readonly steps?: number
  /**
   * Weight of each run's gradient. Default 1 / steps: the update is that of one batch of all samples, if all runs have the same number of
   * samples and there are `steps` of them. Without `steps` the default is 1, as in PyTorch, where users divide the loss themselves.
   */
  readonly weight?: number
}

/**
 * Traces a training step twice: as a micro-step that only accumulates gradients, and as the step that updates with their sum.
 *
 * `fn` is an ordinary step: forward, `zeroGrad`, `backward`, optional clipping, `optimizer.step`. Micro-steps do not exchange gradients
 * with other ranks (PyTorch's `no_sync`), clip nothing and do not count as steps. `DistributedDataParallel.noSync` marks them if `steps`
 * does not.
 *
 * Each run has the weight `weight`. If the loss is a mean over counted samples or class indices, that is the average weight, and each run
 * is weighted in proportion to its count (docs/reference/pytorch.md). An update before `steps` runs (`last: true`) still divides by `steps`. To
 * divide by the actual number, each run passes `{ count, gradientWeight: (count * steps) / total }`, where `total` is the number of samples
 * in all runs of the update, on all ranks.
 * cost: one more buffer of the gradients' size, one dispatch per bucket and run. errors: as compile; `config.invalid` for bad options.
 */
export function compileAccumulated<Types extends InputTypes, Out extends Outputs>(
  fn: TracedFunction<Types, Out>,
  inputs: Types,
  options?: AccumulationOptions & CompileOptions,
): Promise<AccumulatedProgram<Out>>
export async function compileAccumulated(
  fn: TracedFunction,
  inputs: InputTypes,
  options: AccumulationOptions & CompileOptions = {},
): Promise<AccumulatedProgram> {
  checkArgument('compileAccumulated', 'options', options, isPlain(options), 'a plain object')
  const { steps, weight = 1 / (steps ?? 1), accumulation, ...others } = options
  const isOwn = accumulation === undefined
  checkArgument('compileAccumulated', 'accumulation', accumulation, isOwn, 'omitted')
  if (steps !== undefined && (!Number.isInteger(steps) || steps < 1)) {
    throw new TabringError(
      'config.invalid',
      `compileAccumulated: steps must be a whole number of at least 1, got ${quoted(steps)}. Use 1 to update in every run.`,
    )
  }
  checkNumber(
    'compileAccumulated',
    'weight',
    weight,
    isNotNegative,
    'a finite number of at least 0',
  )
  const tally = newTally()
  const part = (name: 'add' | 'take') =>
    calledAs('compileAccumulated', 'compile', () =>
      compile(fn, inputs, { ...others, accumulation: { part: name, weight, tally } }),
    )
  const add = await part('add')
  return new AccumulatedProgram(add, await part('take'), steps)
}

/** A training step of several runs: all but the last accumulate gradients, the last one updates. */
export class AccumulatedProgram<Out extends Outputs = Outputs> {
  /** Program of the micro-step and program of the last run. */
  readonly microStep: StepProgram<Out>
  readonly updateStep: StepProgram<Out>
  readonly steps: number | undefined
  #added = 0
  /** Runs begun. */
  #turn = 0
  #current: StepProgram<Out> | undefined
  readonly #inTurn = oneAtATime()
  /** Outputs of the run that has begun last. */
  #outputs: Promise<unknown> = Promise.resolve()

  constructor(microStep: StepProgram<Out>, updateStep: StepProgram<Out>, steps?: number) {
    this.microStep = microStep
    this.updateStep = updateStep
    this.steps = steps
    this.run = this.run.bind(this)
    this.destroy = this.destroy.bind(this)
  }

  /** True if the next run updates. */
  get isLast(): boolean {
    if (this.steps !== undefined) return this.#added === this.steps - 1
    return this.#isSynchronizing
  }

  /**
   * Runs the next part on its share of the samples; outputs are of this share only.
   *
   * `last: true` updates now with the gradients so far (at the end of an epoch), `last: false` postpones the update. Calls run in order;
   * data and scalars are copied before this returns. A run with wrong inputs or scalars, or with non-finite values under `detectAnomaly`,
   * does not count: the same part is next, unless other runs have started since. On several ranks it ends the group where it would update.
   * errors: as StepProgram.run; `graph.misuse` for an update inside `noSync`.
   */
  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
    options: { last?: boolean } = {},
  ): Promise<RunOutputs<Out>> {
    this.updateStep.prepared.trace.exchange?.refuseUnclear()
    const { last = this.isLast } = checkOptions('run', options, { last: 'flag' })
    if (last && !this.#isSynchronizing) {
      throw new TabringError(
        'graph.misuse',
        'noSync: the last run of an accumulation updates parameters. Call it outside of noSync.',
      )
    }
    const program = last ? this.updateStep : this.microStep
    try {
      program.check(inputs, scalars)
    } catch (error) {
      // The others wait for a run that updates, and hear of it by this one's.
      if (last) await program.run(inputs, scalars).catch(() => undefined)
      throw error
    }
    const added = this.#added
    const turn = ++this.#turn
    this.#added = last ? 0 : added + 1
    const data = copyInputs(inputs, Object.keys(program.prepared.inputs))
    const settings = { ...scalars }
    const { outputs } = await this.#inTurn(async () => {
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
    return outputs
  }

  /** True if this rank exchanges gradients now. */
  get #isSynchronizing(): boolean {
    return this.updateStep.prepared.trace.exchange?.isSynchronizing ?? true
  }

  destroy(): void {
    this.microStep.destroy()
    this.updateStep.destroy()
  }
}

countArguments(AccumulatedProgram, { run: 3 })
