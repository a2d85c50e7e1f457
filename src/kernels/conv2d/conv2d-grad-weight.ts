import { tensorType } from '../../util/shape.ts'
import { eachFloat } from '../elements.ts'
import { defineOp, type Op, type OpCall, type Variant } from '../op.ts'
import { floatFunction, readsFloats } from '../shader.ts'
import { conv2dGradWeightReference, rowSumsReference } from './conv2d.ref.ts'
import naiveWgsl from './conv2d-grad-weight-naive.wgsl?raw'
import {
  type ConvGradWeightAttrs,
  checkGradientShape,
  checkImages,
  convFlops,
  convSizes,
} from './geometry.ts'
import { blockSize, splitGradWeight, type WeightBlock } from './grad-weight-split.ts'
import rowSumsWgsl from './row-sums-naive.wgsl?raw'

type Call = OpCall<ConvGradWeightAttrs>

const sizesOf = ({ inputs: [dy, x], attrs }: Pick<Call, 'inputs' | 'attrs'>) =>
  convSizes(
    'conv2dGradWeight',
    x.shape,
    [dy.shape[1], Math.floor(x.shape[1] / (attrs.groups ?? 1)), attrs.kernel[0], attrs.kernel[1]],
    attrs,
  )

/** Best first for many channels; one input channel leaves room for more outputs. */
const blocks = {
  split4x4: { outputs: 4, inputs: 4 },
  split8x1: { outputs: 8, inputs: 1 },
  split4x1: { outputs: 4, inputs: 1 },
} as const satisfies Record<string, WeightBlock>

/** Accumulators beyond this make shaders that take seconds to compile and spill on GPUs. */
const maxAccumulators = 160

const canSplit = (call: Call, block: WeightBlock) => {
  const sizes = sizesOf(call)
  return sizes.N > 0 && blockSize(block, sizes) <= maxAccumulators
}

const same3 = { stride: [1, 1], padding: [1, 1], kernel: [3, 3], rowSums: true } as const

/**
 * dw [O,C/groups,KH,KW] of conv2d from dy [N,O,OH,OW] and x [N,C,H,W]; with `rowSums` also db [O], the bias gradient.
 * source: torch.nn.grad.conv2d_weight
 */
