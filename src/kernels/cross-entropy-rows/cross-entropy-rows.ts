import { ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { countedRows } from '../counted-rows.ts'
import { type Case, defineOp, type Lowering, type Op, type OpCall, type ScalarSlot } from '../op.ts'
import { aroundAxis, type Pass } from '../reduce/shapes.ts'
import { dispatch, reads, type ShaderBinding, writes } from '../shader.ts'
import { lanesLibrary, rowGrid, rowVariants } from '../softmax/lanes.ts'
import { rowsReference } from './cross-entropy-rows.ref.ts'
import body from './rows.wgsl?raw'
import gradBody from './rows-grad.wgsl?raw'

/** Classes lie along axis 1; further axes, and axis 0, number the rows. */
export interface CrossEntropyRowsAttrs {
  /** Whether x are logits, or else log-probabilities. */
  readonly isLogits: boolean
  /** The part of each target's probability that is spread over all classes. */
  readonly smoothing: number
  /** Rows with this target have no loss and no weight. */
  readonly ignoreIndex: number
  /** How many of the first samples count; null: all. */
  readonly count: ScalarSlot | null
}

const rowsOf = ({ inputs }: OpCall<CrossEntropyRowsAttrs>): Pass => aroundAxis(inputs[0].shape, 1)

function inferRows(
  op: string,
  [x, target, ...others]: readonly TensorType[],
  weight: TensorType | undefined,
): TensorType {
  const rows = x.shape.filter((_, axis) => axis !== 1)
  if (x.shape.length < 2 || x.dtype !== 'f32' || target.dtype !== 'i32') {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected f32 input [N, C, ...] and i32 target [N, ...], got ${x.dtype}${formatShape(x.shape)} and ${target.dtype}${formatShape(target.shape)}. Pass class indices as i32.`,
    )
  }
  const wrong = [target, ...others].find(({ shape }) => !sameShape(shape, rows))
  if (wrong) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: expected one target per row of ${formatShape(x.shape)}, that is ${formatShape(rows)}, got ${formatShape(wrong.shape)}. Classes are dimension 1.`,
    )
  }
  if (weight && !(sameShape(weight.shape, [x.shape[1]]) && weight.dtype === 'f32')) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: expected a weight for each of ${x.shape[1]} classes, got ${weight.dtype}${formatShape(weight.shape)}. Check the number of classes.`,
    )
  }
  return tensorType(rows)
}

/** Functions and bindings that both kernels of the family link in. */
function link(
  { attrs }: OpCall<CrossEntropyRowsAttrs>,
  weight: number | undefined,
): { bindings: ShaderBinding[]; wgsl: string } {
  const { ignoreIndex, count } = attrs
  const conditions = [
    `given == ${ignoreIndex}i`,
    ...(count ? [`row / INNER >= u32(max(scalars[${count.slot}u], 0.0))`] : []),
  ]
  return {
    bindings: [
      ...(weight === undefined ? [] : [reads('class_weights', { in: weight })]),
      ...(count ? [reads('scalars', 'scalars')] : []),
    ],
    wgsl: [
      'fn value_bits(value: f32, is_bad: bool) -> u32 { return select(bitcast<u32>(value), 0x7fc00000u, is_bad); }',
      lanesLibrary,
      `fn class_weight(c: u32) -> f32 { return ${weight === undefined ? '1.0' : 'class_weights[c]'}; }`,
      `fn is_ignored(row: u32, given: i32) -> bool { return ${conditions.join(' || ')}; }`,
    ].join('\n'),
  }
}

const constantsOf = ({ attrs }: OpCall<CrossEntropyRowsAttrs>) => ({
  IS_LOGITS: attrs.isLogits ? 1 : 0,
  SMOOTHING: { f32: attrs.smoothing },
})

const lowerLosses = (call: OpCall<CrossEntropyRowsAttrs>, lanes: number): Lowering => {
  if (countElements(call.outputs[0].shape) === 0) return { dispatches: [] }
  const { constants, groups } = rowGrid(rowsOf(call), lanes)
  const { bindings, wgsl } = link(call, call.inputs.length > 2 ? 2 : undefined)
  return {
    dispatches: [
      dispatch({
        label: 'crossEntropyRows',
        bindings: [
          reads('x', { in: 0 }),
          reads('targets', { in: 1 }, 'i32'),
          ...bindings,
          writes('losses', { out: 0 }, 'u32'),
          writes('weights', { out: 1 }),
        ],
        constants: { ...constants, ...constantsOf(call) },
        body: [
          wgsl,
          'fn put(row: u32, bits: u32, weight: f32) { losses[row] = bits; weights[row] = weight; }',
          body,
        ].join('\n'),
        groups,
      }),
    ],
  }
}

const lowerGradient = (call: OpCall<CrossEntropyRowsAttrs>, lanes: number): Lowering => {
  if (countElements(call.outputs[0].shape) === 0) return { dispatches: [] }
  const { constants, groups } = rowGrid(rowsOf(call), lanes)
  const { bindings, wgsl } = link(call, call.inputs.length > 3 ? 3 : undefined)
  return {
    dispatches: [
      dispatch({
        label: 'crossEntropyRowsGrad',
        bindings: [
          reads('x', { in: 0 }),
          reads('targets', { in: 1 }, 'i32'),
          reads('dloss', { in: 2 }),
          ...bindings,
          writes('dx', { out: 0 }, 'u32'),
        ],
        constants: { ...constants, ...constantsOf(call) },
        body: [wgsl, gradBody].join('\n'),
        groups,
      }),
    ],
  }
}

const problemOf = (call: OpCall<CrossEntropyRowsAttrs>, scalars: readonly number[]) => ({
  ...call.attrs,
  sizes: rowsOf(call),
  count: countedRows(call.inputs[0].shape[0], call.attrs.count, scalars),
})

const plain: CrossEntropyRowsAttrs = {
  isLogits: true,
  smoothing: 0,
  ignoreIndex: -100,
  count: null,
}

const rowsCase = (
  name: string,
  shape: readonly number[],
  attrs: Partial<CrossEntropyRowsAttrs> = {},
  more: Partial<Case> & { hasWeight?: boolean } = {},
): Case<CrossEntropyRowsAttrs> => {
  const { hasWeight = false, ...rest } = more
  const rows = shape.filter((_, axis) => axis !== 1)
  return {
    name,
    inputs: [
      tensorType(shape),
      tensorType(rows, 'i32'),
      ...(hasWeight ? [tensorType([shape[1]])] : []),
    ],
    integerBelow: { 1: shape[1] },
    ...rest,
    attrs: { ...plain, ...attrs },
  }
}

const sharedCases = [
  rowsCase('one element', [1, 1]),
  rowsCase('mnist batch', [64, 10]),
  rowsCase('weights', [33, 7], {}, { hasWeight: true }),
  rowsCase('smoothing', [9, 12], { smoothing: 0.1 }),
  rowsCase('smoothing and weights, long rows', [5, 67], { smoothing: 0.25 }, { hasWeight: true }),
  rowsCase('ignored targets', [40, 5], { ignoreIndex: 3 }),
  rowsCase('long rows', [3, 1003], { ignoreIndex: 1 }),
  rowsCase('log-probabilities', [12, 10], { isLogits: false }, { hasWeight: true }),
  rowsCase('images', [2, 5, 3, 7], { ignoreIndex: 2 }, { hasWeight: true }),
  rowsCase('no rows', [0, 8]),
  rowsCase('huge', [6, 40], {}, { fill: 'huge' }),
  rowsCase('ties', [33, 7], { smoothing: 0.1 }, { fill: 'ties' }),
  rowsCase('fewer counted', [9, 10], { count: { slot: 1 } }, { scalars: [0, 5] }),
  rowsCase(
    'targets outside',
    [40, 5],
    { ignoreIndex: 6 },
    { integerBelow: { 1: 7 }, fill: 'ties' },
  ),
]

const because =
  'exp is allowed 3 + 2|x| ulp and log 2^-21 in WGSL; smoothing adds up a row of differences'

/**
 * Each row's cross entropy (or negative log-likelihood) and the weight that it has in a mean.
 *
 * shape: x [N, C, ...], target [N, ...] i32, weight [C] or absent -> losses and weights [N, ...]
 * numerics: NaN where a target is outside 0..C-1 and not ignored.
 */
export const crossEntropyRows: Op<CrossEntropyRowsAttrs> = defineOp<CrossEntropyRowsAttrs>({
  name: 'crossEntropyRows',
  infer(inputs) {
    const rows = inferRows('crossEntropyRows', inputs.slice(0, 2), inputs[2])
    return [rows, rows]
  },
  ...rowVariants(rowsOf, lowerLosses),
  gradient({ inputs: [x, target, weight], outputGradients: [dloss], attrs, needs, emit }) {
    if (!dloss || !needs(0)) return []
    return emit(crossEntropyRowsGrad, [x, target, dloss, ...(weight ? [weight] : [])], attrs)
  },
  reference([x, target, weight], call, scalars) {
    const { losses, weights } = rowsReference(x, target, weight, problemOf(call, scalars))
    return [losses, weights]
  },
  tolerance: { absolute: 2e-6, relative: 2e-6, because },
  cases: sharedCases,
})

/** The gradient of `crossEntropyRows` by x. shape: x, target, dloss [N, ...], weight [C] or absent -> x's */
export const crossEntropyRowsGrad: Op<CrossEntropyRowsAttrs> = defineOp<CrossEntropyRowsAttrs>({
  name: 'crossEntropyRowsGrad',
  infer(inputs) {
    inferRows('crossEntropyRowsGrad', inputs.slice(0, 3), inputs[3])
    return [inputs[0]]
  },
  ...rowVariants(rowsOf, lowerGradient),
  reference([x, target, dloss, weight], call, scalars) {
    return [rowsReference(x, target, weight, problemOf(call, scalars), dloss).dx]
  },
  tolerance: { absolute: 2e-6, relative: 4e-6, because },
  cases: sharedCases.map((sample) => ({
    ...sample,
    inputs: [
      sample.inputs[0],
      sample.inputs[1],
      tensorType(sample.inputs[1].shape),
      ...sample.inputs.slice(2),
    ],
  })),
})
