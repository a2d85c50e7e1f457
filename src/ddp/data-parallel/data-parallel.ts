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
import { kindOf } from '../../util/kind-of.ts'
import { checkFlag, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { ReplicaCheck } from '../hashes/replica-check.ts'
import { setupKeys } from '../hooks/collective-keys.ts'
import type { CommHook } from '../hooks/comm-hooks.ts'
import { HookState } from '../hooks/hook-state.ts'
import { bucketCapMbFor } from './bucket-size.ts'
import { checkDevices, missingDevice } from './check-devices.ts'
import { broadcastTensors, checkReplicas } from './check-replicas.ts'
import { RingExchange } from './ring-exchange.ts'
import { type JoinOptions, RingUnevenInputs } from './uneven-inputs.ts'

export interface DistributedDataParallelOptions {
  /** The ranks that train together, all or some (`newGroup`); default: the group of `initProcessGroup`. */
  processGroup?: CollectiveGroup
  /** The one WebGPU device that the module's parameters are on, `[0]` say, as PyTorch's scripts give it; otherwise it is the parameters'. */
  deviceIds?: readonly DeviceSpec[] | null
  /** As `deviceIds`: outputs are where the program is. */
  outputDevice?: DeviceSpec | null
  /**
   * Gradients travel in buckets of at most this many MiB. Default: 1/16, 1/4, 1 or 4, whatever the group's links take in 12 to 48 ms,
   * measured when a group's first model is wrapped; `ddp.bucketCapMb` says what it came to. (PyTorch's 25 is for links of data centres.)
   * More than 2 ranks end with other bits for another size.
   */
  bucketCapMb?: number
  /**
   * The first bucket closes at this many MiB, so that it leaves early; default 1, as in PyTorch, and where the others' size is measured a
   * quarter of that, if it is less. Never more than `bucketCapMb`.
   */
  firstBucketMb?: number
  /** Taken for PyTorch's sake: gradients lie in their buckets anyhow. */
  gradientAsBucketView?: boolean
  /** Whether all ranks take rank 0's buffers, such as running statistics, after each step that changes them; default true. */
  broadcastBuffers?: boolean
  /**
   * Whether parameters may be without a gradient, on some ranks or on all; default false: compiling such a step is an error. One that some
   * ranks use is updated on all; one that none uses keeps its value.
   */
  findUnusedParameters?: boolean
  /**
   * False: a step exchanges nothing before all of its backward has run, to measure what overlap saves; default true. The numbers are the
   * same. On the CPU device it changes nothing: its backward leaves no time to send in.
   */
  overlap?: boolean
  /** Every compiled step is static; as in PyTorch it also means that the parameters without a gradient are known: `findUnusedParameters`. */
  staticGraph?: boolean
}

export interface VerifySyncOptions {
  /** How many steps lie between two comparisons; default 50. */
  every?: number
  /** Where the step was compiled; default: the default device's. */
  runtime?: AnyRuntime
}

/**
 * A module whose copies on all ranks stay equal: gradients are averaged over ranks while backward runs.
 *
 * As torch.nn.parallel.DistributedDataParallel, with one difference: each rank updates its slice of the parameters and gathers the
 * rest, so that ranks with different adapters keep the same bits. Every rank must build the same module and compile the same steps;
 * where a group trains several modules, every rank begins their steps in the same order.
 * Ranks whose loss is a mean over counted samples or class numbers weigh by how many they count, others alike; a run may give another share
 * as the step scalar `gradientWeight`, which must add up to 1 over the ranks. Random masks
 * are those that one rank would draw for the same samples, if all ranks have equally many; else runs give `sampleOffset`.
 * What decides an update (optimizer, learning rates, limits of clipping) is compared too: as a step is compiled, and with each run.
 * errors: options that cannot be: `config.invalid`; a module without a parameter to train: `graph.misuse`. Ranks that differ in parameters, buffers or options: `ready` and compiling reject
 * with `peer.mismatch`; so do runs, on all ranks and before any update, where the optimizers' numbers differ.
 */
export class DistributedDataParallel extends Module {
  readonly module: Module
  /** Resolves when all ranks hold rank 0's parameters and buffers. errors: those of the group; `peer.mismatch` where ranks differ; `gpu.unavailable` for a device that this tab does not have. */
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
      staticGraph = false,
    } = options
    const group = memberGroup('DistributedDataParallel', processGroup)
    this.#group = group
    const parameters = module.parameters()
    const buffers = module.buffers()
    const exchange = new RingExchange(group, {
      parameters,
      firstBucketCapBytes: firstBucketMb && firstBucketMb * 2 ** 20,
      findsUnused: findUnusedParameters || staticGraph,
      overlaps: overlap,
    })
    if (bucketCapMb !== undefined) {
      exchange.capBytes = bucketCapMb * 2 ** 20
      exchange.isCapGiven = true
    }
    for (const parameter of parameters) parameter.exchange = exchange
    for (const buffer of buffers) buffer.exchange = broadcastBuffers ? exchange : undefined
    // How collectives travel is measured, unless the caller has said it.
    const isChosen = group.choice !== defaultChoice
    exchange.isChoiceGiven = isChosen
    const settings = `bucketCapMb ${bucketCapMb ?? 'to be measured'}, firstBucketMb ${firstBucketMb ?? 'by default'}, broadcastBuffers ${broadcastBuffers}, findUnusedParameters ${exchange.findsUnused}, group.choice ${isChosen ? JSON.stringify(group.choice) : 'to be measured'}`
    const [checkKey, , broadcastKey] = setupKeys(group, 3)
    const measure = measureOnce(group, () => setupKeys(group, measuringKeys))
    const settle = async () => {
      const missing = await missingDevice(module)
      if (group.size === 1 && missing) throw missing
      if (group.size > 1) {
        const named = [...module.namedParameters(), ...module.namedBuffers()]
        await checkReplicas(group, settings, named, checkKey, missing)
        await broadcastTensors(group, [...parameters, ...buffers], broadcastKey)
      }
      if (bucketCapMb !== undefined && (isChosen || !group.isFullyLinked)) return
      const links = await measure()
      exchange.capBytes = (bucketCapMb ?? bucketCapMbFor(links)) * 2 ** 20
      if (!isChosen) exchange.choice = links.choice
    }
    this.ready = settle()
    // Compiling a step waits for it too and reports the error there; here it must not count as unhandled.
    this.ready.catch(() => undefined)
    exchange.ready = this.ready
    this.#exchange = exchange
  }

  /** The ranks that train together. */
  get processGroup(): CollectiveGroup {
    return this.#group
  }

  /** The size at which buckets close; undefined until it is measured, before `ready`. units: MiB. */
  get bucketCapMb(): number | undefined {
    const { capBytes } = this.#exchange
    return capBytes === undefined ? undefined : capBytes / 2 ** 20
  }

  forward(x: Tensor, ...others: unknown[]): Tensor {
    const trace = activeTrace('forward')
    trace.forwarded = this.#exchange
    trace.isForwardedToTrain = this.training
    return this.module.forward(x, ...others)
  }

  /**
   * Returns `fn()`; programs of `compileAccumulated` that run inside it add up their gradients and send nothing, the next one that runs
   * outside takes the sum, exchanges and updates.
   *
   * As torch's no_sync, on all ranks alike. `fn` may be asynchronous: await it. Wrong inside: runs that update.
   */
  noSync<R>(fn: () => R): R {
    const exchange = this.#exchange
    const leave = () => {
      exchange.pauses--
    }
    exchange.pauses++
    let result: R
    try {
      result = fn()
    } catch (error) {
      leave()
      throw error
    }
    if (result instanceof Promise) return result.finally(leave) as R
    leave()
    return result
  }

  /**
   * Returns a function to await after each step: every `every`-th call compares what all ranks hold of the parameters, by a hash where they
   * are. All ranks call both alike, after their steps have been compiled.
   *
   * A step gathers what other ranks own anew, so bits that a rank lost once are gone after its next step: only `every: 1` is sure to see
   * them. A rank that keeps making wrong bits is found at the next comparison.
   * Settings that differ, as of a learning rate, leave equal weights: each step compares those by itself.
   * cost: as `ReplicaCheck`. errors: `graph.misuse` before a step is compiled; the function's: `train.diverged`, naming the step and the ranks.
   */
  async verifySync(options: VerifySyncOptions = {}): Promise<() => Promise<void>> {
    const { every = 50, runtime } = checkOptions('verifySync', options, {
      every: true,
      runtime: true,
    })
    checkNumber('verifySync', 'every', every, isCount, 'a whole number above 0')
    const programs = [...this.#exchange.programs.values()]
    const buckets = new Set(
      programs.flatMap(({ prepared }) => prepared.updates.map(({ update }) => update.bucket)),
    )
    if (buckets.size === 0) {
      throw new TabringError(
        'graph.misuse',
        'verifySync: expected a step that updates this model, got none. Compile it first.',
      )
    }
    const check = await ReplicaCheck.create(runtime, [...buckets])
    let step = 0
    return async () => {
      step += 1
      if (step % every === 0) await check.compare(this.#group, step)
    }
  }

  /**
   * Returns what `fn` resolves with, when all ranks' `fn` have ended: ranks may run different numbers of steps in it.
   *
   * As torch's Join around a loop. A rank whose `fn` has ended takes part in the others' steps without samples: it adds zeros, updates its
   * slices and takes buffers, and the optimizer's numbers, from the lowest rank that still has batches. Gradients, and the loss that runs return, are sums over the ranks
   * that have batches, each weighed as ever; with `divideByInitialWorldSize: false` the weights are scaled up to 1.
   * Wrong inside: what else all ranks must call alike, such as `optimizer.stateDict()`. What `fn` throws is thrown here at once; the other
   * ranks then wait until the group ends.
   * cost: 12 bytes a rank and a wait for all of them before each step; where a rank has no batch, also the optimizer's numbers. errors: `graph.misuse` with `throwOnEarlyTermination`, on all ranks;
   * the group's.
   */
  async join<R>(fn: () => Promise<R>, options: JoinOptions = {}): Promise<R> {
    checkJoinOptions(options)
    const exchange = this.#exchange
    if (options.enable === false || exchange.size === 1) return fn()
    if (exchange.uneven) {
      throw new TabringError(
        'graph.misuse',
        'join: expected one join at a time, got one inside another. Join the outer loop alone.',
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
   * Has `hook(state, bucket)` make what all ranks' gradients of a bucket come to, in the place of their mean; on all ranks the same hook.
   *
   * As torch's register_comm_hook, with the same numbers: `bucket.buffer()` has this rank's gradients, and what comes back is used as it is.
   * Once a model, and before it is trained; one rank alone calls it too. Whatever a hook loses, parameters are
   * gathered exactly, so ranks stay equal to the bit.
   * cost: on one rank, gradients go to the host and back, which without a hook they do not. errors: `graph.misuse` for a second one, and on one
   * rank after a step has been compiled.
   */
  registerCommHook<State>(state: State, hook: CommHook<State>): void {
    if (this.#exchange.hook) {
      throw new TabringError(
        'graph.misuse',
        'registerCommHook: expected one hook for a model, got a second one. Wrap one into the other.',
      )
    }
    if (typeof hook !== 'function') {
      throw new TabringError(
        'graph.misuse',
        `registerCommHook: expected a function (state, bucket), got ${typeof hook}. The state comes first.`,
      )
    }
    if (this.#exchange.size === 1 && this.#exchange.hasPrograms) {
      throw new TabringError(
        'graph.misuse',
        'registerCommHook: expected a model of which no step has been compiled, got one whose steps keep their gradients on the device. Register the hook first.',
      )
    }
    if (state instanceof HookState)
      state.bind({ group: this.#group, parameters: this.#exchange.parameters })
    this.#exchange.hook = (bucket) => hook(state, bucket)
  }
}

/** errors: a TypeError for what is no module, `graph.misuse` for one that nothing is to be learned in, as in PyTorch. */
function checkModule(module: Module): void {
  if (!(module instanceof Module)) {
    throw new ArgumentTypeError(
      `DistributedDataParallel: expected a module, got ${kindOf(module)}. The module comes first.`,
    )
  }
  if (module.parameters().some((parameter) => parameter.requiresGrad)) return
  throw new TabringError(
    'graph.misuse',
    'DistributedDataParallel: expected a module with a parameter that requires a gradient, got none. Such a module needs no wrapping: use it as it is.',
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
    gradientAsBucketView: true,
    broadcastBuffers: true,
    findUnusedParameters: true,
    overlap: true,
    staticGraph: true,
  })
  const isSize = (mb: number) => mb > 0
  checkNumber(name, 'bucketCapMb', options.bucketCapMb, isSize, 'above 0')
  checkNumber(name, 'firstBucketMb', options.firstBucketMb, isSize, 'above 0')
  checkFlag(name, 'gradientAsBucketView', options.gradientAsBucketView)
  checkFlag(name, 'broadcastBuffers', options.broadcastBuffers)
  checkFlag(name, 'findUnusedParameters', options.findUnusedParameters)
  checkFlag(name, 'overlap', options.overlap)
  checkFlag(name, 'staticGraph', options.staticGraph)
}

function checkJoinOptions(options: JoinOptions): void {
  checkOptions('join', options, {
    divideByInitialWorldSize: true,
    throwOnEarlyTermination: true,
    enable: true,
  })
  checkFlag('join', 'divideByInitialWorldSize', options.divideByInitialWorldSize)
  checkFlag('join', 'throwOnEarlyTermination', options.throwOnEarlyTermination)
  checkFlag('join', 'enable', options.enable)
}
