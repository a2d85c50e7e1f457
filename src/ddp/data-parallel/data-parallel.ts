import { memberGroup } from '../../distributed/group/group-of.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { Module } from '../../nn/module.ts'
import { defaultChoice } from '../../peer/algorithms/algorithm-choice.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { measureOnce, measuringKeys } from '../../peer/group/measure-links.ts'
import type { DeviceSpec } from '../../util/device.ts'
import { ArgumentTypeError, TabringError } from '../../util/errors.ts'
import { isRecord, kindOf } from '../../util/kind-of.ts'
import {
  checkArgument,
  checkChoice,
  checkNumber,
  checkOptions,
  isCount,
} from '../../util/options.ts'
import { refusePythonNames } from '../../util/plain-callers.ts'
import { ReplicaCheck } from '../hashes/replica-check.ts'
import { type Aggregation, aggregations } from '../hooks/aggregate.ts'
import { setupKeys } from '../hooks/collective-keys.ts'
import type { CommHook } from '../hooks/comm-hooks.ts'
import { HookState } from '../hooks/hook-state.ts'
import {
  type LeftOut,
  type LeftOutRanks,
  mayLeaveOut,
  type Trust,
  trusts,
} from '../hooks/left-out.ts'
import { hookReducer, mean } from '../hooks/reducer.ts'
import { RobustAggregation } from '../hooks/robust-aggregation.ts'
import { broadcastTensors } from './broadcast-tensors.ts'
import { bucketCapMbFor } from './bucket-size.ts'
import { checkDevices, missingDevice } from './check-devices.ts'
import { checkReplicas, isFrozen } from './check-replicas.ts'
import {
  type ExactOptions,
  type ExactShare,
  ModelExactTraining,
  refuseConflicts,
} from './exact-training.ts'
import { withoutSync } from './no-sync.ts'
import { RingExchange } from './ring-exchange.ts'
import { type JoinOptions, RingUnevenInputs } from './uneven-inputs.ts'

/** Options of `DistributedDataParallel`. */
export interface DistributedDataParallelOptions {
  /** Ranks that train together. Default: the group of `initProcessGroup`. */
  processGroup?: CollectiveGroup
  /** The WebGPU device of the module's parameters, for example `[0]`, as PyTorch scripts pass it. Default: that of the parameters. */
  deviceIds?: readonly DeviceSpec[] | null
  /** Must be the device of `deviceIds`: outputs are on the device of the program. */
  outputDevice?: DeviceSpec | null
  /**
   * Largest gradient bucket. Default: 1/16, 1/4, 1 or 4, the size that the group's links carry in 12 to 48 ms, measured when the group's first
   * model is wrapped; `ddp.bucketCapMb` returns it. (PyTorch's 25 is meant for data-center links.) With more than 2 ranks, another size gives
   * other bits. units: MiB.
   */
  bucketCapMb?: number
  /**
   * Size at which the first bucket closes, so that it is sent early. Default 1, as in PyTorch; if `bucketCapMb` is measured, at most a quarter
   * of it. Never more than `bucketCapMb`. units: MiB.
   */
  firstBucketMb?: number
  /** Accepted for compatibility with PyTorch, without effect: gradients are always views of their buckets. */
  gradientAsBucketView?: boolean
  /** True if all ranks copy rank 0's buffers, such as running statistics, after each step that changes them. Default true. */
  broadcastBuffers?: boolean
  /**
   * True if parameters may have no gradient on some or all ranks. Default false: compiling such a step is an error. A parameter that some ranks
   * use is updated on all ranks; one that no rank uses keeps its value.
   */
  findUnusedParameters?: boolean
  /**
   * True if gradients are exchanged while backward runs. False: only after backward, to measure what overlap saves. Default true. The results
   * are the same. It has no effect on the CPU device, whose backward leaves no time to send in.
   */
  overlap?: boolean
  /**
   * True if scalar float outputs of steps that train this model, such as the loss, are means over the ranks, weighted as gradients are. All
   * other outputs are the rank's own. False: so are scalars, as in PyTorch. Default true.
   */
  averageOutputs?: boolean
  /** Implies `findUnusedParameters`, as in PyTorch. Otherwise without effect, because every compiled step is static. */
  staticGraph?: boolean
  /**
   * How the ranks' gradients become one: `mean`, or one that few wrong gradients cannot decide: `median`, `trimmedMean` or `clipped` (see
   * `aggregate`). All but the mean count each rank the same and need 3 ranks or more to be of use. Default `mean`.
   */
  aggregation?: Aggregation
  /**
   * `strangers`: a rank whose gradients are far larger than the others' is left out of the step, on all ranks the same, and `onLeftOut` names
   * it. Default `members`: all count. With `strangers` or another aggregation than the mean, ranks whose gradients are not finite are left
   * out too. See `RobustAggregation`.
   */
  trust?: Trust
  /** With `trust` or `aggregation`: called on all ranks for each bucket of which ranks were left out. */
  onLeftOut?: (found: LeftOut) => void
  /**
   * True if training ends with the same bits on any number of ranks whose devices compute the same: gradients of parts of a fixed size are
   * added as whole numbers, and each rank updates all parameters on its host. The step is compiled for the rows of one such part and runs on
   * this rank's rows of the batch, see `exactShare`; it updates by one AdamW, Adam or SGD. See docs/how-it-works/exact.md for what it costs and
   * holds. Default false.
   */
  exact?: boolean | ExactOptions
}

