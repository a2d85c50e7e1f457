import {
  type ConvOptions,
  type ConvTransposeOptions,
  conv1d,
  conv2d,
  convTranspose2d,
} from '../graph/functions/convolution.ts'
import { type Pair, pair } from '../graph/functions/pair.ts'
import type { Parameter } from '../graph/parameter.ts'
import type { Tensor } from '../graph/tensor.ts'
import { checkOptions, type OptionNames } from '../util/options.ts'
import { fanInUniform } from './init.ts'
import { Module } from './module.ts'

interface WithBias {
  /** Default true. */
  bias?: boolean
}

export type Conv1dOptions = ConvOptions<number> & WithBias
export type Conv2dOptions = ConvOptions & WithBias
export type ConvTranspose2dOptions = ConvTransposeOptions & WithBias

const convOptions: OptionNames<Conv2dOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  groups: true,
  bias: true,
}
const transposeOptions: OptionNames<ConvTranspose2dOptions> = {
  ...convOptions,
  outputPadding: true,
}

/** 1-D cross-correlation. shape: [N, inChannels, L] -> [N, outChannels, OL] */
export class Conv1d extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly #options: Omit<Conv1dOptions, 'bias'>

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number,
    options: Conv1dOptions = {},
  ) {
    super()
    checkOptions('Conv1d', options, convOptions)
    const ofGroup = inChannels / (options.groups ?? 1)
    const fanIn = ofGroup * kernelSize
    this.weight = fanInUniform([outChannels, ofGroup, kernelSize], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    const { bias: _, ...others } = options
    this.#options = others
  }

  forward(x: Tensor): Tensor {
    return conv1d(x, this.weight, this.bias, this.#options)
  }
}

/** 2-D cross-correlation. shape: [N, inChannels, H, W] -> [N, outChannels, OH, OW] */
export class Conv2d extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly #options: Omit<Conv2dOptions, 'bias'>

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Pair,
    options: Conv2dOptions = {},
  ) {
    super()
    checkOptions('Conv2d', options, convOptions)
    const [height, width] = pair(kernelSize)
    const ofGroup = inChannels / (options.groups ?? 1)
    const fanIn = ofGroup * height * width
    this.weight = fanInUniform([outChannels, ofGroup, height, width], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    const { bias: _, ...others } = options
    this.#options = others
  }

  forward(x: Tensor): Tensor {
    return conv2d(x, this.weight, this.bias, this.#options)
  }
}

/** The transpose of a 2-D cross-correlation, which enlarges images. shape: [N, inChannels, H, W] -> [N, outChannels, OH, OW] */
export class ConvTranspose2d extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly #options: Omit<ConvTranspose2dOptions, 'bias'>

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Pair,
    options: ConvTranspose2dOptions = {},
  ) {
    super()
    checkOptions('ConvTranspose2d', options, transposeOptions)
    const [height, width] = pair(kernelSize)
    const ofGroup = outChannels / (options.groups ?? 1)
    // PyTorch counts the weight's second dimension as inputs here too.
    const fanIn = ofGroup * height * width
    this.weight = fanInUniform([inChannels, ofGroup, height, width], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    const { bias: _, ...others } = options
    this.#options = others
  }

  forward(x: Tensor): Tensor {
    return convTranspose2d(x, this.weight, this.bias, this.#options)
  }
}
