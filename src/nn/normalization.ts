import { groupNorm, layerNorm, rmsNorm } from '../graph/functions/normalization.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { checkEps, checkFlags, checkNumber, checkOptions, isCount } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { checkCount, type Shape } from '../util/shape.ts'
import { checkSizes } from './check-sizes.ts'
import { filled } from './init.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

/** errors: `config.invalid` unless it is a size or an array of them. */
function asShape(where: string, size: number | Shape): Shape {
  const shape: Shape = [size].flat()
  for (const normalizedShape of shape) checkSizes(where, { normalizedShape })
  checkCount(where, shape, 'normalizedShape')
  return shape
}

export interface LayerNormOptions {
  /** Added to the variance; default 1e-5. */
  eps?: number
  /** True if there are weight and bias; default true. */
  elementwiseAffine?: boolean
  /** True if there is a bias in addition to the weight; default true. */
  bias?: boolean
}

/** Layer normalisation over the last axes. shape: [..., *normalizedShape] -> the same */
export class LayerNorm extends Module {
  readonly weight: Parameter | undefined
  readonly bias: Parameter | undefined
  readonly #shape: Shape
  readonly #eps: number

  constructor(normalizedShape: number | Shape, options: LayerNormOptions = {}) {
    super()
    checkOptions('LayerNorm', options, { eps: true, elementwiseAffine: true, bias: true })
    checkEps('LayerNorm', options.eps)
    checkFlags('LayerNorm', options, 'elementwiseAffine', 'bias')
    this.#shape = asShape('LayerNorm', normalizedShape)
    this.#eps = options.eps ?? 1e-5
    showSettings(this, { normalizedShape: this.#shape, eps: this.#eps })
    const isAffine = options.elementwiseAffine ?? true
    this.weight = isAffine ? filled(this.#shape, 1) : undefined
    this.bias = isAffine && options.bias !== false ? filled(this.#shape, 0) : undefined
  }

  forward(x: Tensor): Tensor {
    this.noteParts()
    return layerNorm(x, this.#shape, this.weight, this.bias, this.#eps)
  }
}

/** RMS normalisation over the last axes. shape: [..., *normalizedShape] -> the same */
export class RMSNorm extends Module {
  readonly weight: Parameter | undefined
  readonly #shape: Shape
  readonly #eps: number | undefined

  constructor(
    normalizedShape: number | Shape,
    options: { eps?: number; elementwiseAffine?: boolean } = {},
  ) {
    super()
    checkOptions('RMSNorm', options, { eps: true, elementwiseAffine: true })
    checkEps('RMSNorm', options.eps)
    checkFlags('RMSNorm', options, 'elementwiseAffine')
    this.#shape = asShape('RMSNorm', normalizedShape)
    this.#eps = options.eps
    showSettings(this, { normalizedShape: this.#shape, eps: this.#eps })
    this.weight = options.elementwiseAffine === false ? undefined : filled(this.#shape, 1)
  }

  forward(x: Tensor): Tensor {
    this.noteParts()
    return rmsNorm(x, this.#shape, this.weight, this.#eps)
  }
}

/** Group normalisation. shape: [N, numChannels, ...] -> the same */
export class GroupNorm extends Module {
  readonly weight: Parameter | undefined
  readonly bias: Parameter | undefined
  readonly #groups: number
  readonly #eps: number

  constructor(
    numGroups: number,
    numChannels: number,
    options: { eps?: number; affine?: boolean } = {},
  ) {
    super()
    checkOptions('GroupNorm', options, { eps: true, affine: true })
    checkEps('GroupNorm', options.eps)
    checkFlags('GroupNorm', options, 'affine')
    checkSizes('GroupNorm', { numChannels })
    const isDivisor = (count: number) => isCount(count) && numChannels % count === 0
    const range = `a divisor of ${numChannels} channels`
    checkNumber('GroupNorm', 'numGroups', numGroups, isDivisor, range, true)
    this.#groups = numGroups
    this.#eps = options.eps ?? 1e-5
    showSettings(this, { numGroups, numChannels, eps: this.#eps })
    const isAffine = options.affine ?? true
    this.weight = isAffine ? filled([numChannels], 1) : undefined
    this.bias = isAffine ? filled([numChannels], 0) : undefined
  }

  forward(x: Tensor): Tensor {
    this.noteParts()
    return groupNorm(x, this.#groups, this.weight, this.bias, this.#eps)
  }
}

for (const layer of [LayerNorm, RMSNorm, GroupNorm]) countArguments(layer)
