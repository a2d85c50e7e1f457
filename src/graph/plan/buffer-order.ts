import { TabringError } from '../../util/errors.ts'
import { formatCall } from '../trace/format-call.ts'
import type { Trace } from '../trace/trace.ts'
import { type GraphNode, type StoredLeaf, storageOf } from '../trace/value.ts'

/** A node that must run before another, since one of the two changes a buffer that the other uses. */
export interface EarlierUse {
  readonly node: GraphNode
  readonly buffer: StoredLeaf
}

/** By node: earlier uses of its buffers that it may not overtake. Reads may overtake reads. */
export function earlierUses(nodes: readonly GraphNode[]): Map<GraphNode, EarlierUse[]> {
  /** By buffer: its last update, and the reads after it. */
  const uses = new Map<
    StoredLeaf,
    { readonly update: EarlierUse[]; readonly reads: EarlierUse[] }
  >()
  const earlier = new Map<GraphNode, EarlierUse[]>()
  for (const node of nodes) {
    const found: EarlierUse[] = []
    for (const [at, value] of node.inputs.entries()) {
      const { leaf } = storageOf(value)
      if (leaf?.kind !== 'buffer') continue
      const { buffer } = leaf
      const { update, reads } = uses.get(buffer) ?? { update: [], reads: [] }
      const own = { node, buffer }
      if (node.op.updates?.includes(at)) {
        found.push(...update, ...reads)
        uses.set(buffer, { update: [own], reads: [] })
      } else {
        found.push(...update)
        uses.set(buffer, { update, reads: [...reads, own] })
      }
    }
    earlier.set(node, found)
  }
  return earlier
}

/** The error of a schedule that runs a node before an earlier use of its buffer. */
export function overtakes(node: GraphNode, use: EarlierUse, trace: Trace): TabringError {
  const [first, second] = [use.node, node].map((one) => {
    const task = trace.taskName(one)
    return `${formatCall(one, trace)}${task ? ` (${task})` : ''}`
  })
  return new TabringError(
    'graph.misuse',
    `compile: one of two ops changes buffer ${use.buffer.title}, and the schedule runs them in the wrong order: ${first} must come before ${second}. In forward, use a copy: buffer.add(0).`,
  )
}
