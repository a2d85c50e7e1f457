import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, sameShape, tensorType } from '../../util/shape.ts'
import { canBeWide, lowerChain } from '../map/chain-kernel.ts'
import {
  type Dispatch,
  defineOp,
  type GradientContext,
  type Lowering,
  type Op,
  type OpCall,
  type Operand,
  type Value,
} from '../op.ts'
import { reshape } from '../reshape/reshape.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import { broadcastOffset, chainShape } from '../steps.ts'
import sumWgsl from './sum.wgsl?raw'
import treeWgsl from './sum-tree.wgsl?raw'

// sum and expand are each other's gradient, so they share a file.

/** Sums over `axes`, which stay as size 1 with `keepDims`. */
export interface SumAttrs {
  readonly axes: readonly number[]
  readonly keepDims: boolean
}

/** Broadcasts the input to `shape` by NumPy's rules. */
export interface ExpandAttrs {
  readonly shape: Shape
}

const afterSum = (shape: Shape, axes: readonly number[], keepDims: boolean): number[] =>
  keepDims
    ? shape.map((size, axis) => (axes.includes(axis) ? 1 : size))
    : shape.filter((_, axis) => !axes.includes(axis))

/** One pass over memory: [outer, reduced, inner] becomes [outer, inner]. */
interface Pass {
  readonly outer: number
  readonly reduced: number
  readonly inner: number
}

/** The passes of a sum, one for each run of neighbouring reduced axes, innermost first. */
export function sumPasses(shape: Shape, axes: readonly number[]): Pass[] {
  if (axes.some((axis) => shape[axis] === 0)) {
    return [{ outer: countElements(afterSum(shape, axes, false)), reduced: 0, inner: 1 }]
  }
  const runs: { size: number; isReduced: boolean }[] = []
  shape.forEach((size, axis) => {
    if (size === 1) return
    const isReduced = axes.includes(axis)
    const last = runs.at(-1)
    if (last?.isReduced === isReduced) last.size *= size
    else runs.push({ size, isReduced })
  })
  const passes: Pass[] = []
  let inner = 1
  for (let at = runs.length - 1; at >= 0; at--) {
    const { size, isReduced } = runs[at]
    if (isReduced) {
      const outer = runs.slice(0, at).reduce((product, run) => product * run.size, 1)
      passes.push({ outer, reduced: size, inner })
    } else inner *= size
  }
  return passes.length > 0 ? passes : [{ outer: countElements(shape), reduced: 1, inner: 1 }]
}

function lower({ inputs, outputs, attrs }: OpCall<SumAttrs>, useTree: boolean): Lowering {
  if (countElements(outputs[0].shape) === 0) return { dispatches: [] }
  const passes = sumPasses(inputs[0].shape, attrs.axes)
  const dispatches = passes.map(({ outer, reduced, inner }, index): Dispatch => {
    const isTree = useTree && reduced > 64
    const from: Operand = index === 0 ? { in: 0 } : { scratch: index - 1 }
    const to: Operand = index === passes.length - 1 ? { out: 0 } : { scratch: index }
    const groups = linearGroups(isTree ? outer * inner : ceilDiv(outer * inner, 64))
    return dispatch({
      label: `sum ${outer}x${reduced}x${inner}${isTree ? ' tree' : ''}`,
      bindings: [reads('x', from), writes('y', to)],
      constants: { OUTER: outer, REDUCED: reduced, INNER: inner, GROUPS_X: groups[0] },
      body: isTree ? treeWgsl : sumWgsl,
      groups,
    })
  })
  const scratch = passes.slice(0, -1).map(({ outer, inner }) => tensorType([outer * inner]))
  return { dispatches, scratch }
}

