import { halfCopies, maxCopies } from '../../kernels/half-copies/half-copies.ts'
import { type MapAttrs, map } from '../../kernels/map/map.ts'
import type { HalfAttrs, Op, OpCall } from '../../kernels/op.ts'
import { formatDevice } from '../../util/device.ts'
import { bytesOf } from '../../util/shape.ts'
import { callOf, type GraphNode, type GraphValue } from '../trace/value.ts'
import type { Editor } from './editor.ts'

// Rewrites of conversions to float16: bit for bit the same, but without separate kernels.

/** Returns whether a node does nothing but store its f32 input as f16. */
const isCast = ({ op, attrs, inputs }: GraphNode): boolean =>
  op === (map as Op) &&
  (attrs as MapAttrs).dtype === 'f16' &&
  (attrs as MapAttrs).steps.length === 0 &&
  inputs[0].type.dtype === 'f32'

/** The attrs of a node that stores its first result as f16; undefined where it cannot. */
export function attrsForHalf(node: GraphNode): (object & HalfAttrs) | undefined {
  const attrs = { ...(node.attrs as object), half: true }
  const call = { ...callOf(node), attrs } as OpCall
  return node.op.givesHalf?.(call) ? attrs : undefined
}

/** Lets what computes a value store it as f16 itself, where all that read it are conversions to that. */
export function joinCasts(editor: Editor): void {
  const readers = new Map<GraphValue, GraphNode[]>()
  for (const node of editor.nodes) {
    if (!isCast(node)) continue
    const [value] = editor.inputsOf(node)
    readers.set(value, [...(readers.get(value) ?? []), node])
  }
  for (const [value, casts] of readers) {
    const producer = editor.producerOf(value)
    if (!producer || value !== producer.outputs[0] || editor.uses(value) !== casts.length) continue
    const attrs = attrsForHalf(producer)
    const [first, ...others] = casts
    if (!attrs || editor.isTouchedBetween(producer, first)) continue
    const node = editor.replace([producer, first], producer.op, editor.inputsOf(producer), attrs, [
      first.outputs[0],
      ...producer.outputs.slice(1),
    ])
    for (const cast of others) editor.forward(cast, node.outputs[0])
  }
}

/** Copies share a dispatch while they are small beside what starting one costs; large ones live as shortly as they can. */
const maxSharedBytes = 128 * 1024

/** Returns a test for f16 copies of parameters, which may be made right before they are read. */
export function copiesOfParameters(editor: Editor): (node: GraphNode) => boolean {
  const { changed } = editor
  return (node) =>
    (isCast(node) || node.op === (halfCopies as Op)) &&
    editor.inputsOf(node).every((value) => value.leaf?.kind === 'parameter' && !changed.has(value))
}

const deviceOf = ({ leaf }: GraphValue): string => {
  const device = leaf?.kind === 'parameter' ? leaf.parameter.device : undefined
  return device ? formatDevice(device) : ''
}

/** Makes f16 copies of parameters that are used one after the other, on one device, in one dispatch. */
export function shareCopies(editor: Editor): void {
  let group: GraphNode[] = []
  const parameterOf = (node: GraphNode) => editor.inputsOf(node)[0]
  const bytes = (nodes: readonly GraphNode[]) =>
    nodes.reduce((sum, { outputs }) => sum + bytesOf(outputs[0].type), 0)
  const finish = () => {
    if (group.length > 1) {
      const outputs = group.map((node) => node.outputs[0])
      editor.replace(group, halfCopies as Op, group.map(parameterOf), {}, outputs)
    }
    group = []
  }
  for (const node of editor.nodes) {
    if (!isCast(node) || parameterOf(node).leaf?.kind !== 'parameter') continue
    const isApart =
      group.length === maxCopies ||
      bytes([...group, node]) > maxSharedBytes ||
      group.some((other) => deviceOf(parameterOf(other)) !== deviceOf(parameterOf(node))) ||
      // Forward ends with the weight that backward begins with: they are copied apart.
      group.some((other) => parameterOf(other) === parameterOf(node)) ||
      group.some((other) => editor.isTouchedBetween(other, node))
    if (isApart) finish()
    group.push(node)
  }
  finish()
}
