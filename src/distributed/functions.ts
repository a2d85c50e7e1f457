/**
 * torch.distributed's functions on the default group, or the group given: the same names in camelCase, the same arguments in the same order.
 *
 * Map: options - sums - from and to a rank - everyone with everyone - messages - meeting.
 * Ranks in arguments (`src`, `dst`) count among all ranks, as in PyTorch. Everything returns a promise; with `asyncOp` it returns a `Work` at once.
 */
import type { CollectiveGroup } from '../peer/collective-group.ts'
import { type ElementArray, type ReduceOp as Op, sameType } from '../peer/element.ts'
import { PeerError } from '../util/errors.ts'
import { checkChoice, checkOptions, type OptionNames } from '../util/options.ts'
import { arrayOf, type Contents, lengthOf, putBack } from './contents.ts'
import { placeOf } from './place-of.ts'
import { getProcessGroup } from './process-group.ts'
import { Work } from './work.ts'

/** As torch.distributed.ReduceOp. */
export const ReduceOp = {
  SUM: 'sum',
  AVG: 'avg',
  MIN: 'min',
  MAX: 'max',
  PRODUCT: 'product',
} as const satisfies Record<string, Op>

export interface DistributedOptions {
  /** Default: all ranks, `initProcessGroup`'s. What `newGroup` gave: for a rank outside, undefined, the call does nothing. */
  group?: CollectiveGroup | undefined
  /** Returns a `Work` at once, whose `wait()` is the promise. Default false. */
  asyncOp?: boolean
}

export interface ReduceOptions extends DistributedOptions {
  /** Default `ReduceOp.SUM`. */
  op?: Op
}

export interface PairOptions {
  group?: CollectiveGroup | undefined
  /** Messages of different tags pass each other; default 0. */
  tag?: number
}

/** A promise, or with `asyncOp` the handle. */
export type DistributedResult<Options extends DistributedOptions> = Options extends {
  asyncOp: true
}
  ? Work
  : Promise<void>

const names: OptionNames<DistributedOptions> = { group: true, asyncOp: true }
const reduceNames: OptionNames<ReduceOptions> = { ...names, op: true }
const pairNames: OptionNames<PairOptions> = { group: true, tag: true }

/** Begins a call: the promise, or with `asyncOp` the work. A rank outside of the group, which has none to give, has nothing to do. */
function begin<Options extends DistributedOptions>(
  options: Options,
  run: (group: CollectiveGroup) => Promise<void>,
): DistributedResult<Options> {
  const isOutside = Object.hasOwn(options, 'group') && options.group === undefined
  const promise = (async () => {
    if (!isOutside) await run(options.group ?? getProcessGroup())
  })()
  return (options.asyncOp ? new Work(promise) : promise) as DistributedResult<Options>
}

function checkPlain(name: string, options: DistributedOptions): void {
  checkOptions(name, options, names)
}

function checkReduce(name: string, options: ReduceOptions): void {
  checkOptions(name, options, reduceNames)
  checkChoice(name, 'op', options.op, Object.values(ReduceOp))
}

/** Parts of one length, one after the other. errors: `peer.mismatch` for another number of them, or other lengths. */
async function joined(
  where: string,
  parts: readonly Contents[],
  { size }: CollectiveGroup,
): Promise<ElementArray> {
  if (parts.length !== size)
    throw new PeerError(
      'peer.mismatch',
      `${where}: expected ${size} tensors, one for each rank, got ${parts.length}.`,
    )
  const arrays = await Promise.all(parts.map(arrayOf))
  const { length } = arrays[0]
  const other = arrays.findIndex((array) => array.length !== length)
  if (other >= 0)
    throw new PeerError(
      'peer.mismatch',
      `${where}: expected tensors of ${length} elements, got ${arrays[other].length} in tensor ${other}. Pad them to one length.`,
    )
  const all = sameType(arrays[0], length * size)
  for (const [at, array] of arrays.entries()) all.set(array, at * length)
  return all
}

/** The inverse of `joined`. */
function spread(all: ElementArray, parts: readonly Contents[]): void {
  const length = all.length / parts.length
  for (const [at, part] of parts.entries())
    putBack(part, all.subarray(at * length, (at + 1) * length))
}

async function inPlace(
  tensor: Contents,
  run: (array: ElementArray) => Promise<void>,
): Promise<void> {
  const array = await arrayOf(tensor)
  await run(array)
  putBack(tensor, array)
}

// Sums

/** Reduces the tensor over the ranks, in place, on all. */
export function allReduce<O extends ReduceOptions>(
  tensor: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  checkReduce('allReduce', options)
  const { op = 'sum' } = options
  return begin(options, (group) => inPlace(tensor, (array) => group.allReduce(array, { op })))
}

/** Reduces the tensor to rank `dst`; elsewhere its contents are undefined afterwards. */
export function reduce<O extends ReduceOptions>(
  tensor: Contents,
  dst: number,
  options: O = {} as O,
): DistributedResult<O> {
  checkReduce('reduce', options)
  const { op = 'sum' } = options
  return begin(options, (group) =>
    inPlace(tensor, (array) => group.reduce(array, placeOf('reduce', group, dst), { op })),
  )
}

