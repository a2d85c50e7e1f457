import type { DeviceSpec } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { checkOptions, type OptionNames } from '../../util/options.ts'
import { defaultRuntimeOf, runtimeOf } from '../memory/default-runtime.ts'
import type { Memory } from '../memory/memory-device.ts'
import { memoryOf } from '../memory/memory-of.ts'
import { type AnyRuntime, checkRuntime, ReferenceRuntime } from '../memory/runtime.ts'
import { tellFailure } from '../plan/agreement.ts'
import { isSplit } from '../plan/parts.ts'
import {
  type InputTypes,
  type Outputs,
  type Prepared,
  type PrepareOptions,
  planStep,
  type TracedFunction,
  traceStep,
} from '../plan/prepare.ts'
import { layoutOf } from '../plan/step-layout.ts'
import type { StepProgram } from '../plan/step-program.ts'
import { type WholeStep, wholeSteps } from '../plan/whole-step.ts'
import { type GradientExchange, type RankMessages, whenSettled } from '../trace/exchange.ts'
import type { Settled, Trace } from '../trace/trace.ts'
import { benchmarkVariants, isBenchmarking } from '../tune/benchmark.ts'
import { checkDevices } from './check-devices.ts'
import { compileParts } from './compile-parts.ts'
import { createProgram } from './create-program.ts'
import { agreeOnStep, endingAll, failingTogether, type MadeProgram } from './failing-together.ts'
import { guarded } from './guarded-program.ts'
import { withUneven } from './join-context.ts'
import { withChecks } from './output-checks.ts'

export interface CompileOptions extends PrepareOptions {
  /** Where to run; default: that of `setDefaultDevice`, else of the switch `device`. */
  readonly device?: DeviceSpec
  /** An open device, instead of the page's own. */
  readonly runtime?: AnyRuntime
  /**
   * Checks every result of forward and backward in each run, and rejects with `train.nan` at the first op that produces NaN, before
   * anything is updated or sent; like torch.autograd.set_detect_anomaly. With several ranks, all reject with the same error. Takes many
   * times as long as a normal step; inputs must be arrays. Default false.
   */
  readonly detectAnomaly?: boolean
  /**
   * The ranks among which the step is divided, for devices such as `rank:1/webgpu:0`: all of them, or a dimension of a mesh. Each compiles
   * the same function.
   */
  readonly group?: RankMessages
  /** @internal False: the caller informs the other ranks when a run fails, since some continue without this one. Default: they all fail. */
  readonly endsGroups?: boolean
}

const compileOptions: OptionNames<CompileOptions> = {
  device: true,
  runtime: true,
  detectAnomaly: 'flag',
  group: 'group',
  endsGroups: 'flag',
  useNaiveKernels: 'flag',
  accumulation: 'object',
  sharesBuffers: 'flag',
}

/**
 * Traces `fn` once and returns a program that replays it.
 *
 * With several ranks it traces again if a wrapped model is compiled before the ranks have agreed on the bucket size (`ddp.ready`), and to
 * find unused parameters. `fn` gets tensors by name and returns tensors by name, synchronously: an async function is an error. Values read
 * from outside while tracing (sizes, flags) are fixed; values that change per run must be inputs or step scalars.
 * If a function throws on some ranks after it has called forward of their wrapped model in training, the other ranks throw too:
 * `peer.mismatch`, with rank and message.
 * errors: those of the ops it calls, `gpu.compile`, `gpu.limit`, `graph.misuse`; `device.mismatch` for a tensor on another device.
 */
export function compile<Types extends InputTypes, Out extends Outputs>(
  fn: TracedFunction<Types, Out>,
  inputs: Types,
  options?: CompileOptions,
): Promise<StepProgram<Out>>
export async function compile(
  fn: TracedFunction,
  inputs: InputTypes,
  options: CompileOptions = {},
): Promise<StepProgram> {
  checkOptions('compile', options, compileOptions)
  const { runtime: given, device } = options
  if (given !== undefined && given !== null) checkRuntime('compile', given)
  const isDefault = device === undefined || device === null
  const runtime = given ?? (await (isDefault ? defaultRuntimeOf() : runtimeOf(device)))
  const { program, groups: met } = await compileOn(runtime, fn, inputs, options)
  const groups = options.endsGroups === false ? [] : met
  if (!options.detectAnomaly) return failingTogether(guarded(program, inputs), groups)
  const { withAnomalyDetection } = await loadPart(
    'detectAnomaly',
    () => import('./watched-program.ts'),
  )
  const watched = withAnomalyDetection(program, runtime, fn, inputs)
  return failingTogether(guarded(watched, inputs), groups)
}

