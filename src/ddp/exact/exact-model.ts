import type { HostData } from '../../graph/memory/host-values.ts'
import { commonMean, countIn } from '../../graph/plan/mean-over.ts'
import type { Prepared } from '../../graph/plan/prepare.ts'
import { layoutOf } from '../../graph/plan/step-layout.ts'
import type { RunInputs, RunOutputs, StepProgram } from '../../graph/plan/step-program.ts'
import { type WholeStep, wholeSteps } from '../../graph/plan/whole-step.ts'
import type { GradientExchange } from '../../graph/trace/exchange.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { nextRandomStep, randomScalarNames, setNextRandomStep } from '../../graph/trace/random.ts'
import { activeTrace, type Trace } from '../../graph/trace/trace.ts'
import { ExactOptimizer, type ExactSettings } from '../../optim/exact/exact-optimizer.ts'
import type { HostForm } from '../../optim/exact/exact-training.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { countElements, formatShape } from '../../util/shape.ts'
import { mustBeExact } from './check-supported.ts'
import { evenWorkers } from './even-workers.ts'
import { ExactStep, type ExactStepOptions } from './exact-step.ts'
import { addGradients, type Layout, layOut } from './layout.ts'
import type { OwnWorkers } from './replays.ts'

export interface ExactModelOptions {
  readonly group: CollectiveGroup
  readonly exchange: GradientExchange<Parameter>
  /** Of all ranks. */
  readonly virtualWorkers: number
  readonly clipNorm: number | undefined
  readonly bucketElements: number | undefined
}

/** The error for a step that cannot be exact: what is in the way, and what to do. */
export const notExact = (what: string, remedy: string): TabringError =>
  new TabringError('graph.misuse', `exact: ${what}. ${remedy}`)

/** A model of DistributedDataParallel that trains with `exact`: makes whole steps of functions over the rows of one virtual worker. */
export class ExactModel {
  /** The compiled step; undefined before that and after its end. */
  step: ExactStep | undefined
  readonly #options: ExactModelOptions

  constructor(options: ExactModelOptions) {
    this.#options = options
  }

  /** As `ExactTraining`. errors: `graph.misuse` for an optimizer that has no form on the host, and for a second one. */
  update(optimizer: HostForm): void {
    const trace = activeTrace('optimizer.step')
    if (wholeSteps.has(trace))
      throw notExact(
        'optimizer.step is called twice in one function',
        'Update all parameters by one optimizer, once.',
      )
    if (trace.accumulation)
      throw notExact(
        'compileAccumulated adds up float gradients, and their sum depends on the order',
        'Call compile instead: a step may have any number of virtual workers, { exact: { virtualWorkers } }.',
      )
    const [group, ...others] = optimizer.paramGroups
    const settings = optimizer.hostForm()
    if (others.length > 0 || !settings)
      throw notExact(
        `${optimizer.constructor.name} has no update on the host ${others.length > 0 ? `for ${others.length + 1} groups of parameters` : 'with these settings'}`,
        'Use one group of AdamW or Adam without amsgrad (Adam also without weightDecay), or of SGD without dampening, weightDecay and nesterov.',
      )
    const host = optimizer.moveToHost(() => new ExactOptimizer(group.params, settings, group))
    const unfrozen = group.params.find(
      (parameter) => parameter.requiresGrad && !host.parameters.includes(parameter),
    )
    if (unfrozen)
      throw notExact(
        `${unfrozen.title} was frozen when the optimizer's first step was compiled`,
        'Create a new optimizer, and load the state of this one into it.',
      )
    const layout = layOut(host.parameters)
    if (host.parameters.every((parameter) => !trace.gradients.has(parameter)))
      throw notExact(
        'no parameter of the optimizer has a gradient',
        'Call loss.backward() before optimizer.step(), in the same function.',
      )
    addGradients(layout)
    trace.refusals.push(() => refuseOther(settings, optimizer.hostForm()))
    wholeSteps.set(trace, this.#whole(host, settings, layout))
  }

  #whole(optimizer: ExactOptimizer, settings: ExactSettings, layout: Layout): WholeStep {
    const { group, exchange, virtualWorkers, clipNorm, bucketElements } = this.#options
    return {
      exchange,
      layoutOf: (prepared, memory) => {
        mustBeExact(memory)
        if (this.step)
          throw notExact(
            'the model has a compiled step already',
            'Destroy that program first: its state is that of the optimizer, and goes on with the next one.',
          )
        this.#check(prepared)
        const used = layout.places.map(({ parameter, isUsed }) => {
          const { name, shape } = parameter
          return `${name} ${formatShape(shape)}${isUsed ? '' : ' without a gradient'}`
        })
        const inputs = Object.entries(prepared.inputs).map(
          ([name, { dtype, shape }]) => `input ${name} ${dtype}${formatShape(shape)}`,
        )
        const { lr: _, ...fixed } = settings
        const { reached } = prepared.trace
        return {
          ...layoutOf(prepared),
          unused: exchange.parameters.flatMap((parameter) =>
            parameter.requiresGrad && !reached.has(parameter) ? [parameter.name] : [],
          ),
          buckets: [...inputs, ...used],
          samples: undefined,
          fixed: [`exact: ${JSON.stringify(fixed)}`],
        }
      },
      allocate: (memory) => layout.allocate(memory),
      destroy: () => layout.destroy(),
      stepOf: (program) => {
        const { trace, inputs } = program.prepared
        const workers = evenWorkers(virtualWorkers, rowsIn(inputs), group)
        const weightOf = weightIn(trace)
        this.step = new ModelStep(
          { group, workers, optimizer, virtualWorkers, clipNorm, bucketElements, weightOf },
          program,
          layout,
          () => {
            this.step = undefined
          },
        )
        return this.step
      },
    }
  }

