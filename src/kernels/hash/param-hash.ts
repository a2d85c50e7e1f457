import { ShapeError } from '../../util/errors.ts'
import { countElements, type DType, formatShape, tensorType } from '../../util/shape.ts'
import { type Case, defineOp, type HostArray, type Lowering, type OpCall } from '../op.ts'
import { reads } from '../shader.ts'
import { inTwoPasses, naiveOrTree, treeThreads } from '../two-passes.ts'
import { hashWords } from './hash-words.ts'
import body from './param-hash.wgsl?raw'
import totalBody from './param-hash-total.wgsl?raw'

export interface ParamHashAttrs {
  /** Only the first `length` elements are hashed; the rest may be padding. */
  readonly length: number
}

const lower = (
  { attrs: { length } }: OpCall<ParamHashAttrs>,
  threads: number,
  perThread: number,
): Lowering =>
  inTwoPasses({
    label: 'paramHash',
    input: reads('words', { in: 0 }, 'u32'),
    result: 'hash',
    dtype: 'u32',
    length,
    threads,
    perThread,
    body: (target) =>
      [
        `fn put_hash(group: u32, lanes: vec2<u32>) {
  ${target}[2u * group] = lanes.x;
  ${target}[2u * group + 1u] = lanes.y;
}`,
        body,
      ].join('\n'),
    totalBody,
  })

/** The bits of values as a device buffer of `dtype` holds them. */
const toWords = (values: HostArray, dtype: DType): Uint32Array =>
  dtype === 'f32' ? new Uint32Array(Float32Array.from(values).buffer) : Uint32Array.from(values)

const sample = (
  name: string,
  n: number,
  length = n,
  dtype: DType = 'f32',
  fill?: Case['fill'],
): Case<ParamHashAttrs> => ({
  name,
  inputs: [tensorType([n], dtype)],
  integerBelow: { 0: 1_000_000 },
  attrs: { length },
  fill,
})

/**
 * A 64-bit hash of the bits of a tensor, the same on every device; param-hash.wgsl holds the formula.
 *
 * shape: x of any shape and type; hash [2] u32.
 * order: none: the hash is a wrapping integer sum over elements.
 */
export const paramHash = defineOp<ParamHashAttrs>({
  name: 'paramHash',
  infer([x], { length }) {
    if (!Number.isInteger(length) || length < 0 || length > countElements(x.shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `paramHash: length must be within 0..${countElements(x.shape)}, got ${length} for x${formatShape(x.shape)}. Pass the number of elements to hash.`,
      )
    }
    return [tensorType([2], 'u32')]
  },
  ...naiveOrTree(
    (call) => lower(call, 1, 1024),
    (call) => lower(call, treeThreads, 16),
  ),
  reference([x], { inputs: [{ dtype }], attrs: { length } }) {
    return [Uint32Array.from(hashWords(toWords(x, dtype).subarray(0, length)))]
  },
  tolerance: { absolute: 0, relative: 0, because: 'integers' },
  cases: [
    sample('one element', 1),
    sample('not a multiple', 777),
    sample('one group', 4096),
    sample('one past a group', 4097),
    sample('several groups', 20_011),
    sample('a part', 5000, 4321),
    sample('i32', 300, 300, 'i32'),
    sample('u32', 300, 299, 'u32'),
    sample('none of some', 10, 0),
    sample('no elements', 0),
    sample('huge', 1025, 1025, 'f32', 'huge'),
    sample('ties', 1025, 1025, 'f32', 'ties'),
  ],
})
