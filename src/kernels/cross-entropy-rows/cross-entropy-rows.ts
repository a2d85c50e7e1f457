import { ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { countedRows } from '../counted-rows.ts'
import { type Case, defineOp, type Op, type OpCall, type ScalarSlot } from '../op.ts'
import { aroundAxis, type Pass } from '../reduce/shapes.ts'
import { adding, type Reduction, type RowKernel, rowVariants } from '../rows.ts'
import { f32Literal, reads, writes } from '../shader.ts'
import { topAndTotal } from '../softmax/softmax.ts'
import { rowsReference } from './cross-entropy-rows.ref.ts'

/** Classes lie along axis 1; further axes, and axis 0, number the rows. */
export interface CrossEntropyRowsAttrs {
  /** True if x are logits, or else log-probabilities. */
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

/**
 * What the losses and their gradient have in common: each row's target, and of logits the softmax.
 *
 * numerics: top is subtracted before exp, and x[target] from top before log_sum is added, so that a large common offset costs no digits.
 * A target outside 0..C-1 that is not ignored gives NaN, by its bits: shader compilers may assume that f32 arithmetic sees none.
 */
function sharedKernel(
  call: OpCall<CrossEntropyRowsAttrs>,
  weight: number,
  afterTotal: readonly string[] = [],
) {
  const [top, total] = topAndTotal
  const { isLogits, ignoreIndex, count } = call.attrs
  const { reduced, inner } = rowsOf(call)
  const hasWeight = call.inputs.length > weight
  const ignored = [
    `targets[row] == ${ignoreIndex}i`,
    ...(count ? [`row / ${inner}u >= u32(max(scalars[${count.slot}u], 0.0))`] : []),
  ]
  return {
    bindings: [
      reads('x', { in: 0 }),
      reads('targets', { in: 1 }, 'i32'),
      ...(hasWeight ? [reads('class_weights', { in: weight })] : []),
      ...(count ? [reads('scalars', 'scalars')] : []),
    ],
    functions: `fn value_bits(value: f32, is_bad: bool) -> u32 { return select(bitcast<u32>(value), 0x7fc00000u, is_bad); }
fn class_weight(c: u32) -> f32 { return ${hasWeight ? 'class_weights[c]' : '1.0'}; }
fn is_ignored(row: u32) -> bool { return ${ignored.join(' || ')}; }`,
    begin: [
      'var is_used = false;',
      'var label = 0u;',
      'if (row < ROWS) {',
      '  is_used = !is_ignored(row);',
      '  label = u32(targets[row]);',
      '}',
      `let is_bad = is_used && label >= ${reduced}u;`,
      'let safe = select(label, 0u, is_bad || !is_used);',
      ...(isLogits ? [] : ['let top = 0.0;']),
    ],
    constants: { ROWS: countElements(call.inputs[1].shape) },
    isRead: 'is_used',
    reductions: isLogits ? [top, { ...total, after: afterTotal }] : [],
  }
}

/** (1 - S) w (-logp[t]) + S / C sum_c weight[c] (-logp[c]), of the log-probabilities logp[c]: x[c] - top - log_sum, or x[c] itself. */
function lossKernel(call: OpCall<CrossEntropyRowsAttrs>): Omit<RowKernel, 'rows' | 'lanes'> {
  const { isLogits, smoothing } = call.attrs
  const { reduced, inner } = rowsOf(call)
  const shared = sharedKernel(call, 2, ['let log_sum = log_of(total);'])
  const spread: Reduction = {
    name: 'spread',
    join: adding,
    of: 'class_weight(c) * (log_sum + (top - x[at]))',
  }
  const rest = `${f32Literal(smoothing)} / f32(${reduced}u) * ${smoothing > 0 ? 'spread' : '0.0'}`
  return {
    label: 'crossEntropyRows',
    ...shared,
    bindings: [
      ...shared.bindings,
      writes('losses', { out: 0 }, 'u32'),
      writes('weights', { out: 1 }),
    ],
    begin: [...shared.begin, ...(isLogits ? [] : ['let log_sum = 0.0;'])],
    reductions: [...shared.reductions, ...(smoothing > 0 ? [spread] : [])],
    once: [
      `let own = class_weight(safe);`,
      `let chosen = own * (log_sum + (top - x[first + safe * ${inner}u]));`,
      `losses[row] = select(0u, value_bits((1.0 - ${f32Literal(smoothing)}) * chosen + ${rest}, is_bad), is_used);`,
      'weights[row] = select(0.0, own, is_used);',
    ],
  }
}

/** Of logits d ((1 - S) w (p[c] - [c = t]) + S / C (p[c] sum_c weight[c] - weight[c])), of log-probabilities with p of 0; ignored rows get 0. */
function gradKernel(call: OpCall<CrossEntropyRowsAttrs>): Omit<RowKernel, 'rows' | 'lanes'> {
  const { isLogits, smoothing } = call.attrs
  const { reduced } = rowsOf(call)
  const shared = sharedKernel(call, 3)
  const share = f32Literal(smoothing)
  return {
    label: 'crossEntropyRowsGrad',
    ...shared,
    bindings: [...shared.bindings, reads('dloss', { in: 2 }), writes('dx', { out: 0 }, 'u32')],
    begin: [
      ...shared.begin,
      'let own = class_weight(safe);',
      'let slope = dloss[min(row, ROWS - 1u)];',
    ],
    reductions: [
      ...shared.reductions,
      ...(smoothing > 0 ? [{ name: 'weights', join: adding, of: 'class_weight(c)' }] : []),
    ],
    each: [
      `let probability = ${isLogits ? 'exp_of(x[at] - top) / total' : '0.0'};`,
      `var result = (1.0 - ${share}) * own * (probability - select(0.0, 1.0, c == label));`,
      ...(smoothing > 0
        ? [`result += ${share} / f32(${reduced}u) * (probability * weights - class_weight(c));`]
        : []),
      'dx[at] = select(0u, value_bits(slope * result, is_bad), is_used);',
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
  ...rowVariants(rowsOf, lossKernel),
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
  ...rowVariants(rowsOf, gradKernel),
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
