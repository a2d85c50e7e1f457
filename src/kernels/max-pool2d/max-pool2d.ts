import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape, sameShape, tensorType } from '../../util/shape.ts'
import { applyEpilogue, epilogueOf } from '../conv2d/epilogue.ts'
import { checkEpilogue, checkImages, checkWindow, windowCount } from '../conv2d/geometry.ts'
import { eachFloat } from '../elements.ts'
import { storedAs } from '../half.ts'
import { floatElement } from '../half-bindings.ts'
import { gradientOfOutput } from '../map/map.ts'
import { defineOp, type HalfAttrs, type Op, type OpCall } from '../op.ts'
import { reads, writes } from '../shader.ts'
import type { Step } from '../steps.ts'
import { maxPool2dGradReference, maxPool2dReference, type PoolSizes } from './max-pool2d.ref.ts'
import forwardWgsl from './max-pool2d.wgsl?raw'
import gradWgsl from './max-pool2d-grad.wgsl?raw'
import { blockPoolGrad, blocksMakeWords, gradTerms, maxUnrolled, unrolledPool } from './unrolled.ts'

export interface MaxPoolAttrs extends HalfAttrs {
  readonly kernel: readonly [number, number]
  readonly stride: readonly [number, number]
  readonly padding: readonly [number, number]
  /** Distance of a window's neighbouring pixels; default 1. */
  readonly dilation?: readonly [number, number]
  /** True if a last window that hangs over the image counts too; default false. */
  readonly ceilMode?: boolean
}

export interface MaxPoolGradAttrs extends MaxPoolAttrs {
  /** Shape of x. */
  readonly inputShape: Shape
  /** Chain at the store: input 0 is the sum, inputs 1.. broadcast to dx. */
  readonly epilogue: readonly Step[]
}

const isUndilated = ({ dilation }: MaxPoolAttrs) =>
  dilation === undefined || dilation.every((d) => d === 1)

/** Windows along one axis. In ceil mode the last one must begin inside the image or the padding before it. */
function countWindows(
  size: number,
  span: number,
  stride: number,
  padding: number,
  ceilMode: boolean,
): number {
  if (!ceilMode) return windowCount(size, span, stride, padding)
  const count = Math.ceil((size + 2 * padding - span) / stride) + 1
  return (count - 1) * stride >= size + padding ? count - 1 : count
}

/** Returns whether a window that begins in the padding has no pixel of the image between there and its first tap beyond it. */
function stepsOver(
  size: number,
  count: number,
  stride: number,
  padding: number,
  dilation: number,
): boolean {
  for (let begin = -padding, o = 0; begin < 0 && o < count; begin += stride, o++) {
    if (begin + dilation * Math.ceil(-begin / dilation) >= size) return true
  }
  return false
}

