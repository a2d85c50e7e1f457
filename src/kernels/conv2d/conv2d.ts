import { type TensorType, tensorType } from '../../util/shape.ts'
import { storedAs } from '../half.ts'
import { converted } from '../map/map.ts'
import { i, s, step } from '../map/rules/rule.ts'
import { defineOp, type Op, type OpCall } from '../op.ts'
import { asHalf, convCases } from './cases.ts'
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

const twoOperands = [step('add', i(0), i(2)), step('mul', s(0), i(1))]
const biasOf = ({ shape: [, channels] }: TensorType) => tensorType([channels, 1, 1])

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
    ...convCases<ConvAttrs>(({ x, weight, window }) => ({
      inputs: [x, weight],
      attrs: { ...window, epilogue: [] },
    })),
    ...convCases<ConvAttrs>(
      ({ x, weight, y, window }) => ({
        inputs: [x, weight, y, biasOf(y)],
        attrs: { ...window, epilogue: [...twoOperands, step('relu', s(1))] },
      }),
      [
        ['operands and relu', [3, 1, 28, 28], [16, 1, 3, 3], { padding: [1, 1] }],
        [
          'operands, padding as large as the image',
          [2, 2, 2, 3],
          [5, 2, 3, 3],
          { padding: [2, 3] },
        ],
        [
          'operands, 3 groups, dilation',
          [2, 6, 7, 6],
          [9, 2, 2, 3],
          { dilation: [1, 2], groups: 3 },
        ],
        ['operands, an empty batch', [0, 3, 8, 8], [4, 3, 3, 3]],
      ],
    ),
    ...convCases<ConvAttrs>(
      ({ x, weight, y, window }) => ({
        inputs: [asHalf(x), asHalf(weight), asHalf(y), biasOf(y)],
        attrs: { ...window, epilogue: twoOperands, half: y.shape[3] % 2 === 0 },
      }),
      [
        ['f16, operands', [2, 5, 9, 10], [7, 5, 3, 2], { stride: [2, 3], padding: [2, 2] }],
        ['f16 to f16, operands', [2, 3, 5, 10], [5, 3, 3, 3], { padding: [1, 1] }],
      ],
    ),
  ],
})