export const conv2dGradWeight: Op<ConvGradWeightAttrs> = defineOp<ConvGradWeightAttrs>({
  name: 'conv2dGradWeight',
  takesRowSums: true,
  infer(inputs, attrs) {
    const [dy, x] = inputs
    checkImages('conv2dGradWeight', 'dy', dy)
    checkImages('conv2dGradWeight', 'x', x)
    const { N, CG, O, KH, KW, OH, OW } = sizesOf({ inputs, attrs })
    checkGradientShape('conv2dGradWeight', dy.shape, [N, O, OH, OW])
    return [tensorType([O, CG, KH, KW]), ...(attrs.rowSums ? [tensorType([O])] : [])]
  },
  takesHalf: true,
  flops: (call) => convFlops(sizesOf(call)),
  variants: [
    {
      name: 'naive',
      lower(call) {
        const sizes = sizesOf(call)
        const { N, C, O, OH, OW } = sizes
        const {
          inputs: [dy, x],
          outputs: [dw, db],
        } = call
        const weights = eachFloat({
          label: `conv2dGradWeight ${C}->${O} naive`,
          bindings: [readsFloats('dy', { in: 0 }, dy), readsFloats('x', { in: 1 }, x)],
          output: { name: 'dw', type: dw },
          constants: { ...sizes },
          functions: [floatFunction('dy', dy), floatFunction('x', x), naiveWgsl].join('\n\n'),
        })
        if (!call.attrs.rowSums) return { dispatches: weights }
        const sums = eachFloat({
          label: `row sums ${O} naive`,
          bindings: [readsFloats('dy', { in: 0 }, dy)],
          output: { name: 'db', type: db, operand: { out: 1 } },
          constants: { N, O, PLANE: OH * OW },
          functions: `${floatFunction('dy', dy)}\n\n${rowSumsWgsl}`,
        })
        return { dispatches: [...weights, ...sums] }
      },
    },
    ...Object.entries(blocks).map(
      ([name, block]): Variant<ConvGradWeightAttrs> => ({
        name,
        when: (call) => canSplit(call, block),
        lower: (call) => splitGradWeight(sizesOf(call), call, block, 2048),
      }),
    ),
  ],
  preferred(call, { isSoftware }) {
    const { N, O, OH, OW, KH, KW, CG } = sizesOf(call)
    // With few inputs a wider block runs no faster. With more it saves a fifth, and on SwiftShader compiles for half a second longer.
    const flops = 2 * N * O * OH * OW * CG * KH * KW
    const isSoonDone = isSoftware !== false && flops < 4e8
    const isNarrow = CG < 4 || isSoonDone
    const order = isNarrow
      ? (['split4x1'] as const)
      : (['split4x4', 'split8x1', 'split4x1'] as const)
    return order.find((name) => canSplit(call, blocks[name])) ?? 'naive'
  },
  reference([dy, x], call) {
    const sizes = sizesOf(call)
    const dw = conv2dGradWeightReference(dy, x, sizes)
    return call.attrs.rowSums ? [dw, rowSumsReference(dy, sizes)] : [dw]
  },
  tolerance: {
    absolute: 2e-4,
    relative: 4e-6,
    because:
      'N*OH*OW products of normal numbers summed in f32, naive one after the other; terms cancel',
  },
  cases: [
    {
      name: 'f16, 5->6, 7x9 with row sums',
      inputs: [tensorType([3, 6, 7, 9], 'f16'), tensorType([3, 5, 7, 9], 'f16')],
      attrs: same3,
    },
    {
      name: 'one element',
      inputs: [tensorType([1, 1, 1, 1]), tensorType([1, 1, 1, 1])],
      attrs: { stride: [1, 1], padding: [0, 0], kernel: [1, 1], rowSums: true },
    },
    {
      name: 'MNIST layer 1, 5 images',
      inputs: [tensorType([5, 16, 28, 28]), tensorType([5, 1, 28, 28])],
      attrs: same3,
    },
    {
      name: 'MNIST layer 2, 3 images',
      inputs: [tensorType([3, 32, 14, 14]), tensorType([3, 16, 14, 14])],
      attrs: { ...same3, rowSums: false },
    },
    {
      name: 'MNIST layer 2, more images than parts',
      inputs: [tensorType([67, 8, 7, 7]), tensorType([67, 4, 7, 7])],
      attrs: same3,
    },
    {
      name: 'nothing divides: 5->7, 9x11, kernel 3x2, stride 2x3, padding 2x1',
      inputs: [tensorType([3, 7, 6, 4]), tensorType([3, 5, 9, 11])],
      attrs: { stride: [2, 3], padding: [2, 1], kernel: [3, 2], rowSums: true },
    },
    {
      name: 'strips overhang: 17 columns',
      inputs: [tensorType([2, 5, 6, 17]), tensorType([2, 3, 6, 17])],
      attrs: same3,
    },
    {
      name: 'padding above the kernel',
      inputs: [tensorType([2, 5, 4, 7]), tensorType([2, 2, 2, 3])],
      attrs: { stride: [1, 1], padding: [2, 3], kernel: [3, 3], rowSums: true },
    },
    {
      name: 'kernel 1x7 without padding',
      inputs: [tensorType([2, 4, 5, 11]), tensorType([2, 4, 5, 17])],
      attrs: { stride: [1, 1], padding: [0, 0], kernel: [1, 7], rowSums: false },
    },
    {
      name: 'stride above the kernel',
      inputs: [tensorType([2, 3, 4, 3]), tensorType([2, 2, 10, 10])],
      attrs: { stride: [3, 4], padding: [1, 0], kernel: [2, 2], rowSums: true },
    },
    {
      name: 'dilation 2x3, stride 1x2, 3->5, 11x13',
      inputs: [tensorType([2, 5, 11, 7]), tensorType([2, 3, 11, 13])],
      attrs: {
        stride: [1, 2],
        padding: [2, 3],
        dilation: [2, 3],
        kernel: [3, 3],
        rowSums: true,
      },
    },
    {
      name: '3 groups of 2->3, uneven padding',
      inputs: [tensorType([2, 9, 7, 6]), tensorType([2, 6, 7, 6])],
      attrs: {
        stride: [1, 1],
        padding: [0, 1],
        paddingEnd: [1, 1],
        groups: 3,
        kernel: [2, 3],
        rowSums: true,
      },
    },
    {
      name: 'depthwise 10 channels, 2 outputs each, stride 2',
      inputs: [tensorType([2, 20, 5, 5]), tensorType([2, 10, 9, 9])],
      attrs: { stride: [2, 2], padding: [1, 1], groups: 10, kernel: [3, 3], rowSums: true },
    },
    {
      name: '2 groups of 5->6, dilation 2',
      inputs: [tensorType([3, 12, 8, 8]), tensorType([3, 10, 8, 8])],
      attrs: {
        stride: [1, 1],
        padding: [2, 2],
        dilation: [2, 2],
        groups: 2,
        kernel: [3, 3],
        rowSums: true,
      },
    },
    {
      name: 'an empty batch gives zeros',
      inputs: [tensorType([0, 4, 8, 8]), tensorType([0, 3, 8, 8])],
      attrs: same3,
    },
    {
      name: 'huge',
      inputs: [tensorType([2, 5, 8, 8]), tensorType([2, 6, 8, 8])],
      attrs: same3,
      fill: 'huge',
    },
    {
      name: 'ties: exact in f32',
      inputs: [tensorType([2, 4, 5, 5]), tensorType([2, 3, 5, 5])],
      attrs: same3,
      fill: 'ties',
    },
  ],
})
