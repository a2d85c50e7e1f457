import { ShapeError } from '../../util/errors.ts'
import { countElements, type DType, formatShape, tensorType } from '../../util/shape.ts'
import { type Case, defineOp, type HostArray, type Lowering, type OpCall } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { naiveOrTree, total, treeThreads } from '../totals.ts'
import { hashWords } from './hash-words.ts'

export interface ParamHashAttrs {
  /** Only the first `length` elements are hashed; the rest may be padding. */
  readonly length: number
}

/**
 * A position-dependent hash of the bits of elements, as two u32 lanes:
 *
 *   a(i) = mix_a(bits(x[i]) ^ mix_b(i))        b(i) = mix_b(bits(x[i]) + mix_a(~i))
 *   hash = (sum_i a(i) mod 2^32, sum_i b(i) mod 2^32)
 *
 * numerics: integers only, and wrapping addition has no order, so every device and every layout gets the same hash.
 * For a fixed i both lanes map bits one to one, so a change of any one element always changes both.
 * source: mix_a: Chris Wellons, "Prospecting for hash functions" (lowbias32). mix_b: Austin Appleby, MurmurHash3's 32-bit finalizer.
 * The sum is ours.
 */
const functions = `fn mix_a(start: u32) -> u32 {
  var z = start;
  z = (z ^ (z >> 16u)) * 0x7feb352du;
  z = (z ^ (z >> 15u)) * 0x846ca68bu;
  return z ^ (z >> 16u);
}
fn mix_b(start: u32) -> u32 {
  var z = start;
  z = (z ^ (z >> 16u)) * 0x85ebca6bu;
  z = (z ^ (z >> 13u)) * 0xc2b2ae35u;
  return z ^ (z >> 16u);
}
fn term(i: u32) -> vec2<u32> {
  let bits = words[i];
  return vec2<u32>(mix_a(bits ^ mix_b(i)), mix_b(bits + mix_a(~i)));
}`

const lower = (
  { attrs: { length } }: OpCall<ParamHashAttrs>,
  threads: number,
  perThread: number,
): Lowering =>
  total({
    label: 'paramHash',
    bindings: [reads('words', { in: 0 }, 'u32')],
    functions,
    join: { type: 'vec2<u32>', start: 'vec2<u32>(0u, 0u)', by: 'a + b' },
    length,
    threads,
    perThread,
    output: writes('hash', { out: 0 }, 'vec2<u32>'),
    store: 'hash[0] = total;',
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
 * A 64-bit hash of the bits of a tensor, the same on every device.
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
