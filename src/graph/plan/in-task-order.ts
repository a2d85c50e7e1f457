import type { Op } from '../../kernels/op.ts'
import { send } from '../../kernels/transfer/ends.ts'
import type { StageTask } from '../trace/stage-marks.ts'
import type { GraphNode, GraphValue } from '../trace/value.ts'

const keyOf = ({ kind, stage, microBatch }: StageTask) => `${kind} ${stage} ${microBatch}`

/**
 * The nodes of one device, task by task.
 *
 * What belongs to no task here runs as soon as what it reads is there (a sum of micro-batches' gradients), or where it is first read (a
 * value from another device, a constant). order: within a task that of `nodes`.
 */
export function inTaskOrder(
  nodes: readonly GraphNode[],
  tasks: readonly StageTask[],
  taskOf: (node: GraphNode) => StageTask | undefined,
): GraphNode[] {
  const rank = new Map(tasks.map((task, at) => [keyOf(task), at]))
  const makers = new Map<GraphValue, GraphNode>()
  for (const node of nodes) for (const value of node.outputs) makers.set(value, node)
  const makersFor = (node: GraphNode) => node.inputs.flatMap((value) => makers.get(value) ?? [])
  const position = new Map<GraphNode, number>()
  for (const node of nodes) {
    const task = taskOf(node)
    const own = task && rank.get(keyOf(task))
    const made = makersFor(node).map((maker) => position.get(maker))
    const ready = made.filter((at) => at !== undefined)
    // A send of a parameter waits for nothing.
    const isReady = node.op === (send as Op) || (ready.length > 0 && ready.length === made.length)
    if (own !== undefined || isReady) position.set(node, Math.max(own ?? 0, ...ready))
  }
  const firstRead = new Map<GraphNode, number>()
  for (const node of [...nodes].reverse()) {
    const at = position.get(node) ?? firstRead.get(node) ?? tasks.length
    position.set(node, at)
    for (const maker of makersFor(node)) {
      firstRead.set(maker, Math.min(at, firstRead.get(maker) ?? Number.POSITIVE_INFINITY))
    }
  }
  // A gradient may need what comes later than its task, as that of a loss over several micro-batches does.
  for (const node of nodes) {
    const made = makersFor(node).map((maker) => position.get(maker)!)
    position.set(node, Math.max(position.get(node)!, ...made))
  }
  return nodes
    .map((node, order) => ({ node, order, at: position.get(node)! }))
    .sort((a, b) => a.at - b.at || a.order - b.order)
    .map(({ node }) => node)
}
