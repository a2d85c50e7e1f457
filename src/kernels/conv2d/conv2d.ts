import { tensorType } from '../../util/shape.ts'
import { storedAs } from '../half.ts'
import { converted } from '../map/map.ts'
import { defineOp, type Op, type OpCall } from '../op.ts'
import { conv2dReference } from './conv2d.ref.ts'
import { conv2dGradInput } from './conv2d-grad-input.ts'
import { conv2dGradWeight } from './conv2d-grad-weight.ts'
import naiveWgsl from './conv2d-naive.wgsl?raw'
import { applyEpilogue } from './epilogue.ts'
import {
  type ConvAttrs,
  checkEpilogue,
  checkImages,
  convFlops,
  convSizes,
  windowOf,
} from './geometry.ts'
import { naiveConv } from './naive.ts'
import { preferredTile, type TiledConv, tiledVariants } from './tile.ts'

const sizesOf = ({ inputs: [x, w], attrs }: Pick<OpCall<ConvAttrs>, 'inputs' | 'attrs'>) =>
  convSizes('conv2d', x.shape, w.shape, attrs)

function asTiled(call: OpCall<ConvAttrs>): TiledConv[] {
  const { N, C, H, W, O, KH, KW, OH, OW, DH, DW, G, CG, OG } = sizesOf(call)
  return [
    {
      label: `conv2d ${C}->${O} ${KH}x${KW}`,
      batch: N,
      groups: G,
      inChannels: CG,
      inRows: H,
      inColumns: W,
      outChannels: OG,
      outRows: OH,
      outColumns: OW,
      kernel: [KH, KW],
      stride: call.attrs.stride,
      padding: call.attrs.padding,
      dilation: [DH, DW],
      weights: {
        groupStride: OG * CG * KH * KW,
        outStride: CG * KH * KW,
        inStride: KH * KW,
        tap: (ky, kx) => ky * KW + kx,
      },
      output: { stride: [1, 1], offset: [0, 0] },
      epilogue: call.attrs.epilogue,
      isHalf: call.attrs.half ?? false,
    },
  ]
}

const bias = [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }] as const
const biasRelu = [...bias, { fn: 'relu', args: [{ step: 0 }] }] as const
const plain = { stride: [1, 1], padding: [0, 0], epilogue: [] } as const
const same3 = { stride: [1, 1], padding: [1, 1], epilogue: [] } as const