  /** errors: `graph.misuse` for a function that cannot be the part of a virtual worker. */
  #check({ trace, inputs, outputs }: Prepared): void {
    if (trace.forwarded !== this.#options.exchange)
      throw notExact(
        'the function does not call forward of the wrapped model',
        'Call it, and not that of the module inside.',
      )
    const others = [...trace.updates, ...trace.joint, ...trace.after]
    if (others.length > 0)
      throw notExact(
        'the function updates something else, such as an average of parameters or another optimizer’s, which would happen once for each virtual worker',
        'Compile that as a function of its own, and run it after each step.',
      )
    const wrong = outputs.find(({ type }) => type.shape.length > 0 || type.dtype !== 'f32')
    if (wrong)
      throw notExact(
        `output "${clipped(wrong.name)}" is ${wrong.type.dtype}${formatShape(wrong.type.shape)}, and outputs are means over all virtual workers’ samples`,
        'Return numbers such as the loss, and compile another function for the rest.',
      )
    const rows = rowsIn(inputs)
    const other = Object.entries(inputs).find(([, { shape }]) => shape[0] !== rows)
    if (other || rows === undefined)
      throw notExact(
        other
          ? `input "${clipped(other[0])}" is ${formatShape(other[1].shape)}, but its first axis must be the ${rows} rows of a virtual worker`
          : 'the function has no inputs',
        'Declare all inputs by rows: [ddp.exactShare(batchSize).rows, ...].',
      )
  }
}

/** A step whose runs take this rank's rows of a batch, in whole virtual workers or not. */
class ModelStep extends ExactStep {
  readonly #workers: OwnWorkers
  readonly #onDestroyed: () => void

  constructor(
    options: ExactStepOptions,
    program: StepProgram,
    layout: Layout,
    onDestroyed: () => void,
  ) {
    super(options, program, layout)
    this.#workers = options.workers
    this.#onDestroyed = onDestroyed
  }

  override async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
  ): Promise<RunOutputs> {
    const { first, count, rows } = this.#workers
    const own = takeRows(this, inputs, scalars, count * rows)
    const random = randomScalars(this.prepared.trace, scalars, first * rows)
    return super.run(own.inputs, { ...scalars, ...random, count: own.count })
  }

  override destroy(): void {
    super.destroy()
    this.#onDestroyed()
  }
}