/** errors: `shape.unsupported` where no window fits, padding passes half the kernel, or a window would hold padding alone. */
function poolSizes(op: string, x: Shape, attrs: MaxPoolAttrs): PoolSizes {
  const { kernel, stride, padding, dilation = [1, 1], ceilMode = false } = attrs
  checkWindow(op, kernel, stride, padding)
  const [N, C, H, W] = x
  const [EH, EW] = kernel.map((taps, axis) => dilation[axis] * (taps - 1) + 1)
  const OH = countWindows(H, EH, stride[0], padding[0], ceilMode)
  const OW = countWindows(W, EW, stride[1], padding[1], ceilMode)
  const isDilation = dilation.length === 2 && dilation.every((d) => Number.isInteger(d) && d >= 1)
  // After the other conditions, without which it would look at windows without end.
  const isEmpty = () =>
    [OH, OW].some((count, axis) =>
      stepsOver(x[2 + axis], count, stride[axis], padding[axis], dilation[axis]),
    )
  if (
    !isDilation ||
    OH < 1 ||
    OW < 1 ||
    padding.some((p, axis) => p * 2 > kernel[axis]) ||
    isEmpty()
  ) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: the window must fit into the padded image and contain a pixel of it, and padding must be at most half the kernel, got x${formatShape(x)}, kernel ${formatShape(kernel)}, padding ${formatShape(padding)}, dilation ${formatShape(dilation)}. Use a smaller window.`,
    )
  }
  return {
    planes: N * C,
    H,
    W,
    OH,
    OW,
    KH: kernel[0],
    KW: kernel[1],
    SH: stride[0],
    SW: stride[1],
    PH: padding[0],
    PW: padding[1],
    DH: dilation[0],
    DW: dilation[1],
    EH,
    EW,
  }
}

const isUnrolled = (attrs: MaxPoolAttrs) =>
  isUndilated(attrs) && attrs.kernel[0] * attrs.kernel[1] <= maxUnrolled

const forwardSizes = ({ inputs: [x], attrs }: OpCall<MaxPoolAttrs>) =>
  poolSizes('maxPool2d', x.shape, attrs)

/** y = x's maximum in each window, and where it was: y [N,C,OH,OW], index i32 of the same shape. */
export const maxPool2d: Op<MaxPoolAttrs> = defineOp<MaxPoolAttrs>({
  name: 'maxPool2d',
  infer([x], attrs) {
    checkImages('maxPool2d', 'x', x)
    const { OH, OW } = poolSizes('maxPool2d', x.shape, attrs)
    const shape = [x.shape[0], x.shape[1], OH, OW]
    return [tensorType(shape, attrs.half ? 'f16' : 'f32'), tensorType(shape, 'i32')]
  },
  takesHalf: true,
  givesHalf: () => true,
  variants: [
    {
      name: 'naive',
      lower(call) {
        const [x] = call.inputs
        const { planes: _, ...constants } = forwardSizes(call)
        return {
          dispatches: eachFloat({
            label: `maxPool2d ${constants.KH}x${constants.KW}`,
            bindings: [reads('x', { in: 0 }, floatElement(x)), writes('index', { out: 1 }, 'i32')],
            output: { name: 'y', type: call.outputs[0] },
            constants,
            functions: forwardWgsl,
          }),
        }
      },
    },
    {
      name: 'unrolled',
      when: ({ attrs }) => isUnrolled(attrs),
      lower: (call) => ({ dispatches: unrolledPool(forwardSizes(call), call) }),
    },
  ],
  preferred: ({ attrs }) => (isUnrolled(attrs) ? 'unrolled' : 'naive'),
  gradient(context) {
    const dy = context.needs(0) ? gradientOfOutput(context) : undefined
    if (!dy) return []
    const { half: _, ...window } = context.attrs
    const [{ type }] = context.inputs
    return context.emit(maxPool2dGrad, [dy, context.outputs[1]], {
      ...window,
      inputShape: type.shape,
      epilogue: [],
      ...(type.dtype === 'f16' && { half: true }),
    })
  },
  reference([x], { inputs, attrs }) {
    const [y, index] = maxPool2dReference(x, poolSizes('maxPool2d', inputs[0].shape, attrs))
    return [storedAs(attrs, y), index]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a maximum is one of its inputs' },
  cases: [
    {
      name: 'f16, overlapping, padded, an odd number of windows',
      inputs: [tensorType([1, 3, 5, 5], 'f16')],
      attrs: { kernel: [3, 3], stride: [2, 2], padding: [1, 1], half: true },
    },
    {
      name: 'one element',
      inputs: [tensorType([1, 1, 1, 1])],
      attrs: { kernel: [1, 1], stride: [1, 1], padding: [0, 0] },
    },
    {
      name: 'MNIST layer 1, 2 images',
      inputs: [tensorType([2, 16, 28, 28])],
      attrs: { kernel: [2, 2], stride: [2, 2], padding: [0, 0] },
    },
    {
      name: 'overlapping, padded, ties',
      inputs: [tensorType([3, 2, 9, 7])],
      attrs: { kernel: [3, 3], stride: [2, 2], padding: [1, 1] },
      fill: 'ties',
    },
    {
      name: 'not square, nothing divides, ties',
      inputs: [tensorType([1, 3, 11, 13])],
      attrs: { kernel: [4, 3], stride: [3, 2], padding: [2, 0] },
      fill: 'ties',
    },
    {
      name: 'stride above the kernel',
      inputs: [tensorType([2, 1, 8, 8])],
      attrs: { kernel: [2, 2], stride: [3, 3], padding: [0, 0] },
    },
    {
      name: 'ceil mode, windows that hang over, ties',
      inputs: [tensorType([2, 2, 8, 6])],
      attrs: { kernel: [3, 2], stride: [2, 3], padding: [0, 0], ceilMode: true },
      fill: 'ties',
    },
    {
      name: 'dilated and padded, ties',
      inputs: [tensorType([2, 2, 9, 8])],
      attrs: { kernel: [3, 2], stride: [2, 1], padding: [1, 1], dilation: [2, 3] },
      fill: 'ties',
    },
    {
      name: 'dilated, ceil mode',
      inputs: [tensorType([1, 3, 10, 7])],
      attrs: { kernel: [2, 3], stride: [3, 2], padding: [1, 1], dilation: [3, 2], ceilMode: true },
    },
    {
      name: 'an empty batch',
      inputs: [tensorType([0, 3, 8, 8])],
      attrs: { kernel: [2, 2], stride: [2, 2], padding: [0, 0] },
    },
    {
      name: 'huge',
      inputs: [tensorType([2, 3, 7, 5])],
      attrs: { kernel: [3, 2], stride: [1, 1], padding: [1, 1] },
      fill: 'huge',
    },
  ],
})

const gradSizes = (attrs: MaxPoolGradAttrs) => poolSizes('maxPool2dGrad', attrs.inputShape, attrs)

const isInBlocks = (attrs: MaxPoolGradAttrs) =>
  isUndilated(attrs) &&
  gradTerms(gradSizes(attrs)) <= maxUnrolled &&
  (!attrs.half || blocksMakeWords(gradSizes(attrs)))

/** dx [N,C,H,W] of maxPool2d from dy and index [N,C,OH,OW], then the epilogue. */
export const maxPool2dGrad: Op<MaxPoolGradAttrs> = defineOp<MaxPoolGradAttrs>({
  name: 'maxPool2dGrad',
  takesHalf: true,
  givesHalf: () => true,
  infer([dy, index, ...operands], attrs) {
    const dx = tensorType([...attrs.inputShape], attrs.half ? 'f16' : 'f32')
    checkImages('maxPool2dGrad', 'x', dx)
    const { OH, OW } = gradSizes(attrs)
    const expected = [dx.shape[0], dx.shape[1], OH, OW]
    if (
      !sameShape(dy.shape, expected) ||
      !sameShape(index.shape, expected) ||
      (dy.dtype !== 'f32' && dy.dtype !== 'f16') ||
      index.dtype !== 'i32'
    ) {
      throw new ShapeError(
        'shape.mismatch',
        `maxPool2dGrad: dy and index must be f32 (or f16) and i32${formatShape(expected)}, got ${dy.dtype}${formatShape(dy.shape)} and ${index.dtype}${formatShape(index.shape)}. Pass both outputs' gradients and indices unchanged.`,
      )
    }
    checkEpilogue('maxPool2dGrad', dx.shape, operands)
    return [dx]
  },
  takesEpilogue: true,
  variants: [
    {
      name: 'naive',
      lower({ inputs, outputs: [dx], attrs }) {
        const { planes: _, ...constants } = gradSizes(attrs)
        const epilogue = epilogueOf(attrs.epilogue, inputs, 2, dx)
        return {
          dispatches: eachFloat({
            label: `maxPool2dGrad ${constants.KH}x${constants.KW}`,
            bindings: [
              reads('dy', { in: 0 }, floatElement(inputs[0])),
              reads('index', { in: 1 }, 'i32'),
              ...epilogue.bindings,
            ],
            output: { name: 'dx', type: dx },
            constants: { ...constants, C: dx.shape[1] },
            functions: `${epilogue.wgsl}\n\n${gradWgsl}`,
          }),
        }
      },
    },
    {
      name: 'blocks',
      when: ({ attrs }) => isInBlocks(attrs),
      lower: (call) => ({
        dispatches: blockPoolGrad(gradSizes(call.attrs), call.attrs.epilogue, call),
      }),
    },
  ],
  preferred: ({ attrs }) => (isInBlocks(attrs) ? 'blocks' : 'naive'),
  reference([dy, index, ...operands], { inputs, outputs, attrs }) {
    const dx = maxPool2dGradReference(dy, index, gradSizes(attrs))
    const finished = applyEpilogue(attrs.epilogue, dx, outputs[0].shape, operands, inputs.slice(2))
    return [storedAs(attrs, finished)]
  },
  tolerance: {
    absolute: 1e-6,
    relative: 1e-6,
    because: 'a sum of at most KH*KW numbers in f32',
  },
  cases: [
    {
      name: 'f16, overlapping, padded, an odd number of pixels',
      inputs: [tensorType([1, 3, 3, 3], 'f16'), tensorType([1, 3, 3, 3], 'i32')],
      attrs: {
        kernel: [3, 3],
        stride: [2, 2],
        padding: [1, 1],
        inputShape: [1, 3, 5, 5],
        epilogue: [],
        half: true,
      },
      integerBelow: { 1: 25 },
    },
    {
      name: 'f16, blocks that make words, relu gradient linked in, rows that no window holds',
      inputs: [
        tensorType([4, 5, 1, 1]),
        tensorType([4, 5, 1, 1], 'i32'),
        tensorType([4, 5, 3, 2], 'f16'),
      ],
      attrs: {
        kernel: [2, 2],
        stride: [2, 2],
        padding: [0, 0],
        inputShape: [4, 5, 3, 2],
        epilogue: [{ fn: 'reluGrad', args: [{ input: 0 }, { input: 1 }] }],
        half: true,
      },
      integerBelow: { 1: 4 },
    },
    {
      name: 'one element',
      inputs: [tensorType([1, 1, 1, 1]), tensorType([1, 1, 1, 1], 'i32')],
      attrs: {
        kernel: [1, 1],
        stride: [1, 1],
        padding: [0, 0],
        inputShape: [1, 1, 1, 1],
        epilogue: [],
      },
      integerBelow: { 1: 1 },
    },
    {
      name: 'MNIST layer 2, 2 images, relu gradient linked in',
      inputs: [
        tensorType([2, 32, 7, 7]),
        tensorType([2, 32, 7, 7], 'i32'),
        tensorType([2, 32, 14, 14]),
      ],
      attrs: {
        kernel: [2, 2],
        stride: [2, 2],
        padding: [0, 0],
        inputShape: [2, 32, 14, 14],
        epilogue: [{ fn: 'reluGrad', args: [{ input: 0 }, { input: 1 }] }],
      },
      integerBelow: { 1: 196 },
    },
    {
      name: 'overlapping, padded',
      inputs: [tensorType([3, 2, 2, 2]), tensorType([3, 2, 2, 2], 'i32')],
      attrs: {
        kernel: [3, 3],
        stride: [2, 2],
        padding: [1, 1],
        inputShape: [3, 2, 3, 4],
        epilogue: [],
      },
      integerBelow: { 1: 12 },
      fill: 'ties',
    },
    {
      name: 'overlapping, not square, nothing divides',
      inputs: [tensorType([2, 3, 4, 6]), tensorType([2, 3, 4, 6], 'i32')],
      attrs: {
        kernel: [4, 3],
        stride: [1, 1],
        padding: [2, 1],
        inputShape: [2, 3, 3, 6],
        epilogue: [],
      },
      integerBelow: { 1: 18 },
    },
    {
      name: 'stride above the kernel leaves pixels without gradient',
      inputs: [tensorType([2, 1, 3, 3]), tensorType([2, 1, 3, 3], 'i32')],
      attrs: {
        kernel: [2, 2],
        stride: [3, 3],
        padding: [0, 0],
        inputShape: [2, 1, 8, 8],
        epilogue: [],
      },
      integerBelow: { 1: 64 },
    },
    {
      name: 'ceil mode',
      inputs: [tensorType([2, 2, 4, 2]), tensorType([2, 2, 4, 2], 'i32')],
      attrs: {
        kernel: [3, 2],
        stride: [2, 3],
        padding: [0, 0],
        ceilMode: true,
        inputShape: [2, 2, 8, 5],
        epilogue: [],
      },
      integerBelow: { 1: 40 },
    },
    {
      name: 'an empty batch',
      inputs: [tensorType([0, 3, 4, 4]), tensorType([0, 3, 4, 4], 'i32')],
      attrs: {
        kernel: [2, 2],
        stride: [2, 2],
        padding: [0, 0],
        inputShape: [0, 3, 8, 8],
        epilogue: [],
      },
    },
    {
      name: 'huge',
      inputs: [tensorType([2, 3, 5, 4]), tensorType([2, 3, 5, 4], 'i32')],
      attrs: {
        kernel: [3, 3],
        stride: [1, 1],
        padding: [1, 1],
        inputShape: [2, 3, 5, 4],
        epilogue: [],
      },
      integerBelow: { 1: 20 },
      fill: 'huge',
    },
  ],
})
