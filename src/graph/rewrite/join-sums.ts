import { addInto } from '../../kernels/accumulate/add-into.ts'
import { barrier } from '../../kernels/barrier/barrier.ts'
import { type MapAttrs, map } from '../../kernels/map/map.ts'
import type { Op } from '../../kernels/op.ts'
import type { ReduceAttrs } from '../../kernels/reduce/shapes.ts'
import { reshape } from '../../kernels/reshape/reshape.ts'
import { chainShape } from '../../kernels/steps.ts'
import { expand, sum } from '../../kernels/sum/sum.ts'
import { type SumOfAttrs, sumOf } from '../../kernels/sum-of/sum-of.ts'
import { countElements, sameShape } from '../../util/shape.ts'
import { type GraphNode, type GraphValue, sharesMemory } from '../trace/value.ts'
import { type Editor, maxBindings, maxChainSteps } from './editor.ts'

// Rewrites around sums: what people write as several ops (a mean of squares, a norm) is one pass over memory.

/** Of a single number under another shape: where it comes from, since its shape matters to no chain. */
function singleSource(editor: Editor, value: GraphValue): GraphValue {
  const producer = editor.producerOf(value)
  return producer?.op === (reshape as Op) && countElements(value.type.shape) === 1
    ? singleSource(editor, editor.inputsOf(producer)[0])
    : value
}

/** Removes a node that nothing reads, and views that only it read: they would count as readers of what is behind them. */
function removeUnread(editor: Editor, node: GraphNode): void {
  if (editor.uses(node.outputs[0]) > 0) return
  const producers = editor.inputsOf(node).map((value) => editor.producerOf(value))
  editor.remove(node)
  for (const producer of producers) {
    if (producer?.op === (reshape as Op)) removeUnread(editor, producer)
  }
}

/**
 * Adds to a sum in its own memory where nothing else reads it: the gradients of a pipeline's micro-batches, which backward puts barriers
 * between. So they lie in their bucket from the first micro-batch on.
 */
export function addInPlace(editor: Editor): void {
  for (const node of editor.nodes) {
    if (node.op !== (map as Op) || !isSum(node.attrs as MapAttrs)) continue
    const [total, x] = editor.inputsOf(node)
    const before = editor.producerOf(total)
    if (before?.op !== (barrier as Op) || !isReadOnce(editor, total)) continue
    editor.replace([before, node], addInto as Op, [editor.inputsOf(before)[0], x], {}, [
      node.outputs[0],
    ])
  }
}

const isSum = ({ steps, dtype }: MapAttrs): boolean =>
  !dtype && steps.length === 1 && steps[0].fn === 'add'

/** Returns whether the memory of a value is a program's own and is read by that value's one reader alone. */
function isReadOnce(editor: Editor, value: GraphValue): boolean {
  if (editor.uses(value) !== 1 || value.leaf) return false
  const producer = editor.producerOf(value)
  return !producer || !sharesMemory(producer.op) || isReadOnce(editor, editor.inputsOf(producer)[0])
}

/** Lets elementwise chains read what `expand` would have copied, where their shape does not depend on it. */
export function dropExpands(editor: Editor): void {
  for (const node of editor.nodes) {
    if (node.op !== (map as Op)) continue
    const output = node.outputs[0]
    const inputs = editor.inputsOf(node)
    const dropped = new Set<GraphNode>()
    inputs.forEach((value, at) => {
      const producer = editor.producerOf(value)
      if (producer?.op !== (expand as Op) || editor.isTouchedBetween(producer, node)) return
      const source = singleSource(editor, editor.inputsOf(producer)[0])
      const shapes = inputs.map(({ type }, n) => (n === at ? source.type.shape : type.shape))
      if (!sameShape(chainShape('map', shapes), output.type.shape)) return
      inputs[at] = source
      dropped.add(producer)
    })
    if (dropped.size === 0) continue
    editor.replace([node], map as Op, inputs, node.attrs, [output])
    for (const expanded of dropped) removeUnread(editor, expanded)
  }
}

/** Joins a chain with the sum that alone reads it. */
export function joinBeforeSums(editor: Editor): void {
  for (const node of editor.nodes) {
    if (node.op !== (sum as Op) && node.op !== (sumOf as Op)) continue
    const values = editor.inputsOf(node)
    const [value] = values
    const chain = editor.producerOf(value)
    if (values.length !== 1 || chain?.op !== (map as Op) || editor.uses(value) !== 1) continue
    const attrs = node.attrs as ReduceAttrs & Partial<SumOfAttrs>
    const inputs = editor.inputsOf(chain)
    const isPossible =
      !editor.isTouchedBetween(chain, node) &&
      inputs.length < maxBindings &&
      inputs.every(({ type }) => type.dtype === 'f32') &&
      !attrs.steps?.length
    if (!isPossible) continue
    const { axes, keepDims, finalSteps = [] } = attrs
    const { steps } = chain.attrs as MapAttrs
    editor.replace([chain, node], sumOf as Op, inputs, { axes, keepDims, steps, finalSteps }, [
      node.outputs[0],
    ])
  }
}

/** Joins a chain on a sum alone with that sum. */
export function joinAfterSums(editor: Editor): void {
  for (const node of editor.nodes) {
    if (node.op !== (map as Op) || node.inputs.length !== 1) continue
    if ((node.attrs as MapAttrs).dtype) continue
    const [value] = editor.inputsOf(node)
    if (value.type.dtype !== 'f32') continue
    const total = editor.producerOf(value)
    const isSum = total?.op === (sum as Op) || total?.op === (sumOf as Op)
    if (!total || !isSum || editor.uses(value) !== 1) continue
    if (editor.isTouchedBetween(total, node)) continue
    const attrs = total.attrs as ReduceAttrs & Partial<SumOfAttrs>
    const { axes, keepDims, steps = [], finalSteps = [] } = attrs
    const own = (node.attrs as MapAttrs).steps.map(({ fn, args }) => ({
      fn,
      args: args.map((argument) =>
        'step' in argument
          ? { step: argument.step + finalSteps.length }
          : 'input' in argument && finalSteps.length > 0
            ? { step: finalSteps.length - 1 }
            : argument,
      ),
    }))
    const joined = [...finalSteps, ...own]
    if (joined.length > maxChainSteps) continue
    editor.replace(
      [total, node],
      sumOf as Op,
      editor.inputsOf(total),
      { axes, keepDims, steps, finalSteps: joined },
      [node.outputs[0]],
    )
  }
}
