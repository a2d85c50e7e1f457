import { ShapeError } from '../../util/errors.ts'
import {
  formatShape,
  type Shape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { countedRows } from '../counted-rows.ts'
import { storedAs } from '../half.ts'
import {
  type Case,
  defineOp,
  type HalfAttrs,
  type Lowering,
  type Op,
  type OpCall,
  type ScalarSlot,
} from '../op.ts'
import { batchNormGradReference } from './batch-norm.ref.ts'
import { gradInput, gradSums, stripOf } from './kernels.ts'
import { normSizes } from './sizes.ts'

export interface BatchNormGradAttrs extends HalfAttrs {
  readonly eps: number
  /** True if mean and variance are x's own, so that dx has their share. */
  readonly isBatch: boolean
  /** How many of the first rows made mean and variance; null: all. */
  readonly count: ScalarSlot | null
}

const sizesOf = ({
  inputs: [dy, x, mean, variance, weight],
}: Pick<OpCall<BatchNormGradAttrs>, 'inputs'>) => {
  const sizes = normSizes('batchNormGrad', x, [
    ['mean', mean],
    ['variance', variance],
    ['weight', weight],
  ])
  if (!sameShape(dy.shape, x.shape) || (dy.dtype !== 'f32' && dy.dtype !== 'f16')) {
    throw new ShapeError(
      'shape.mismatch',
      `batchNormGrad: dy must be f32 or f16${formatShape(x.shape)}, got ${dy.dtype}${formatShape(dy.shape)}. Pass the output's gradient unchanged.`,
    )
  }
  return sizes
}

function lower(call: OpCall<BatchNormGradAttrs>, isNaive: boolean): Lowering {
  const sizes = sizesOf(call)
  const { eps } = call.attrs
  return {
    dispatches: [
      ...gradSums(call, sizes, eps, isNaive ? 64 : undefined),
      ...gradInput(sizes, eps, call.attrs, isNaive ? 1 : stripOf(sizes), call),
    ],
  }
}

// Mean and variance are drawn as any numbers, so eps is large enough to make each sum with a variance positive.
const samples: readonly (readonly [
  name: string,
  x: Shape,
  isBatch: boolean,
  fill?: Case['fill'],
  scalars?: readonly number[],
])[] = [
  ['one element', [1, 1], false],
  ['features of a linear layer, 70x33', [70, 33], true],
  ['N C L, 3x5x7, given statistics', [3, 5, 7], false],
  ['planes in strips of 4', [3, 5, 6, 6], true],
  ['planes in strips of 8, 9600 values a channel', [3, 2, 40, 80], true],
  ['an empty batch', [0, 3, 4, 4], true],
  ['huge', [5, 4, 8], true, 'huge'],
  ['ties', [4, 6, 3], false, 'ties'],
  ['rows that do not count', [5, 3, 6, 6], true, 'normal', [0, 3]],
  ['no row counts', [2, 3, 4], true, 'normal', [0, 0]],
]

/** Words that hold elements of two channels, of one, and a last one of one element. */
const halfSamples: readonly (readonly [
  name: string,
  dy: TensorType,
  x: TensorType,
  isBatch: boolean,
])[] = [
  ['f16, 3x5x7', tensorType([3, 5, 7], 'f16'), tensorType([3, 5, 7], 'f16'), true],
  [
    'f16 of a gradient in f32, planes of 6',
    tensorType([2, 3, 6]),
    tensorType([2, 3, 6], 'f16'),
    false,
  ],
]

/**
 * dx [N,C,...], dweight [C] and dbias [C] of batch normalization from dy, x, mean, variance and weight.
 *
 * cost: two dispatches: sums by channel, then dx.
 */
export const batchNormGrad: Op<BatchNormGradAttrs> = defineOp<BatchNormGradAttrs>({
  name: 'batchNormGrad',
  takesHalf: true,
  givesHalf: () => true,
  infer(inputs, { half }) {
    const { C } = sizesOf({ inputs })
    return [tensorType(inputs[1].shape, half ? 'f16' : 'f32'), tensorType([C]), tensorType([C])]
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, true) },
    { name: 'strips', lower: (call) => lower(call, false) },
  ],
  reference(inputs, call, scalars) {
    const { eps, isBatch, count } = call.attrs
    const sizes = sizesOf(call)
    const rows = isBatch ? countedRows(sizes.N, count, scalars) : 0
    const [dx, ...parameters] = batchNormGradReference(inputs, sizes, eps, rows)
    return [storedAs(call.attrs, dx), ...parameters]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 4e-6,
    because: 'up to 10,000 products of normal numbers summed in f32; terms cancel',
  },
  cases: [
    ...samples.map(([name, x, isBatch, fill, scalars]): Case<BatchNormGradAttrs> => {
      const features = tensorType([x[1]])
      return {
        name,
        inputs: [tensorType(x), tensorType(x), features, features, features],
        attrs: { eps: fill === 'huge' ? 2e4 : 8, isBatch, count: scalars ? { slot: 1 } : null },
        fill,
        scalars,
      }
    }),
    ...halfSamples.map(([name, dy, x, isBatch]): Case<BatchNormGradAttrs> => {
      const features = tensorType([x.shape[1]])
      return {
        name,
        inputs: [dy, x, features, features, features],
        attrs: { eps: 8, isBatch, count: null, half: true },
      }
    }),
  ],
})
