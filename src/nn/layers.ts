import { linear, relu } from '../graph/functions/linear.ts'
import { flatten } from '../graph/functions/shape.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import { activeTrace } from '../graph/trace/trace.ts'
import { clipped } from '../util/clipped.ts'
import { ShapeError, TabringError } from '../util/errors.ts'
import { checkFlag, checkNumber, checkOptions } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { formatShape } from '../util/shape.ts'
import { checkSizes } from './check-sizes.ts'
import { fanInUniform } from './init.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

/** y = x W^T + b. shape: [.., inFeatures] -> [.., outFeatures] */
export class Linear extends Module {
  declare readonly inFeatures: number
  declare readonly outFeatures: number
  readonly weight: Parameter
  readonly bias: Parameter | undefined

  constructor(inFeatures: number, outFeatures: number, options: { bias?: boolean } = {}) {
    super()
    checkOptions('Linear', options, { bias: true })
    checkFlag('Linear', 'bias', options.bias)
    checkSizes('Linear', { inFeatures, outFeatures })
    showSettings(this, { inFeatures, outFeatures })
    this.weight = fanInUniform([outFeatures, inFeatures], inFeatures)
    this.bias = options.bias === false ? undefined : fanInUniform([outFeatures], inFeatures)
  }

  forward(x: Tensor): Tensor {
    mustBeTensor('Linear', { x, weight: this.weight })
    const [, features] = this.weight.shape
    const last = x.shape.at(-1)
    if (last !== undefined && last !== features) {
      const path = this.weight.name?.replace(/\.?weight$/, '')
      const problem = `Linear${path ? ` "${clipped(path)}"` : ''}: expected ${features} input features, got ${last} in x${formatShape(x.shape)}.`
      if (activeTrace('Linear').divided.has(x.value))
        throw new TabringError(
          'graph.misuse',
          `${problem} The input is a part of a layer that ColwiseParallel divides: give this layer RowwiseParallel in the plan of parallelizeModule, or omit the other.`,
        )
      throw new ShapeError(
        'shape.mismatch',
        `${problem} Correct inFeatures, or the shape of the input.`,
      )
    }
    return linear(x, this.weight, this.bias)
  }
}

export class ReLU extends Module {
  forward(x: Tensor): Tensor {
    return relu(x)
  }
}

/** Makes one dimension of those from `startDim` to `endDim`: by default of all except the first. */
export class Flatten extends Module {
  readonly #range: readonly [number, number]

  constructor(startDim = 1, endDim = -1) {
    super()
    checkNumber('Flatten', 'startDim', startDim, Number.isInteger, 'a dimension')
    checkNumber('Flatten', 'endDim', endDim, Number.isInteger, 'a dimension')
    this.#range = [startDim, endDim]
    showSettings(this, { startDim, endDim })
  }

  forward(x: Tensor): Tensor {
    return flatten(x, ...this.#range)
  }
}

for (const layer of [Linear, ReLU, Flatten]) countArguments(layer)
