import { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import { isTracing } from '../../graph/trace/trace.ts'
import { callsBefore, noteCall } from '../../peer/collective/arrays-in-use.ts'
import { elementsOf, type ReduceOp as Op } from '../../peer/collective/element.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { Turn } from '../../peer/group/group-calls.ts'
import { ArgumentTypeError, TabringError } from '../../util/errors.ts'
import { isRecord, quoted } from '../../util/kind-of.ts'
import { checkChoice, checkOptions, type OptionNames } from '../../util/options.ts'
import { defaultGroup } from '../group/default-group.ts'
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
  /** True if to return a `Work` handle instead of a promise. Default false. */
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

const names: OptionNames<DistributedOptions> = { group: true, asyncOp: 'flag' }
const reduceNames: OptionNames<ReduceOptions> = { ...names, op: true }

/** What holds the contents: the tensor, or the array in which they are. */
const elements = (contents: Contents): object =>
  contents instanceof StoredTensor ? contents : elementsOf(contents)

/** The arrays that a call uses: it waits until earlier calls have ended that use the same, and later ones wait for it. */
export interface Uses {
  readonly reads: readonly Contents[]
  readonly writes: readonly Contents[]
}

/** What a call does on a rank of its group. `prepare`, at once: checks what it was given, and takes its place in the order of calls. */
export interface Call<Prepared extends Uses> {
  /** Checks that need no group: options in another's place name none. */
  readonly before?: (() => void) | undefined
  readonly prepare: (group: CollectiveGroup) => Prepared
  readonly run: (group: CollectiveGroup, prepared: Prepared) => Promise<void>
}

/** Begins a call: the promise, or with `asyncOp` the work. A rank outside of the group has nothing to do. */
export function begin<Options extends DistributedOptions, Prepared extends Uses>(
  where: string,
  options: Options,
  { before, prepare, run }: Call<Prepared>,
): DistributedResult<Options> {
  refuseInTrace(where)
  const promise = (async () => {
    before?.()
    const group = groupOf(where, options.group)
    if (!group) return
    const prepared = prepare(group)
    const uses = { reads: prepared.reads.map(elements), writes: prepared.writes.map(elements) }
    let end!: () => void
    const over = new Promise<void>((resolve) => {
      end = resolve
    })
    const earlier = callsBefore(uses)
    noteCall(uses, over)
    try {
      await Promise.all(earlier)
      await run(group, prepared)
    } finally {
      end()
    }
  })()
  return (options.asyncOp ? new Work(promise) : promise) as DistributedResult<Options>
}

/** Begins a call of all ranks. What `check` refuses on this rank ends the group where another rank makes the call. */
export function collective<Options extends DistributedOptions, Checked extends Uses>(
  where: string,
  options: Options,
  check: (group: CollectiveGroup) => Checked,
  run: (group: CollectiveGroup, checked: Checked & { readonly turn: Turn }) => Promise<void>,
  before?: () => void,
  checkGiven: () => unknown = () => checkOptions<DistributedOptions>(where, options, names),
): DistributedResult<Options> {
  refusing(where, options, checkGiven)
  return begin(where, options, {
    before: before && (() => refusing(where, options, before)),
    prepare: (group) => ({
      ...group.refusing(where, {}, () => check(group)),
      turn: group.reserve(),
    }),
    run,
  })
}

/** As `collective`, of a call that combines elements: `turn` also says how. */
export const reduction = <Options extends ReduceOptions, Checked extends Uses>(
  where: string,
  options: Options,
  check: (group: CollectiveGroup) => Checked,
  run: (group: CollectiveGroup, own: Checked & { turn: Turn & { op: Op } }) => Promise<void>,
  before?: () => void,
): DistributedResult<Options> =>
  collective(
    where,
    options,
    (group) => ({ ...check(group), op: options.op ?? 'sum' }),
    (group, own) => run(group, { ...own, turn: { op: own.op, ...own.turn } }),
    before,
    () => checkReduce(where, options),
  )

/** Returns what `check` does. As in `collective`, the other ranks of the group that the options name hear of what it refuses. */
export function refusing<T>(where: string, options: GroupOptions, check: () => T): T {
  const given = isRecord(options) ? (options.group ?? undefined) : undefined
  const group = given === undefined ? defaultGroup() : given
  return group instanceof CollectiveGroup ? group.refusing(where, {}, check) : check()
}

/** errors: `graph.misuse` inside a function that is being compiled, at once: nobody could wait there for a promise. */
export function refuseInTrace(where: string): void {
  if (!isTracing()) return
  throw new TabringError(
    'graph.misuse',
    `${where}: called inside a compiled function, where tensors and gradients have no contents yet. Wrap the model in DistributedDataParallel, which averages gradients over the ranks, or return the tensor and exchange what a run returns.`,
  )
}

function checkReduce(where: string, options: ReduceOptions): void {
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
