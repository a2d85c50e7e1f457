import type { Op } from '../../kernels/op.ts'
import { send } from '../../kernels/transfer/ends.ts'
import type { StageTask } from '../trace/stage-marks.ts'
import type { Trace } from '../trace/trace.ts'
import type { GraphNode, GraphValue } from '../trace/value.ts'
import { earlierUses, overtakes } from './buffer-order.ts'

const keyOf = ({ kind, stage, microBatch }: StageTask) => `${kind} ${stage} ${microBatch}`

/**
 * The nodes of one device, task by task.
 *
 * What belongs to no task here runs as soon as what it reads is there (a sum of micro-batches' gradients), or where it is first read (a
 * value from another device, a constant). order: within a task that of `nodes`, and so are uses of a buffer around its updates.
 * errors: `graph.misuse` where the tasks have such uses in another order.
 */
export function inTaskOrder(
  nodes: readonly GraphNode[],
  tasks: readonly StageTask[],
  trace: Trace,
): GraphNode[] {
  const rank = new Map(tasks.map((task, at) => [keyOf(task), at]))
  const makers = new Map<GraphValue, GraphNode>()
  for (const node of nodes) for (const value of node.outputs) makers.set(value, node)
  const makersFor = (node: GraphNode) => node.inputs.flatMap((value) => makers.get(value) ?? [])
  const earlier = earlierUses(nodes)
  const allBefore = (node: GraphNode) => [
    ...makersFor(node),
    ...earlier.get(node)!.map((use) => use.node),
  ]
  const ownOf = (node: GraphNode) => {
    const task = trace.taskOf(node)
    return task && rank.get(keyOf(task))
  }
  /** Uses of a buffer do not move a task. */
  const waitsFor = (node: GraphNode) =>
    ownOf(node) === undefined ? allBefore(node) : makersFor(node)
  const position = new Map<GraphNode, number>()
  for (const node of nodes) {
    const own = ownOf(node)
    const before = waitsFor(node).map((one) => position.get(one))
    const ready = before.filter((at) => at !== undefined)
    // A send of a parameter waits for nothing, and one of a buffer for the update before it.
    const isReady = node.op === (send as Op) || (ready.length > 0 && ready.length === before.length)
    if (own !== undefined || isReady) position.set(node, Math.max(own ?? 0, ...ready))
  }
  const firstRead = new Map<GraphNode, number>()
  for (const node of [...nodes].reverse()) {
    const at = position.get(node) ?? firstRead.get(node) ?? tasks.length
    position.set(node, at)
    for (const one of allBefore(node)) {
      firstRead.set(one, Math.min(at, firstRead.get(one) ?? Number.POSITIVE_INFINITY))
    }
  }
  // A gradient may need what comes later than its task, as that of a loss over several micro-batches does.
  for (const node of nodes) {
    const at = Math.max(position.get(node)!, ...waitsFor(node).map((one) => position.get(one)!))
    const late = earlier.get(node)!.find((use) => position.get(use.node)! > at)
    if (late) throw overtakes(node, late, trace)
    position.set(node, at)
  }
  return nodes
    .map((node, order) => ({ node, order, at: position.get(node)! }))
    .sort((a, b) => a.at - b.at || a.order - b.order)
    .map(({ node }) => node)
}