/** y = x summed over axes. */
export const sum: Op<SumAttrs> = defineOp<SumAttrs>({
  name: 'sum',
  infer([x], { axes, keepDims }) {
    const wrong = axes.find((axis, n) => !(axis in x.shape) || axes.indexOf(axis) !== n)
    if (wrong !== undefined || x.dtype !== 'f32') {
      throw new ShapeError(
        'shape.unsupported',
        `sum: expected distinct axes of an f32 tensor, got axes [${axes.join(', ')}] of ${x.dtype}${formatShape(x.shape)}. Axes count from 0.`,
      )
    }
    return [tensorType(afterSum(x.shape, axes, keepDims))]
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, false) },
    {
      name: 'tree',
      when: ({ inputs: [x], attrs }) =>
        sumPasses(x.shape, attrs.axes).some(({ reduced }) => reduced > 64),
      lower: (call) => lower(call, true),
    },
  ],
  preferred: ({ inputs: [x], attrs }) =>
    sumPasses(x.shape, attrs.axes).some(
      ({ outer, reduced, inner }) => reduced >= 256 && outer * inner <= 1024,
    )
      ? 'tree'
      : 'naive',
  gradient(context) {
    const [dy] = context.outputGradients
    if (!dy) return [undefined]
    const { shape } = context.inputs[0].type
    const kept = afterSum(shape, context.attrs.axes, true)
    const [aligned] = sameShape(kept, dy.type.shape)
      ? [dy]
      : context.emit(reshape, [dy], { shape: kept })
    return context.emit(expand, [aligned], { shape })
  },
  reference([x], { inputs: [{ shape }], attrs: { axes } }) {
    const kept = afterSum(shape, axes, true)
    const y = new Float64Array(countElements(kept))
    for (let flat = 0; flat < x.length; flat++) y[broadcastOffset(shape, kept, flat)] += x[flat]
    return [y]
  },
  tolerance: {
    absolute: 2e-4,
    relative: 2e-6,
    because: 'up to a few thousand additions in f32; terms cancel, so the error is absolute',
  },
  cases: [
    { name: 'columns of 3x5', inputs: [tensorType([3, 5])], attrs: { axes: [0], keepDims: false } },
    { name: 'rows of 3x5', inputs: [tensorType([3, 5])], attrs: { axes: [1], keepDims: true } },
    {
      name: 'columns of 300x10',
      inputs: [tensorType([300, 10])],
      attrs: { axes: [0], keepDims: false },
    },
    {
      name: 'rows of 7x1000',
      inputs: [tensorType([7, 1000])],
      attrs: { axes: [1], keepDims: false },
    },
    {
      name: 'all of 65x33',
      inputs: [tensorType([65, 33])],
      attrs: { axes: [0, 1], keepDims: false },
    },
    {
      name: 'axes 0, 2 of 5x6x70',
      inputs: [tensorType([5, 6, 70])],
      attrs: { axes: [0, 2], keepDims: true },
    },
    {
      name: 'axes 0, 2, 3 of 4x16x7x7',
      inputs: [tensorType([4, 16, 7, 7])],
      attrs: { axes: [0, 2, 3], keepDims: false },
    },
    { name: 'no axes', inputs: [tensorType([67])], attrs: { axes: [], keepDims: false } },
    { name: 'one element', inputs: [tensorType([1])], attrs: { axes: [0], keepDims: false } },
    { name: 'a scalar', inputs: [tensorType([])], attrs: { axes: [], keepDims: false } },
    {
      name: 'nothing over the empty axis',
      inputs: [tensorType([0, 5])],
      attrs: { axes: [0], keepDims: false },
    },
    {
      name: 'nothing over the other axis',
      inputs: [tensorType([0, 5])],
      attrs: { axes: [1], keepDims: false },
    },
    {
      name: 'huge',
      inputs: [tensorType([3, 129])],
      attrs: { axes: [1], keepDims: false },
      fill: 'huge',
    },
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
      lower: ({ inputs: [x], outputs: [y] }) => lowerChain('expand', [], [x.shape], y.shape, false),
    },
    {
      name: 'wide',
      when: ({ inputs: [x], outputs: [y] }) => canBeWide([x.shape], y.shape),
      lower: ({ inputs: [x], outputs: [y] }) => lowerChain('expand', [], [x.shape], y.shape, true),
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
    { name: '1x5 to 3x5', inputs: [tensorType([1, 5])], attrs: { shape: [3, 5] } },
    { name: '9x1 to 9x68', inputs: [tensorType([9, 1])], attrs: { shape: [9, 68] } },
    { name: 'a scalar to 2x3x4', inputs: [tensorType([])], attrs: { shape: [2, 3, 4] } },
    { name: 'huge', inputs: [tensorType([12])], attrs: { shape: [7, 12] }, fill: 'huge' },
    { name: 'one element', inputs: [tensorType([1])], attrs: { shape: [1] } },
    { name: 'to nothing', inputs: [tensorType([1])], attrs: { shape: [0] } },
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
