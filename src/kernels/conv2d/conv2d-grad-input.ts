import { gcd } from '../../util/gcd.ts'
import { tensorType } from '../../util/shape.ts'
import { storedAs } from '../half.ts'
import { singleStep } from '../map/rules/rule.ts'
import { defineOp, type Op, type OpCall } from '../op.ts'
import { ceilDiv } from '../shader.ts'
import type { Step } from '../steps.ts'
import { asHalf, type ConvRow, convCases } from './cases.ts'
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
    const common = gcd(stride, dilation)
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

const strided = { stride: [2, 2], padding: [1, 1] } as const

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
    ...gradInputCases(),
    ...gradInputCases(singleStep('reluGrad', 2), [
      ['relu gradient linked in', [2, 16, 14, 14], [32, 16, 3, 3], { padding: [1, 1] }],
    ]),
    ...gradInputCases(singleStep('add', 2), [
      ['residual linked in, stride 2', [2, 5, 13, 8], [8, 5, 3, 3], strided],
      ['residual linked in, 3 groups', [2, 6, 7, 6], [9, 2, 2, 3], { groups: 3 }],
    ]),
    ...gradInputCases(undefined, [
      ['f16, stride 2', [2, 3, 9, 7], [4, 3, 3, 3], strided],
      ['f16 to f16, stride 2x1', [2, 3, 7, 6], [4, 3, 3, 3], { ...strided, stride: [2, 1] }],
    ]).map((one) => ({
      ...one,
      inputs: one.inputs.map(asHalf),
      attrs: { ...one.attrs, half: one.attrs.stride[1] === 1 },
    })),
  ],
})

/** Cases of the kernel, with a chain that takes x where there is one. */
export function gradInputCases(epilogue: readonly Step[] = [], rows?: readonly ConvRow[]) {
  return convCases<ConvGradInputAttrs>(
    ({ x, weight, y, window }) => ({
      inputs: [y, weight, ...(epilogue.length > 0 ? [x] : [])],
      attrs: { ...window, inputShape: x.shape, epilogue },
    }),
    rows,
  )
}
