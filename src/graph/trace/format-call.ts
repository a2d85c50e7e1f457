import { type MapAttrs, map } from '../../kernels/map/map.ts'
import type { Op } from '../../kernels/op.ts'
import type { Step } from '../../kernels/steps.ts'
import { formatShape, type TensorType } from '../../util/shape.ts'
import type { Trace } from './trace.ts'
import type { GraphNode } from './value.ts'

/** `f32[64, 784], i32[64]` */
export const formatTypes = (types: readonly TensorType[]): string =>
  types.map(({ shape, dtype }) => `${dtype}${formatShape(shape)}`).join(', ')

/** Max number of functions of a chain that are named, then how many more there are. */
const namedSteps = 6

/** A chain by its functions: all elementwise functions are one op, and the name `map` would not say which. */
function nameOf({ op, attrs }: Pick<GraphNode, 'op' | 'attrs'>): string {
  const { steps = [], epilogue = [] } = attrs as Partial<MapAttrs> & { epilogue?: readonly Step[] }
  const chain = (op === (map as Op) ? steps : epilogue).map(({ fn }) => fn)
  const names: string[] = op === (map as Op) ? chain : [op.name, ...chain]
  if (names.length === 0) return 'copy'
  const left = names.length - namedSteps
  return left > 1 ? `${names.slice(0, namedSteps).join('+')}+${left} more` : names.join('+')
}

/**
 * A node's op with its inputs' types: `matmul(f32[64, 784], f32[256, 784])`, `add+relu(f32[2, 3], f32[3])`.
 *
 * With the trace, a node of a backward pass also has the call that it is the gradient of: `div(f32[2], f32[2]) in the backward of log(f32[2])`.
 */
export function formatCall(
  node: Pick<GraphNode, 'id' | 'op' | 'attrs' | 'inputs'>,
  trace?: Pick<Trace, 'backwards' | 'rules'>,
): string {
  const call = `${nameOf(node)}(${formatTypes(node.inputs.map(({ type }) => type))})`
  const isWithin = ({ from, to }: { from: number; to: number }) => node.id >= from && node.id < to
  const rule = trace?.rules.find(isWithin)
  if (rule) return `${call} in the backward of ${formatCall(rule.of)}`
  return trace?.backwards.some(isWithin) ? `${call} in backward` : call
}
