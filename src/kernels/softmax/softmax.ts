import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type TensorType, tensorType } from '../../util/shape.ts'
import { type MapAttrs, map } from '../map/map.ts'
import { i, s, step } from '../map/rules/rule.ts'
import { type Case, defineOp, type HostArray, type Op, type OpCall, type Value } from '../op.ts'
import { aroundAxis, reducedShape } from '../reduce/shapes.ts'
import { reshape } from '../reshape/reshape.ts'
import { adding, largest, type Reduction, type RowKernel, rowVariants } from '../rows.ts'
import { reads, writes } from '../shader.ts'

/** Over which axis, counted from 0. */
export interface AxisAttrs {
  readonly axis: number
}

const rowsOf = ({ inputs, attrs }: OpCall<AxisAttrs>) => aroundAxis(inputs[0].shape, attrs.axis)

function checkAxis(op: string, x: TensorType, axis: number): void {
  if (!(axis in x.shape) || x.dtype !== 'f32') {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected an axis of an f32 tensor, got axis ${axis} of ${x.dtype}${formatShape(x.shape)}. Axes count from 0.`,
    )
  }
}

/** The largest element of a row, and the sum of the exponentials of the distances to it, so that huge values are fine. */
export const topAndTotal: readonly Reduction[] = [
  { name: 'top', join: largest, of: 'x[at]' },
  { name: 'total', join: adding, of: 'exp_of(x[at] - top)' },
]

const kernelOf = (label: string, stores: Pick<RowKernel, 'each' | 'once'>) => () => ({
  label,
  bindings: [reads('x', { in: 0 }), writes('y', { out: 0 })],
  reductions: topAndTotal,
  ...stores,
})

const axisCases: readonly Case<AxisAttrs>[] = [
  { name: 'one element', inputs: [tensorType([1])], attrs: { axis: 0 } },
  { name: 'rows of 64x10', inputs: [tensorType([64, 10])], attrs: { axis: 1 } },
  { name: 'columns of 33x5', inputs: [tensorType([33, 5])], attrs: { axis: 0 } },
  { name: 'long rows', inputs: [tensorType([3, 1003])], attrs: { axis: 1 } },
  { name: 'rows of 70x65', inputs: [tensorType([70, 65])], attrs: { axis: 1 } },
  { name: 'the middle of 2x67x9', inputs: [tensorType([2, 67, 9])], attrs: { axis: 1 } },
  { name: 'nothing', inputs: [tensorType([0, 7])], attrs: { axis: 1 } },
  { name: 'rows of nothing', inputs: [tensorType([5, 0])], attrs: { axis: 1 } },
  { name: 'huge', inputs: [tensorType([7, 40])], attrs: { axis: 1 }, fill: 'huge' },
  { name: 'ties', inputs: [tensorType([9, 33])], attrs: { axis: 1 }, fill: 'ties' },
]

/** For each row: calls `visit` with the flat indices of its elements. */
function eachRow(call: OpCall<AxisAttrs>, visit: (indices: number[], row: number) => void): void {
  const { outer, reduced, inner } = rowsOf(call)
  for (let row = 0; row < outer * inner; row++) {
    const first = Math.floor(row / inner) * reduced * inner + (row % inner)
    visit(
      Array.from({ length: reduced }, (_, c) => first + c * inner),
      row,
    )
  }
}

/** The largest element of a row and the sum of the exponentials of the distances to it. */
function topAndSum(x: HostArray, indices: readonly number[]): { top: number; total: number } {
  const top = indices.reduce((max, at) => Math.max(max, x[at]), Number.NEGATIVE_INFINITY)
  return { top, total: indices.reduce((sum, at) => sum + Math.exp(x[at] - top), 0) }
}

const because = 'exp is allowed 3 + 2|x| ulp and log 2^-21 in WGSL; sums of up to a thousand terms'

/** A row of -inf alone gives NaN, as in PyTorch. */
function pointwise(name: 'softmax' | 'logSoftmax', isLog: boolean): Op<AxisAttrs> {
  const result = isLog ? '(x[at] - top) - log_of(total)' : 'exp_of(x[at] - top) / total'
  return defineOp<AxisAttrs>({
    name,
    infer([x], { axis }) {
      checkAxis(name, x, axis)
      return [x]
    },
    ...rowVariants(rowsOf, kernelOf(name, { each: [`y[at] = ${result};`] })),
    gradient({ outputs: [y], outputGradients: [dy], attrs, emit }) {
      return dy ? emit(softmaxGrad, [y, dy], { axis: attrs.axis, isLog }) : [undefined]
    },
    reference([x], call) {
      const y = new Float64Array(x.length)
      eachRow(call, (indices) => {
        const { top, total } = topAndSum(x, indices)
        for (const at of indices) {
          y[at] = isLog ? x[at] - top - Math.log(total) : Math.exp(x[at] - top) / total
        }
      })
      return [y]
    },
    tolerance: { absolute: 1e-6, relative: 2e-6, because },
    cases: axisCases,
  })
}

/** y = exp(x) / sum of exp(x) over an axis. */
export const softmax = pointwise('softmax', false)

/** y = x - log of the sum of exp(x) over an axis. */
export const logSoftmax = pointwise('logSoftmax', true)

export interface SoftmaxGradAttrs extends AxisAttrs {
  /** True if the result is the logarithm. */
  readonly isLog: boolean
}

const gradKernel = ({ attrs: { isLog } }: OpCall<SoftmaxGradAttrs>) => ({
  label: isLog ? 'logSoftmaxGrad' : 'softmaxGrad',
  bindings: [reads('y', { in: 0 }), reads('dy', { in: 1 }), writes('dx', { out: 0 })],
  reductions: [{ name: 'total', join: adding, of: isLog ? 'dy[at]' : 'dy[at] * y[at]' }],
  each: [`dx[at] = ${isLog ? 'dy[at] - exp_of(y[at]) * total' : 'y[at] * (dy[at] - total)'};`],
})

/** dx of softmax or logSoftmax from the result and its gradient. shape: y, dy -> dx, all equal */
export const softmaxGrad: Op<SoftmaxGradAttrs> = defineOp<SoftmaxGradAttrs>({
  name: 'softmaxGrad',
  infer([y], { axis }) {
    checkAxis('softmaxGrad', y, axis)
    return [y]
  },
  ...rowVariants(rowsOf, gradKernel),
  reference([y, dy], call) {
    const dx = new Float64Array(y.length)
    const { isLog } = call.attrs
    eachRow(call, (indices) => {
      const total = indices.reduce((sum, at) => sum + (isLog ? dy[at] : dy[at] * y[at]), 0)
      for (const at of indices) {
        dx[at] = isLog ? dy[at] - Math.exp(y[at]) * total : y[at] * (dy[at] - total)
      }
    })
    return [dx]
  },
  tolerance: {
    absolute: 2e-4,
    relative: 4e-6,
    because: 'sums of up to a thousand drawn terms, which no softmax bounds, times an element',
  },
  cases: axisCases.flatMap((sample) =>
    [false, true].map((isLog) => ({
      ...sample,
      name: `${sample.name}${isLog ? ', logarithm' : ''}`,
      // A huge logarithm has no finite exponential.
      fill: sample.fill === 'huge' && isLog ? ('ties' as const) : sample.fill,
      inputs: [sample.inputs[0], sample.inputs[0]],
      attrs: { ...sample.attrs, isLog },
    })),
  ),
})

const logSumExpKernel = (call: OpCall<AxisAttrs>) => {
  const { reduced, inner } = rowsOf(call)
  const once = [
    // Beside infinity the total is NaN anyway, so only the elements show whether one of them is.
    'let is_infinite = top > 0x1.fffffep+127f;',
    'var result = select(top + log_of(total), top, is_infinite);',
    'if (is_infinite) {',
    `  for (var c = 0u; c < ${reduced}u; c++) { result = max_of(result, x[first + c * ${inner}u]); }`,
    '}',
    'y[row] = result;',
  ]
  return kernelOf('logSumExp', { once })()
}

/** y = log of the sum of exp(x) over an axis, which goes; of nothing, and of -inf alone, -inf. */
export const logSumExp: Op<AxisAttrs> = defineOp<AxisAttrs>({
  name: 'logSumExp',
  infer([x], { axis }) {
    checkAxis('logSumExp', x, axis)
    return [tensorType(reducedShape(x.shape, [axis], false))]
  },
  ...rowVariants(rowsOf, logSumExpKernel),
  // dy exp(x - y)
  gradient({ inputs: [x], outputs: [y], outputGradients: [dy], attrs, emit }) {
    if (!dy) return [undefined]
    const shape = reducedShape(x.type.shape, [attrs.axis], true)
    const [total, slope] = [y, dy].map((value: Value) => emit(reshape, [value], { shape })[0])
    const steps = [step('sub', i(0), i(1)), step('exp', s(0)), step('mul', s(1), i(2))]
    return emit<MapAttrs>(map, [x, total, slope], { steps })
  },
  reference([x], call) {
    const y = new Float64Array(countElements(call.outputs[0].shape))
    eachRow(call, (indices, row) => {
      const { top, total } = topAndSum(x, indices)
      y[row] = Number.isFinite(top) ? top + Math.log(total) : top
    })
    return [y]
  },
  tolerance: { absolute: 1e-6, relative: 2e-6, because },
  cases: axisCases,
})