/** Reduces the parts of `inputs` by place: this rank's place goes to `output`. shape: inputs as many as ranks, of output's length. */
export function reduceScatter<O extends ReduceOptions>(
  output: Contents,
  inputs: readonly Contents[],
  options: O = {} as O,
): DistributedResult<O> {
  checkReduce('reduceScatter', options)
  const { op = 'sum' } = options
  return begin(options, async (group) => {
    const all = await joined('reduceScatter', inputs, group)
    await group.reduceScatter(all, { op })
    const { start, end } = group.ownRange(all.length)
    putBack(output, all.subarray(start, end))
  })
}

// From and to a rank

/** Copies the tensor from rank `src` to all. */
export function broadcast<O extends DistributedOptions>(
  tensor: Contents,
  src: number,
  options: O = {} as O,
): DistributedResult<O> {
  checkPlain('broadcast', options)
  return begin(options, (group) =>
    inPlace(tensor, (array) => group.broadcast(array, placeOf('broadcast', group, src))),
  )
}

/** Brings every rank's tensor to rank `dst`, which gives a list for them. */
export function gather<O extends DistributedOptions>(
  tensor: Contents,
  gatherList: readonly Contents[] | undefined,
  dst: number,
  options: O = {} as O,
): DistributedResult<O> {
  checkPlain('gather', options)
  return begin(options, async (group) => {
    const input = await arrayOf(tensor)
    const output = gatherList && sameType(input, input.length * gatherList.length)
    await group.gather(input, output, placeOf('gather', group, dst))
    if (gatherList) spread(output!, gatherList)
  })
}

/** Brings each rank its tensor of rank `src`'s list. */
export function scatter<O extends DistributedOptions>(
  tensor: Contents,
  scatterList: readonly Contents[] | undefined,
  src: number,
  options: O = {} as O,
): DistributedResult<O> {
  checkPlain('scatter', options)
  return begin(options, async (group) => {
    const input = scatterList && (await joined('scatter', scatterList, group))
    await inPlace(tensor, (array) => group.scatter(input, array, placeOf('scatter', group, src)))
  })
}

// Everyone with everyone

/** Brings every rank's tensor to all, into the list's tensors in rank order. */
export function allGather<O extends DistributedOptions>(
  tensorList: readonly Contents[],
  tensor: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  checkPlain('allGather', options)
  return begin(options, async (group) => {
    if (tensorList.length !== group.size)
      throw new PeerError(
        'peer.mismatch',
        `allGather: expected a list of ${group.size} tensors, one for each rank, got ${tensorList.length}.`,
      )
    spread(await group.gatherAll(await arrayOf(tensor)), tensorList)
  })
}

/** As `allGather`, into one tensor. shape: input [L], output [N * L] */
export function allGatherIntoTensor<O extends DistributedOptions>(
  output: Contents,
  input: Contents,
  options: O = {} as O,
): DistributedResult<O> {
  checkPlain('allGatherIntoTensor', options)
  return begin(options, async (group) => {
    const all = await group.gatherAll(await arrayOf(input))
    if (lengthOf(output) !== all.length)
      throw new PeerError(
        'peer.mismatch',
        `allGatherIntoTensor: expected an output of ${all.length} elements, got ${lengthOf(output)}.`,
      )
    putBack(output, all)
  })
}

/** Brings tensor p of the inputs to rank p, into place r of its outputs, r being this rank. All have one length. */
export function allToAll<O extends DistributedOptions>(
  outputs: readonly Contents[],
  inputs: readonly Contents[],
  options: O = {} as O,
): DistributedResult<O> {
  checkPlain('allToAll', options)
  return begin(options, async (group) => {
    const input = await joined('allToAll', inputs, group)
    const output = sameType(input, input.length)
    await group.allToAll(input, output)
    spread(output, outputs)
  })
}

// Messages

/** Sends the tensor to rank `dst`. Resolves when it has been handed over and the other rank receives it. */
export const send = (tensor: Contents, dst: number, options: PairOptions = {}): Promise<void> =>
  isend(tensor, dst, options).wait()

/** Receives a tensor from rank `src`; one of any rank is not to be had. */
export const recv = (tensor: Contents, src: number, options: PairOptions = {}): Promise<void> =>
  irecv(tensor, src, options).wait()

/** As `send`, at once. */
export function isend(tensor: Contents, dst: number, options: PairOptions = {}): Work {
  checkOptions('send', options, pairNames)
  const { tag = 0 } = options
  return begin({ ...options, asyncOp: true } as const, async (group) =>
    group.send(await arrayOf(tensor), placeOf('send', group, dst), { tag }),
  )
}

/** As `recv`, at once. */
export function irecv(tensor: Contents, src: number, options: PairOptions = {}): Work {
  checkOptions('recv', options, pairNames)
  const { tag = 0 } = options
  return begin({ ...options, asyncOp: true } as const, (group) =>
    inPlace(tensor, (array) => group.recv(array, placeOf('recv', group, src), { tag })),
  )
}

// Meeting

/** Resolves when every rank has called it. */
export function barrier<O extends DistributedOptions>(options: O = {} as O): DistributedResult<O> {
  checkPlain('barrier', options)
  return begin(options, (group) => group.barrier())
}
