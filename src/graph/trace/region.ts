import { barrier } from '../../kernels/barrier/barrier.ts'
import type { Op } from '../../kernels/op.ts'
import type { GraphNode, GraphValue } from './value.ts'

/** The nodes that were traced inside one `checkpoint` call: backward computes them again instead of keeping their results. */
export class Region {
  readonly parent: Region | undefined
  /** True if nodes outside the region, too, read its results as they are computed again in backward: parameters that ranks share. */
  isTransient = false
  /** In the order of tracing, those of regions inside this one included. */
  readonly nodes: GraphNode[] = []
  /** Values that left the region: those after it keep these, so nothing computes them twice. */
  readonly returned = new Set<GraphValue>()

  constructor(parent?: Region) {
    this.parent = parent
  }
}

type RegionOf = (node: GraphNode) => Region | undefined
type Emit = <A>(op: Op<A>, inputs: readonly GraphValue[], attrs: A) => GraphValue[]

let nextCopy = 1

/**
 * The values of checkpointed regions, computed again for one backward pass.
 *
 * A region is copied as a whole when backward first reaches one of its nodes, so the copies run right before they are read; what no gradient
 * reads is never part of the program. A region inside another reads the outer one's copies.
 */
export class Recomputation {
  readonly #emit: Emit
  readonly #regionOf: RegionOf
  readonly #copies = new Map<Region, Map<GraphValue, GraphValue>>()

  constructor(emit: Emit, regionOf: RegionOf) {
    this.#emit = emit
    this.#regionOf = regionOf
  }

  /** The value to read in backward for `value`, as a node of `region` knew it. */
  valueIn(region: Region | undefined, value: GraphValue): GraphValue {
    for (let current = region; current; current = current.parent) {
      const copy = this.#copiesOf(current).get(value)
      if (copy) return copy
    }
    const maker = value.node && this.#regionOf(value.node)
    return (maker?.isTransient && this.#copiesOf(maker).get(value)) || value
  }

  #copiesOf(region: Region): Map<GraphValue, GraphValue> {
    const known = this.#copies.get(region)
    if (known) return known
    const copies = new Map<GraphValue, GraphValue>()
    this.#copies.set(region, copies)
    const copy = nextCopy++
    const barriers = new Map<GraphValue, GraphValue>()
    const outside = (value: GraphValue): GraphValue => {
      let behind = barriers.get(value)
      if (!behind) {
        behind = this.#emit(barrier, [this.valueIn(region.parent, value)], { copy })[0]
        barriers.set(value, behind)
      }
      return behind
    }
    for (const node of region.nodes) {
      // A node that changes something (running statistics) runs once; its results are kept like a returned value.
      if (node.op.updates?.length) continue
      if (node.outputs.every((value) => region.returned.has(value))) continue
      const inputs = node.inputs.map((value) => copies.get(value) ?? outside(value))
      const outputs = this.#emit(node.op, inputs, node.attrs)
      node.outputs.forEach((value, i) => {
        if (!region.returned.has(value)) copies.set(value, outputs[i])
      })
    }
    return copies
  }
}
