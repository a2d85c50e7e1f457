import type { Pair } from '../graph/functions/pair.ts'
import {
  type AvgPoolOptions,
  adaptiveAvgPool1d,
  adaptiveAvgPool2d,
  avgPool1d,
  avgPool2d,
  avgPoolOptions,
  checkOutputSize,
  type MaxPoolOptions,
  maxPool1d,
  maxPool2d,
  maxPoolOptions,
  type PooledWithIndices,
} from '../graph/functions/pooling.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { checkFlags, checkOptions } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { checkKernel, checkWindow } from './check-sizes.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

/** The largest value of each window; `withIndices` also returns its position. shape: [N, C, H, W] -> [N, C, OH, OW] */
export class MaxPool2d extends Module {
  readonly #kernel: Pair
  readonly #options: MaxPoolOptions

  constructor(kernelSize: Pair, options: MaxPoolOptions = {}) {
    super()
    checkKernel(new.target.name, kernelSize, true)
    this.#kernel = kernelSize
    this.#options = { ...checkOptions('MaxPool2d', options, maxPoolOptions) }
    checkWindow('MaxPool2d', options, true)
    checkFlags('MaxPool2d', options, 'ceilMode')
    showSettings(this, { kernelSize, stride: kernelSize, padding: 0, ...options })
  }

  forward(x: Tensor): Tensor {
    return maxPool2d(x, this.#kernel, this.#options)
  }

  protected override get entryPoints(): readonly string[] {
    return ['forward', 'withIndices']
  }

  /** Returns what PyTorch's module returns with return_indices. */
  withIndices(x: Tensor): PooledWithIndices {
    return maxPool2d(x, this.#kernel, { ...this.#options, returnIndices: true })
  }
}

/** The largest value of each window; `withIndices` also returns its position. shape: [N, C, L] -> [N, C, OL] */
export class MaxPool1d extends Module {
  readonly #kernel: number
  readonly #options: MaxPoolOptions<number>

  constructor(kernelSize: number, options: MaxPoolOptions<number> = {}) {
    super()
    checkKernel(new.target.name, kernelSize, false)
    this.#kernel = kernelSize
    this.#options = { ...checkOptions('MaxPool1d', options, maxPoolOptions) }
    checkWindow('MaxPool1d', options, false)
    checkFlags('MaxPool1d', options, 'ceilMode')
    showSettings(this, { kernelSize, stride: kernelSize, padding: 0, ...options })
  }

  forward(x: Tensor): Tensor {
    return maxPool1d(x, this.#kernel, this.#options)
  }

  protected override get entryPoints(): readonly string[] {
    return ['forward', 'withIndices']
  }

  /** Returns what PyTorch's module returns with return_indices. */
  withIndices(x: Tensor): PooledWithIndices {
    return maxPool1d(x, this.#kernel, { ...this.#options, returnIndices: true })
  }
}

/** The mean of each window. shape: [N, C, H, W] -> [N, C, OH, OW] */
export class AvgPool2d extends Module {
  readonly #kernel: Pair
  readonly #options: AvgPoolOptions

  constructor(kernelSize: Pair, options: AvgPoolOptions = {}) {
    super()
    checkKernel(new.target.name, kernelSize, true)
    this.#kernel = kernelSize
    this.#options = { ...checkOptions('AvgPool2d', options, avgPoolOptions) }
    checkWindow('AvgPool2d', options, true)
    checkFlags('AvgPool2d', options, 'ceilMode', 'countIncludePad')
    showSettings(this, { kernelSize, stride: kernelSize, padding: 0, ...options })
  }

  forward(x: Tensor): Tensor {
    return avgPool2d(x, this.#kernel, this.#options)
  }
}

/** The mean of each window. shape: [N, C, L] -> [N, C, OL] */
export class AvgPool1d extends Module {
  readonly #kernel: number
  readonly #options: AvgPoolOptions<number>

  constructor(kernelSize: number, options: AvgPoolOptions<number> = {}) {
    super()
    checkKernel(new.target.name, kernelSize, false)
    this.#kernel = kernelSize
    this.#options = { ...checkOptions('AvgPool1d', options, avgPoolOptions) }
    checkWindow('AvgPool1d', options, false)
    checkFlags('AvgPool1d', options, 'ceilMode', 'countIncludePad')
    showSettings(this, { kernelSize, stride: kernelSize, padding: 0, ...options })
  }

  forward(x: Tensor): Tensor {
    return avgPool1d(x, this.#kernel, this.#options)
  }
}

/** The mean of windows that divide the image evenly; null keeps a size. shape: [N, C, H, W] -> [N, C, ...outputSize] */
export class AdaptiveAvgPool2d extends Module {
  readonly #outputSize: number | readonly [number | null, number | null]

  constructor(outputSize: number | readonly [number | null, number | null]) {
    super()
    checkOutputSize('AdaptiveAvgPool2d', outputSize, true)
    this.#outputSize = outputSize
    showSettings(this, { outputSize })
  }

  forward(x: Tensor): Tensor {
    return adaptiveAvgPool2d(x, this.#outputSize)
  }
}

/** The mean of windows that divide the row evenly. shape: [N, C, L] -> [N, C, outputSize] */
export class AdaptiveAvgPool1d extends Module {
  readonly #outputSize: number

  constructor(outputSize: number) {
    super()
    checkOutputSize('AdaptiveAvgPool1d', outputSize, false)
    this.#outputSize = outputSize
    showSettings(this, { outputSize })
  }

  forward(x: Tensor): Tensor {
    return adaptiveAvgPool1d(x, this.#outputSize)
  }
}

for (const layer of [
  MaxPool2d,
  MaxPool1d,
  AvgPool2d,
  AvgPool1d,
  AdaptiveAvgPool2d,
  AdaptiveAvgPool1d,
])
  countArguments(layer)
