import { type ElementArray, sameType } from '../../peer/collective/element.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { secondHalf, type Turn } from '../../peer/group/group-calls.ts'
import { PeerError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { formatShape } from '../../util/shape.ts'
import { collective, type DistributedOptions, type DistributedResult } from './call.ts'
import { arrayOf, type Contents, lengthOf, putBack } from './contents.ts'
import { checkCount, checkTensor, checkTensorList, formOf, joined, spread } from './tensor-lists.ts'

/** Sends tensor p of the inputs to rank p, which stores it at place r of its outputs, where r is this rank. All tensors have the same length. */
export function allToAll<O extends DistributedOptions>(
  outputTensorList: readonly Contents[],
  inputTensorList: readonly Contents[],
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'allToAll'
  return collective(
    where,
    options,
    (group) => {
      checkCount(where, 'inputTensorList', inputTensorList, group.size)
      const form = formOf(where, 'inputTensorList[0]', inputTensorList[0]!)
      checkTensorList(where, 'inputTensorList', inputTensorList, group, form)
      checkTensorList(where, 'outputTensorList', outputTensorList, group, form)
      return { reads: inputTensorList, writes: outputTensorList }
    },
    async (group, { turn }) => {
      const input = await joined(inputTensorList)
      const output = sameType(input, input.length)
      await group.allToAll(input, output, turn)
      spread(output, outputTensorList)
    },
  )
}

/**
 * Does what `allToAll` does, with one tensor for input and one for output: in equal parts, or in parts of the given sizes. Each rank may pass
 * sizes or not, separately for input and output.
 *
 * Split sizes count along the first axis (elements of an array) and add up to its length. cost: one more exchange, of the sizes, and every
 * part travels at the length of the longest. errors: `peer.mismatch`, also if a rank expects another size than it gets, naming both.
 */
export function allToAllSingle<O extends DistributedOptions>(
  output: Contents,
  input: Contents,
  outputSplitSizes?: readonly number[] | null,
  inputSplitSizes?: readonly number[] | null,
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'allToAllSingle'
  const check = (group: CollectiveGroup) => {
    const { type } = formOf(where, 'input', input)
    checkTensor(where, 'output', output, { ...formOf(where, 'output', output), type })
    const sent = partsOf(where, 'input', input, inputSplitSizes, group)
    const taken = partsOf(where, 'output', output, outputSplitSizes, group)
    return { reads: [input], writes: [output], sent, taken }
  }
  return collective(where, options, check, async (group, { sent, taken, turn }) => {
    const from = await arrayOf(input)
    const slot = await agree(where, group, sent, taken, turn)
    const all = await exchangeSlots(group, from, sent, slot, secondHalf(turn))
    const packed = sameType(from, lengthOf(output))
    let at = 0
    for (const [rank, length] of taken.entries()) {
      packed.set(all.subarray(rank * slot, rank * slot + length), at)
      at += length
    }
    putBack(output, packed)
  })
}

const hasSizes = (sizes: readonly number[] | null | undefined): boolean =>
  sizes !== undefined && sizes !== null && sizes.length !== 0

/** How many elements of a tensor are for each rank. errors: `peer.mismatch` for sizes that do not add up. */
function partsOf(
  where: string,
  name: 'input' | 'output',
  tensor: Contents,
  sizes: readonly number[] | null | undefined,
  { size }: CollectiveGroup,
): number[] {
  const length = lengthOf(tensor)
  const rows = 'shape' in tensor ? (tensor.shape[0] ?? 1) : length
  if (!hasSizes(sizes)) {
    if (rows % size === 0) return Array.from({ length: size }, () => length / size)
    throw new PeerError(
      'peer.mismatch',
      `${where}: the length of ${name}'s first axis must be divisible by the ${size} ranks, got ${rows}. Pass ${name}SplitSizes.`,
    )
  }
  checkCount(where, `${name}SplitSizes`, sizes!, size)
  const isWhole = sizes!.every((one) => Number.isSafeInteger(one) && one >= 0)
  const sum = isWhole ? sizes!.reduce((total, one) => total + one, 0) : Number.NaN
  if (sum === rows) return sizes!.map((one) => (rows === 0 ? 0 : one * (length / rows)))
  throw new PeerError(
    'peer.mismatch',
    `${where}: ${name}SplitSizes must be whole numbers that add up to ${rows}, the length of ${name}'s first axis, got ${sizes!.every((one) => typeof one === 'number') ? formatShape(sizes!) : quoted(sizes)}. Correct them.`,
  )
}

/** The longest part of all ranks', when each expects what it is sent. errors: `peer.mismatch`, the same on all ranks. */
async function agree(
  where: string,
  group: CollectiveGroup,
  sent: readonly number[],
  taken: readonly number[],
  turn: Turn,
): Promise<number> {
  const { size, ranks } = group
  const received = await group.allGatherU32(Uint32Array.of(...sent, ...taken), {
    label: where,
    ...turn,
  })
  const sends = (from: number, to: number) => received[from * 2 * size + to]!
  const takes = (to: number, from: number) => received[to * 2 * size + size + from]!
  for (let from = 0; from < size; from++)
    for (let to = 0; to < size; to++) {
      if (sends(from, to) === takes(to, from)) continue
      throw new PeerError(
        'peer.mismatch',
        `${where}: rank ${ranks[to]} expected ${takes(to, from)} elements from rank ${ranks[from]}, got ${sends(from, to)}. Make outputSplitSizes match the other ranks' inputSplitSizes.`,
      )
    }
  return Math.max(...received)
}

/** Parts of any length, each in a slot. */
async function exchangeSlots(
  group: CollectiveGroup,
  input: ElementArray,
  lengths: readonly number[],
  slot: number,
  turn: Turn,
): Promise<ElementArray> {
  const all = sameType(input, slot * group.size)
  await group.allToAll(inSlots(input, lengths, slot), all, { label: 'allToAllSingle', ...turn })
  return all
}

function inSlots(input: ElementArray, lengths: readonly number[], slot: number): ElementArray {
  if (lengths.every((length) => length === slot)) return input
  const slots = sameType(input, slot * lengths.length)
  let at = 0
  for (const [rank, length] of lengths.entries()) {
    slots.set(input.subarray(at, at + length), rank * slot)
    at += length
  }
  return slots
}