/** Options of `verifySync`. */
export interface VerifySyncOptions {
  /** Number of steps between two comparisons. Default 50. */
  everySteps?: number
  /** Runtime for which the step was compiled. Default: that of the default device. */
  runtime?: AnyRuntime
}

/**
 * Wraps a module so that its replicas on all ranks stay equal: gradients are averaged over the ranks while backward runs.
 *
 * As torch.nn.parallel.DistributedDataParallel, with one difference: each rank updates its slice of the parameters and gathers the
 * rest, so ranks with different adapters keep the same bits. Every rank must build the same module and compile the same steps. If a group
 * trains several modules, every rank starts their steps in the same order.
 *
 * If the loss is a mean over counted samples or class labels, each rank's gradient is weighted by its count; otherwise all ranks count
 * equally. A run may pass its own weight as the step scalar `gradientWeight`; the weights must add up to 1 over the ranks. Random masks are those
 * that one rank would draw for the same samples, if all ranks have the same number of samples; otherwise runs pass `sampleOffset`.
 *
 * Ranks also compare what determines an update (optimizer, learning rates, clipping limits), when a step is compiled and in each run, and weights
 * that some of them have loaded or assigned since.
 * errors: `config.invalid` for invalid options; `graph.misuse` for a module without trainable parameters. If ranks differ in parameters, buffers
 * or options, `ready` and compiling reject with `peer.mismatch`; so do runs, on all ranks and before any update, if optimizer settings or weights differ.
 */
export class DistributedDataParallel extends Module {
  readonly module: Module
  /** Resolves when all ranks have rank 0's parameters and buffers. errors: those of the group; `peer.mismatch` if ranks differ; `gpu.unavailable` for a device that this tab does not have. */
  readonly ready: Promise<void>
  readonly #group: CollectiveGroup
  readonly #exchange: RingExchange

