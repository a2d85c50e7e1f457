import {
  type ConvOptions,
  type ConvTransposeOptions,
  conv1d,
  conv2d,
  convTranspose2d,
} from '../graph/functions/convolution.ts'
import { type PadMode, pad } from '../graph/functions/pad.ts'
import { type Pair, pair } from '../graph/functions/pair.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { ShapeError } from '../util/errors.ts'
import { checkChoice, checkFlag, checkOptions, type OptionNames } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { formatShape } from '../util/shape.ts'
import { checkGroups, checkKernel, checkWindow } from './check-sizes.ts'
import { fanInUniform } from './init.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

interface WithBias {
  /** Default true. */
  bias?: boolean
}

interface WithPaddingMode {
  /** What the padding holds; default 'zeros'. */
  paddingMode?: 'zeros' | Exclude<PadMode, 'constant'>
}

export type Conv1dOptions = ConvOptions<number> & WithBias & WithPaddingMode
export type Conv2dOptions = ConvOptions & WithBias & WithPaddingMode
export type ConvTranspose2dOptions = ConvTransposeOptions & WithBias

const convOptions: OptionNames<Conv2dOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  groups: true,
  bias: true,
  paddingMode: true,
}
const transposeOptions: OptionNames<ConvTranspose2dOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  groups: true,
  bias: true,
  outputPadding: true,
}

/** (before, after) of one axis, as a convolution with that padding and zeros has it. */
function padsOf(
  padding: number | 'same' | 'valid',
  taps: number,
  dilation: number,
): [number, number] {
  if (padding === 'valid') return [0, 0]
  if (padding !== 'same') return [padding, padding]
  const total = dilation * (taps - 1)
  return [Math.floor(total / 2), Math.ceil(total / 2)]
}

/** errors: `shape.unsupported` for 'same' with a stride; `config.invalid` for other options than a convolution takes. */
function checkConv(where: string, options: Conv1dOptions | Conv2dOptions, isPair: boolean): void {
  checkOptions<object>(where, options, convOptions)
  checkMode(where, options.paddingMode)
  checkFlag(where, 'bias', options.bias)
  const { padding, stride = 1, ...others } = options
  if (typeof padding === 'string') checkChoice(where, 'padding', padding, ['same', 'valid'])
  checkWindow(where, typeof padding === 'string' ? { ...others, stride } : options, isPair)
  if (padding !== 'same' || [stride].flat().every((step) => step === 1)) return
  throw new ShapeError(
    'shape.unsupported',
    `${where}: padding 'same' needs stride 1, got ${formatShape([stride].flat())}. Pass the padding as numbers.`,
  )
}

/** errors: `config.invalid` for a mode that is not known. */
function checkMode(where: string, mode: string | undefined): void {
  const known = ['zeros', 'reflect', 'replicate', 'circular']
  checkChoice(where, 'paddingMode', mode, known)
}

const defaults = { stride: 1, padding: 0, dilation: 1, groups: 1 }

/** 1-D cross-correlation. shape: [N, inChannels, L] -> [N, outChannels, OL] */
export class Conv1d extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly #options: Omit<Conv1dOptions, 'bias' | 'paddingMode'>
  readonly #paddingMode: NonNullable<Conv1dOptions['paddingMode']>

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: number,
    options: Conv1dOptions = {},
  ) {
    super()
    checkConv('Conv1d', options, false)
    checkGroups('Conv1d', inChannels, outChannels, options.groups)
    checkKernel('Conv1d', kernelSize, false)
    const ofGroup = inChannels / (options.groups ?? 1)
    const fanIn = ofGroup * kernelSize
    this.weight = fanInUniform([outChannels, ofGroup, kernelSize], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    const { bias: _, paddingMode = 'zeros', ...others } = options
    this.#options = others
    this.#paddingMode = paddingMode
    const sizes = { inChannels, outChannels, kernelSize }
    showSettings(this, { ...sizes, ...defaults, ...others, paddingMode })
  }

  forward(x: Tensor): Tensor {
    const { padding = 0, dilation = 1 } = this.#options
    const paddingMode = this.#paddingMode
    if (paddingMode === 'zeros') return conv1d(x, this.weight, this.bias, this.#options)
    const padded = pad(x, padsOf(padding, this.weight.shape[2], dilation), paddingMode)
    return conv1d(padded, this.weight, this.bias, { ...this.#options, padding: 0 })
  }
}

/** 2-D cross-correlation. shape: [N, inChannels, H, W] -> [N, outChannels, OH, OW] */
export class Conv2d extends Module {
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly #options: Omit<Conv2dOptions, 'bias' | 'paddingMode'>
  readonly #paddingMode: NonNullable<Conv2dOptions['paddingMode']>

  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Pair,
    options: Conv2dOptions = {},
  ) {
    super()
    checkConv('Conv2d', options, true)
    checkGroups('Conv2d', inChannels, outChannels, options.groups)
    checkKernel('Conv2d', kernelSize, true)
    const [height, width] = pair('Conv2d', 'kernelSize', kernelSize)
    const ofGroup = inChannels / (options.groups ?? 1)
    const fanIn = ofGroup * height * width
    this.weight = fanInUniform([outChannels, ofGroup, height, width], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    const { bias: _, paddingMode = 'zeros', ...others } = options
    this.#options = others
    this.#paddingMode = paddingMode
    const sizes = { inChannels, outChannels, kernelSize }
    showSettings(this, { ...sizes, ...defaults, ...others, paddingMode })
  }

  forward(x: Tensor): Tensor {
    const { padding = 0, dilation = 1 } = this.#options
    const paddingMode = this.#paddingMode
    if (paddingMode === 'zeros') return conv2d(x, this.weight, this.bias, this.#options)
    const [rows, columns] =
      typeof padding === 'string' ? [padding, padding] : pair('Conv2d', 'padding', padding)
    const [, , height, width] = this.weight.shape
    const [dy, dx] = pair('Conv2d', 'dilation', dilation)
    const pads = [...padsOf(columns, width, dx), ...padsOf(rows, height, dy)]
    const padded = pad(x, pads, paddingMode)
    return conv2d(padded, this.weight, this.bias, { ...this.#options, padding: 0 })
  }
}

/** 2-D transposed convolution, which enlarges images. shape: [N, inChannels, H, W] -> [N, outChannels, OH, OW] */
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
    checkWindow('ConvTranspose2d', options, true)
    checkFlag('ConvTranspose2d', 'bias', options.bias)
    checkGroups('ConvTranspose2d', inChannels, outChannels, options.groups)
    checkKernel('ConvTranspose2d', kernelSize, true)
    const [height, width] = pair('ConvTranspose2d', 'kernelSize', kernelSize)
    const ofGroup = outChannels / (options.groups ?? 1)
    // PyTorch counts the weight's second dimension as inputs here too.
    const fanIn = ofGroup * height * width
    this.weight = fanInUniform([inChannels, ofGroup, height, width], fanIn)
    this.bias = options.bias === false ? undefined : fanInUniform([outChannels], fanIn)
    const { bias: _, ...others } = options
    this.#options = others
    const sizes = { inChannels, outChannels, kernelSize }
    showSettings(this, { ...sizes, ...defaults, outputPadding: 0, ...others })
  }

  forward(x: Tensor): Tensor {
    return convTranspose2d(x, this.weight, this.bias, this.#options)
  }
}

for (const layer of [Conv1d, Conv2d, ConvTranspose2d]) countArguments(layer)
