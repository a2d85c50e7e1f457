import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape, type TensorType } from '../../util/shape.ts'
import type { HalfAttrs } from '../op.ts'
import { chainShape, type Step } from '../steps.ts'

/**
 * Shape letters of the convolution family, NCHW as in PyTorch:
 * N batch, C input channels, H W input, O output channels, KH KW kernel, OH OW output, G groups.
 */
export interface ConvWindow {
  readonly stride: readonly [number, number]
  /** Zeros above and left of the image, and below and right of it unless `paddingEnd` says otherwise. */
  readonly padding: readonly [number, number]
  /** Zeros below and right of the image. */
  readonly paddingEnd?: readonly [number, number]
  /** Distance of neighbouring taps; default 1. */
  readonly dilation?: readonly [number, number]
  /** Number of groups of channels, each convolved on its own; w is then [O, C / groups, KH, KW]. Default 1. */
  readonly groups?: number
}

export interface ConvAttrs extends ConvWindow, HalfAttrs {
  /** Chain at the store: input 0 is the accumulator, inputs 1.. broadcast to the output. */
  readonly epilogue: readonly Step[]
}

export interface ConvGradInputAttrs extends ConvAttrs {
  /** Shape of x, which dy and w do not determine when the stride is above 1. */
  readonly inputShape: Shape
}

export interface ConvGradWeightAttrs extends ConvWindow {
  readonly kernel: readonly [number, number]
  /** True if db[O], the sum of dy over N, OH and OW, comes along as a second output. */
  readonly rowSums: boolean
}

/** All sizes of one convolution; `SH SW` strides, `PH PW` padding, `DH DW` dilation, `CG OG` channels of one group. */
export interface ConvSizes {
  readonly N: number
  readonly C: number
  readonly H: number
  readonly W: number
  readonly O: number
  readonly KH: number
  readonly KW: number
  readonly OH: number
  readonly OW: number
  readonly SH: number
  readonly SW: number
  readonly PH: number
  readonly PW: number
  readonly DH: number
  readonly DW: number
  readonly G: number
  readonly CG: number
  readonly OG: number
}

/** The window of a convolution, for the ops of its gradient: without the epilogue, and without what is left out. */
export const windowOf = ({
  stride,
  padding,
  paddingEnd,
  dilation,
  groups,
}: ConvWindow): ConvWindow => ({
  stride,
  padding,
  ...(paddingEnd ? { paddingEnd } : {}),
  ...(dilation ? { dilation } : {}),
  ...(groups ? { groups } : {}),
})

/** Number of window positions along one axis: `floor((size + 2 * padding - kernel) / stride) + 1`; below 1 if none fits. */
export const windowCount = (
  size: number,
  kernel: number,
  stride: number,
  padding: number,
): number => Math.floor((size + 2 * padding - kernel) / stride) + 1

/** How many of `columns` one invocation takes in a row: the widest of 4..8 that wastes least, an even number where it stores words of f16. */
export function stripWidth(columns: number, isHalf = false): number {
  if (columns <= 8) return columns
  const padded = (width: number) => Math.ceil(columns / width) * width
  const widths = isHalf ? [8, 6, 4] : [8, 7, 6, 5, 4]
  return widths.reduce((best, next) => (padded(next) < padded(best) ? next : best))
}

/** errors: `shape.unsupported` for strides below 1 or padding below 0. */
export function checkWindow(
  op: string,
  kernel: readonly number[],
  stride: readonly number[],
  padding: readonly number[],
): void {
  const isCount = (min: number) => (value: number) => Number.isInteger(value) && value >= min
  if (
    ![kernel, stride, padding].every((pair) => pair.length === 2) ||
    !kernel.every(isCount(1)) ||
    !stride.every(isCount(1)) ||
    !padding.every(isCount(0))
  ) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: kernel and stride must be two integers of at least 1 and padding two of at least 0, got kernel ${formatShape(kernel)}, stride ${formatShape(stride)}, padding ${formatShape(padding)}. Correct them.`,
    )
  }
}

/** errors: `shape.mismatch` for a rank other than 4 or another dtype, `shape.unsupported` for an empty image. */
export function checkImages(op: string, name: string, type: TensorType): void {
  if (type.shape.length !== 4 || (type.dtype !== 'f32' && type.dtype !== 'f16')) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: ${name} must be f32 or f16 with 4 dimensions, got ${type.dtype}${formatShape(type.shape)}. Reshape it.`,
    )
  }
  if (type.shape.slice(1).some((size) => size < 1)) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: only the first dimension of ${name} may be 0, got ${formatShape(type.shape)}. Check the layers before it.`,
    )
  }
}

/** errors: `shape.mismatch`, `shape.unsupported`. */
export function convSizes(op: string, x: Shape, w: Shape, attrs: ConvWindow): ConvSizes {
  const [N, C, H, W] = x
  const [O, CG, KH, KW] = w
  const { stride, padding, paddingEnd = padding, dilation = [1, 1], groups: G = 1 } = attrs
  checkWindow(op, [KH, KW], stride, padding)
  checkWindow(op, dilation, stride, paddingEnd)
  if (C !== CG * G || O % G !== 0) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: C must agree and O must be a multiple of the groups, got ${C} in x${formatShape(x)} and ${CG}${G === 1 ? '' : ` x ${G} groups`} in weight${formatShape(w)}. Check the layer's channels and groups.`,
    )
  }
  const [DH, DW] = dilation
  const count = (size: number, axis: 0 | 1, kernel: number) =>
    windowCount(size + paddingEnd[axis] - padding[axis], kernel, stride[axis], padding[axis])
  const OH = count(H, 0, DH * (KH - 1) + 1)
  const OW = count(W, 1, DW * (KW - 1) + 1)
  if (OH < 1 || OW < 1 || O < 1) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: the kernel must fit into the padded image, got x${formatShape(x)}, weight${formatShape(w)}, padding ${formatShape(padding)}. Use a smaller kernel or more padding.`,
    )
  }
  const [SH, SW] = stride
  const [PH, PW] = padding
  return { N, C, H, W, O, KH, KW, OH, OW, SH, SW, PH, PW, DH, DW, G, CG, OG: O / G }
}

/** Floating-point operations of a convolution, and of each of its gradients. */
export const convFlops = ({ N, O, OH, OW, CG, KH, KW }: ConvSizes): number =>
  2 * N * O * OH * OW * CG * KH * KW

/** errors: `shape.mismatch` where dy is not the output of a convolution with these sizes. */
export function checkGradientShape(op: string, dy: Shape, expected: Shape): void {
  if (dy.length !== 4 || dy.some((size, axis) => size !== expected[axis])) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: dy must be ${formatShape(expected)}, got ${formatShape(dy)}. Check stride, padding and kernel.`,
    )
  }
}

/** errors: `shape.mismatch` where an epilogue operand does not broadcast to `output`. */
export function checkEpilogue(op: string, output: Shape, operands: readonly TensorType[]): void {
  const joined = chainShape(op, [output, ...operands.map(({ shape }) => shape)])
  if (joined.length !== output.length || joined.some((size, axis) => size !== output[axis])) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: epilogue operands must broadcast to ${formatShape(output)}, got ${operands.map(({ shape }) => formatShape(shape)).join(' and ')}. Reshape them.`,
    )
  }
}