  constructor(module: Module, options: DistributedDataParallelOptions = {}) {
    super()
    this.module = module
    checkDdpOptions(options)
    checkModule(module)
    checkDevices(module, options.deviceIds, options.outputDevice)
    const {
      processGroup,
      bucketCapMb,
      firstBucketMb,
      broadcastBuffers = true,
      findUnusedParameters = false,
      overlap = true,
      averageOutputs = true,
      staticGraph = false,
      aggregation = 'mean',
      trust = 'members',
      onLeftOut,
      exact = false,
    } = options
    if (exact) {
      refuseConflicts({
        aggregation: {
          isSet: aggregation !== 'mean',
          why: 'it sums whole numbers of all ranks, and no other way to join them',
        },
        trust: {
          isSet: trust !== 'members',
          why: 'it sees sums over ranks, and none of them alone',
        },
        'broadcastBuffers: false': {
          isSet: !broadcastBuffers,
          why: 'running statistics become the mean over all virtual workers',
        },
        'averageOutputs: false': {
          isSet: !averageOutputs,
          why: 'a rank’s own outputs depend on how many ranks there are',
        },
        findUnusedParameters: {
          isSet: findUnusedParameters || staticGraph,
          why: 'all virtual workers are one program, in which the same parameters get gradients',
        },
      })
    }
    const group = memberGroup('DistributedDataParallel', processGroup)
    this.#group = group
    const parameters = module.parameters()
    const buffers = module.buffers()
    const exchange = new RingExchange(group, parameters, {
      firstBucketCapBytes: firstBucketMb && firstBucketMb * 2 ** 20,
      findsUnused: findUnusedParameters || staticGraph,
      overlaps: overlap,
      averagesOutputs: averageOutputs,
    })
    const { settings } = exchange
    if (bucketCapMb !== undefined) {
      settings.capBytes = bucketCapMb * 2 ** 20
      settings.isCapGiven = true
    }
    if (group.size > 1 && mayLeaveOut(options)) {
      exchange.robust = new RobustAggregation({ aggregation, trust })
      exchange.robust.onLeftOut = onLeftOut
      exchange.reducer = exchange.robust.reducer
    }
    if (exact) {
      const own = exact === true ? {} : exact
      exchange.exact = new ModelExactTraining(module, exchange, group, own, bucketCapMb)
    }
    for (const parameter of parameters) parameter.exchange = exchange
    for (const buffer of buffers)
      buffer.exchange = broadcastBuffers && !exact ? exchange : undefined
    // How collectives travel is measured, unless the caller has said it.
    const isChosen = group.choice !== defaultChoice
    settings.isChoiceGiven = isChosen
    const chosen = `bucketCapMb ${bucketCapMb ?? 'to be measured'}, firstBucketMb ${firstBucketMb ?? 'by default'}, broadcastBuffers ${broadcastBuffers}, averageOutputs ${averageOutputs}, aggregation ${aggregation}, trust ${trust}, exact ${exchange.exact?.words ?? false}, findUnusedParameters ${settings.findsUnused}, group.choice ${isChosen ? JSON.stringify(group.choice) : 'to be measured'}`
    const [checkKey, , broadcastKey] = setupKeys(group, 3)
    const measure = measureOnce(group, () => setupKeys(group, measuringKeys))
    const settle = async () => {
      const missing = await missingDevice(module)
      if (group.size === 1 && missing) throw missing
      if (group.size > 1) {
        const named = [...module.namedParameters(), ...module.namedBuffers()]
        const hasFrozen = await checkReplicas(group, chosen, named, checkKey, missing)
        const label = 'DistributedDataParallel'
        const lacking = [...parameters, ...buffers].filter((one) => !(hasFrozen && isFrozen(one)))
        await broadcastTensors(group, lacking, { label, ...broadcastKey })
      }
      if (bucketCapMb !== undefined && (isChosen || !group.isFullyLinked)) return
      const links = await measure()
      settings.capBytes = (bucketCapMb ?? bucketCapMbFor(links)) * 2 ** 20
      if (!isChosen) settings.choice = links.choice
    }
    this.ready = settle()
    // Compiling a step waits for it too and reports the error there; here it must not count as unhandled.
    this.ready.catch(() => undefined)
    exchange.ready = this.ready
    this.#exchange = exchange
  }

  /** The group of ranks that train together. */
  get processGroup(): CollectiveGroup {
    return this.#group
  }

  /** @internal What robust aggregation hands from step to step; undefined without it. */
  get leftOutRanks(): LeftOutRanks | undefined {
    return this.#exchange.robust?.leftOut
  }

  /** Size at which buckets close; undefined until it is measured, before `ready`. units: MiB. */
  get bucketCapMb(): number | undefined {
    const { capBytes } = this.#exchange.settings
    return capBytes === undefined ? undefined : capBytes / 2 ** 20
  }

  /**
   * Which rows of a global batch this rank runs a step on, with `exact`: `step.run(rows start to end)`, of a step that is compiled for `rows`. A
   * batch of fewer `samples` than `batchSize` is a last one.
   *
   * errors: `graph.misuse` without `exact`.
   */
  exactShare(batchSize: number, samples = batchSize): ExactShare {
    const { exact } = this.#exchange
    if (exact) return exact.share(batchSize, samples)
    throw new TabringError(
      'graph.misuse',
      'exactShare: the model is not wrapped with exact. Write new DistributedDataParallel(model, { exact: true }).',
    )
  }

  forward(x: Tensor, ...others: unknown[]): Tensor {
    const trace = activeTrace('forward')
    this.#refuseNew()
    trace.forwarded = this.#exchange
    trace.isForwardedToTrain = this.training
    return this.module.forward(x, ...others)
  }

