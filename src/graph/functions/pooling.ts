import { avgPool2d as avgPool2dOp } from '../../kernels/avg-pool2d/avg-pool2d.ts'
import { maxPool2d as maxPool2dOp } from '../../kernels/max-pool2d/max-pool2d.ts'
import { calledAs } from '../../util/called-as.ts'
import { ShapeError } from '../../util/errors.ts'
import {
  checkFlags,
  checkNumber,
  checkOptions,
  isCount,
  type OptionNames,
} from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import { emit, emitAll, mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { type Pair, pair } from './pair.ts'
import { asBatch } from './unbatched.ts'

/** Options common to all pooling functions, which are named as in torch.nn.functional. The batch axis may be omitted. */

export interface PoolOptions<Size = Pair> {
  /** Default: the kernel. */
  stride?: Size
  padding?: Size
}

export interface MaxPoolOptions<Size = Pair> extends PoolOptions<Size> {
  /** Distance between neighbouring pixels of a window; default 1. */
  dilation?: Size
  /** Includes a last window that extends beyond the image; default false. */
  ceilMode?: boolean
}

export interface AvgPoolOptions<Size = Pair> extends PoolOptions<Size> {
  /** Includes a last window that extends beyond the image; default false. */
  ceilMode?: boolean
  /** True if padding counts in the divisor of the mean; default true. */
  countIncludePad?: boolean
}

export const maxPoolOptions: OptionNames<MaxPoolOptions> = {
  stride: true,
  padding: true,
  dilation: true,
  ceilMode: true,
}

export const avgPoolOptions: OptionNames<AvgPoolOptions> = {
  stride: true,
  padding: true,
  ceilMode: true,
  countIncludePad: true,
}

/** Results are stored as x is. */
const storedAs = ({ dtype }: Tensor) => (dtype === 'f16' ? { half: true } : {})

/** Largest values and their positions (i32) in the image or row, counted row by row. */
export type PooledWithIndices = [output: Tensor, indices: Tensor]

/**
 * Returns the largest value of each window; with `returnIndices` also its position.
 *
 * shape: x[N, C, H, W] -> [N, C, OH, OW]; of equal values the first in row-major order wins.
 */
export function maxPool2d(
  x: Tensor,
  kernel: Pair,
  options?: MaxPoolOptions & { returnIndices?: false },
): Tensor
export function maxPool2d(
  x: Tensor,
  kernel: Pair,
  options: MaxPoolOptions & { returnIndices: true },
): PooledWithIndices
export function maxPool2d(
  x: Tensor,
  kernel: Pair,
  options: MaxPoolOptions & { returnIndices?: boolean } = {},
): Tensor | PooledWithIndices {
  mustBeTensor('maxPool2d', { x })
  checkOptions('maxPool2d', options, { ...maxPoolOptions, returnIndices: true })
  checkFlags('maxPool2d', options, 'ceilMode', 'returnIndices')
  const dilation = pair('maxPool2d', 'dilation', options.dilation ?? 1)
  const attrs = {
    ...storedAs(x),
    kernel: pair('maxPool2d', 'kernel', kernel),
    stride: pair('maxPool2d', 'stride', options.stride ?? kernel),
    padding: pair('maxPool2d', 'padding', options.padding ?? 0),
    ...(dilation.some((d) => d !== 1) && { dilation }),
    ...(options.ceilMode && { ceilMode: true }),
  }
  const [y, indices] = asBatch(4, x, (images) => emitAll(maxPool2dOp, [images], attrs))
  return options.returnIndices ? [y, indices] : y
}

/** Returns the mean of each window. shape: x[N, C, H, W] -> [N, C, OH, OW] */
export function avgPool2d(x: Tensor, kernel: Pair, options: AvgPoolOptions = {}): Tensor {
  mustBeTensor('avgPool2d', { x })
  checkOptions('avgPool2d', options, avgPoolOptions)
  checkFlags('avgPool2d', options, 'ceilMode', 'countIncludePad')
  const attrs = {
    ...storedAs(x),
    kernel: pair('avgPool2d', 'kernel', kernel),
    stride: pair('avgPool2d', 'stride', options.stride ?? kernel),
    padding: pair('avgPool2d', 'padding', options.padding ?? 0),
    ceilMode: options.ceilMode ?? false,
    countIncludePad: options.countIncludePad ?? true,
  }
  return asBatch(4, x, (images) => emit(avgPool2dOp, [images], attrs))
}

/**
 * Returns the mean of each of `outputSize` windows that divide the image evenly; null keeps a size. shape: x[N, C, H, W] -> [N, C, OH, OW]
 */
export function adaptiveAvgPool2d(
  x: Tensor,
  outputSize: number | readonly [number | null, number | null],
): Tensor {
  mustBeTensor('adaptiveAvgPool2d', { x })
  checkOutputSize('adaptiveAvgPool2d', outputSize, true)
  const [rows, columns = rows] = [outputSize].flat()
  return asBatch(4, x, (images) => {
    const [, , height, width] = images.shape
    const size: [number, number] = [rows ?? height, columns ?? width]
    const attrs = { ...storedAs(x), outputSize: size }
    return emit(avgPool2dOp, [images], attrs, 'adaptiveAvgPool2d')
  })
}

/** Returns the largest value of each window, like `maxPool2d` on images one row high. shape: x[N, C, L] -> [N, C, OL] */
export function maxPool1d(
  x: Tensor,
  kernel: number,
  options?: MaxPoolOptions<number> & { returnIndices?: false },
): Tensor
export function maxPool1d(
  x: Tensor,
  kernel: number,
  options: MaxPoolOptions<number> & { returnIndices: true },
): PooledWithIndices
export function maxPool1d(
  x: Tensor,
  kernel: number,
  options: MaxPoolOptions<number> & { returnIndices?: boolean } = {},
): Tensor | PooledWithIndices {
  checkOptions('maxPool1d', options, { ...maxPoolOptions, returnIndices: true })
  checkFlags('maxPool1d', options, 'ceilMode', 'returnIndices')
  const { dilation = 1, ceilMode, returnIndices } = options
  const [y, indices] = alongRows('maxPool1d', x, (image) =>
    calledAs('maxPool1d', 'maxPool2d', () =>
      maxPool2d(image, [1, kernel], {
        ...inRows(kernel, options),
        dilation: [1, dilation],
        ceilMode,
        returnIndices: true,
      }),
    ),
  )
  return returnIndices ? [y, indices] : y
}

/** Returns the mean of each window. shape: x[N, C, L] -> [N, C, OL] */
export function avgPool1d(x: Tensor, kernel: number, options: AvgPoolOptions<number> = {}): Tensor {
  checkOptions('avgPool1d', options, avgPoolOptions)
  checkFlags('avgPool1d', options, 'ceilMode', 'countIncludePad')
  const [y] = alongRows('avgPool1d', x, (image) => [
    calledAs('avgPool1d', 'avgPool2d', () =>
      avgPool2d(image, [1, kernel], { ...options, ...inRows(kernel, options) }),
    ),
  ])
  return y
}

/** Returns the mean of windows that divide the row evenly. shape: x[N, C, L] -> [N, C, outputSize] */
export function adaptiveAvgPool1d(x: Tensor, outputSize: number): Tensor {
  checkOutputSize('adaptiveAvgPool1d', outputSize, false)
  const [y] = alongRows('adaptiveAvgPool1d', x, (image) => [
    calledAs('adaptiveAvgPool1d', 'adaptiveAvgPool2d', () =>
      adaptiveAvgPool2d(image, [1, outputSize]),
    ),
  ])
  return y
}

/** errors: `config.invalid` unless it is a whole number above 0, or, where `isPair`, a pair of them, or of nulls. */
export function checkOutputSize(where: string, outputSize: unknown, isPair: boolean): void {
  const areTwo = isPair && Array.isArray(outputSize) && outputSize.length === 2
  const sizes = areTwo ? outputSize.filter((size) => size !== null) : [outputSize]
  const range = `a whole number above 0${isPair ? ', or a pair of them or of nulls' : ''}`
  for (const size of sizes) checkNumber(where, 'outputSize', size, isCount, range, true)
}

const inRows = (
  kernel: number,
  { stride = kernel, padding = 0 }: PoolOptions<number>,
): { stride: [number, number]; padding: [number, number] } => ({
  stride: [1, stride],
  padding: [0, padding],
})

function alongRows(name: string, x: Tensor, pool: (image: Tensor) => Tensor[]): Tensor[] {
  mustBeTensor(name, { x })
  if (x.shape.length === 2) return asBatch(3, x, (rows) => alongRows(name, rows, pool))
  if (x.shape.length !== 3) {
    throw new ShapeError(
      'shape.mismatch',
      `${name}: x must have 3 dimensions, got ${formatShape(x.shape)}. Reshape it.`,
    )
  }
  const [N, C, L] = x.shape
  return pool(x.reshape([N, C, 1, L])).map((y) => y.reshape([N, C, y.shape[3]]))
}
