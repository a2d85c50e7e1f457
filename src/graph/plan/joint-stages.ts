import type { Op } from '../../kernels/op.ts'
import type { JointReduction } from '../trace/trace.ts'
import { type GraphNode, type GraphValue, storageOf, storedIn } from '../trace/value.ts'

/** Joint nodes that run one after the other, and the numbers that ranks agree on, all at once, when they have run. */
export interface JointStage {
  readonly nodes: readonly GraphNode[]
  readonly reductions: readonly JointReduction[]
}

/** Returns the memory that outlives the step and may be changed in place: a pool, a parameter, a buffer. */
function memoryOf(value: GraphValue): unknown {
  const { leaf } = storageOf(value)
  return leaf?.kind === 'pool' ? leaf.pool : storedIn(value)
}

/**
 * Cuts joint nodes into as few stages as what they read allows: each number that ranks agree on is ready at the end of its stage, and its
 * readers stand in a later one. So a scaler's look at the gradients and a norm of the same gradients are one exchange.
 *
 * order: inside a stage as given; nodes that read and nodes that change the same memory keep theirs.
 */
export function stagesOf(
  nodes: readonly GraphNode[],
  reductions: readonly JointReduction[],
): JointStage[] {
  const reductionOf = new Map(reductions.map((reduction) => [reduction.node, reduction]))
  const stageOf = new Map<GraphNode, number>()
  const lastRead = new Map<unknown, number>()
  const lastChange = new Map<unknown, number>()
  const stages: { nodes: GraphNode[]; reductions: JointReduction[] }[] = []
  for (const node of nodes) {
    const updates: readonly number[] = (node.op as Op).updates ?? []
    const earliest = node.inputs.map((value, at) => {
      const { node: producer } = storageOf(value)
      const made = producer && stageOf.get(producer)
      if (made !== undefined) return reductionOf.has(producer!) ? made + 1 : made
      const memory = memoryOf(value)
      const changed = lastChange.get(memory) ?? 0
      return updates.includes(at) ? Math.max(changed, lastRead.get(memory) ?? 0) : changed
    })
    const stage = Math.max(0, ...earliest)
    node.inputs.forEach((value, at) => {
      const memory = memoryOf(value)
      if (memory === undefined) return
      const last = updates.includes(at) ? lastChange : lastRead
      last.set(memory, Math.max(stage, last.get(memory) ?? 0))
    })
    stageOf.set(node, stage)
    stages[stage] ??= { nodes: [], reductions: [] }
    stages[stage].nodes.push(node)
    const reduction = reductionOf.get(node)
    if (reduction) stages[stage].reductions.push(reduction)
  }
  return stages
}
