import { alias } from '../../kernels/alias/alias.ts'
import {
  type CrossEntropyAttrs,
  crossEntropy,
  crossEntropyGrad,
  crossEntropyWithGrad,
} from '../../kernels/cross-entropy/cross-entropy.ts'
import { fromScalar } from '../../kernels/from-scalar/from-scalar.ts'
import { type MapAttrs, map } from '../../kernels/map/map.ts'
import { type MatmulAttrs, matmul } from '../../kernels/matmul/matmul.ts'
import type { EpilogueRoom, Op, ScalarSlot } from '../../kernels/op.ts'
import { reshape } from '../../kernels/reshape/reshape.ts'
import { joinSteps, type Step, stepsToWgsl } from '../../kernels/steps.ts'
import { sum } from '../../kernels/sum/sum.ts'
import { countElements, sameShape } from '../../util/shape.ts'
import { type GraphNode, GraphValue } from '../trace/value.ts'
import { Editor, maxBindings, maxChainSteps, type Program } from './editor.ts'
import { foldStores, foldViews } from './fold-views.ts'
import { attrsForHalf, copiesOfParameters, joinCasts, shareCopies } from './join-casts.ts'
import { addInPlace, dropExpands, joinAfterSums, joinBeforeSums } from './join-sums.ts'

/** The room of an op for an epilogue; by default behind its own two inputs. */
function epilogueOf({ op, outputs, attrs }: GraphNode): EpilogueRoom {
  const room = op.takesEpilogue
  if (typeof room !== 'object') return { operandsFrom: 2, bindings: 2 + outputs.length }
  return 'of' in room ? room.of(attrs) : room
}

/** An epilogue is written once for each element of a tile, so a long one would compile for seconds. */
const maxEpilogueLines = 12

const linesOf = (steps: readonly Step[]): number =>
  stepsToWgsl(steps, new Array<string>(maxBindings).fill('x')).lines.length

/**
 * Rewrites of a traced program that save dispatches and memory traffic, none of which changes what is computed beyond rounding. None
 * moves a read past a change in place.
 *
 * 1. Aliases, which hooks stood on in backward, go. Gradients of micro-batches are added in place (join-sums.ts).
 * 2. The gradient of a cross entropy joins the loss's own kernel.
 * 3. A bias gradient joins the weight gradient that reads the same output gradient.
 * 4. Matmuls read views where they lie and store their result with its axes in another order (fold-views.ts).
 * 5. An elementwise chain reads what a broadcast would have copied.
 * 6. Elementwise chains join each other, and the store of the matmul, convolution or pooling gradient before them.
 * 7. A chain joins the sum that reads it, and a sum takes in the chain that follows it (join-sums.ts).
 * 8. What only conversions to f16 read is stored as f16 at once, and small f16 copies of parameters share dispatches (join-casts.ts).
 *
 * Returns the rewritten nodes in execution order, and where each kept value went.
 */
export function rewrite(program: Program): {
  nodes: GraphNode[]
  find: (value: GraphValue) => GraphValue
} {
  const editor = new Editor(program)
  dropAliases(editor)
  addInPlace(editor)
  joinCrossEntropy(editor)
  joinBiasGradients(editor)
  foldViews(editor)
  dropExpands(editor)
  joinAfterSums(editor)
  joinCasts(editor)
  joinChains(editor)
  joinBeforeSums(editor)
  joinAfterSums(editor)
  foldStores(editor)
  shareCopies(editor)
  return { nodes: editor.ordered(copiesOfParameters(editor)), find: (value) => editor.find(value) }
}

/** The nodes as traced, for the mode without rewrites. */
export const withoutRewrites = (program: Program) => ({
  nodes: [...program.nodes],
  find: (value: GraphValue) => value,
})

function dropAliases(editor: Editor): void {
  for (const node of editor.nodes) {
    if (node.op === (alias as Op)) editor.forward(node, editor.inputsOf(node)[0])
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
      return (
        inputs[0] === logits &&
        inputs[1] === target &&
        sameRows(node.attrs, gradient.attrs) &&
        !editor.isUpdatedBetween(node, gradient)
      )
    })
    if (!loss) continue
    const attrs = loss.attrs as CrossEntropyAttrs
    const { slot } = seed.attrs as { slot: ScalarSlot }
    editor.replace(
      [loss, gradient],
      crossEntropyWithGrad as Op,
      [logits, target],
      { ...attrs, seed: slot },
      [loss.outputs[0], gradient.outputs[0]],
    )
    if (editor.uses(seed.outputs[0]) === 0) editor.remove(seed)
  }
}

const withoutHalf = ({ half: _, ...attrs }: { epilogue: readonly Step[]; half?: boolean }) => attrs

/** Returns whether a loss and a gradient leave out the same rows. */
function sameRows(loss: unknown, gradient: unknown): boolean {
  const [a, b] = [loss as CrossEntropyAttrs, gradient as CrossEntropyAttrs]
  return a.count?.slot === b.count?.slot && a.ignoreIndex === b.ignoreIndex
}

