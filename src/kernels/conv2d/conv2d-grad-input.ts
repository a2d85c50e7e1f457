import { tensorType } from '../../util/shape.ts'
import { storedAs } from '../half.ts'
import { defineOp, type Op, type OpCall } from '../op.ts'
import { ceilDiv } from '../shader.ts'
import { conv2dGradInputReference } from './conv2d.ref.ts'
import naiveWgsl from './conv2d-grad-input-naive.wgsl?raw'
import { applyEpilogue } from './epilogue.ts'
import {
  type ConvGradInputAttrs,
  checkEpilogue,
  checkGradientShape,
  checkImages,
  convFlops,
  convSizes,
} from './geometry.ts'
import { naiveConv } from './naive.ts'
import { preferredTile, type TiledConv, tiledVariants } from './tile.ts'

const sizesOf = ({ inputs: [, w], attrs }: Pick<OpCall<ConvGradInputAttrs>, 'inputs' | 'attrs'>) =>
  convSizes('conv2dGradInput', attrs.inputShape, w.shape, attrs)

/**
 * The gradient as convolutions of dy, with the kernel turned round and in and out channels swapped: one for each phase of the stride.
 *
 * Pixels iy = SH*m + phase take the taps ky = first + period*t only, from dy row m + shift - t*step; so each phase is a convolution at
 * stride 1 with every period-th tap. At stride 1 there is one phase. Without dilation the period is SH and the step 1.
 */
function asTiled(call: OpCall<ConvGradInputAttrs>): TiledConv[] {
  const { N, C, H, W, O, KH, KW, OH, OW, SH, SW, PH, PW, DH, DW, G, CG, OG } = sizesOf(call)
  const phases = (
    size: number,
    kernel: number,
    stride: number,
    padding: number,
    dilation: number,
  ) => {
    const common = greatestCommonDivisor(stride, dilation)
    const period = stride / common
    const step = dilation / common
    return Array.from({ length: Math.min(stride, size) }, (_, phase) => {
      let first = 0
      while (first < kernel && (phase + padding - first * dilation) % stride !== 0) first++
      const taps = ceilDiv(kernel - first, period)
      const shift = Math.floor((phase + padding - first * dilation) / stride)
      return {
        phase,
        taps,
        count: ceilDiv(size - phase, stride),
        step,
        padding: (taps - 1) * step - shift,
        tap: (t: number) => first + period * (taps - 1 - t),
      }
    })
  }
  return phases(H, KH, SH, PH, DH).flatMap((row) =>
    phases(W, KW, SW, PW, DW).map((column) => ({
      label: `conv2dGradInput ${O}->${C} ${row.taps}x${column.taps}`,
      batch: N,
      groups: G,
      inChannels: row.taps * column.taps === 0 ? 0 : OG,
      inRows: OH,
      inColumns: OW,
      outChannels: CG,
      outRows: row.count,
      outColumns: column.count,
      kernel: [row.taps, column.taps],
      stride: [1, 1],
      padding: [row.padding, column.padding],
      dilation: [row.step, column.step],
      weights: {
        groupStride: OG * CG * KH * KW,
        outStride: KH * KW,
        inStride: CG * KH * KW,
        tap: (ky, kx) => row.tap(ky) * KW + column.tap(kx),
      },
      output: { stride: [SH, SW], offset: [row.phase, column.phase] },
      epilogue: call.attrs.epilogue,
      isHalf: call.attrs.half ?? false,
    })),
  )
}

const greatestCommonDivisor = (a: number, b: number): number =>
  b === 0 ? a : greatestCommonDivisor(b, a % b)

const plain = { stride: [1, 1], padding: [0, 0], epilogue: [] } as const
const same3 = { stride: [1, 1], padding: [1, 1], epilogue: [] } as const