async function compileOn(
  runtime: AnyRuntime,
  fn: TracedFunction,
  inputs: InputTypes,
  options: CompileOptions,
): Promise<MadeProgram> {
  const isReference = runtime instanceof ReferenceRuntime
  const settled: Settled = { used: new Map() }
  let last: Trace | undefined
  const onTrace = (trace: Trace) => {
    last = trace
  }
  const own = { ...options, settled, onTrace, ...(isReference && { useNaiveKernels: true }) }
  // What is wrong with the function, or where its tensors are, concerns the ranks that wait for the step. (A device that fails ends the group.)
  const telling = <T>(
    work: Promise<T>,
    waiting: () => GradientExchange | undefined = () => undefined,
  ): Promise<T> =>
    work.catch(async (error: unknown) => {
      const exchange = waiting()
      const groups = [options.group ?? [], last?.groups?.groups ?? []].flat()
      await (exchange ? exchange.compiling.tellFailure(error) : tellFailure(groups, error))
      throw error
    })
  const make = () =>
    telling(
      whenSettled(() => {
        const step = traceStep(runtime.device, fn, inputs, own)
        if (isSplit(step)) {
          if (wholeSteps.has(step.trace)) throw refusedWhole('devices')
          return step
        }
        if (options.detectAnomaly && step.trace.groups) throw checksAlone()
        return planStep(runtime, step, own)
      }),
      () => last?.updatesOver,
    )
  const made = await make()
  if (!('plan' in made)) return compileParts(runtime, made, own, telling)
  // Before kernels are measured, which such a step refuses.
  const whole = wholeSteps.get(made.trace)
  if (whole) return makeWhole(runtime, made, whole, options, telling)
  let prepared = made
  if (!isReference && isBenchmarking()) {
    await benchmarkVariants(runtime, prepared)
    prepared = (await make()) as Prepared
  }
  const { exchange, forwarded, syncPoints, updates } = prepared.trace
  await telling(checkPlaces(prepared, memoryOf(runtime)), () => exchange)
  const create = async () => {
    syncPoints?.expectSyncPoints(prepared.syncPoints.map(({ group }) => group))
    return withChecks(await createProgram(runtime, prepared))
  }
  if (!exchange || updates.length === 0) {
    if (prepared.syncPoints.length > 0) await forwarded?.ready
    if (forwarded) return { program: await create(), groups: [] }
    const groups = await telling(agreeOnStep(prepared.trace, prepared.syncPoints))
    return { program: await endingAll(groups, 'could not compile a step', create), groups }
  }
  const number = exchange.compiling.countProgram()
  prepared.trace.weighing?.settle(await exchange.compiling.settleLayout(layoutOf(prepared)))
  await exchange.ready
  const program = await create()
  if (exchange.size === 1) return { program, groups: [] }
  return { program: withUneven(program, exchange, number), groups: [exchange] }
}

/** Makes a step of which the prepared function is a part. errors: `graph.misuse`; those of the ranks and of the device. */
async function makeWhole(
  runtime: AnyRuntime,
  prepared: Prepared,
  whole: WholeStep,
  { detectAnomaly }: CompileOptions,
  telling: <T>(work: Promise<T>, waiting: () => GradientExchange | undefined) => Promise<T>,
): Promise<MadeProgram> {
  const { exchange } = whole
  const memory = memoryOf(runtime)
  const layout = async () => {
    if (detectAnomaly || isBenchmarking())
      throw refusedWhole(detectAnomaly ? 'detectAnomaly' : 'benchmark')
    await checkPlaces(prepared, memory)
    return whole.layoutOf(prepared, memory)
  }
  exchange.compiling.countProgram()
  await exchange.compiling.settleLayout(await telling(layout(), () => exchange))
  await exchange.ready
  try {
    whole.allocate(memory)
    const program = whole.stepOf(await createProgram(runtime, prepared))
    return { program, groups: exchange.size === 1 ? [] : [exchange] }
  } catch (error) {
    whole.destroy()
    throw error
  }
}

const wholeConflicts = {
  detectAnomaly:
    'detectAnomaly looks at one pass of the function, and a step with exact has several. Compile without it: a gradient that is not finite ends the step and names its parameter.',
  benchmark:
    'measured times would choose the kernels of a step with exact, and so its bits. Turn benchmark off.',
  devices: 'a step with exact is on one device, and this one is on several. Move the model to one.',
}
const refusedWhole = (what: keyof typeof wholeConflicts) =>
  new TabringError('graph.misuse', `compile: ${wholeConflicts[what]}`)

const checksAlone = () =>
  new TabringError(
    'graph.misuse',
    'compile: detectAnomaly does not work with fullyShard, because each rank looks for itself. Compile without it.',
  )

/** As `checkDevices`; for a device that the tab lacks, the error is that. */
async function checkPlaces(prepared: Prepared, memory: Memory): Promise<void> {
  try {
    checkDevices(prepared, memory)
  } catch (error) {
    await prepared.trace.forwarded?.ready
    throw error
  }
}
