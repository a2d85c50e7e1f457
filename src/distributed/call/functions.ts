/**
 * torch.distributed's collectives on the default group, or the group given: the same names in camelCase, the same arguments in the same
 * order, options by name.
 *
 * Map: sums - from and to a rank - everyone to everyone - barriers. Messages are in messages.ts, all-to-alls in all-to-all.ts.
 * Ranks in arguments (`src`, `dst`) count among all ranks, as in PyTorch. Everything returns a promise; with `asyncOp` it returns a `Work` at once.
 * Counts, lengths and types are checked before anything is sent; a call that is refused on one rank alone ends the group, once another rank makes it.
 * A call takes its turn (`CollectiveGroup.reserve`) when it is made, before it waits for a parameter's contents: so ranks that make the same calls in
 * the same order match, even where one reads slower.
 */

import { type ElementArray, type ReduceOp, sameType } from '../../peer/collective/element.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { Turn } from '../../peer/group/group-calls.ts'
import { checkRank, placeOf } from '../group/place-of.ts'
import {
  collective,
  type DistributedOptions,
  type DistributedResult,
  type ReduceOptions,
  reduction,
} from './call.ts'
import { arrayOf, type Contents, putBack } from './contents.ts'
import {
  checkTensor,
  checkTensorList,
  formOf,
  inPlace,
  joined,
  rootTensorList,
  spread,
} from './tensor-lists.ts'

// Sums

/** Reduces the tensor over the ranks, in place, on all ranks. */
export function allReduce<O extends ReduceOptions>(
  tensor: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  return reduction(
    'allReduce',
    options,
    () => {
      formOf('allReduce', 'tensor', tensor)
      return { reads: [], writes: [tensor] }
    },
    (group, { turn }) => inPlace(tensor, (array) => group.allReduce(array, turn)),
  )
}

/** Reduces the tensor to rank `dst`. On the other ranks its contents are undefined afterwards. */
export function reduce<O extends ReduceOptions>(
  tensor: Contents,
  dst: number,
  options: O = {} as O,
): DistributedResult<O> {
  return reduction(
    'reduce',
    options,
    (group) => {
      formOf('reduce', 'tensor', tensor)
      return { reads: [], writes: [tensor], place: placeOf('reduce', 'dst', group, dst) }
    },
    (group, { place, turn }) => inPlace(tensor, (array) => group.reduce(array, place, turn)),
    () => checkRank('reduce', 'dst', dst),
  )
}

/** Reduces each place of `inputList` over the ranks, and stores this rank's place in `output`. shape: one tensor per rank, of output's length. */
export function reduceScatter<O extends ReduceOptions>(
  output: Contents,
  inputList: readonly Contents[],
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'reduceScatter'
  return reduction(
    where,
    options,
    (group) => {
      checkTensorList(where, 'inputList', inputList, group, formOf(where, 'output', output))
      return { reads: inputList, writes: [output] }
    },
    async (group, { turn }) => ownShare(group, await joined(inputList), output, turn),
  )
}

/** Does what `reduceScatter` does, with one input tensor. shape: input [N * L], output [L] */
export function reduceScatterTensor<O extends ReduceOptions>(
  output: Contents,
  input: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'reduceScatterTensor'
  return reduction(
    where,
    options,
    ({ size }) => {
      checkTensor(where, 'input', input, formOf(where, 'output', output, size))
      return { reads: [input], writes: [output] }
    },
    async (group, { turn }) => ownShare(group, (await arrayOf(input)).slice(), output, turn),
  )
}

/** Reduces `all` over the ranks, in place, and puts this rank's share into `output`. */
async function ownShare(
  group: CollectiveGroup,
  all: ElementArray,
  output: Contents,
  options: Turn & { op: ReduceOp },
): Promise<void> {
  await group.reduceScatter(all, options)
  const { start, end } = group.ownRange(all.length)
  putBack(output, all.subarray(start, end))
}

// From and to a rank

/** Copies the tensor from rank `src` to all ranks. */
export function broadcast<O extends DistributedOptions>(
  tensor: Contents,
  src: number,
  options: O = {} as O,
): DistributedResult<O> {
  return collective(
    'broadcast',
    options,
    (group) => {
      formOf('broadcast', 'tensor', tensor)
      return { reads: [], writes: [tensor], place: placeOf('broadcast', 'src', group, src) }
    },
    (group, { place, turn }) => inPlace(tensor, (array) => group.broadcast(array, place, turn)),
    () => checkRank('broadcast', 'src', src),
  )
}

/** Collects every rank's tensor in the list of rank `dst`; the other ranks pass no list. shape: one tensor per rank, of tensor's length. */
export function gather<O extends DistributedOptions>(
  tensor: Contents,
  gatherList?: readonly Contents[] | null,
  dst = 0,
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'gather'
  return collective(
    where,
    options,
    (group) => {
      const form = formOf(where, 'tensor', tensor)
      const place = placeOf(where, 'dst', group, dst)
      const list = rootTensorList(where, 'gatherList', gatherList, group, dst, form)
      return { reads: [tensor], writes: list ?? [], place, list }
    },
    async (group, { place, list, turn }) => {
      const input = await arrayOf(tensor)
      const output = list && sameType(input, input.length * list.length)
      await group.gather(input, output, place, turn)
      if (list) spread(output!, list)
    },
    () => checkRank(where, 'dst', dst),
  )
}

/** Sends each rank its tensor of the list of rank `src`; the other ranks pass no list. shape: one tensor per rank, of tensor's length. */
export function scatter<O extends DistributedOptions>(
  tensor: Contents,
  scatterList?: readonly Contents[] | null,
  src = 0,
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'scatter'
  return collective(
    where,
    options,
    (group) => {
      const form = formOf(where, 'tensor', tensor)
      const place = placeOf(where, 'src', group, src)
      const list = rootTensorList(where, 'scatterList', scatterList, group, src, form)
      return { reads: list ?? [], writes: [tensor], place, list }
    },
    async (group, { place, list, turn }) => {
      const input = list && (await joined(list))
      await inPlace(tensor, (array) => group.scatter(input, array, place, turn))
    },
    () => checkRank(where, 'src', src),
  )
}

// Everyone to everyone

/** Copies every rank's tensor into the lists of all ranks, in rank order. shape: one tensor per rank, of tensor's length. */
export function allGather<O extends DistributedOptions>(
  tensorList: readonly Contents[],
  tensor: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'allGather'
  return collective(
    where,
    options,
    (group) => {
      checkTensorList(where, 'tensorList', tensorList, group, formOf(where, 'tensor', tensor))
      return { reads: [tensor], writes: tensorList }
    },
    async (group, { turn }) =>
      spread(await group.allGatherConcat(await arrayOf(tensor), turn), tensorList),
  )
}

/** Does what `allGather` does, with one output tensor. shape: input [L], output [N * L] */
export function allGatherIntoTensor<O extends DistributedOptions>(
  output: Contents,
  input: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  const where = 'allGatherIntoTensor'
  return collective(
    where,
    options,
    ({ size }) => {
      checkTensor(where, 'output', output, formOf(where, 'input', input, size))
      return { reads: [input], writes: [output] }
    },
    async (group, { turn }) =>
      putBack(output, await group.allGatherConcat(await arrayOf(input), turn)),
  )
}

// Barriers

/** Resolves when every rank has called it. */
export function barrier<O extends DistributedOptions>(options: O = {} as O): DistributedResult<O> {
  return collective(
    'barrier',
    options,
    () => ({ reads: [], writes: [] }),
    (group, { turn }) => group.barrier(turn),
  )
}
