import { convTranspose2d as convTranspose2dOp } from '../../kernels/conv2d/conv-transpose2d.ts'
import { conv2d as conv2dOp } from '../../kernels/conv2d/conv2d.ts'
import { map, singleStep } from '../../kernels/map/map.ts'
import type { Op } from '../../kernels/op.ts'
import { calledAs } from '../../util/called-as.ts'
import { ShapeError } from '../../util/errors.ts'
import { checkOptions } from '../../util/options.ts'
import { formatShape, sameShape } from '../../util/shape.ts'
import { emit, mustBeTensor, type Tensor, toFloat } from '../trace/tensor.ts'
import { activeTrace } from '../trace/trace.ts'
import { pad } from './pad.ts'
import { type Pair, pair } from './pair.ts'
import { asBatch } from './unbatched.ts'

/** Convolutions, named as in torch.nn.functional. */

/** 'valid': no padding. 'same': as many outputs as inputs, at stride 1; an odd number of zeros adds one more at the bottom and right. */
export type ConvPadding<Size> = Size | 'same' | 'valid'

export interface ConvOptions<Size = Pair> {
  stride?: Size
  padding?: ConvPadding<Size>
  /** Distance between neighbouring taps. */
  dilation?: Size
  /** Number of channel groups, each convolved separately; weight is then [O, C / groups, ...]. */
  groups?: number
}

export interface ConvTransposeOptions {
  stride?: Pair
  padding?: Pair
  /**
   * Rows and columns added at the bottom and right, which a strided convolution would not have covered; less than the stride or the
   * dilation.
   */
  outputPadding?: Pair
  dilation?: Pair
  groups?: number
}

const convOptions = { stride: true, padding: true, dilation: true, groups: 'size' } as const

/** Attrs that differ from 1, so that plain calls keep plain attrs. */
const extras = (dilation: readonly [number, number], groups: number) => ({
  ...(dilation.some((d) => d !== 1) ? { dilation } : {}),
  ...(groups === 1 ? {} : { groups }),
})

function paddings(
  padding: ConvPadding<Pair>,
  kernel: readonly [number, number],
  stride: readonly [number, number],
  dilation: readonly [number, number],
): { padding: [number, number]; paddingEnd?: [number, number] } {
  if (padding === 'valid') return { padding: [0, 0] }
  if (padding !== 'same') return { padding: pair('conv2d', 'padding', padding) }
  if (stride.some((s) => s !== 1)) {
    throw new ShapeError(
      'shape.unsupported',
      `conv2d: padding 'same' needs stride 1, got ${formatShape(stride)}. Pass the padding as numbers.`,
    )
  }
  const total = kernel.map((taps, axis) => dilation[axis] * (taps - 1))
  const begin = total.map((zeros) => Math.floor(zeros / 2))
  return {
    padding: [begin[0], begin[1]],
    ...(total.some((zeros) => zeros % 2 !== 0)
      ? { paddingEnd: [total[0] - begin[0], total[1] - begin[1]] }
      : {}),
  }
}

/**
 * The convolution, then the bias [O] as it broadcasts over planes.
 *
 * numerics: under autocast, or of f16 operands, as a product: f32 sums and bias, the result rounded to f16 once.
 */
function convolve<A>(op: Op<A>, x: Tensor, weight: Tensor, bias: Tensor | undefined, attrs: A) {
  const isHalf = activeTrace(op.name).isAutocast || (x.dtype === 'f16' && weight.dtype === 'f16')
  const y = emit(op, isHalf ? [x.half(), weight.half()] : [toFloat(x), toFloat(weight)], attrs)
  if (!bias) return isHalf ? y.half() : y
  if (!sameShape(bias.shape, [y.shape[1]])) {
    throw new ShapeError(
      'shape.mismatch',
      `${op.name}: bias must be [${y.shape[1]}], one number for each output channel, got ${formatShape(bias.shape)}. Reshape it.`,
    )
  }
  const overPlanes = toFloat(bias).reshape([-1, 1, 1])
  return isHalf
    ? emit(map, [y, overPlanes], { steps: singleStep('add', 2), dtype: 'f16' })
    : y.add(overPlanes)
}

/**
 * Returns a 2-D cross-correlation. shape: x[N, C, H, W], weight[O, C / groups, KH, KW], bias[O] -> [N, O, OH, OW]; all convolutions accept
 * x without N.
 */
