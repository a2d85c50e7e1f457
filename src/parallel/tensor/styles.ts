import type { Parameter } from '../../graph/trace/parameter.ts'
import { Tensor } from '../../graph/trace/tensor.ts'
import { activeTrace, isTracing, type Trace } from '../../graph/trace/trace.ts'
import { Conv1D } from '../../nn/gpt.ts'
import { Linear } from '../../nn/layers.ts'
import type { Module } from '../../nn/module.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { withArticle } from '../../util/with-article.ts'
import { holdPart } from '../mesh/hold-part.ts'
import { type Cut, SplitParameter } from './split-parameter.ts'
import { copyToRanks, sumOverRanks } from './sums.ts'

/** How `parallelizeModule` divides a layer. */
export interface ParallelStyle {
  /** @internal */
  apply(layer: Layer): Promise<void>
}

/** A layer with a matrix and, perhaps, a bias. */
export interface Layer {
  readonly path: string
  readonly module: Module
  readonly group: CollectiveGroup
}

export interface ColwiseParallelOptions {
  /**
   * Into how many equal parts the output features fall, of which each rank gets a piece: 3 for queries, keys and values in one projection.
   * Default: what the layer says of itself, as that of a `gpt` does, else 1.
   */
  readonly blocks?: number
}

/** Divides a linear layer's output features over the ranks. Each reads the whole input, and has its part of the output. */
export class ColwiseParallel implements ParallelStyle {
  readonly #blocks: number | undefined

  constructor(options: ColwiseParallelOptions = {}) {
    const { blocks } = checkOptions('ColwiseParallel', options, { blocks: true })
    checkNumber('ColwiseParallel', 'blocks', blocks ?? 1, isCount, 'a whole number above 0')
    this.#blocks = blocks
  }

  /** @internal */
  async apply(layer: Layer): Promise<void> {
    const { module, group, path } = layer
    const { weight, bias, outputAxis } = matrixOf(layer)
    const own = module instanceof Conv1D ? module.blocks : 1
    const blocks = this.#blocks ?? own
    if (own > 1 && blocks !== own) {
      throw new TabringError(
        'graph.misuse',
        `parallelizeModule: the output of "${clipped(path)}" has ${own} blocks, got blocks ${blocks}. Omit blocks.`,
      )
    }
    const cutAt = (axis: number): Cut => ({ axis, blocks })
    await split(layer, 'weight', weight, cutAt(outputAxis))
    if (bias) await split(layer, 'bias', bias, cutAt(0))
    module.registerForwardPreHook((_, [x, ...others]) => {
      refusePart(path, x)
      return [copyToRanks(x as Tensor, group), ...others]
    })
  }
}

/** Divides a linear layer's input features over the ranks. Each reads its part of the input; their sum, on all ranks, is the output. */
export class RowwiseParallel implements ParallelStyle {
  constructor(options: Readonly<Record<string, never>> = {}) {
    checkOptions('RowwiseParallel', options, {})
  }

  /** @internal */
  async apply(layer: Layer): Promise<void> {
    const { module, group, path } = layer
    const { weight, bias, outputAxis } = matrixOf(layer)
    const features = weight.shape[1 - outputAxis]
    await split(layer, 'weight', weight, { axis: 1 - outputAxis, blocks: 1 })
    /** The forward under way, which adds no bias: it is added to the sum, once. */
    let open: Trace | undefined
    if (bias)
      holdPart(module, 'bias', () =>
        open && isTracing() && activeTrace('forward') === open ? undefined : bias,
      )
    module.registerForwardPreHook((_, [x]) => {
      refuseOtherInput(path, x, features, group.size)
      open = activeTrace('forward')
      return undefined
    })
    module.registerForwardHook((_, __, output: Tensor) => {
      open = undefined
      const sum = sumOverRanks(output, group)
      return bias ? sum.add(bias) : sum
    })
  }
}

/** errors: `graph.misuse` for a layer without a matrix, or with one that cannot be divided. */
function matrixOf({ path, module }: Layer) {
  if ('weight_orig' in module) {
    throw new TabringError(
      'graph.misuse',
      `parallelizeModule: the weight of "${clipped(path)}" is normalized by spectralNorm, which needs all of it. Omit "${clipped(path)}" and the layer that it is paired with from the plan.`,
    )
  }
  if (module instanceof Linear) return { weight: module.weight, bias: module.bias, outputAxis: 0 }
  if (module instanceof Conv1D) return { weight: module.weight, bias: module.bias, outputAxis: 1 }
  throw new TabringError(
    'graph.misuse',
    `parallelizeModule: "${clipped(path)}" is ${withArticle(module.constructor.name)}; only linear layers can be divided. Name the Linear layers in it.`,
  )
}

const inputError = (path: string, style: string, problem: string) =>
  new TabringError('graph.misuse', `"${clipped(path)}" is divided by ${style}, ${problem}`)

/** errors: `graph.misuse` where a ColwiseParallel layer's input is itself a part. */
function refusePart(path: string, x: unknown): void {
  if (!(x instanceof Tensor) || !activeTrace('forward').divided.has(x.value)) return
  throw inputError(
    path,
    'ColwiseParallel',
    'but its input is a part of another such layer. Give this one RowwiseParallel in the plan of parallelizeModule, or put a RowwiseParallel layer between the two.',
  )
}

/** errors: `graph.misuse` where a RowwiseParallel layer's input is whole, or divided otherwise than the layer. */
function refuseOtherInput(path: string, x: unknown, features: number, ranks: number): void {
  if (!(x instanceof Tensor)) return
  const { divided } = activeTrace('forward')
  const refuse = (problem: string) => inputError(path, 'RowwiseParallel', problem)
  const last = x.shape.length - 1
  if (!divided.has(x.value)) {
    if (x.shape[last] !== features || ranks === 1) return
    throw refuse(
      `so each rank reads ${features / ranks} of ${features} input features, but its input is whole. Give the layer before it ColwiseParallel in the plan of parallelizeModule, or omit "${clipped(path)}" from the plan.`,
    )
  }
  const at = divided.axisOf(x.value)
  if (!at || (at.axis === last && at.span === x.shape[last])) return
  throw refuse(
    at.axis === last
      ? `but its input has ${x.shape[last] / at.span} blocks, of each of which a rank has a part. Take the blocks apart before, or give the ColwiseParallel layer one block.`
      : `but its input is divided along axis ${at.axis}, not the last. Transpose it back before.`,
  )
}

/** Puts this rank's slice where the module has the parameter. errors: `graph.misuse` where ranks cannot have equal slices. */
async function split(
  { path, module, group }: Layer,
  name: 'weight' | 'bias',
  parameter: Parameter,
  cut: Cut,
): Promise<void> {
  const shares = cut.blocks * group.size
  const features = parameter.shape[cut.axis]
  if (parameter.sharedBy ?? parameter.replicatedBy) {
    throw new TabringError(
      'graph.misuse',
      `parallelizeModule: ranks share "${path}.${name}" already. Call parallelizeModule first, and name each layer once.`,
    )
  }
  if (features % shares !== 0) {
    const each = cut.blocks > 1 ? ` in ${cut.blocks} blocks` : ''
    throw new TabringError(
      'graph.misuse',
      `parallelizeModule: "${clipped(path)}" has ${features} features${each}, which ${group.size} ranks cannot divide equally. Choose a multiple of ${shares}.`,
    )
  }
  const slice = new SplitParameter(parameter, await parameter.read(), group, cut)
  parameter.giveWayTo('parallelizeModule')
  holdPart(module, name, () => slice)
}
