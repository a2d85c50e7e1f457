import { wantedAmong } from '../graph/trace/backward.ts'
import type { Trace } from '../graph/trace/trace.ts'
import { type GraphNode, type GraphValue, nodesBehind } from '../graph/trace/value.ts'
import type { MapAttrs } from '../kernels/map/map.ts'

/** Ops that give a multiple of the scale for tensors that are this multiple of it. */
const linear = new Set(['sum', 'reshape', 'view', 'expand', 'detach', 'cast', 'cat', 'transfer'])

/** How often a value has the scale as a factor; NaN where its terms differ in that, undefined where it is not known. */
type Power = number | undefined

/** How often a loss has the scale as a factor: see `Power`. Terms without a gradient do not count. */
export function scaleOf(
  trace: Trace,
  loss: GraphValue,
  isScale: (leaf: GraphValue) => boolean,
): Power {
  const nodes = nodesBehind([loss])
  const isWanted = wantedAmong(trace, nodes)
  const powers = new Map<GraphValue, Power>()
  const powerOf = (value: GraphValue): Power =>
    value.node ? powers.get(value) : isScale(value) ? 1 : 0
  for (const node of nodes) {
    const power = powerOfNode(node, powerOf, isWanted)
    for (const value of node.outputs) powers.set(value, power)
  }
  return powerOf(loss)
}

function powerOfNode(
  { op, inputs, attrs }: GraphNode,
  powerOf: (value: GraphValue) => Power,
  isWanted: (value: GraphValue) => boolean,
): Power {
  const all = inputs.map(powerOf)
  if (all.every((power) => power === 0)) return 0
  const { steps } = attrs as Partial<MapAttrs>
  const fn = op.name === 'map' ? steps?.map(({ fn }) => fn).join('+') : undefined
  if (fn === 'mul' || fn === 'div') {
    const [a, b] = steps![0].args.map((arg) => ('input' in arg ? all[arg.input] : 0))
    if (a === undefined || b === undefined) return undefined
    return fn === 'mul' ? a + b : a - b
  }
  const isSum = fn === undefined ? linear.has(op.name) : ['', 'neg', 'add', 'sub'].includes(fn)
  if (!isSum) return all.some(Number.isNaN) ? Number.NaN : undefined
  const counting = inputs.flatMap((value, i) => (isWanted(value) ? [all[i]] : []))
  const terms = counting.length > 0 ? counting : all
  if (terms.includes(undefined)) return undefined
  return terms.every((power) => power === terms[0]) ? terms[0] : Number.NaN
}
