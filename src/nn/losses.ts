import * as losses from '../graph/functions/losses.ts'
import { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import type { ScalarSlot } from '../kernels/op.ts'
import { checkArgument, type OptionNames } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

/** Losses as modules. None has parameters; class weights are buffers of the state dict, as in torch.nn. */

/** Options common to all loss modules; `forward` takes the number of samples that count, inside the step. */
export type LossLayerOptions = Omit<losses.LossOptions, 'count'>

function bufferOf(
  layer: Module,
  name: string,
  values: readonly number[] | undefined,
): ModuleBuffer | undefined {
  if (values === undefined) return undefined
  const isList = Array.isArray(values) || ArrayBuffer.isView(values)
  const areNumbers = isList && values.length > 0 && Array.from(values).every(Number.isFinite)
  checkArgument(layer.constructor.name, name, values, areNumbers, 'a list of finite numbers')
  return new ModuleBuffer([values.length], Float32Array.from(values))
}

type Loss<Options> = (
  input: Tensor,
  target: Tensor,
  options: Options & { count?: ScalarSlot },
) => Tensor

/** A stateless loss: a function of input and target, with its options. */
class PlainLoss<Options extends { readonly reduction?: string }> extends Module {
  readonly #loss: Loss<Options>
  readonly #options: Options
  constructor(
    loss: Loss<Options>,
    options: Options,
    known: OptionNames<Options>,
    reductions?: readonly string[],
  ) {
    super()
    this.#loss = loss
    this.#options = { ...losses.checkLoss(new.target.name, options, known, reductions) }
    showSettings(this, { reduction: 'mean', ...options })
  }
  /** `count`: number of leading samples that count, a step scalar. */
  forward(input: Tensor, target: Tensor, count?: ScalarSlot): Tensor {
    return this.#loss(input, target, { ...this.#options, count })
  }
}

export class MSELoss extends PlainLoss<LossLayerOptions> {
  constructor(options: LossLayerOptions = {}) {
    super(losses.mseLoss, options, { reduction: true })
  }
}

export class L1Loss extends PlainLoss<LossLayerOptions> {
  constructor(options: LossLayerOptions = {}) {
    super(losses.l1Loss, options, { reduction: true })
  }
}

export class HuberLoss extends PlainLoss<LossLayerOptions & { delta?: number }> {
  constructor(options: LossLayerOptions & { delta?: number } = {}) {
    super(losses.huberLoss, options, { reduction: true, delta: true })
  }
}

export class SmoothL1Loss extends PlainLoss<LossLayerOptions & { beta?: number }> {
  constructor(options: LossLayerOptions & { beta?: number } = {}) {
    super(losses.smoothL1Loss, options, { reduction: true, beta: true })
  }
}

export class BCELoss extends PlainLoss<LossLayerOptions> {
  constructor(options: LossLayerOptions = {}) {
    super(losses.binaryCrossEntropy, options, { reduction: true })
  }
}

export class BCEWithLogitsLoss extends Module {
  readonly posWeight: ModuleBuffer | undefined
  readonly #options: LossLayerOptions
  /** `posWeight`: weight of positive targets, one per entry of the last dimension. */
  constructor(options: LossLayerOptions & { posWeight?: readonly number[] } = {}) {
    super()
    losses.checkLoss('BCEWithLogitsLoss', options, { reduction: true, posWeight: true })
    const { posWeight, ...others } = options
    this.#options = others
    showSettings(this, { reduction: 'mean', ...others })
    this.posWeight = bufferOf(this, 'posWeight', posWeight)
    if (this.posWeight) this.registerBuffer('pos_weight', this.posWeight)
  }
  /** `count`: number of leading samples that count, a step scalar. */
  forward(input: Tensor, target: Tensor, count?: ScalarSlot): Tensor {
    const options = { ...this.#options, posWeight: this.posWeight, count }
    return losses.binaryCrossEntropyWithLogits(input, target, options)
  }
}

export type KLDivOptions = Omit<NonNullable<Parameters<typeof losses.klDiv>[2]>, 'count'>

export class KLDivLoss extends PlainLoss<KLDivOptions> {
  constructor(options: KLDivOptions = {}) {
    super(losses.klDiv, options, { reduction: true, logTarget: true }, losses.klReductions)
  }
}

/** A weight per class; the layer keeps it as a buffer, so it moves and is saved with the layer. */
export type ClassWeights = { readonly weight?: readonly number[] }

export class NLLLoss extends Module {
  readonly weight: ModuleBuffer | undefined
  readonly #options: losses.ClassLossOptions
  constructor(options: Omit<losses.ClassLossOptions, 'weight'> & ClassWeights = {}) {
    super()
    const known = { weight: true, ignoreIndex: true, reduction: true, count: true } as const
    const { weight, ...others } = losses.checkLoss('NLLLoss', options, known)
    this.#options = others
    showSettings(this, { reduction: 'mean', ...others })
    this.weight = bufferOf(this, 'weight', weight)
    if (this.weight) this.registerBuffer('weight', this.weight)
  }
  /** `count`: number of leading samples that count, a step scalar; default: the one in the options. */
  forward(input: Tensor, target: Tensor, count = this.#options.count): Tensor {
    return losses.nllLoss(input, target, { ...this.#options, weight: this.weight, count })
  }
}

export class CrossEntropyLoss extends Module {
  readonly weight: ModuleBuffer | undefined
  readonly #options: losses.CrossEntropyOptions
  constructor(options: Omit<losses.CrossEntropyOptions, 'weight' | 'count'> & ClassWeights = {}) {
    super()
    const known = {
      weight: true,
      ignoreIndex: true,
      reduction: true,
      labelSmoothing: true,
    } as const
    const { weight, ...others } = losses.checkLoss('CrossEntropyLoss', options, known)
    this.#options = others
    showSettings(this, { reduction: 'mean', ...others })
    this.weight = bufferOf(this, 'weight', weight)
    if (this.weight) this.registerBuffer('weight', this.weight)
  }
  /** `count`: number of leading samples that count, a step scalar. */
  forward(input: Tensor, target: Tensor, count?: ScalarSlot): Tensor {
    return losses.crossEntropy(input, target, { ...this.#options, weight: this.weight, count })
  }
}

for (const loss of [PlainLoss, BCEWithLogitsLoss, NLLLoss, CrossEntropyLoss])
  countArguments(loss, { forward: 3 })
