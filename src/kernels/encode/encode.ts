import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, tensorType } from '../../util/shape.ts'
import {
  defineOp,
  type HostArray,
  type KernelLimits,
  type Lowering,
  type OpCall,
  type ScalarSlot,
} from '../op.ts'
import { ceilDiv, dispatch, linearGroups, reads, updates } from '../shader.ts'
import wgsl from './encode.wgsl?raw'
import wide from './encode-wide.wgsl?raw'
import marks from './marks.wgsl?raw'

/** Neighbouring elements of one tensor that have a common scale; the last block of a tensor may be short. */
export const blockElements = 256

export const blocksOf = (elements: number): number => ceilDiv(elements, blockElements)

/** By how many bits a block's gradients are shifted before they become whole numbers. */
export const shiftOf = (exponent: number): number => Math.min(126, Math.max(-126, 27 - exponent))

/** The mark of an element that does not fit. */
const unfit = 2 ** 23
/** The mark of one that is not finite; 64 of them fit into a word. */
const notFinite = 2 ** 25

export interface EncodeAttrs {
  /** 1 where the sums begin with this run, 0 where it adds to them. */
  readonly first: ScalarSlot
}

/** `lanes`: invocations of a block; none where one has 4 elements of it at a time. */
const lower = ({ inputs, attrs }: OpCall<EncodeAttrs>, lanes?: number): Lowering => {
  const [, , gradient] = inputs
  const length = countElements(gradient.shape)
  const blocks = blocksOf(length)
  if (blocks === 0) return { dispatches: [] }
  // With vectors a workgroup has one block, so that few wait for what makes the gradient.
  const perGroup = lanes === 1 ? 64 : 1
  const groups = linearGroups(ceilDiv(blocks, perGroup))
  const { slot } = attrs.first
  const one = `@compute @workgroup_size(${perGroup})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let block = (group.y * GROUPS_X + group.x) * ${perGroup}u + thread;
  if (block >= BLOCKS) { return; }
  let is_first = scalars[${slot}u] > 0.0;
  note(block, ${lanes ? 'encode_lane(block, 0u, is_first)' : 'encode_block(block, is_first)'}, is_first);
}`
  const several = `var<workgroup> largest: atomic<u32>;
@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let block = group.y * GROUPS_X + group.x;
  let is_first = scalars[${slot}u] > 0.0;
  if (block < BLOCKS) { atomicMax(&largest, encode_lane(block, lane, is_first)); }
  workgroupBarrier();
  if (block < BLOCKS && lane == 0u) { note(block, atomicLoad(&largest), is_first); }
}`
  return {
    dispatches: [
      dispatch({
        label: 'encode',
        bindings: [
          updates('total', { in: 0 }, lanes ? 'i32' : 'vec4<i32>'),
          updates('marks', { in: 1 }, 'i32'),
          reads('gradient', { in: 2 }, lanes ? 'u32' : 'vec4<u32>'),
          reads('exponents', { in: 3 }, 'i32'),
          { ...reads('scalars', 'scalars'), count: slot + 1 },
        ],
        constants: {
          ...(lanes ? { LENGTH: length, LANES: lanes } : { VECTORS: length / 4 }),
          BLOCKS: blocks,
          GROUPS_X: groups[0],
        },
        body: `${marks}\n${lanes ? wgsl : wide}\n${lanes === 64 ? several : one}`,
        groups,
        ...(!lanes && { pieces: { operand: { in: 2 }, groups: 1, elements: blockElements } }),
      }),
    ],
  }
}

/** To the nearest whole number, ties to the even one, as WGSL's. */
function roundEven(x: number): number {
  const low = Math.floor(x)
  const rest = x - low
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1
  return low % 2 === 0 ? low : low + 1
}

