import { conv2d, linear, maxPool2d, relu } from '../graph/functions.ts'
import type { Parameter } from '../graph/parameter.ts'
import type { Tensor } from '../graph/tensor.ts'
import { fanInUniform } from './init.ts'
import { Module } from './module.ts'

/** y = x W^T + b. shape: [R, inFeatures] -> [R, outFeatures] */
export class Linear extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined

  constructor(inFeatures: number, outFeatures: number, options: { bias?: boolean } = {}) {
    super()
    this.weight = fanInUniform([outFeatures, inFeatures], inFeatures)
    this.bias = options.bias === false ? undefined : fanInUniform([outFeatures], inFeatures)
  }

  forward(x: Tensor): Tensor {
    return linear(x, this.weight, this.bias)
  }
}

export interface Conv2dOptions {
  stride?: number | readonly [number, number]
  padding?: number | readonly [number, number]
  bias?: boolean
}

/** 2-D cross-correlation. shape: [N, inChannels, H, W] -> [N, outChannels, OH, OW] */
export class Conv2d extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly #options: Conv2dOptions

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number | readonly [number, number],
    options: Conv2dOptions = {},
  ) {
    super()
    const [height, width] = typeof kernelSize === 'number' ? [kernelSize, kernelSize] : kernelSize
    const fanIn = inChannels * height * width
    this.weight = fanInUniform([outChannels, inChannels, height, width], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    this.#options = options
  }

  forward(x: Tensor): Tensor {
    return conv2d(x, this.weight, this.bias, this.#options)
  }
}

/** The largest value of each window. shape: [N, C, H, W] -> [N, C, OH, OW] */
export class MaxPool2d extends Module {
  readonly #kernel: number | readonly [number, number]
  readonly #options: Omit<Conv2dOptions, 'bias'>

  constructor(
    kernelSize: number | readonly [number, number],
    options: Omit<Conv2dOptions, 'bias'> = {},
  ) {
    super()
    this.#kernel = kernelSize
    this.#options = options
  }

  forward(x: Tensor): Tensor {
    return maxPool2d(x, this.#kernel, this.#options)
  }
}

export class ReLU extends Module {
  forward(x: Tensor): Tensor {
    return relu(x)
  }
}

/** Joins all dimensions but the first. */
export class Flatten extends Module {
  forward(x: Tensor): Tensor {
    return x.flatten(1)
  }
}
