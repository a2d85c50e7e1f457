import { conv2dGradWeight } from '../kernels/conv2d/conv2d-grad-weight.ts'
import {
  crossEntropy,
  crossEntropyGrad,
  crossEntropyWithGrad,
} from '../kernels/cross-entropy/cross-entropy.ts'
import { fromScalar } from '../kernels/from-scalar/from-scalar.ts'
import { map } from '../kernels/map/map.ts'
import { type MatmulAttrs, matmul } from '../kernels/matmul/matmul.ts'
import type { EpilogueRoom, Op, ScalarSlot } from '../kernels/op.ts'
import { reshape } from '../kernels/reshape/reshape.ts'
import { joinSteps, type Step } from '../kernels/steps.ts'
import { sum } from '../kernels/sum/sum.ts'
import { countElements, sameShape } from '../util/shape.ts'
import { foldStores, foldViews } from './fold-views.ts'
import { type GraphNode, GraphValue, makeNode } from './value.ts'

/**
 * Rewrites of a traced program that save dispatches and memory traffic, none of which changes what is computed beyond rounding.
 *
 * 1. The gradient of a cross entropy joins the loss's own kernel.
 * 2. A bias gradient joins the weight gradient that reads the same output gradient.
 * 3. Matmuls read views where they lie and store their result with its axes in another order (fold-views.ts).
 * 4. Elementwise chains join each other, and the store of the matmul, convolution or pooling gradient before them.
 */
export interface Program {
  readonly nodes: readonly GraphNode[]
  /** Values that must exist after a run: outputs, and gradients that fill buckets. */
  readonly kept: readonly GraphValue[]
}

/** What an op says about its epilogue; two inputs of its own unless told. */
function epilogueOf({ op, outputs, attrs }: GraphNode): EpilogueRoom {
  const room = op.takesEpilogue
  if (typeof room !== 'object') return { operandsFrom: 2, bindings: 2 + outputs.length }
  return 'of' in room ? room.of(attrs) : room
}

/** Storage buffers a stage may bind by WebGPU's default limits. */
const maxBindings = 8

/** Returns the rewritten nodes in execution order, and where each kept value went. */
export function rewrite(program: Program): {
  nodes: GraphNode[]
  find: (value: GraphValue) => GraphValue
} {
  const editor = new Editor(program)
  joinCrossEntropy(editor)
  joinBiasGradients(editor)
  foldViews(editor)
  joinChains(editor)
  foldStores(editor)
  return { nodes: editor.ordered(), find: (value) => editor.find(value) }
}