/** dx [N,C,H,W] of conv2d from dy [N,O,OH,OW] and w [O,C/groups,KH,KW], then the epilogue. source: torch.nn.grad.conv2d_input */
export const conv2dGradInput: Op<ConvGradInputAttrs> = defineOp<ConvGradInputAttrs>({
  name: 'conv2dGradInput',
  infer(inputs, attrs) {
    const [dy, w] = inputs
    const dx = tensorType([...attrs.inputShape], attrs.half ? 'f16' : 'f32')
    checkImages('conv2dGradInput', 'dy', dy)
    checkImages('conv2dGradInput', 'w', w)
    checkImages('conv2dGradInput', 'x', dx)
    const { N, O, OH, OW } = sizesOf({ inputs, attrs })
    checkGradientShape('conv2dGradInput', dy.shape, [N, O, OH, OW])
    checkEpilogue('conv2dGradInput', dx.shape, inputs.slice(2))
    return [dx]
  },
  takesEpilogue: true,
  takesHalf: true,
  // Words of two neighbours in a row: not where each dispatch makes every second column.
  givesHalf: ({ attrs }) => attrs.inputShape[3] % 2 === 0 && attrs.stride[1] === 1,
  flops: (call) => convFlops(sizesOf(call)),
  variants: [
    naiveConv({
      sizesOf,
      labelOf: ({ C, O }) => `conv2dGradInput ${O}->${C} naive`,
      from: 'dy',
      to: 'dx',
      wgsl: naiveWgsl,
    }),
    ...tiledVariants(asTiled),
  ],
  preferred: (call) => preferredTile(asTiled(call)),
  reference([dy, w, ...operands], call) {
    const dx = conv2dGradInputReference(dy, w, sizesOf(call))
    const { attrs, inputs, outputs } = call
    return [
      storedAs(
        attrs,
        applyEpilogue(attrs.epilogue, dx, outputs[0].shape, operands, inputs.slice(2)),
      ),
    ]
  },
  tolerance: {
    absolute: 2e-5,
    relative: 4e-6,
    because: 'O*KH*KW products of normal numbers summed in f32; terms cancel',
  },
  cases: [
    {
      name: 'f16, stride 2, 4->3, 9x7',
      inputs: [tensorType([2, 4, 5, 4], 'f16'), tensorType([4, 3, 3, 3], 'f16')],
      attrs: { stride: [2, 2], padding: [1, 1], inputShape: [2, 3, 9, 7], epilogue: [] },
    },
    {
      name: 'f16 to f16, stride 2x1, 4->3, 7x6',
      inputs: [tensorType([2, 4, 4, 6], 'f16'), tensorType([4, 3, 3, 3], 'f16')],
      attrs: {
        stride: [2, 1],
        padding: [1, 1],
        inputShape: [2, 3, 7, 6],
        epilogue: [],
        half: true,
      },
    },
    {
      name: 'one element',
      inputs: [tensorType([1, 1, 1, 1]), tensorType([1, 1, 1, 1])],
      attrs: { ...plain, inputShape: [1, 1, 1, 1] },
    },
    {
      name: 'MNIST layer 2, 2 images, relu gradient linked in',
      inputs: [
        tensorType([2, 32, 14, 14]),
        tensorType([32, 16, 3, 3]),
        tensorType([2, 16, 14, 14]),
      ],
      attrs: {
        ...same3,
        inputShape: [2, 16, 14, 14],
        epilogue: [{ fn: 'reluGrad', args: [{ input: 0 }, { input: 1 }] }],
      },
    },
    {
      name: 'one input channel, 28x28',
      inputs: [tensorType([2, 5, 28, 28]), tensorType([5, 1, 3, 3])],
      attrs: { ...same3, inputShape: [2, 1, 28, 28] },
    },
    {
      name: 'nothing divides: 5->7, 9x11, kernel 3x2, stride 2x3, padding 2x1',
      inputs: [tensorType([3, 7, 6, 4]), tensorType([7, 5, 3, 2])],
      attrs: { stride: [2, 3], padding: [2, 1], inputShape: [3, 5, 9, 11], epilogue: [] },
    },
    {
      name: 'stride 2, kernel 3, padding 1, residual linked in',
      inputs: [tensorType([2, 8, 7, 4]), tensorType([8, 5, 3, 3]), tensorType([2, 5, 13, 8])],
      attrs: {
        stride: [2, 2],
        padding: [1, 1],
        inputShape: [2, 5, 13, 8],
        epilogue: [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }],
      },
    },
    {
      name: 'padding above the kernel',
      inputs: [tensorType([2, 5, 4, 7]), tensorType([5, 2, 3, 3])],
      attrs: { stride: [1, 1], padding: [2, 3], inputShape: [2, 2, 2, 3], epilogue: [] },
    },
    {
      name: 'kernel 1x7 without padding',
      inputs: [tensorType([2, 4, 5, 11]), tensorType([4, 4, 1, 7])],
      attrs: { ...plain, inputShape: [2, 4, 5, 17] },
    },
    {
      name: 'stride above the kernel leaves pixels without gradient',
      inputs: [tensorType([2, 3, 4, 3]), tensorType([3, 2, 2, 2])],
      attrs: { stride: [3, 4], padding: [1, 0], inputShape: [2, 2, 10, 10], epilogue: [] },
    },
    {
      name: 'dilation 2x3, stride 1x2, 3<-5, 11x13',
      inputs: [tensorType([2, 5, 11, 7]), tensorType([5, 3, 3, 3])],
      attrs: {
        stride: [1, 2],
        padding: [2, 3],
        dilation: [2, 3],
        inputShape: [2, 3, 11, 13],
        epilogue: [],
      },
    },
    {
      name: 'dilation 2, stride 2: every second pixel has no tap',
      inputs: [tensorType([2, 4, 4, 4]), tensorType([4, 3, 3, 2])],
      attrs: {
        stride: [2, 2],
        padding: [1, 0],
        dilation: [2, 2],
        inputShape: [2, 3, 9, 9],
        epilogue: [],
      },
    },
    {
      name: '3 groups of 2<-3, uneven padding, residual linked in',
      inputs: [tensorType([2, 9, 7, 6]), tensorType([9, 2, 2, 3]), tensorType([2, 6, 7, 6])],
      attrs: {
        stride: [1, 1],
        padding: [0, 1],
        paddingEnd: [1, 1],
        groups: 3,
        inputShape: [2, 6, 7, 6],
        epilogue: [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }],
      },
    },
    {
      name: 'depthwise 10 channels, 2 outputs each, stride 2',
      inputs: [tensorType([2, 20, 5, 5]), tensorType([20, 1, 3, 3])],
      attrs: {
        stride: [2, 2],
        padding: [1, 1],
        groups: 10,
        inputShape: [2, 10, 9, 9],
        epilogue: [],
      },
    },
    {
      name: 'an empty batch',
      inputs: [tensorType([0, 4, 8, 8]), tensorType([4, 3, 3, 3])],
      attrs: { ...same3, inputShape: [0, 3, 8, 8] },
    },
    {
      name: 'huge',
      inputs: [tensorType([2, 5, 8, 8]), tensorType([5, 6, 3, 3])],
      attrs: { ...same3, inputShape: [2, 6, 8, 8] },
      fill: 'huge',
    },
    {
      name: 'ties: exact in f32',
      inputs: [tensorType([2, 4, 5, 5]), tensorType([4, 3, 3, 3])],
      attrs: { ...plain, inputShape: [2, 3, 7, 7] },
      fill: 'ties',
    },
  ],
})
