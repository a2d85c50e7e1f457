import { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import { isTracing } from '../../graph/trace/trace.ts'
import { callsBefore, noteCall } from '../../peer/collective/arrays-in-use.ts'
import { elementsOf, type ReduceOp as Op } from '../../peer/collective/element.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { ArgumentTypeError, TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkChoice, checkOptions, type OptionNames } from '../../util/options.ts'
import { type GroupArgument, groupOf } from '../group/group-of.ts'
import type { Contents } from './contents.ts'
import { Work } from './work.ts'

/** How a reduction combines elements: torch.distributed.ReduceOp. */
export const ReduceOp = {
  SUM: 'sum',
  AVG: 'avg',
  MIN: 'min',
  MAX: 'max',
  PRODUCT: 'product',
} as const satisfies Record<string, Op>
/** A value of `ReduceOp`. */
export type ReduceOp = Op

/** Options of calls on a group. */
export interface GroupOptions {
  /** The group. Default: that of `initProcessGroup`. With `GroupMember.NON_GROUP_MEMBER`, which `newGroup` returns outside a group, the call does nothing. */
  group?: GroupArgument
}

/** Options of collectives. */
export interface DistributedOptions extends GroupOptions {
  /** Whether to return a `Work` handle instead of a promise. Default false. */
  asyncOp?: boolean
}

/** Options of reductions. */
export interface ReduceOptions extends DistributedOptions {
  /** How elements are combined. Default `ReduceOp.SUM`. */
  op?: Op
}

/** A promise, or a `Work` handle with `asyncOp`. */
export type DistributedResult<Options extends DistributedOptions> = Options extends {
  asyncOp: true
}
  ? Work
  : Promise<void>

const names: OptionNames<DistributedOptions> = { group: true, asyncOp: true }
const reduceNames: OptionNames<ReduceOptions> = { ...names, op: true }

/** Waits until earlier calls have ended that use the same tensors; later ones wait for this call. Call it once, at once after taking the turn. */
export type Free = (reads: readonly Contents[], writes: readonly Contents[]) => Promise<void>

/** What holds the contents: the tensor, or the array in which they are. */
const elements = (contents: Contents): object =>
  contents instanceof StoredTensor ? contents : elementsOf(contents)

/** Begins a call: the promise, or with `asyncOp` the work. A rank outside of the group has nothing to do. */
export function begin<Options extends DistributedOptions>(
  where: string,
  options: Options,
  run: (group: CollectiveGroup, free: Free) => Promise<void>,
): DistributedResult<Options> {
  refuseInTrace(where)
  const promise = (async () => {
    const group = groupOf(where, options.group)
    if (!group) return
    let end!: () => void
    const over = new Promise<void>((resolve) => {
      end = resolve
    })
    try {
      await run(group, async (reads, writes) => {
        const uses = { reads: reads.map(elements), writes: writes.map(elements) }
        const before = callsBefore(uses)
        noteCall(uses, over)
        await Promise.all(before)
      })
    } finally {
      end()
    }
  })()
  return (options.asyncOp ? new Work(promise) : promise) as DistributedResult<Options>
}

/** errors: `graph.misuse` inside a function that is being compiled, at once: nobody could wait there for a promise. */
export function refuseInTrace(where: string): void {
  if (!isTracing()) return
  throw new TabringError(
    'graph.misuse',
    `${where}: called inside a compiled function, where tensors and gradients have no contents yet. Wrap the model in DistributedDataParallel, which averages gradients over the ranks, or return the tensor and exchange what a run returns.`,
  )
}

export function checkPlain(where: string, options: DistributedOptions): void {
  checkOptions(where, options, names)
}

export function checkReduce(where: string, options: ReduceOptions): void {
  if (typeof options === 'string')
    throw new ArgumentTypeError(
      `${where}: options must be an object (op, group, asyncOp), got the text ${quoted(options)}. Write { op: ${quoted(options)} }.`,
    )
  checkOptions(where, options, reduceNames)
  // What ReduceOp does not have is undefined too, and must not count as a sum.
  if (Object.hasOwn(options, 'op') && options.op === undefined)
    throw new TabringError(
      'config.invalid',
      `${where}: op must be one of ReduceOp.${Object.keys(ReduceOp).join(', ')}, got undefined. Choose one of these (there are no bitwise ops), or omit op for a sum.`,
    )
  checkChoice(where, 'op', options.op, Object.values(ReduceOp))
}