/** y = x convolved with w, then the epilogue; x [N,C,H,W], w [O,C/groups,KH,KW], y [N,O,OH,OW]. source: torch.nn.functional.conv2d */
export const conv2d: Op<ConvAttrs> = defineOp<ConvAttrs>({
  name: 'conv2d',
  infer(inputs, attrs) {
    const [x, w] = inputs
    checkImages('conv2d', 'x', x)
    checkImages('conv2d', 'weight', w)
    const { N, O, OH, OW } = sizesOf({ inputs, attrs })
    checkEpilogue('conv2d', [N, O, OH, OW], inputs.slice(2))
    return [tensorType([N, O, OH, OW], attrs.half ? 'f16' : 'f32')]
  },
  takesEpilogue: true,
  takesHalf: true,
  // Words of two neighbours in a row.
  givesHalf: (call) => sizesOf(call).OW % 2 === 0,
  flops: (call) => convFlops(sizesOf(call)),
  variants: [
    naiveConv({
      sizesOf,
      labelOf: ({ C, O }) => `conv2d ${C}->${O} naive`,
      from: 'x',
      to: 'y',
      wgsl: naiveWgsl,
    }),
    ...tiledVariants(asTiled),
  ],
  preferred: (call) => preferredTile(asTiled(call)),
  gradient(context) {
    const [given] = context.outputGradients
    if (!given) return []
    const [x, w] = context.inputs
    // Of f16 operands, products are of f16 operands in backward too.
    const dy = converted(context, given, x.type.dtype === 'f16' ? 'f16' : 'f32')
    const window = windowOf(context.attrs)
    const [, , KH, KW] = w.type.shape
    return [
      context.needs(0)
        ? context.emit(conv2dGradInput, [dy, w], {
            ...window,
            inputShape: x.type.shape,
            epilogue: [],
          })[0]
        : undefined,
      context.needs(1)
        ? context.emit(conv2dGradWeight, [dy, x], {
            ...window,
            kernel: [KH, KW],
            rowSums: false,
          })[0]
        : undefined,
    ]
  },
  reference([x, w, ...operands], call) {
    const y = conv2dReference(x, w, sizesOf(call))
    const { attrs, inputs, outputs } = call
    return [
      storedAs(
        attrs,
        applyEpilogue(attrs.epilogue, y, outputs[0].shape, operands, inputs.slice(2)),
      ),
    ]
  },
  tolerance: {
    absolute: 2e-5,
    relative: 4e-6,
    because: 'C*KH*KW products of normal numbers summed in f32; terms cancel',
  },
  cases: [
    {
      name: 'f16, 5->7, 9x11, kernel 3x2, stride 2x3, bias in f32, an operand in f16',
      inputs: [
        tensorType([2, 5, 9, 11], 'f16'),
        tensorType([7, 5, 3, 2], 'f16'),
        tensorType([7, 1, 1]),
        tensorType([2, 7, 6, 4], 'f16'),
      ],
      attrs: {
        stride: [2, 3],
        padding: [2, 1],
        epilogue: [
          { fn: 'add', args: [{ input: 0 }, { input: 1 }] },
          { fn: 'mul', args: [{ step: 0 }, { input: 2 }] },
        ],
      },
    },
    {
      name: 'f16 to f16, 3->5, 5x10, an operand in f16',
      inputs: [
        tensorType([2, 3, 5, 10], 'f16'),
        tensorType([5, 3, 3, 3], 'f16'),
        tensorType([2, 5, 5, 10], 'f16'),
      ],
      attrs: { ...same3, epilogue: bias, half: true },
    },
    {
      name: 'one element',
      inputs: [tensorType([1, 1, 1, 1]), tensorType([1, 1, 1, 1])],
      attrs: plain,
    },
    {
      name: 'MNIST layer 1, 3 images, bias and relu',
      inputs: [tensorType([3, 1, 28, 28]), tensorType([16, 1, 3, 3]), tensorType([16, 1, 1])],
      attrs: { ...same3, epilogue: biasRelu },
    },
    {
      name: 'MNIST layer 2, 2 images, bias',
      inputs: [tensorType([2, 16, 14, 14]), tensorType([32, 16, 3, 3]), tensorType([32, 1, 1])],
      attrs: { ...same3, epilogue: bias },
    },
    {
      name: 'nothing divides: 5->7, 9x11, kernel 3x2, stride 2x3, padding 2x1',
      inputs: [tensorType([3, 5, 9, 11]), tensorType([7, 5, 3, 2])],
      attrs: { stride: [2, 3], padding: [2, 1], epilogue: [] },
    },
    {
      name: 'padding as large as the image, residual and bias',
      inputs: [
        tensorType([2, 2, 2, 3]),
        tensorType([5, 2, 3, 3]),
        tensorType([2, 5, 4, 7]),
        tensorType([5, 1, 1]),
      ],
      attrs: {
        stride: [1, 1],
        padding: [2, 3],
        epilogue: [
          { fn: 'add', args: [{ input: 0 }, { input: 2 }] },
          { fn: 'mul', args: [{ step: 0 }, { input: 1 }] },
        ],
      },
    },
    {
      name: 'kernel as large as the image',
      inputs: [tensorType([2, 3, 5, 4]), tensorType([6, 3, 5, 4])],
      attrs: plain,
    },
    {
      name: 'kernel 1x7 without padding',
      inputs: [tensorType([2, 4, 5, 17]), tensorType([4, 4, 1, 7])],
      attrs: plain,
    },
    {
      name: 'stride above the kernel',
      inputs: [tensorType([2, 2, 10, 10]), tensorType([3, 2, 2, 2])],
      attrs: { stride: [3, 4], padding: [1, 0], epilogue: [] },
    },
    {
      name: 'dilation 2x3, stride 1x2, 3->5, 11x13, bias',
      inputs: [tensorType([2, 3, 11, 13]), tensorType([5, 3, 3, 3]), tensorType([5, 1, 1])],
      attrs: { stride: [1, 2], padding: [2, 3], dilation: [2, 3], epilogue: bias },
    },
    {
      name: '3 groups of 2->3, uneven padding',
      inputs: [tensorType([2, 6, 7, 6]), tensorType([9, 2, 2, 3]), tensorType([9, 1, 1])],
      attrs: { stride: [1, 1], padding: [0, 1], paddingEnd: [1, 1], groups: 3, epilogue: bias },
    },
    {
      name: 'depthwise 10 channels, 2 outputs each, stride 2',
      inputs: [tensorType([2, 10, 9, 9]), tensorType([20, 1, 3, 3])],
      attrs: { stride: [2, 2], padding: [1, 1], groups: 10, epilogue: [] },
    },
    {
      name: '2 groups of 5->6, dilation 2',
      inputs: [tensorType([1, 10, 8, 8]), tensorType([12, 5, 3, 3])],
      attrs: { stride: [1, 1], padding: [2, 2], dilation: [2, 2], groups: 2, epilogue: [] },
    },
    {
      name: 'an empty batch',
      inputs: [tensorType([0, 3, 8, 8]), tensorType([4, 3, 3, 3]), tensorType([4, 1, 1])],
      attrs: { ...same3, epilogue: bias },
    },
    {
      name: 'huge',
      inputs: [tensorType([2, 6, 8, 8]), tensorType([5, 6, 3, 3])],
      attrs: same3,
      fill: 'huge',
    },
    {
      name: 'ties: exact in f32',
      inputs: [tensorType([2, 3, 7, 7]), tensorType([4, 3, 3, 3])],
      attrs: same3,
      fill: 'ties',
    },
  ],
})
