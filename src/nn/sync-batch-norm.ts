import { sampleCount } from '../graph/functions/linear.ts'
import { syncBatchNorm } from '../graph/functions/sync-batch-norm.ts'
import type { RankGroup } from '../graph/trace/exchange.ts'
import type { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import { activeTrace, type Trace } from '../graph/trace/trace.ts'
import { TabringError } from '../util/errors.ts'
import { isPlain } from '../util/kind-of.ts'
import { checkArgument } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { BatchNorm, type BatchNormLayerOptions } from './batch-norm.ts'
import { ModuleDict } from './containers.ts'
import { checkModule, Module, ModuleSequence } from './module.ts'

export interface SyncBatchNormOptions extends BatchNormLayerOptions {
  /** Ranks whose samples count, including this one; default: all ranks of a model in `DistributedDataParallel`, else this one alone. */
  processGroup?: RankGroup
}

/**
 * Batch normalization over the samples of all ranks, weighted by their number, in training inside `DistributedDataParallel`, and with a
 * `processGroup` inside `fullyShard` and `replicate`; elsewhere over one rank. Like torch.nn.SyncBatchNorm, over the ranks of the wrapped
 * model or of `processGroup`.
 *
 * Rows from the step scalar `count` on are excluded, so shares may be uneven, and a rank may have none. `detectAnomaly`, which a single
 * rank may use, normalizes by the samples of that rank.
 * shape: [N, C, ...] -> the same
 * cost: each layer stops the device once in forward and once in backward until all ranks have arrived.
 */
export class SyncBatchNorm extends BatchNorm {
  /** Replaces each batch normalization in `module` by a `SyncBatchNorm`; same as `convertSyncBatchnorm`. */
  static convert<M extends Module>(module: M, processGroup?: RankGroup): M | SyncBatchNorm {
    return SyncBatchNorm.convertSyncBatchnorm(module, processGroup)
  }

  /**
   * Replaces each batch normalization in `module` by a `SyncBatchNorm` with its parameters and buffers, and returns `module`; for a batch
   * normalization itself, returns the new one.
   *
   * `processGroup`: ranks whose samples count; default: all ranks of the wrapped model. Call it before wrapping the model and creating the
   * optimizer. Modules in `#private` fields cannot be seen and stay unchanged.
   */
  static convertSyncBatchnorm<M extends Module>(
    module: M,
    processGroup?: RankGroup,
  ): M | SyncBatchNorm {
    checkModule('convertSyncBatchnorm', module)
    return convertAll(module, new Map(), processGroup) as M | SyncBatchNorm
  }

  readonly processGroup: RankGroup | undefined

  constructor(numFeatures: number, options: SyncBatchNormOptions = {}) {
    checkArgument('SyncBatchNorm', 'options', options, isPlain(options), 'a plain object')
    const { processGroup, ...others } = options
    super(numFeatures, others)
    checkArgument(
      'SyncBatchNorm',
      'processGroup',
      processGroup,
      processGroup === undefined || isRankGroup(processGroup),
      'what newGroup() returned on a rank in it',
    )
    this.processGroup = processGroup
  }

  override forward(x: Tensor): Tensor {
    mustBeTensor('SyncBatchNorm', { x })
    const trace = activeTrace('forward')
    const { forwarded, syncPoints } = trace
    const { running, momentum, eps, processGroup } = this
    const { rank, size } = processGroup ?? forwarded ?? { rank: 0, size: 1 }
    if (!this.training || size === 1) return super.forward(x)
    if (!syncPoints) {
      trace.whenTraced.push(() => mustNotSync(trace))
      return super.forward(x)
    }
    const group = processGroup ? syncPoints.numberOf(processGroup) : 0
    const options = { running, momentum, eps, count: sampleCount() }
    return syncBatchNorm(x, this.scale, this.shift, { rank, size, group }, options)
  }

  protected get ranks() {
    return [2, 3, 4, 5]
  }
}

/** errors: `graph.misuse` for a step in which ranks synchronize after all, but not yet where the layer ran. */
function mustNotSync({ groups }: Trace): void {
  if (!groups) return
  throw new TabringError(
    'graph.misuse',
    'SyncBatchNorm: it runs before the first layer that ranks share, so it would normalize by one rank. Call fullyShard or replicate for the whole model too.',
  )
}

/** Fields that the new layer takes over from the old one. */
interface Taken {
  training: boolean
  weight: Parameter | undefined
  bias: Parameter | undefined
  runningMean: ModuleBuffer | undefined
  runningVar: ModuleBuffer | undefined
  numBatchesTracked: ModuleBuffer | undefined
}

const isRankGroup = (group: unknown): boolean =>
  typeof group === 'object' && group !== null && 'ranks' in group && Array.isArray(group.ranks)

function convertOne(layer: BatchNorm, processGroup: RankGroup | undefined): SyncBatchNorm {
  const { eps, momentum, weight, bias, runningMean, runningVar, numBatchesTracked } = layer
  const made = new SyncBatchNorm(layer.numFeatures, {
    eps,
    momentum,
    affine: weight !== undefined,
    trackRunningStats: runningMean !== undefined,
    processGroup,
  })
  const taken: Taken = made
  taken.training = layer.training
  taken.weight = weight
  taken.bias = bias
  if (runningMean) taken.runningMean = made.registerBuffer('runningMean', runningMean)
  if (runningVar) taken.runningVar = made.registerBuffer('runningVar', runningVar)
  if (numBatchesTracked) {
    taken.numBatchesTracked = made.registerBuffer('numBatchesTracked', numBatchesTracked)
  }
  return made
}

/** What stands for a module from now on; one that two places share stays shared. */
function convertAll(
  module: Module,
  done: Map<Module, Module>,
  processGroup: RankGroup | undefined,
): Module {
  const known = done.get(module)
  if (known) return known
  const isPlain = module instanceof BatchNorm && !(module instanceof SyncBatchNorm)
  const result = isPlain ? convertOne(module, processGroup) : module
  done.set(module, result)
  if (isPlain) return result
  if (module instanceof ModuleSequence) {
    ;[...module].forEach((child: Module, i) => {
      module.set(i, convertAll(child, done, processGroup))
    })
    return module
  }
  if (module instanceof ModuleDict) {
    for (const [name, child] of [...module.entries()])
      module.set(name, convertAll(child, done, processGroup))
    return module
  }
  const fields = module as unknown as Record<string, unknown>
  for (const [name, child] of Object.entries(fields)) {
    if (child instanceof Module) fields[name] = convertAll(child, done, processGroup)
  }
  return module
}

countArguments(SyncBatchNorm)
