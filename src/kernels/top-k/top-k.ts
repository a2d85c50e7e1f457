import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { formatShape, tensorType, unify } from '../../util/shape.ts'
import { countedRows, countedRowsWgsl } from '../counted-rows.ts'
import { type Case, defineOp, type Lowering, type OpCall, type ScalarSlot } from '../op.ts'
import { ceilDiv, reads, writes } from '../shader.ts'
import { total } from '../totals.ts'
import { topKCorrectReference } from './top-k.ref.ts'

export interface TopKCorrectAttrs {
  /** 1 for plain accuracy. */
  readonly k: number
  /** How many of the first rows count; null: all. */
  readonly count: ScalarSlot | null
}

/**
 * The target's place among the logits by counting those before it, which needs no sort; ties go to the lower index.
 *
 * `stepsPerGroup`: how often a group takes its `threads` rows.
 */
function lower(call: OpCall<TopKCorrectAttrs>, threads: number, stepsPerGroup: number): Lowering {
  const { k, count } = call.attrs
  const [rows, classes] = call.inputs[0].shape
  return total({
    label: 'topKCorrect',
    bindings: [
      reads('logits', { in: 0 }),
      reads('targets', { in: 1 }, 'i32'),
      ...(count ? [reads('scalars', 'scalars')] : []),
    ],
    constants: { R: rows },
    functions: `${countedRowsWgsl(count)}
fn term(row: u32) -> u32 {
  let label = u32(targets[row]);
  if (row >= counted_rows() || label >= ${classes}u) { return 0u; }
  let first = row * ${classes}u;
  let chosen = logits[first + label];
  var place = 0u;
  for (var c = 0u; c < ${classes}u; c++) {
    let other = logits[first + c];
    place += u32(other > chosen || (other == chosen && c < label));
  }
  return u32(place < ${k}u && !is_nan(chosen));
}`,
    join: { type: 'u32', start: '0u', by: 'a + b' },
    length: rows,
    threads,
    perThread: stepsPerGroup,
    output: writes('correct', { out: 0 }),
    store: 'correct[0] = f32(total);',
  })
}

const rowsCase = (
  name: string,
  [rows, classes]: readonly [number, number],
  attrs: TopKCorrectAttrs,
  more: Partial<Case<TopKCorrectAttrs>> = {},
): Case<TopKCorrectAttrs> => ({
  name,
  inputs: [tensorType([rows, classes]), tensorType([rows], 'i32')],
  integerBelow: { 1: classes },
  attrs,
  ...more,
})

/**
 * How many of the first `count` rows have their target among the k largest logits.
 *
 * shape: logits R C f32, target R i32; correct [] f32.
 * order: ties go to the lower index; a target outside 0..C-1 or a NaN there is not correct.
 */
export const topKCorrect = defineOp<TopKCorrectAttrs>({
  name: 'topKCorrect',
  infer([logits, target], { k }) {
    unify('topKCorrect', [
      ['logits', 'R C', logits.shape],
      ['target', 'R', target.shape],
    ])
    if (logits.dtype !== 'f32' || target.dtype !== 'i32') {
      throw new ShapeError(
        'shape.unsupported',
        `topKCorrect: expected f32 logits and i32 targets, got ${logits.dtype}${formatShape(logits.shape)} and ${target.dtype}${formatShape(target.shape)}. Pass class indices as i32.`,
      )
    }
    if (!Number.isInteger(k) || k < 1) {
      throw new ShapeError(
        'shape.unsupported',
        `topKCorrect: k must be a whole number of at least 1, got ${quoted(k)}. Use 1 for plain accuracy.`,
      )
    }
    return [tensorType([])]
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, 1, Math.max(1, call.inputs[0].shape[0])) },
    {
      name: 'oneGroup',
      when: (call, limits) => limits.maxInvocations >= 64 && call.inputs[0].shape[0] <= 65_536,
      lower: (call) => lower(call, 64, Math.max(1, ceilDiv(call.inputs[0].shape[0], 64))),
    },
    {
      name: 'groups',
      when: (_call, limits) => limits.maxInvocations >= 64,
      lower: (call) => lower(call, 64, 1),
    },
  ],
  preferred: (call) => (call.inputs[0].shape[0] < 512 ? 'oneGroup' : 'groups'),
  reference([logits, target], call, scalars) {
    const { k, count } = call.attrs
    const [rows, classes] = call.inputs[0].shape
    const counted = countedRows(rows, count, scalars)
    return [Float64Array.of(topKCorrectReference(logits, target, classes, k, counted))]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a count of comparisons is exact' },
  cases: [
    rowsCase('one element', [1, 1], { k: 1, count: null }),
    rowsCase('mnist batch', [64, 10], { k: 1, count: null }),
    rowsCase('top 5, not a multiple', [77, 19], { k: 5, count: null }),
    rowsCase('no rows', [0, 8], { k: 1, count: null }),
    rowsCase('many rows', [1030, 10], { k: 2, count: null }),
    rowsCase('k past the classes', [70, 3], { k: 9, count: null }),
    rowsCase('huge', [65, 10], { k: 1, count: null }, { fill: 'huge' }),
    rowsCase('ties', [130, 6], { k: 2, count: null }, { fill: 'ties' }),
    rowsCase('fewer counted', [70, 4], { k: 1, count: { slot: 1 } }, { scalars: [9, 66] }),
    rowsCase('none counted', [70, 4], { k: 1, count: { slot: 0 } }, { scalars: [0] }),
    rowsCase('targets outside', [70, 4], { k: 4, count: null }, { integerBelow: { 1: 6 } }),
  ],
})
