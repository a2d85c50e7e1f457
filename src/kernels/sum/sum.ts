import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, sameShape, tensorType } from '../../util/shape.ts'
import { canBeWide, lowerChain } from '../chain-kernel.ts'
import { caseOf, defineOp, type GradientContext, type Op, type Value } from '../op.ts'
import { lowerOverAxes, reductionVariants } from '../reduce/passes.ts'
import {
  checkAxes,
  kept,
  over,
  type ReduceAttrs,
  reducedShape,
  reducedType,
} from '../reduce/shapes.ts'
import { reshape } from '../reshape/reshape.ts'
import { broadcastOffset, chainShape } from '../steps.ts'

// sum and expand are each other's gradient, so they share a file.

/** Broadcasts the input to `shape` by NumPy's rules. */
export interface ExpandAttrs {
  readonly shape: Shape
}

/** y = x summed over axes; integers in i32, where sums wrap around. */
export const sum: Op<ReduceAttrs> = defineOp<ReduceAttrs>({
  name: 'sum',
  infer([x], { axes, keepDims }) {
    checkAxes('sum', x, axes)
    return [reducedType(x, { axes, keepDims })]
  },
  ...reductionVariants((call, useTree) => lowerOverAxes('sum', call, 'sum', useTree)),
  gradient(context) {
    const [dy] = context.outputGradients
    if (!dy) return [undefined]
    const { shape } = context.inputs[0].type
    const kept = reducedShape(shape, context.attrs.axes, true)
    const [aligned] = sameShape(kept, dy.type.shape)
      ? [dy]
      : context.emit(reshape, [dy], { shape: kept })
    return context.emit(expand, [aligned], { shape })
  },
  reference([x], { inputs: [{ shape, dtype }], attrs: { axes } }) {
    const kept = reducedShape(shape, axes, true)
    const count = countElements(kept)
    const y = dtype === 'i32' ? new Int32Array(count) : new Float64Array(count)
    for (let flat = 0; flat < x.length; flat++) y[broadcastOffset(shape, kept, flat)] += x[flat]
    return [y]
  },
  tolerance: {
    absolute: 2e-4,
    relative: 2e-6,
    because: 'up to a few thousand additions in f32; terms cancel, so the error is absolute',
  },
  cases: [
    caseOf('columns of 3x5', [[3, 5]], over(0)),
    caseOf('rows of 3x5', [[3, 5]], kept(1)),
    caseOf('columns of 300x10', [[300, 10]], over(0)),
    caseOf('rows of 7x1000', [[7, 1000]], over(1)),
    caseOf('all of 65x33', [[65, 33]], over(0, 1)),
    caseOf('axes 0, 2 of 5x6x70', [[5, 6, 70]], kept(0, 2)),
    caseOf('axes 0, 2, 3 of 4x16x7x7', [[4, 16, 7, 7]], over(0, 2, 3)),
    caseOf('no axes', [[67]], over()),
    caseOf('one element', [[1]], over(0)),
    caseOf('a scalar', [[]], over()),
    caseOf('nothing over the empty axis', [[0, 5]], over(0)),
    caseOf('nothing over the other axis', [[0, 5]], over(1)),
    caseOf('i32, rows of 5x301', [tensorType([5, 301], 'i32')], over(1), {
      integerBelow: { 0: 2 ** 31 },
    }),
    caseOf('i32, axes 0, 2 of 5x6x70', [tensorType([5, 6, 70], 'i32')], kept(0, 2), {
      integerBelow: { 0: 2 ** 20 },
    }),
    caseOf('all of 20,001, in chunks', [[20_001]], over(0)),
    caseOf('huge', [[3, 129]], over(1), { fill: 'huge' }),
  ],
})

/** y = x broadcast to a shape. */
export const expand: Op<ExpandAttrs> = defineOp<ExpandAttrs>({
  name: 'expand',
  infer([x], { shape }) {
    const common = chainShape('expand', [x.shape, shape])
    if (!sameShape(common, shape) || x.dtype !== 'f32') {
      throw new ShapeError(
        'shape.mismatch',
        `expand: expected an f32 tensor that broadcasts to ${formatShape(shape)}, got ${x.dtype}${formatShape(x.shape)}. Reshape it.`,
      )
    }
    return [tensorType(shape)]
  },
  variants: [
    {
      name: 'naive',
      lower: ({ inputs: [x], outputs: [y] }) => lowerChain('expand', [], [x], y.shape, false),
    },
    {
      name: 'wide',
      when: ({ inputs: [x], outputs: [y] }) => canBeWide([x.shape], y.shape),
      lower: ({ inputs: [x], outputs: [y] }) => lowerChain('expand', [], [x], y.shape, true),
    },
  ],
  gradient(context) {
    const [dy] = context.outputGradients
    return [dy && sumTo(context, dy, context.inputs[0].type.shape)]
  },
  reference([x], { inputs: [{ shape: from }], outputs: [{ shape }] }) {
    return [
      Float64Array.from({ length: countElements(shape) }, (_, flat) =>
        Number(x[broadcastOffset(shape, from, flat)]),
      ),
    ]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  cases: [
    caseOf('1x5 to 3x5', [[1, 5]], { shape: [3, 5] }),
    caseOf('9x1 to 9x68', [[9, 1]], { shape: [9, 68] }),
    caseOf('a scalar to 2x3x4', [[]], { shape: [2, 3, 4] }),
    caseOf('huge', [[12]], { shape: [7, 12] }, { fill: 'huge' }),
    caseOf('one element', [[1]], { shape: [1] }),
    caseOf('to nothing', [[1]], { shape: [0] }),
  ],
})

/** Returns `value` summed back to `shape`, from which it was broadcast; `value` itself where nothing was. */
export function sumTo<A>(context: GradientContext<A>, value: Value, shape: Shape): Value {
  const from = value.type.shape
  if (sameShape(from, shape)) return value
  const added = from.length - shape.length
  const axes = from.flatMap((size, axis) =>
    axis < added || (shape[axis - added] === 1 && size !== 1) ? [axis] : [],
  )
  const [summed] = axes.length > 0 ? context.emit(sum, [value], { axes, keepDims: true }) : [value]
  return added === 0 ? summed : context.emit(reshape, [summed], { shape })[0]
}
