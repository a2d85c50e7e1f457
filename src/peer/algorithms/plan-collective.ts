import {
  directAllGather,
  directAllReduce,
  directAllToAll,
  directBroadcast,
  directGather,
  directReduce,
  directReduceScatter,
  directScatter,
  oneShotAllReduce,
} from './direct.ts'
import {
  type HierarchicalArguments,
  hierarchicalAllReduce,
  hierarchicalGather,
  hierarchicalReduce,
} from './hierarchical.ts'
import { lineBroadcast, lineReduce } from './line.ts'
import type { Algorithm, Operation } from './operations.ts'
import { chunksOf, type Plan } from './plan.ts'
import { ringAllGather, ringAllReduce, ringReduceScatter } from './ring.ts'

export interface PlanArguments {
  rank: number
  size: number
  root: number
  /** Elements of the buffer that the ranks share; of one rank's place, for gather, scatter and allToAll. */
  length: number
  alignment: number
  /** By rank: who shares a machine. For `hierarchical`. */
  machines?: readonly number[] | undefined
}

type Planner = (given: PlanArguments) => Plan

const ringOf =
  (plan: (given: Parameters<typeof ringAllReduce>[0]) => Plan): Planner =>
  ({ rank, size, length, alignment }) =>
    plan({ rank, size, chunks: chunksOf(length, size, alignment) })

const lineOf =
  (plan: typeof lineBroadcast): Planner =>
  ({ rank, size, root, length }) =>
    plan({ rank, size, root, range: { start: 0, end: length } })

/** Each rank owns its chunk. */
const inChunks =
  (plan: (given: HierarchicalArguments) => Plan): Planner =>
  ({ rank, size, length, alignment, machines }) => {
    const pieces = chunksOf(length, size, alignment).map((range, owner) => ({ owner, range }))
    return plan({ rank, machines: machines!, pieces })
  }

/** The root owns all. */
const inOne =
  (plan: (given: HierarchicalArguments) => Plan): Planner =>
  ({ rank, root, length, machines }) =>
    plan({
      rank,
      machines: machines!,
      pieces: [{ owner: root, range: { start: 0, end: length } }],
    })

const hierarchicalOwners = inChunks((given) => hierarchicalGather(given))
const ringGather = ringOf((given) => ringAllGather(given))
const directGatherAll = ringOf((given) => directAllGather(given))

/** How each operation can travel; the first is what needs no links but the ring's, where there is one. */
const planners: Readonly<
  Record<Exclude<Operation, 'send'>, Partial<Readonly<Record<Algorithm, Planner>>>>
> = {
  reduceScatter: {
    ring: ringOf(ringReduceScatter),
    direct: ringOf(directReduceScatter),
    hierarchical: inChunks(hierarchicalReduce),
  },
  allGather: { ring: ringGather, direct: directGatherAll, hierarchical: hierarchicalOwners },
  allReduce: {
    ring: ringOf(ringAllReduce),
    direct: ringOf(directAllReduce),
    oneShot: ringOf(oneShotAllReduce),
    hierarchical: inChunks(hierarchicalAllReduce),
  },
  broadcast: {
    ring: lineOf(lineBroadcast),
    direct: directBroadcast,
    hierarchical: inOne((given) => hierarchicalGather(given)),
  },
  reduce: {
    ring: lineOf(lineReduce),
    direct: directReduce,
    hierarchical: inOne(hierarchicalReduce),
  },
  barrier: { ring: ringGather, direct: directGatherAll },
  allGatherBytes: { ring: ringGather, direct: directGatherAll },
  allGatherU32: { ring: ringGather, direct: directGatherAll },
  gather: { direct: directGather },
  scatter: { direct: directScatter },
  allToAll: { direct: directAllToAll },
}

/** Returns whether an operation has such an algorithm. */
export const hasAlgorithm = (
  operation: Exclude<Operation, 'send'>,
  algorithm: Algorithm,
): boolean => planners[operation][algorithm] !== undefined

/** A rank's part; `algorithm` must be one that `hasAlgorithm`, with machines where it is `hierarchical`. */
export function planCollective(
  operation: Exclude<Operation, 'send'>,
  algorithm: Algorithm,
  given: PlanArguments,
): Plan {
  return planners[operation][algorithm]!(given)
}