/** The nodes as traced, for the mode without rewrites. */
export const withoutRewrites = (program: Program) => ({
  nodes: [...program.nodes],
  find: (value: GraphValue) => value,
})

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

  /** Whether a node between the two reads or changes what `first` changes in place, so that `first` may not move to `last`. */
  isTouchedBetween(first: GraphNode, last: GraphNode): boolean {
    const changed = new Set(first.op.updates?.map((input) => this.find(first.inputs[input])))
    if (changed.size === 0) return false
    return this.nodes.some(
      ({ id, inputs }) =>
        first.id < id && id < last.id && inputs.some((input) => changed.has(this.find(input))),
    )
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

function joinCrossEntropy(editor: Editor): void {
  for (const gradient of editor.nodes) {
    if (gradient.op !== (crossEntropyGrad as Op)) continue
    const [logits, target, dloss] = editor.inputsOf(gradient)
    const seed = editor.producerOf(dloss)
    if (seed?.op !== (fromScalar as Op)) continue
    const loss = editor.nodes.find((node) => {
      if (node.op !== (crossEntropy as Op)) return false
      const inputs = editor.inputsOf(node)
      return inputs[0] === logits && inputs[1] === target && sameCount(node.attrs, gradient.attrs)
    })
    if (!loss) continue
    const { count } = loss.attrs as { count: ScalarSlot | null }
    const { slot } = seed.attrs as { slot: ScalarSlot }
    editor.replace(
      [loss, gradient],
      crossEntropyWithGrad as Op,
      [logits, target],
      { count, seed: slot },
      [loss.outputs[0], gradient.outputs[0]],
    )
    if (editor.uses(seed.outputs[0]) === 0) editor.remove(seed)
  }
}

const sameCount = (a: unknown, b: unknown): boolean =>
  (a as { count: ScalarSlot | null }).count?.slot ===
  (b as { count: ScalarSlot | null }).count?.slot

function joinBiasGradients(editor: Editor): void {
  for (const total of editor.nodes) {
    if (total.op !== (sum as Op)) continue
    const [dy] = editor.inputsOf(total)
    const { axes } = total.attrs as { axes: readonly number[] }
    const { shape } = dy.type
    const sumsAllBut = (kept: number) =>
      shape.length > 1 &&
      axes.length === shape.length - 1 &&
      shape.every((_, axis) => axes.includes(axis) === (axis !== kept))
    const weightGradient = editor.nodes.find((node) => {
      const [first] = editor.inputsOf(node)
      if (node.op === (matmul as Op)) {
        const { form, rowSums } = node.attrs as MatmulAttrs
        // The rows of all batches are one product's rows.
        const flat = editor.producerOf(first)
        const isSame =
          first === dy || (flat?.op === (reshape as Op) && editor.inputsOf(flat)[0] === dy)
        return (
          form === 'tn' &&
          !rowSums &&
          isSame &&
          first.type.shape.length === 2 &&
          first.type.shape[1] === shape[shape.length - 1] &&
          sumsAllBut(shape.length - 1)
        )
      }
      return (
        node.op === (conv2dGradWeight as Op) &&
        !(node.attrs as { rowSums: boolean }).rowSums &&
        first === dy &&
        sumsAllBut(1)
      )
    })
    if (!weightGradient || (weightGradient.attrs as { epilogue?: Step[] }).epilogue?.length)
      continue
    const merged = new GraphValue({
      shape: [countElements(total.outputs[0].type.shape)],
      dtype: 'f32',
    })
    const node = editor.replace(
      [weightGradient],
      weightGradient.op,
      editor.inputsOf(weightGradient),
      { ...(weightGradient.attrs as object), rowSums: true },
      [weightGradient.outputs[0], merged],
    )
    const bias = total.outputs[0]
    if (sameShape(bias.type.shape, merged.type.shape)) editor.forward(total, node.outputs[1])
    else
      editor.replace([total], reshape as Op, [node.outputs[1]], { shape: bias.type.shape }, [bias])
  }
}

function joinChains(editor: Editor): void {
  for (const traced of editor.nodes) {
    let chain: GraphNode | undefined = traced.op === (map as Op) ? traced : undefined
    while (chain) chain = absorbProducer(editor, chain)
  }
}

/** Joins one producer into an elementwise chain; returns the chain while it is still one of its own. */
function absorbProducer(editor: Editor, chain: GraphNode): GraphNode | undefined {
  const inputs = editor.inputsOf(chain)
  const steps = (chain.attrs as { steps: Step[] }).steps
  const output = chain.outputs[0]
  const candidates = inputs
    .map((value, at) => ({ value, at, producer: editor.producerOf(value) }))
    .filter(
      ({ value, producer }) =>
        producer !== undefined &&
        (producer.op === (map as Op) || producer.op.takesEpilogue) &&
        value === producer.outputs[0] &&
        sameShape(value.type.shape, output.type.shape) &&
        editor.uses(value) === 1 &&
        !editor.isTouchedBetween(producer, chain),
    )
    .sort((a, b) => b.producer!.id - a.producer!.id)
  for (const { at, producer } of candidates) {
    const before = editor.inputsOf(producer!)
    const others = inputs.filter((_, i) => i !== at)
    const { operandsFrom, bindings } =
      producer!.op === (map as Op) ? { operandsFrom: 0, bindings: 1 } : epilogueOf(producer!)
    if (bindings + before.length - operandsFrom + others.length > maxBindings) continue
    if (producer!.op === (map as Op)) {
      const joined = joinSteps(
        (producer!.attrs as { steps: Step[] }).steps,
        before.length,
        steps,
        at,
      )
      return editor.replace(
        [producer!, chain],
        map as Op,
        [...before, ...others],
        { steps: joined },
        [output],
      )
    }
    const attrs = producer!.attrs as { epilogue: Step[] }
    const operands = before.length - operandsFrom
    const joined = joinSteps(attrs.epilogue, 1 + operands, steps, at)
    editor.replace(
      [producer!, chain],
      producer!.op,
      [...before, ...others],
      { ...attrs, epilogue: joined },
      [output, ...producer!.outputs.slice(1)],
    )
    return undefined
  }
  return undefined
}
