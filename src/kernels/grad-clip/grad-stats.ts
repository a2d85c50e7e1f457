import { tensorType } from '../../util/shape.ts'
import { type Case, defineOp, type Lowering, type OpCall } from '../op.ts'
import { addingPairs } from '../rows.ts'
import { reads, writes } from '../shader.ts'
import { naiveOrTree, total, treeThreads } from '../totals.ts'
import { checkSlice, type Slice } from '../update/slice.ts'
import { type NormKind, normOf } from './norm.ts'

export interface GradStatsAttrs extends Slice {
  readonly norm: NormKind
}

const lower = (
  { attrs: { start, length, norm } }: OpCall<GradStatsAttrs>,
  threads: number,
  perThread: number,
): Lowering => {
  const { wgsl } = normOf(norm)
  return total({
    label: 'gradStats',
    bindings: [reads('grad', { in: 0 })],
    // Infinite and NaN are known by their bits, since WGSL lets a compiler assume that there are none.
    functions: `fn term(i: u32) -> vec2<f32> {
  let x = grad[${start}u + i];
  return vec2<f32>(${wgsl.term('x')}, select(0.0, 1.0, (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u));
}`,
    join: { ...addingPairs, by: `vec2<f32>(${wgsl.join('a.x', 'b.x')}, a.y + b.y)` },
    length,
    threads,
    perThread,
    output: writes('stats', { out: 0 }, 'vec2<f32>'),
    store: 'stats[0] = vec2<f32>(total.x, min(total.y, 1.0));',
  })
}

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