function joinBiasGradients(editor: Editor): void {
  for (const total of editor.nodes) {
    if (total.op !== (sum as Op)) continue
    const [summed] = editor.inputsOf(total)
    const dy = behindFloat(editor, summed)
    const { axes } = total.attrs as { axes: readonly number[] }
    const { shape } = dy.type
    const sumsAllBut = (kept: number) =>
      shape.length > 1 &&
      axes.length === shape.length - 1 &&
      shape.every((_, axis) => axes.includes(axis) === (axis !== kept))
    /** Returns whether an operand's columns are the features of dy; the rows of all batches are one product's rows. */
    const isSummed = (operand: GraphValue): boolean => {
      const flat = editor.producerOf(operand)
      return (
        (operand === dy || (flat?.op === (reshape as Op) && editor.inputsOf(flat)[0] === dy)) &&
        operand.type.shape.length === 2 &&
        operand.type.shape[1] === shape[shape.length - 1] &&
        sumsAllBut(shape.length - 1)
      )
    }
    const weightGradient = editor.nodes.find((node) => {
      const [first, second] = editor.inputsOf(node)
      if (node.op === (matmul as Op)) {
        const { form, rowSums, colSums } = node.attrs as MatmulAttrs
        // dy comes first for a weight [out, in], second for one [in, out].
        return form === 'tn' && !rowSums && !colSums && (isSummed(first) || isSummed(second))
      }
      return (
        node.op.takesRowSums === true &&
        !(node.attrs as { rowSums: boolean }).rowSums &&
        first === dy &&
        sumsAllBut(1)
      )
    })
    if (!weightGradient || (weightGradient.attrs as { epilogue?: Step[] }).epilogue?.length)
      continue
    if (editor.isUpdatedBetween(weightGradient, total)) continue
    const isColumns =
      weightGradient.op === (matmul as Op) && !isSummed(editor.inputsOf(weightGradient)[0])
    const merged = new GraphValue({
      shape: [countElements(total.outputs[0].type.shape)],
      dtype: 'f32',
    })
    const node = editor.replace(
      [weightGradient],
      weightGradient.op,
      editor.inputsOf(weightGradient),
      { ...(weightGradient.attrs as object), [isColumns ? 'colSums' : 'rowSums']: true },
      [weightGradient.outputs[0], merged],
    )
    const bias = total.outputs[0]
    if (sameShape(bias.type.shape, merged.type.shape)) editor.forward(total, node.outputs[1])
    else
      editor.replace([total], reshape as Op, [node.outputs[1]], { shape: bias.type.shape }, [bias])
    if (summed !== dy && editor.uses(summed) === 0) editor.remove(editor.producerOf(summed)!)
  }
}

/** The f16 tensor of which the value is the f32 form; else the value itself. */
function behindFloat(editor: Editor, value: GraphValue): GraphValue {
  const node = editor.producerOf(value)
  if (node?.op !== (map as Op) || (node.attrs as MapAttrs).steps.length > 0) return value
  const [input] = editor.inputsOf(node)
  return input.type.dtype === 'f16' && value.type.dtype === 'f32' ? input : value
}

/** A chain before another one: where its result was stored as f16, the joined chain rounds there too. */
function stepsBefore(steps: readonly Step[], { type }: GraphValue): readonly Step[] {
  if (type.dtype !== 'f16') return steps
  const last = steps.length === 0 ? { input: 0 } : { step: steps.length - 1 }
  return [...steps, { fn: 'roundHalf', args: [last] }]
}

function joinChains(editor: Editor): void {
  for (const traced of editor.nodes) {
    let chain: GraphNode | undefined = traced.op === (map as Op) ? traced : undefined
    while (chain) chain = absorbProducer(editor, chain)
  }
}

/** Joins one producer into an elementwise chain; returns the chain, or undefined where it is now the epilogue of another op or nothing joins. */
function absorbProducer(editor: Editor, chain: GraphNode): GraphNode | undefined {
  const inputs = editor.inputsOf(chain)
  const { steps, dtype } = chain.attrs as MapAttrs
  const output = chain.outputs[0]
  const candidates = inputs
    .map((value, at) => ({ value, at, producer: editor.producerOf(value) }))
    .filter(
      ({ value, producer }) =>
        producer !== undefined &&
        (producer.op === (map as Op) || producer.op.takesEpilogue) &&
        value === producer.outputs[0] &&
        (sameShape(value.type.shape, output.type.shape) ||
          // A single number is computed again for each element rather than in a separate dispatch.
          (producer.op === (map as Op) && countElements(value.type.shape) === 1)) &&
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
      const first = (producer!.attrs as MapAttrs).steps
      if (first.length + steps.length > maxChainSteps) continue
      const joined = joinSteps(stepsBefore(first, producer!.outputs[0]), before.length, steps, at)
      return editor.replace(
        [producer!, chain],
        map as Op,
        [...before, ...others],
        { steps: joined, ...(dtype && { dtype }) },
        [output],
      )
    }
    const attrs = producer!.attrs as { epilogue: Step[] }
    const operands = before.length - operandsFrom
    if (dtype && !attrsForHalf(producer!)) continue
    const before16 = stepsBefore(attrs.epilogue, producer!.outputs[0])
    const joined = joinSteps(before16, 1 + operands, steps, at)
    const isRead = others.every(
      ({ type }) => type.dtype === 'f32' || (type.dtype === 'f16' && producer!.op.takesHalf),
    )
    if (!isRead || linesOf(joined) > maxEpilogueLines) continue
    editor.replace(
      [producer!, chain],
      producer!.op,
      [...before, ...others],
      { ...withoutHalf(attrs), epilogue: joined, ...(dtype && { half: true }) },
      [output, ...producer!.outputs.slice(1)],
    )
    return undefined
  }
  return undefined
}