  /**
   * Returns `fn()`. Programs of `compileAccumulated` that run inside it accumulate their gradients and send nothing; the next one outside it
   * exchanges the sum and updates.
   *
   * As torch's no_sync; all ranks call it. `fn` may be asynchronous: await what this returns at once, as until then a run that does not begin in
   * `fn` itself is refused. `fn` must not run a step that updates.
   */
  noSync<R>(fn: () => R): R {
    checkBody('noSync', fn)
    this.#refuseExact('noSync', 'runs add no gradients up without an update')
    return withoutSync(this.#exchange, fn)
  }

  /**
   * Returns a function to await after each step. Every `everySteps`-th call compares the parameters of all ranks by hash, computed on the device.
   *
   * All ranks call both functions, after compiling their steps. Each step gathers the other ranks' parameters again, which repairs bits that a
   * rank corrupted once: only `everySteps: 1` is sure to detect them. A rank that keeps computing wrong bits is found at the next comparison.
   * Different settings, such as learning rates, leave the parameters equal; each step compares those automatically.
   * cost: that of `ReplicaCheck`. errors: `graph.misuse` before a step is compiled; the function's: `train.diverged`, naming the step and the ranks.
   */
  async verifySync(options: VerifySyncOptions = {}): Promise<() => Promise<void>> {
    const { everySteps = 50, runtime } = checkOptions('verifySync', options, {
      everySteps: true,
      runtime: true,
    })
    checkNumber('verifySync', 'everySteps', everySteps, isCount, 'a whole number above 0')
    const { exact } = this.#exchange
    if (exact) {
      exact.compiled
      return everyStep(everySteps, (step) => exact.compare(step))
    }
    const programs = [...this.#exchange.compiling.programs.values()]
    const buckets = new Set(
      programs.flatMap(({ prepared }) => prepared.updates.map(({ update }) => update.bucket)),
    )
    if (buckets.size === 0) {
      throw new TabringError(
        'graph.misuse',
        'verifySync: no step that updates this model has been compiled. Compile it first.',
      )
    }
    const check = await ReplicaCheck.create(runtime, [...buckets])
    return everyStep(everySteps, (step) => check.compare(this.#group, step))
  }

  /** errors: `graph.misuse` for a trainable parameter that came later than the wrapping: each rank would train it alone. */
  #refuseNew(): void {
    const known = new Set(this.#exchange.parameters)
    for (const [name, parameter] of this.module.namedParameters())
      if (parameter.requiresGrad && !known.has(parameter))
        throw new TabringError(
          'graph.misuse',
          `DistributedDataParallel: parameter "${name}" was not in the model when it was wrapped, so that each rank would train it alone. Wrap the model after it was changed.`,
        )
  }

  /** errors: `graph.misuse` where the model is wrapped with exact. */
  #refuseExact(where: string, why: string): void {
    if (!this.#exchange.exact) return
    throw new TabringError(
      'graph.misuse',
      `${where}: the model is wrapped with exact, in which ${why}. Wrap it without exact, or do without ${where}.`,
    )
  }

  /**
   * Runs `fn`, in which ranks may run different numbers of steps; resolves with its result when `fn` has finished on all ranks.
   *
   * As torch's Join around a loop. A rank whose `fn` has finished takes part in the others' steps without samples: it adds zeros, updates its
   * slices, and copies buffers and optimizer settings from the lowest rank that still has batches. Gradients and returned losses are sums over
   * the ranks that have batches, with their usual weights; `divideByInitialWorldSize: false` scales the weights so that they add up to 1.
   *
   * `fn` must not call anything else that all ranks must call together, such as `optimizer.stateDict()`. An error of `fn` is thrown at once; the
   * other ranks then wait until the group ends.
   * cost: 12 bytes per rank and a wait for all ranks before each step; once a rank has no batch, also the optimizer's settings. errors:
   * `graph.misuse` with `throwOnEarlyTermination`, on all ranks; the group's.
   */
  async join<R>(fn: () => Promise<R>, options: JoinOptions = {}): Promise<R> {
    checkBody('join', fn)
    checkJoinOptions(options)
    this.#refuseExact('join', 'a rank without rows runs its steps with count 0')
    const exchange = this.#exchange
    if (options.enable === false || exchange.size === 1) return fn()
    if (exchange.robust) {
      throw new TabringError(
        'graph.misuse',
        'join: ranks without batches would count as gradients of 0 with the options aggregation and trust. Give all ranks the same number of batches.',
      )
    }
    if (exchange.uneven) {
      throw new TabringError(
        'graph.misuse',
        'join: called inside another join. Use join only for the outer loop.',
      )
    }
    await this.ready
    const uneven = new RingUnevenInputs(this.#group, exchange, options)
    exchange.uneven = uneven
    try {
      const result = await fn()
      await uneven.shadowOthers()
      return result
    } finally {
      exchange.uneven = undefined
    }
  }

  /**
   * Registers `hook(state, bucket)`, which reduces each bucket of gradients over the ranks instead of averaging it. Use the same hook on all ranks.
   *
   * As torch's register_comm_hook: `bucket.buffer()` holds this rank's gradients, and the result is used unchanged. Call it once per model, before
   * training; a single rank runs the hook too. Parameters are always gathered exactly, so ranks stay equal to the bit even if the hook is lossy.
   * cost: with one rank, gradients go to the host and back, which they do not without a hook. errors: `graph.misuse` for a second hook, and with
   * one rank after a step has been compiled.
   */
  registerCommHook<State>(state: State, hook: CommHook<State>): void {
    this.#refuseExact('registerCommHook', 'whole numbers are summed, and no hook sees them')
    if (this.#exchange.reducer !== mean) {
      throw new TabringError(
        'graph.misuse',
        this.#exchange.robust
          ? 'registerCommHook: this model reduces gradients by its options aggregation and trust. Remove them, or the hook.'
          : 'registerCommHook: this model already has a hook. Combine the two in one function.',
      )
    }
    if (typeof hook !== 'function') {
      throw new TabringError(
        'graph.misuse',
        `registerCommHook: hook must be a function (state, bucket), got ${typeof hook}. Pass the state first, then the hook.`,
      )
    }
    if (this.#exchange.size === 1 && this.#exchange.compiling.hasBegun) {
      throw new TabringError(
        'graph.misuse',
        'registerCommHook: a step of this model has been compiled already, and keeps its gradients on the device. Register the hook first.',
      )
    }
    if (state instanceof HookState)
      state.bind({ group: this.#group, parameters: this.#exchange.parameters })
    this.#exchange.reducer = hookReducer((bucket) => hook(state, bucket))
  }
}

/** errors: a TypeError for what is no module, `graph.misuse` for one that nothing is to be learned in, as in PyTorch. */
function checkModule(module: Module): void {
  if (!(module instanceof Module)) {
    throw new ArgumentTypeError(
      `DistributedDataParallel: expected a module, got ${kindOf(module)}. Pass the module first.`,
    )
  }
  if (module.parameters().some((parameter) => parameter.requiresGrad)) return
  throw new TabringError(
    'graph.misuse',
    'DistributedDataParallel: no parameter of this module requires a gradient. Use the module without wrapping it.',
  )
}

function checkDdpOptions(options: DistributedDataParallelOptions): void {
  const name = 'DistributedDataParallel'
  checkOptions(name, options, {
    processGroup: true,
    deviceIds: true,
    outputDevice: true,
    bucketCapMb: true,
    firstBucketMb: true,
    gradientAsBucketView: 'flag',
    broadcastBuffers: 'flag',
    findUnusedParameters: 'flag',
    overlap: 'flag',
    averageOutputs: 'flag',
    staticGraph: 'flag',
    aggregation: true,
    trust: true,
    onLeftOut: 'function',
    exact: true,
  })
  const isSize = (mb: number) => mb > 0
  checkNumber(name, 'bucketCapMb', options.bucketCapMb, isSize, 'above 0')
  checkNumber(name, 'firstBucketMb', options.firstBucketMb, isSize, 'above 0')
  checkChoice(name, 'aggregation', options.aggregation, aggregations)
  checkChoice(name, 'trust', options.trust, trusts)
  const { exact, onLeftOut } = options
  const needed = 'left out without aggregation or trust, which would call it'
  checkArgument(
    name,
    'onLeftOut',
    onLeftOut,
    onLeftOut === undefined || mayLeaveOut(options),
    needed,
  )
  const isExact = exact === undefined || typeof exact === 'boolean' || isRecord(exact)
  checkArgument(name, 'exact', exact, isExact, 'true, false or { virtualWorkers, clipNorm }')
}

/** A function that calls `compare` with its number in each `everySteps`-th call. */
function everyStep(everySteps: number, compare: (step: number) => Promise<void>) {
  let step = 0
  return async () => {
    step += 1
    if (step % everySteps === 0) await compare(step)
  }
}

/** errors: a TypeError, naming the method, for what cannot be called. */
const checkBody = (where: string, fn: unknown): void =>
  checkArgument(where, 'fn', fn, typeof fn === 'function', 'a function')

function checkJoinOptions(options: JoinOptions): void {
  checkOptions('join', options, {
    divideByInitialWorldSize: 'flag',
    throwOnEarlyTermination: 'flag',
    enable: 'flag',
  })
}

refusePythonNames(DistributedDataParallel, {}, true)
