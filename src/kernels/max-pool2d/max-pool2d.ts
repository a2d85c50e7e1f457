import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape, sameShape, tensorType } from '../../util/shape.ts'
import { applyEpilogue, epilogueOf } from '../conv2d/epilogue.ts'
import { checkEpilogue, checkImages, checkWindow, windowCount } from '../conv2d/geometry.ts'
import { eachFloat } from '../elements.ts'
import { storedAs } from '../half.ts'
import { floatElement } from '../half-bindings.ts'
import { gradientOfOutput } from '../map/map.ts'
import { singleStep } from '../map/rules/rule.ts'
import { naiveOr } from '../naive-or.ts'
import { type Case, defineOp, type HalfAttrs, type Op, type OpCall } from '../op.ts'
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
  ...naiveOr(
    'unrolled',
    ({ attrs }) => isUnrolled(attrs),
    (call, unrolls) => {
      if (unrolls) return { dispatches: unrolledPool(forwardSizes(call), call) }
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
  ),
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
  cases: windowCases(),
})

type Pair = readonly [number, number]

/** A window on x, of f16 where its attrs have `half`. */
function windowCase(
  name: string,
  x: Shape,
  kernel: Pair,
  stride: Pair,
  padding: Pair,
  { fill, ...more }: Partial<MaxPoolAttrs> & Pick<Case, 'fill'> = {},
): Case<MaxPoolAttrs> {
  const inputs = [tensorType(x, more.half ? 'f16' : 'f32')]
  return { name, inputs, attrs: { kernel, stride, padding, ...more }, fill }
}

function windowCases(): readonly Case<MaxPoolAttrs>[] {
  const ties = { fill: 'ties' } as const
  const ceiled = { ...ties, ceilMode: true }
  const dilated = { ...ties, dilation: [2, 3] } as const
  const both = { dilation: [3, 2], ceilMode: true } as const
  return [
    windowCase('f16, overlapping', [1, 3, 5, 5], [3, 3], [2, 2], [1, 1], { half: true }),
    windowCase('one element', [1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
    windowCase('MNIST layer 1, 2 images', [2, 16, 28, 28], [2, 2], [2, 2], [0, 0]),
    windowCase('overlapping, padded, ties', [3, 2, 9, 7], [3, 3], [2, 2], [1, 1], ties),
    windowCase('nothing divides, ties', [1, 3, 11, 13], [4, 3], [3, 2], [2, 0], ties),
    windowCase('overlapping, nothing divides', [2, 3, 3, 6], [4, 3], [1, 1], [2, 1]),
    windowCase('stride above the kernel', [2, 1, 8, 8], [2, 2], [3, 3], [0, 0]),
    windowCase('ceil mode, overhanging, ties', [2, 2, 8, 6], [3, 2], [2, 3], [0, 0], ceiled),
    windowCase('dilated and padded, ties', [2, 2, 9, 8], [3, 2], [2, 1], [1, 1], dilated),
    windowCase('dilated, ceil mode', [1, 3, 10, 7], [2, 3], [3, 2], [1, 1], both),
    windowCase('an empty batch', [0, 3, 8, 8], [2, 2], [2, 2], [0, 0]),
    windowCase('huge', [2, 3, 7, 5], [3, 2], [1, 1], [1, 1], { fill: 'huge' }),
  ]
}

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
  ...naiveOr(
    'blocks',
    ({ attrs }) => isInBlocks(attrs),
    (call, inBlocks) => {
      const {
        inputs,
        outputs: [dx],
        attrs,
      } = call
      const { planes, ...constants } = gradSizes(attrs)
      if (inBlocks)
        return { dispatches: blockPoolGrad({ planes, ...constants }, attrs.epilogue, call) }
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
  ),
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
    // Indices are drawn freely, and between the taps of a dilated window there is none.
    ...windowCases()
      .filter(({ attrs }) => !attrs.dilation)
      .map((one) => gradCase(one)),
    ...[
      windowCase('relu gradient linked in', [2, 32, 14, 14], [2, 2], [2, 2], [0, 0]),
      windowCase('words, relu gradient', [4, 5, 3, 2], [2, 2], [2, 2], [0, 0], { half: true }),
    ].map((one) => gradCase(one, singleStep('reluGrad', 2))),
  ],
})

/** The gradient of a case, with a chain that takes x where there is one. */
function gradCase(
  { inputs: [x], attrs, ...one }: Case<MaxPoolAttrs>,
  epilogue: readonly Step[] = [],
): Case<MaxPoolGradAttrs> {
  const { OH, OW, H, W } = poolSizes('maxPool2d', x.shape, attrs)
  const shape = [x.shape[0], x.shape[1], OH, OW]
  return {
    ...one,
    inputs: [
      tensorType(shape, x.dtype),
      tensorType(shape, 'i32'),
      ...(epilogue.length > 0 ? [x] : []),
    ],
    attrs: { ...attrs, inputShape: x.shape, epilogue },
    integerBelow: { 1: H * W },
  }
}
