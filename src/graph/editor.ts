import type { Op } from '../kernels/op.ts'
import { type GraphNode, type GraphValue, makeNode, storageOf } from './value.ts'

/** A traced program: what rewrites start from. */
export interface Program {
  readonly nodes: readonly GraphNode[]
  /** Values that must exist after a run: outputs, and gradients that fill buckets. */
  readonly kept: readonly GraphValue[]
}

/** Storage buffers a stage may bind by WebGPU's default limits. */
export const maxBindings = 8

/** What a node changes in place. */
const changedBy = ({ op, inputs }: GraphNode): GraphValue[] =>
  op.updates?.map((input) => inputs[input]) ?? []

/** A set of nodes under change: values forward to their replacements, uses are counted on demand. */
export class Editor {
  readonly #nodes: Set<GraphNode>
  readonly #forward = new Map<GraphValue, GraphValue>()
  readonly #kept: ReadonlySet<GraphValue>

  constructor({ nodes, kept }: Program) {
    this.#nodes = new Set(nodes)
    this.#kept = new Set(kept)
  }

  get nodes(): GraphNode[] {
    return [...this.#nodes].sort((a, b) => a.id - b.id)
  }

  find(value: GraphValue): GraphValue {
    let current = value
    for (let next = this.#forward.get(current); next; next = this.#forward.get(current))
      current = next
    return current
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
    let count = 0
    for (const kept of this.#kept) if (this.find(kept) === value) count++
    for (const node of this.#nodes) {
      for (const input of node.inputs) if (this.find(input) === value) count++
    }
    return count
  }

  /**
   * Whether a node between the two reads or changes what `first` changes in place, or changes what it reads, so that `first` may not
   * move to `last`.
   */
  isTouchedBetween(first: GraphNode, last: GraphNode): boolean {
    const changed = new Set(changedBy(first).map((value) => this.find(value)))
    const read = new Set(first.inputs.map((value) => storageOf(this.find(value))))
    for (const node of this.#nodes) {
      if (node.id <= first.id || node.id >= last.id) continue
      if (changed.size > 0 && node.inputs.some((value) => changed.has(this.find(value))))
        return true
      if (changedBy(node).some((value) => read.has(storageOf(this.find(value))))) return true
    }
    return false
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
    for (const replaced of old) this.#nodes.delete(replaced)
    outputs.forEach((value, i) => {
      this.#forward.set(value, node.outputs[i])
    })
    this.#nodes.add(node)
    return node
  }

  remove(node: GraphNode): void {
    this.#nodes.delete(node)
  }

  /** Removes a node of one output; those who read it read `value`. */
  forward(node: GraphNode, value: GraphValue): void {
    this.#nodes.delete(node)
    this.#forward.set(node.outputs[0], value)
  }

  /** Execution order: by id, but never before what a node reads; inputs are the final values. */
  ordered(): GraphNode[] {
    const result: GraphNode[] = []
    const placed = new Set<GraphNode>()
    const place = (node: GraphNode): void => {
      if (placed.has(node)) return
      placed.add(node)
      const inputs = this.inputsOf(node)
      for (const input of inputs) {
        const producer = this.producerOf(input)
        if (producer) place(producer)
      }
      result.push({ ...node, inputs })
    }
    for (const node of this.nodes) place(node)
    for (const node of result) for (const output of node.outputs) output.node = node
    return result
  }
}