/**
 * Adds a gradient to sums of whole numbers: total <- total + round(gradient 2^k), k = 27 - the block's exponent, within -126 and 126.
 *
 * Whole numbers add up to the same bits in any order. marks <- marks + (largest magnitude of the block >> 8) + 1, so that they bound what the
 * block's sums may be: below 2^23 all fit. A number that does not fit counts 2^23. A block with one that is not finite counts -2^25, so that its
 * sum of marks is negative where the others fit.
 * shape: total [n] i32, marks [blocks] i32, gradient [n], exponents [blocks] i32; total and marks change in place.
 */
export const encode = defineOp<EncodeAttrs>({
  name: 'encode',
  updates: [0, 1],
  addsUp: true,
  infer([total, marks, gradient, exponents]) {
    const length = countElements(gradient.shape)
    const expected = [tensorType([length], 'i32'), tensorType([blocksOf(length)], 'i32')]
    const fits = [total, marks, exponents].every(
      ({ shape, dtype }, i) =>
        shape.length === 1 && dtype === 'i32' && shape[0] === expected[Math.min(i, 1)].shape[0],
    )
    if (fits && gradient.dtype === 'f32') return []
    throw new ShapeError(
      'shape.mismatch',
      `encode: expected i32 tensors ${expected.map(({ shape }) => formatShape(shape)).join(' and ')} for a gradient of ${length} elements, got ${[total, marks, exponents].map(({ shape }) => formatShape(shape)).join(', ')}. Make them by blocksOf.`,
    )
  },
  variants: [
    { name: 'naive', lower: (call) => lower(call, 1) },
    { name: 'lanes', lower: (call) => lower(call, 64) },
    // Of vectors, which SwiftShader and GPUs have not; nor may they be trusted with floats that are not finite.
    {
      name: 'wide',
      when: ({ inputs }, { isWasm }) => isWasm === true && countElements(inputs[2].shape) % 4 === 0,
      lower: (call) => lower(call),
    },
  ],
  preferred: ({ inputs }, { isSoftware, isWasm }: KernelLimits) =>
    isWasm && countElements(inputs[2].shape) % 4 === 0 ? 'wide' : isSoftware ? 'naive' : 'lanes',
  reference([total, marks, gradient, exponents], { attrs }, scalars) {
    const isFirst = scalars[attrs.first.slot] > 0
    for (let block = 0; block < marks.length; block++) {
      const scale = 2 ** shiftOf(exponents[block])
      let largest = 0
      const end = Math.min(gradient.length, (block + 1) * blockElements)
      for (let i = block * blockElements; i < end; i++) {
        const rounded = roundEven(Math.fround(gradient[i] * scale))
        const doesFit = Math.abs(rounded) < 2 ** 31
        const value = doesFit ? rounded : 0
        total[i] = ((isFirst ? 0 : total[i]) + value) | 0
        const mark = Number.isFinite(gradient[i]) ? unfit : notFinite
        largest = Math.max(largest, doesFit ? Math.abs(value) >>> 8 : mark)
      }
      const own = largest === notFinite ? -notFinite : largest + 1
      marks[block] = ((isFirst ? 0 : marks[block]) + own) | 0
    }
    return [] as HostArray[]
  },
  tolerance: {
    absolute: 0,
    relative: 0,
    because: 'whole numbers, and products with powers of two',
  },
  cases: [
    encodeCase('one element', [1]),
    encodeCase('several blocks, the last one short', [3, 171]),
    { ...encodeCase('the first of a step', [300]), scalars: [1] },
    { ...encodeCase('too large to fit', [300]), fill: 'huge' },
    { ...encodeCase('ties', [70]), fill: 'ties' },
    { ...encodeCase('blocks of zeros', [300]), fill: 'zeros' },
    encodeCase('many blocks', [33_000]),
    encodeCase('nothing', [0]),
  ],
})

function encodeCase(name: string, shape: readonly number[]) {
  const length = countElements(shape)
  const blocks = blocksOf(length)
  const words = tensorType([blocks], 'i32')
  return {
    name,
    inputs: [tensorType([length], 'i32'), words, tensorType(shape), words],
    attrs: { first: { slot: 0 } },
    scalars: [0],
    integerBelow: { 0: 1000, 1: 1000, 3: 12 },
  }
}
