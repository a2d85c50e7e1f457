import { tensorType } from '../../util/shape.ts'
import { type Case, defineOp, type Lowering, type OpCall } from '../op.ts'
import { reads } from '../shader.ts'
import { inTwoPasses, naiveOrTree, treeThreads } from '../two-passes.ts'
import { checkSlice, type Slice } from '../update/slice.ts'
import body from './grad-stats.wgsl?raw'
import totalBody from './grad-stats-total.wgsl?raw'
import { type NormKind, normFunctions, normOf } from './norm.ts'

export interface GradStatsAttrs extends Slice {
  readonly norm: NormKind
}

const lower = (
  { attrs: { start, length, norm } }: OpCall<GradStatsAttrs>,
  threads: number,
  perThread: number,
): Lowering =>
  inTwoPasses({
    label: 'gradStats',
    input: reads('grad', { in: 0 }),
    result: 'stats',
    dtype: 'f32',
    length,
    threads,
    perThread,
    constants: { START: start },
    body: (target) =>
      [
        normFunctions(norm, ['term', 'join']),
        `fn put(group: u32, value: f32, flag: f32) {
  ${target}[2u * group] = value;
  ${target}[2u * group + 1u] = flag;
}`,
        body,
      ].join('\n'),
    totalBody: `${normFunctions(norm, ['join'])}\n${totalBody}`,
  })

const sample = (
  name: string,
  n: number,
  slice: Slice,
  norm: NormKind = 'l2',
  fill?: Case['fill'],
): Case<GradStatsAttrs> => ({
  name: `${norm}, ${name}`,
  inputs: [tensorType([n])],
  attrs: { ...slice, norm },
  fill,
})

/**
 * A norm's total before its root over elements start .. start + length of a flat tensor, and 1 if any is infinite or NaN, else 0.
 *
 * shape: grad [n]; stats [2].
 * order: fixed by the variant and the length.
 */
export const gradStats = defineOp<GradStatsAttrs>({
  name: 'gradStats',
  infer(inputs, attrs) {
    checkSlice('gradStats', ['grad'], inputs, attrs)
    return [tensorType([2])]
  },
  ...naiveOrTree(
    (call) => lower(call, 1, 4096),
    (call) => lower(call, treeThreads, 16),
  ),
  reference([grad], { attrs: { start, length, norm } }) {
    const { term, join } = normOf(norm)
    let value = 0
    let flag = 0
    for (let i = start; i < start + length; i++) {
      value = join(value, term(grad[i]))
      if (!Number.isFinite(grad[i])) flag = 1
    }
    return [Float64Array.of(value, flag)]
  },
  tolerance: {
    absolute: 1e-5,
    relative: 1e-4,
    because: 'up to 4096 f32 additions of one sign one after another (naive)',
  },
  cases: [
    sample('one element', 1, { start: 0, length: 1 }),
    sample('not a multiple', 777, { start: 0, length: 777 }),
    sample('one past a group', 4097, { start: 0, length: 4097 }),
    sample('several groups, a slice', 20_011, { start: 13, length: 19_000 }),
    sample('nothing of some', 10, { start: 4, length: 0 }),
    sample('no elements', 0, { start: 0, length: 0 }),
    sample('huge', 1025, { start: 0, length: 1025 }, 'l2', 'huge'),
    sample('ties', 1025, { start: 0, length: 1025 }, 'l2', 'ties'),
    sample('several groups', 9001, { start: 0, length: 9001 }, 'l1'),
    sample('several groups', 9001, { start: 0, length: 9001 }, 'largest'),
    sample('huge', 300, { start: 0, length: 300 }, 'largest', 'huge'),
    sample('several groups', 9001, { start: 0, length: 9001 }, 'p3'),
    sample('a slice', 700, { start: 13, length: 640 }, 'p0.5'),
    sample('ties', 300, { start: 0, length: 300 }, 'p3', 'ties'),
    sample('several groups', 9001, { start: 0, length: 9001 }, 'count'),
    sample('ties', 300, { start: 0, length: 300 }, 'count', 'ties'),
    sample('several groups', 9001, { start: 0, length: 9001 }, 'smallest'),
    sample('ties', 300, { start: 0, length: 300 }, 'smallest', 'ties'),
    sample('no elements', 0, { start: 0, length: 0 }, 'smallest'),
  ],
})