export function conv2d(
  x: Tensor,
  weight: Tensor,
  bias?: Tensor,
  options: ConvOptions = {},
): Tensor {
  mustBeTensor('conv2d', { x, weight }, { bias })
  checkOptions('conv2d', options, convOptions)
  const stride = pair('conv2d', 'stride', options.stride ?? 1)
  const dilation = pair('conv2d', 'dilation', options.dilation ?? 1)
  const [, , KH, KW] = weight.shape
  const attrs = {
    stride,
    ...paddings(options.padding ?? 0, [KH, KW], stride, dilation),
    ...extras(dilation, options.groups ?? 1),
    epilogue: [],
  }
  return asBatch(4, x, (images) => convolve(conv2dOp, images, weight, bias, attrs))
}

/**
 * Returns a 1-D cross-correlation, computed as a conv2d of images one row high. shape: x[N, C, L], weight[O, C / groups, K], bias[O] -> [N,
 * O, OL]
 */
export function conv1d(
  x: Tensor,
  weight: Tensor,
  bias?: Tensor,
  options: ConvOptions<number> = {},
): Tensor {
  mustBeTensor('conv1d', { x, weight }, { bias })
  checkOptions('conv1d', options, convOptions)
  const { stride = 1, padding = 0, dilation = 1, groups = 1 } = options
  if (x.shape.length === 2) return asBatch(3, x, (rows) => conv1d(rows, weight, bias, options))
  if (x.shape.length !== 3 || weight.shape.length !== 3) {
    throw new ShapeError(
      'shape.mismatch',
      `conv1d: x and weight must have 3 dimensions, got x${formatShape(x.shape)} and weight${formatShape(weight.shape)}. Reshape them.`,
    )
  }
  const [N, C, L] = x.shape
  const [O, CG, K] = weight.shape
  const y = calledAs('conv1d', 'conv2d', () =>
    conv2d(x.reshape([N, C, 1, L]), weight.reshape([O, CG, 1, K]), bias, {
      stride: [1, stride],
      padding: typeof padding === 'number' ? [0, padding] : padding,
      dilation: [1, dilation],
      groups,
    }),
  )
  return y.reshape([N, O, y.shape[3]])
}

/**
 * Returns the transpose of a convolution: the input gradient of a conv2d with the same options.
 *
 * shape: x[N, C, H, W], weight[C, O / groups, KH, KW], bias[O] -> [N, O, OH, OW] with
 * OH = (H - 1) * stride - 2 * padding + dilation * (KH - 1) + outputPadding + 1
 */
export function convTranspose2d(
  x: Tensor,
  weight: Tensor,
  bias?: Tensor,
  options: ConvTransposeOptions = {},
): Tensor {
  mustBeTensor('convTranspose2d', { x, weight }, { bias })
  checkOptions('convTranspose2d', options, { ...convOptions, outputPadding: true })
  if (x.shape.length === 3) {
    return asBatch(4, x, (images) => convTranspose2d(images, weight, bias, options))
  }
  const stride = pair('convTranspose2d', 'stride', options.stride ?? 1)
  const padding = pair('convTranspose2d', 'padding', options.padding ?? 0)
  const outputPadding = pair('convTranspose2d', 'outputPadding', options.outputPadding ?? 0)
  const dilation = pair('convTranspose2d', 'dilation', options.dilation ?? 1)
  const groups = options.groups ?? 1
  if (x.shape.length !== 4 || weight.shape.length !== 4 || x.shape[1] !== weight.shape[0]) {
    throw new ShapeError(
      'shape.mismatch',
      `convTranspose2d: expected x[N, C, H, W] and weight[C, O / groups, KH, KW], got ${formatShape(x.shape)} and ${formatShape(weight.shape)}. Check the layer's input channels.`,
    )
  }
  const max = stride.map((step, axis) => Math.max(step, dilation[axis]))
  if (outputPadding.some((more, axis) => more < 0 || more >= max[axis])) {
    throw new ShapeError(
      'shape.unsupported',
      `convTranspose2d: outputPadding must be at least 0 and below the stride or the dilation, got ${formatShape(outputPadding)} with stride ${formatShape(stride)} and dilation ${formatShape(dilation)}. Correct one of them.`,
    )
  }
  // Output padding of a stride or more equals that of an image with more rows of zeros.
  const [rows, columns] = outputPadding.map((more, axis) => Math.floor(more / stride[axis]))
  const image = rows + columns > 0 ? pad(x, [0, columns, 0, rows]) : x
  const sizeOf = (axis: 0 | 1) =>
    (x.shape[2 + axis] - 1) * stride[axis] -
    2 * padding[axis] +
    dilation[axis] * (weight.shape[2 + axis] - 1) +
    outputPadding[axis] +
    1
  const attrs = {
    stride,
    padding,
    ...extras(dilation, groups),
    inputShape: [x.shape[0], weight.shape[1] * groups, sizeOf(0), sizeOf(1)],
    epilogue: [],
  }
  return calledAs('convTranspose2d', convTranspose2dOp.name, () =>
    convolve(convTranspose2dOp, image, weight, bias, attrs),
  )
}
