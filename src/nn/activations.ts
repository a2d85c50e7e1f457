import * as functions from '../graph/functions/activations.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { checkChoice, checkNumber, checkOptions, isNoNan } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

/** Leaky ReLU as a module. Activation modules have no parameters. */

export class LeakyReLU extends Module {
  readonly #negativeSlope: number
  constructor(negativeSlope = 0.01) {
    super()
    checkNumber('LeakyReLU', 'negativeSlope', negativeSlope, isNoNan, 'a number')
    this.#negativeSlope = negativeSlope
    showSettings(this, { negativeSlope })
  }
  forward(x: Tensor): Tensor {
    return functions.leakyRelu(x, this.#negativeSlope)
  }
}

export class GELU extends Module {
  readonly #approximate: 'none' | 'tanh'
  constructor(options: { approximate?: 'none' | 'tanh' } = {}) {
    super()
    const { approximate = 'none' } = checkOptions('GELU', options, { approximate: true })
    checkChoice('GELU', 'approximate', approximate, ['none', 'tanh'])
    this.#approximate = approximate
    showSettings(this, { approximate })
  }
  forward(x: Tensor): Tensor {
    return functions.gelu(x, this.#approximate)
  }
}

export class SiLU extends Module {
  forward(x: Tensor): Tensor {
    return functions.silu(x)
  }
}

export class Sigmoid extends Module {
  forward(x: Tensor): Tensor {
    return functions.sigmoid(x)
  }
}

export class Tanh extends Module {
  forward(x: Tensor): Tensor {
    return functions.tanh(x)
  }
}

export class Softplus extends Module {
  readonly #beta: number
  readonly #threshold: number
  constructor(beta = 1, threshold = 20) {
    super()
    checkNumber('Softplus', 'beta', beta, isNoNan, 'a number')
    checkNumber('Softplus', 'threshold', threshold, isNoNan, 'a number')
    this.#beta = beta
    this.#threshold = threshold
    showSettings(this, { beta, threshold })
  }
  forward(x: Tensor): Tensor {
    return functions.softplus(x, this.#beta, this.#threshold)
  }
}

function checkDim(where: string, dim: number): number {
  checkNumber(where, 'dim', dim, Number.isInteger, 'a dimension', true)
  return dim
}

export class Softmax extends Module {
  readonly #dim: number
  constructor(dim: number) {
    super()
    this.#dim = checkDim('Softmax', dim)
    showSettings(this, { dim })
  }
  forward(x: Tensor): Tensor {
    return functions.softmax(x, this.#dim)
  }
}

export class LogSoftmax extends Module {
  readonly #dim: number
  constructor(dim: number) {
    super()
    this.#dim = checkDim('LogSoftmax', dim)
    showSettings(this, { dim })
  }
  forward(x: Tensor): Tensor {
    return functions.logSoftmax(x, this.#dim)
  }
}

for (const layer of [LeakyReLU, GELU, SiLU, Sigmoid, Tanh, Softplus, Softmax, LogSoftmax])
  countArguments(layer)
