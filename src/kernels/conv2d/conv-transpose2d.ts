import { tensorType } from '../../util/shape.ts'
import { converted } from '../map/map.ts'
import { defineOp, type Op } from '../op.ts'
import { conv2d } from './conv2d.ts'
import { conv2dGradInput } from './conv2d-grad-input.ts'
import { conv2dGradWeight } from './conv2d-grad-weight.ts'
import { type ConvGradInputAttrs, windowOf } from './geometry.ts'

const plain = { stride: [1, 1], padding: [0, 0], epilogue: [] } as const
const bias = [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }] as const

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
  cases: [
    {
      name: 'one element',
      inputs: [tensorType([1, 1, 1, 1]), tensorType([1, 1, 1, 1])],
      attrs: { ...plain, inputShape: [1, 1, 1, 1] },
    },
    {
      name: 'stride 2, output padding 1, 6->5, bias',
      inputs: [tensorType([2, 6, 5, 4]), tensorType([6, 5, 3, 3]), tensorType([5, 1, 1])],
      attrs: { stride: [2, 2], padding: [1, 1], inputShape: [2, 5, 10, 8], epilogue: bias },
    },
    {
      name: '2 groups, dilation 2x1, stride 1x3',
      inputs: [tensorType([3, 4, 4, 3]), tensorType([4, 3, 2, 3])],
      attrs: {
        stride: [1, 3],
        padding: [0, 1],
        dilation: [2, 1],
        groups: 2,
        inputShape: [3, 6, 6, 7],
        epilogue: [],
      },
    },
    {
      name: 'an empty batch',
      inputs: [tensorType([0, 4, 3, 3]), tensorType([4, 2, 2, 2])],
      attrs: { ...plain, inputShape: [0, 2, 4, 4] },
    },
    {
      name: 'huge',
      inputs: [tensorType([2, 3, 4, 5]), tensorType([3, 2, 4, 4])],
      attrs: { stride: [2, 2], padding: [1, 1], inputShape: [2, 2, 8, 10], epilogue: [] },
      fill: 'huge',
    },
  ],
})
