import type { Op } from '../../kernels/op.ts'
import { type GraphNode, type GraphValue, makeNode, sharesMemory } from '../trace/value.ts'

/** A traced program: what rewrites start from. */
export interface Program {
  readonly nodes: readonly GraphNode[]
  /** Values that must exist after a run: outputs, and gradients that fill buckets. */
  readonly kept: readonly GraphValue[]
}

/** Storage buffers a stage may bind by WebGPU's default limits. */
export const maxBindings = 8

/** A longer chain takes seconds to compile, and saves no time: what it computes takes longer than its memory traffic. */
export const maxChainSteps = 32

/** A set of nodes under change: values forward to their replacements, which take over their uses. */
export class Editor {
  readonly #nodes: Set<GraphNode>
  /** Those that change an input in place; most graphs have none. */
  readonly #updating: Set<GraphNode>
  readonly #forward = new Map<GraphValue, GraphValue>()
  /** By final value: how many inputs of nodes read it, plus one where it must be kept. */
  readonly #uses = new Map<GraphValue, number>()

  constructor({ nodes, kept }: Program) {
    this.#nodes = new Set(nodes)
    this.#updating = new Set(nodes.filter(({ op }) => op.updates?.length))
    for (const value of new Set(kept)) this.#count(value, 1)
    for (const { inputs } of nodes) for (const value of inputs) this.#count(value, 1)
  }

  get nodes(): GraphNode[] {
    return [...this.#nodes].sort((a, b) => a.id - b.id)
  }

  find(value: GraphValue): GraphValue {
    let current = value
    for (let next = this.#forward.get(current); next; next = this.#forward.get(current))
      current = next
    if (current !== value) this.#forward.set(value, current)
    return current
  }

  #count(value: GraphValue, change: number): void {
    const final = this.find(value)
    this.#uses.set(final, (this.#uses.get(final) ?? 0) + change)
  }

  /** Those who read `value` read `other`. */
  #redirect(value: GraphValue, other: GraphValue): void {
    const moved = this.#uses.get(value) ?? 0
    this.#uses.delete(value)
    this.#forward.set(value, other)
    if (moved > 0) this.#count(other, moved)
  }

  inputsOf(node: GraphNode): GraphValue[] {
    return node.inputs.map((value) => this.find(value))
  }

  producerOf(value: GraphValue): GraphNode | undefined {
    const { node } = this.find(value)
    return node && this.#nodes.has(node) ? node : undefined
  }

  /** How many inputs read the value, plus one where it must be kept. */
  uses(value: GraphValue): number {
    return this.#uses.get(value) ?? 0
  }

  /** The value whose memory this one shares, behind views and replacements. */
  storageOf(value: GraphValue): GraphValue {
    let root = this.find(value)
    while (root.node && sharesMemory(root.node.op)) root = this.find(root.node.inputs[0])
    return root
  }

  /** The memory that nodes of this graph change in place. */
  get changed(): ReadonlySet<GraphValue> {
    return new Set([...this.#updating].flatMap((node) => this.#changedBy(node)))
  }

  /**
   * Returns whether `first` may not move to `last`: a node between them reads or changes what `first` changes in place, or changes what it
   * reads.
   *
   * Where `first` has several results, others than `last` may read them in between, and what is joined then runs there: nothing between
   * may change anything.
   */
  isTouchedBetween(first: GraphNode, last: GraphNode): boolean {
    if (this.#updating.size === 0) return false
    if (first.outputs.length > 1 && this.isUpdatedBetween(first, last)) return true
    const read = new Set(first.inputs.map((value) => this.storageOf(value)))
    if (this.#updatingBetween(first, last).some((node) => this.#changes(node, read))) return true
    if (!this.#updating.has(first)) return false
    const changed = new Set(this.#changedBy(first))
    return [...this.#nodes].some(
      ({ id, inputs }) =>
        id > first.id && id < last.id && inputs.some((value) => changed.has(this.storageOf(value))),
    )
  }

  /** Returns whether a node between the two, in either order, changes anything in place. */
  isUpdatedBetween(one: GraphNode, other: GraphNode): boolean {
    const [first, last] = one.id < other.id ? [one, other] : [other, one]
    return this.#updatingBetween(first, last).length > 0
  }

  #updatingBetween(first: GraphNode, last: GraphNode): GraphNode[] {
    return [...this.#updating].filter(({ id }) => id > first.id && id < last.id)
  }

  #changedBy({ op, inputs }: GraphNode): GraphValue[] {
    return (op.updates ?? []).map((input) => this.storageOf(inputs[input]))
  }

  #changes(node: GraphNode, memory: ReadonlySet<GraphValue>): boolean {
    return this.#changedBy(node).some((value) => memory.has(value))
  }

  /** Puts one node in the place of several; `outputs` says what each replaced value becomes. */
  replace(
    old: readonly GraphNode[],
    op: Op,
    inputs: readonly GraphValue[],
    attrs: unknown,
    outputs: readonly GraphValue[],
  ): GraphNode {
    const id = Math.max(...old.map((node) => node.id))
    const node = makeNode(
      id,
      op,
      inputs,
      attrs,
      outputs.map(({ type }) => type),
    )
    for (const replaced of old) this.remove(replaced)
    outputs.forEach((value, i) => {
      this.#redirect(value, node.outputs[i])
    })
    this.#nodes.add(node)
    for (const value of node.inputs) this.#count(value, 1)
    if (op.updates?.length) this.#updating.add(node)
    return node
  }

  remove(node: GraphNode): void {
    if (!this.#nodes.delete(node)) return
    this.#updating.delete(node)
    for (const value of node.inputs) this.#count(value, -1)
  }

  /** Removes a node of one output; those who read it read `value`. */
  forward(node: GraphNode, value: GraphValue): void {
    this.remove(node)
    this.#redirect(node.outputs[0], value)
  }

  /**
   * Execution order: by id, but never before what a node reads; inputs are the final values. Nodes for which `isLate` is true come just
   * before the first that reads them; ops in place just after what they take in, which then need not be kept.
   */
  ordered(isLate: (node: GraphNode) => boolean = () => false): GraphNode[] {
    const result: GraphNode[] = []
    const placed = new Set<GraphNode>()
    const { nodes } = this
    const takers = new Map<GraphNode | undefined, GraphNode[]>()
    for (const node of nodes) {
      if (!node.op.isInPlace) continue
      const producer = this.producerOf(node.inputs[1])
      takers.set(producer, [...(takers.get(producer) ?? []), node])
    }
    const place = (node: GraphNode): void => {
      if (placed.has(node)) return
      placed.add(node)
      const inputs = this.inputsOf(node)
      for (const input of inputs) {
        const producer = this.producerOf(input)
        if (producer) place(producer)
      }
      result.push({ ...node, inputs })
      for (const taker of takers.get(node) ?? []) place(taker)
    }
    for (const node of nodes) if (!isLate(node)) place(node)
    for (const node of nodes) place(node)
    for (const node of result) for (const output of node.outputs) output.node = node
    return result
  }
}
