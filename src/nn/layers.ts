import { linear, relu } from '../graph/functions/linear.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { checkOptions } from '../util/options.ts'
import { checkSizes } from './check-sizes.ts'
import { fanInUniform } from './init.ts'
import { Module } from './module.ts'

/** y = x W^T + b. shape: [.., inFeatures] -> [.., outFeatures] */
export class Linear extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined

  constructor(inFeatures: number, outFeatures: number, options: { bias?: boolean } = {}) {
    super()
    checkOptions('Linear', options, { bias: true })
    checkSizes('Linear', { inFeatures, outFeatures })
    this.weight = fanInUniform([outFeatures, inFeatures], inFeatures)
    this.bias = options.bias === false ? undefined : fanInUniform([outFeatures], inFeatures)
  }

  forward(x: Tensor): Tensor {
    return linear(x, this.weight, this.bias)
  }
}

export class ReLU extends Module {
  forward(x: Tensor): Tensor {
    return relu(x)
  }
}

/** Flattens all dimensions except the first. */
export class Flatten extends Module {
  forward(x: Tensor): Tensor {
    return x.flatten(1)
  }
}
