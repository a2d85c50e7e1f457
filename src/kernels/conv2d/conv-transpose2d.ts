import { converted } from '../map/map.ts'
import { defineOp, type Op } from '../op.ts'
import { conv2d } from './conv2d.ts'
import { conv2dGradInput, gradInputCases } from './conv2d-grad-input.ts'
import { conv2dGradWeight } from './conv2d-grad-weight.ts'
import { type ConvGradInputAttrs, windowOf } from './geometry.ts'

/**
 * y = the transpose of a convolution applied to x, then the epilogue: the kernels of that convolution's gradient by its input.
 *
 * shape: x [N,O,OH,OW], w [O,C/groups,KH,KW] -> y of `inputShape` [N,C,H,W]; letters are the convolution's.
 * source: torch.nn.functional.conv_transpose2d
 */
export const convTranspose2d: Op<ConvGradInputAttrs> = defineOp<ConvGradInputAttrs>({
  ...conv2dGradInput,
  name: 'convTranspose2d',
  gradient(context) {
    const [given] = context.outputGradients
    if (!given) return []
    const [x, w] = context.inputs
    // Of f16 operands, products are of f16 operands in backward too.
    const dy = converted(context, given, x.type.dtype === 'f16' ? 'f16' : 'f32')
    const window = windowOf(context.attrs)
    const [, , KH, KW] = w.type.shape
    return [
      context.needs(0) ? context.emit(conv2d, [dy, w], { ...window, epilogue: [] })[0] : undefined,
      context.needs(1)
        ? context.emit(conv2dGradWeight, [x, dy], {
            ...window,
            kernel: [KH, KW],
            rowSums: false,
          })[0]
        : undefined,
    ]
  },
  cases: gradInputCases(undefined, [
    ['one element', [1, 1, 1, 1], [1, 1, 1, 1]],
    ['stride 2, 6->5', [2, 5, 10, 8], [6, 5, 3, 3], { stride: [2, 2], padding: [1, 1] }],
    [
      '2 groups, dilation 2x1, stride 1x3',
      [3, 6, 6, 7],
      [4, 3, 2, 3],
      { stride: [1, 3], padding: [0, 1], dilation: [2, 1], groups: 2 },
    ],
    ['an empty batch', [0, 2, 4, 4], [4, 2, 2, 2]],
    ['huge', [2, 2, 8, 10], [3, 2, 4, 4], { stride: [2, 2], padding: [1, 1] }, 'huge'],
  ]),
})
