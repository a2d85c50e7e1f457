import { type Shape, type TensorType, tensorType } from '../../util/shape.ts'
import type { Case } from '../op.ts'
import { type ConvWindow, convSizes } from './geometry.ts'

/** Sizes of x and weight, and what of the window is not stride 1 without padding. */
export type ConvRow = readonly [
  name: string,
  x: Shape,
  weight: Shape,
  window?: Partial<ConvWindow>,
  fill?: Case['fill'],
]

const same = { padding: [1, 1] } as const
const dilated = { stride: [1, 2], padding: [2, 3], dilation: [2, 3] } as const
const sparse = { stride: [2, 2], padding: [1, 0], dilation: [2, 2] } as const
const uneven = { padding: [0, 1], paddingEnd: [1, 1], groups: 3 } as const

/** Convolutions on which the op and both of its gradients are tried, without a chain. */
const rows: readonly ConvRow[] = [
  ['one element', [1, 1, 1, 1], [1, 1, 1, 1]],
  ['MNIST layer 1, 3 images', [3, 1, 28, 28], [16, 1, 3, 3], same],
  ['MNIST layer 2, 2 images', [2, 16, 14, 14], [32, 16, 3, 3], same],
  ['strips overhang: 17 columns', [2, 3, 6, 17], [5, 3, 3, 3], same],
  ['nothing divides', [3, 5, 9, 11], [7, 5, 3, 2], { stride: [2, 3], padding: [2, 1] }],
  ['padding as large as the image', [2, 2, 2, 3], [5, 2, 3, 3], { padding: [2, 3] }],
  ['kernel as large as the image', [2, 3, 5, 4], [6, 3, 5, 4]],
  ['kernel 1x7 without padding', [2, 4, 5, 17], [4, 4, 1, 7]],
  ['stride above the kernel', [2, 2, 10, 10], [3, 2, 2, 2], { stride: [3, 4], padding: [1, 0] }],
  ['dilation 2x3, stride 1x2', [2, 3, 11, 13], [5, 3, 3, 3], dilated],
  ['dilation and stride 2: pixels without a tap', [2, 3, 9, 9], [4, 3, 3, 2], sparse],
  ['3 groups of 2->3, uneven padding', [2, 6, 7, 6], [9, 2, 2, 3], uneven],
  ['depthwise, stride 2', [2, 10, 9, 9], [20, 1, 3, 3], { ...same, stride: [2, 2], groups: 10 }],
  ['2 groups, dilation 2', [3, 10, 8, 8], [12, 5, 3, 3], { ...sparse, stride: [1, 1], groups: 2 }],
  ['an empty batch', [0, 3, 8, 8], [4, 3, 3, 3], same],
  ['huge', [2, 6, 8, 8], [5, 6, 3, 3], same, 'huge'],
  ['ties: exact in f32', [2, 3, 7, 7], [4, 3, 3, 3], same, 'ties'],
]

/** A convolution's tensors, all of f32. */
interface Conv {
  readonly x: TensorType
  readonly weight: TensorType
  readonly y: TensorType
  readonly window: ConvWindow
}

/** Cases of one of a convolution's kernels: `of` returns its part in each. Default: those that all of them have. */
export const convCases = <Attrs>(
  of: (conv: Conv) => Pick<Case<Attrs>, 'inputs' | 'attrs'>,
  own: readonly ConvRow[] = rows,
): readonly Case<Attrs>[] =>
  own.map(([name, x, weight, given, fill]) => {
    const window: ConvWindow = { stride: [1, 1], padding: [0, 0], ...given }
    const { N, O, OH, OW } = convSizes(name, x, weight, window)
    const [image, kernel, y] = [x, weight, [N, O, OH, OW]].map((shape) => tensorType(shape))
    return { name, ...of({ x: image, weight: kernel, y, window }), fill }
  })

export const asHalf = ({ shape }: TensorType): TensorType => tensorType(shape, 'f16')