const none = new Float32Array()
const rowsIn = (inputs: Prepared['inputs']): number => Object.values(inputs)[0]?.shape[0]

/** Returns the weight of a virtual worker's gradients: what its loss is a mean over, else its samples. */
function weightIn({ meansBehind }: Trace) {
  const mean = commonMean([...meansBehind])
  return (inputs: RunInputs, samples: number): number =>
    mean
      ? countIn(mean, new Map(Object.entries(inputs) as [string, HostData][]), () => samples)
      : samples
}

/** The mask of a sample is drawn by its number in the batch, whichever rank has it. `first`: of this rank. */
function randomScalars(
  { scalars }: Trace,
  given: Readonly<Record<string, number>>,
  first: number,
): Record<string, number> {
  const { step: stepName, sample } = randomScalarNames
  if (!scalars.has(sample)) return {}
  const step = given[stepName] ?? nextRandomStep()
  if (given[stepName] === undefined) setNextRandomStep((step + 1) % 2 ** 32)
  return { [stepName]: step, [sample]: given[sample] ?? first }
}

/**
 * The rows that a run was given, filled up to whole virtual workers, and how many count. `max`: of this rank.
 *
 * errors: `graph.misuse`.
 */
function takeRows(
  { prepared }: StepProgram,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>>,
  max: number,
): { readonly inputs: RunInputs; readonly count: number } {
  const rowsOfWorker = rowsIn(prepared.inputs)
  const misuse = (problem: string, remedy: string) =>
    new TabringError('graph.misuse', `run: ${problem}. ${remedy}`)
  let rows: number | undefined
  const arrays = Object.entries(prepared.inputs).map(([name, { shape }]): [string, HostData] => {
    // A rank without samples may leave them out.
    const given = inputs[name] ?? (scalars.count === 0 ? none : undefined)
    const data = given && 'data' in given ? given.data : given
    const elements = countElements(shape) / rowsOfWorker
    const own = ArrayBuffer.isView(data) ? (data as HostData).length / elements : Number.NaN
    if (!Number.isInteger(own) || own > max || own !== (rows ?? own))
      throw misuse(
        `input "${clipped(name)}" must be an array of ${rows ?? `at most ${max}`} rows of ${elements} elements, got ${ArrayBuffer.isView(data) ? `${(data as HostData).length} elements` : kindOf(given)}`,
        'Give the rows start to end of ddp.exactShare(batchSize, samples), as an array; turn pinMemory off.',
      )
    rows = own
    return [name, data as HostData]
  })
  const { count = rows ?? 0 } = scalars
  if (!Number.isInteger(count) || count < 0 || count > (rows ?? 0))
    throw misuse(
      `step scalar "count" must be a whole number of samples from 0 to ${rows}, got ${count}`,
      'Leave it out: the rows that are given count.',
    )
  if (count % rowsOfWorker > 0 && !prepared.trace.scalars.has('count'))
    throw misuse(
      `${count} rows fill no whole number of virtual workers of ${rowsOfWorker}, and the loss counts no samples`,
      'Pass { count: sampleCount() } to the loss, or drop the last batch.',
    )
  const whole = Math.ceil(count / rowsOfWorker) * rowsOfWorker
  const filled = arrays.map(([name, data]): [string, HostData] => {
    const length = (countElements(prepared.inputs[name].shape) / rowsOfWorker) * whole
    if (data.length >= length) return [name, data]
    const full = new (data.constructor as new (length: number) => HostData)(length)
    full.set(data)
    return [name, full]
  })
  return { inputs: Object.fromEntries(filled), count }
}

/** errors: `graph.misuse` for settings that have changed, besides the learning rate. */
function refuseOther(compiled: ExactSettings, now: ExactSettings | undefined): void {
  const of = (settings: ExactSettings | undefined) => JSON.stringify({ ...settings, lr: 0 })
  if (of(compiled) === of(now)) return
  throw notExact(
    'settings of the optimizer have changed since the step was compiled',
    'Only lr may change: destroy the program and compile it again.',
  )
}
