import { cat, split } from '../../kernels/cat/cat.ts'
import type { HostArray, Op } from '../../kernels/op.ts'
import { place, view } from '../../kernels/view/view.ts'
import { isOf } from '../../util/kind-of.ts'
import { countElements } from '../../util/shape.ts'
import { type GivenInputs, roundStored, toHostArray } from '../memory/host-values.ts'
import { callOf, type GraphNode, type GraphValue, nodesBehind, storageOf } from './value.ts'

/** Returns whether a value is computed from a run's inputs alone, by ops without step scalars. */
export function isOfInputs(value: GraphValue): boolean {
  const nodes = nodesBehind([value])
  const leaves = [value, ...nodes.flatMap(({ inputs }) => inputs)].filter(({ node }) => !node)
  return leaves.every(({ leaf }) => leaf?.kind === 'input') && !nodes.some(readsScalars)
}

const isSlot = (part: unknown): boolean =>
  typeof part === 'object' &&
  part !== null &&
  ('slot' in part || Object.values(part).some((inner) => isSlot(inner)))

const readsScalars = ({ attrs, op }: GraphNode): boolean =>
  isSlot(attrs) || op.updates !== undefined

/**
 * The value's elements, from the inputs by the ops' references; undefined where an input is not on the host.
 *
 * `known`: what calls for the same inputs have computed.
 */
export function elementsOf(
  value: GraphValue,
  inputs: GivenInputs,
  known = new Map<GraphValue, HostArray>(),
): HostArray | undefined {
  const read = (one: GraphValue): HostArray | undefined => {
    const root = storageOf(one)
    const given = root.leaf?.kind === 'input' ? inputs.get(root.leaf.name) : undefined
    if (given) return isOf(given, Float32Array) ? toHostArray(given) : given
    return known.get(root)
  }
  for (const node of nodesBehind([value])) {
    if (node.op.isView || known.has(node.outputs[0])) continue
    const contents = node.inputs.map(read)
    if (contents.includes(undefined)) return undefined
    const results = node.op.reference(contents as HostArray[], callOf(node), [])
    for (const [i, output] of node.outputs.entries()) {
      known.set(output, roundStored(results[i], output.type))
    }
  }
  return read(value)
}

const movers: ReadonlySet<Op> = new Set<unknown>([view, place, cat, split]) as ReadonlySet<Op>

/** An element of an input. */
export interface InputElement {
  readonly input: GraphValue
  readonly at: number
}

/** The element of an input that element `at` of a value is taken from, by ops that move elements or take one for one; undefined by others. */
export function originOf(value: GraphValue, at: number): InputElement | undefined {
  const { node } = value
  if (!node) return { input: value, at }
  const counts = node.inputs.map(({ type }) => countElements(type.shape))
  if (!movers.has(node.op)) {
    const same = counts.indexOf(countElements(value.type.shape))
    return same < 0 ? undefined : originOf(node.inputs[same], at)
  }
  // The op moves the numbers 1, 2, … of its inputs' elements.
  let last = 0
  const numbers = counts.map((count) => Int32Array.from({ length: count }, () => ++last))
  const outputs = node.op.reference(numbers, callOf(node), [])
  const number = outputs[value.outputIndex][at]
  const from = numbers.findIndex((all) => number >= all[0] && number <= all[all.length - 1])
  return from < 0 ? undefined : originOf(node.inputs[from], number - numbers[from][0])
}
