import { detach } from '../kernels/detach/detach.ts'
import { type MapAttrs, map } from '../kernels/map/map.ts'
import type { GradientContext, Op, Value } from '../kernels/op.ts'
import { TabringError } from '../util/errors.ts'
import type { Parameter } from './parameter.ts'
import { Recomputation } from './region.ts'
import type { Trace } from './trace.ts'
import { type GradientHook, type GraphNode, type GraphValue, nodesBehind } from './value.ts'

/**
 * Adds the ops of the backward pass to the trace and returns the gradient by each parameter that `output` depends on.
 *
 * Reverse accumulation over nodes from the last to the first; a value used twice gets the sum of its gradients, added in
 * that order, and goes through the value's hooks when that sum is complete. Ops before any parameter get no gradient ops. Ops of a checkpointed region read copies that are computed anew.
 * errors: `graph.misuse` when an op on the way has no gradient.
 */
export function gradientsOf(
  trace: Trace,
  output: GraphValue,
  seed: GraphValue,
): Map<Parameter, GraphValue> {
  const nodes = nodesBehind([output])
  const wanted = new Set<GraphValue>()
  const isWanted = (value: GraphValue) => wanted.has(value) || isTrainable(value)
  for (const node of nodes) {
    if (node.inputs.some(isWanted)) for (const value of node.outputs) wanted.add(value)
  }
  const gradients = new Map<GraphValue, GraphValue>([[output, seed]])
  const hooksDone = new Set<GradientHook>()
  const runHooks = (value: GraphValue): void => {
    for (const hook of value.hooks ?? []) {
      if (hooksDone.has(hook)) continue
      hooksDone.add(hook)
      const replaced = hook.run(hook.values.map((other) => gradients.get(other)))
      replaced.forEach((gradient, i) => {
        if (gradient) gradients.set(hook.values[i], gradient)
      })
    }
  }
  const recomputation = new Recomputation((op, inputs, attrs) => trace.emit(op, inputs, attrs))
  for (const node of nodes.reverse()) {
    if (!node.inputs.some(isWanted)) continue
    if (node.outputs.every((value) => gradients.get(value) === undefined)) continue
    for (const value of node.outputs) if (gradients.has(value)) runHooks(value)
    const outputGradients = node.outputs.map((value) => gradients.get(value))
    const region = trace.regions.get(node)
    const inputGradients = applyRule(trace, node, outputGradients, isWanted, (value) =>
      recomputation.valueIn(region, value),
    )
    node.inputs.forEach((input, i) => {
      const gradient = inputGradients[i]
      if (!gradient || !isWanted(input)) return
      const earlier = gradients.get(input)
      gradients.set(
        input,
        earlier ? add(trace, earlier, gradient as GraphValue) : (gradient as GraphValue),
      )
    })
  }
  const byParameter = new Map<Parameter, GraphValue>()
  for (const value of [...gradients.keys()]) {
    if (value.leaf?.kind !== 'parameter') continue
    runHooks(value)
    byParameter.set(value.leaf.parameter, trace.toFloat(gradients.get(value)!))
  }
  return byParameter
}

/** `a + b`, elementwise. */
export const add = (trace: Trace, a: GraphValue, b: GraphValue): GraphValue =>
  trace.emit(map, [a, b], { steps: [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }] })[0]

/**
 * A parameter's f16 copy is made again where backward reads it, so that it does not live from forward on; anything else is
 * read where it is.
 */
function copiedAnew(trace: Trace, value: GraphValue): GraphValue {
  const { node } = value
  const isCopy =
    node?.op === (map as Op) &&
    value.type.dtype === 'f16' &&
    (node.attrs as MapAttrs).steps.length === 0 &&
    node.inputs[0].leaf?.kind === 'parameter'
  return isCopy ? trace.emit(node.op, node.inputs, node.attrs)[0] : value
}

/** Whether a parameter that learns stands behind the value, with nothing between them that stops gradients. */
export function requiresGradient(value: GraphValue): boolean {
  const seen = new Set<GraphValue>()
  const open = [value]
  for (let next = open.pop(); next; next = open.pop()) {
    if (isTrainable(next)) return true
    const { node, type } = next
    const isFloat = type.dtype === 'f32' || type.dtype === 'f16'
    if (!node || !isFloat || node.op === (detach as Op) || seen.has(next)) continue
    seen.add(next)
    open.push(...node.inputs)
  }
  return false
}

const isTrainable = (value: GraphValue): boolean =>
  value.leaf?.kind === 'parameter' && value.leaf.parameter.requiresGrad

function applyRule(
  trace: Trace,
  node: GraphNode,
  outputGradients: (GraphValue | undefined)[],
  isWanted: (value: GraphValue) => boolean,
  read: (value: GraphValue) => GraphValue,
): (Value | undefined)[] {
  const { op, inputs, outputs, attrs } = node
  if (!op.gradient) {
    throw new TabringError(
      'graph.misuse',
      `backward: "${op.name}" has no gradient, but a parameter stands behind it. Keep it out of the loss.`,
    )
  }
  const context: GradientContext = {
    inputs: inputs.map((value) => copiedAnew(trace, read(value))),
    outputs: outputs.map(read),
    outputGradients,
    attrs,
    needs: (input) => isWanted(inputs[input]),
    emit: <A>(next: Op<A>, values: readonly Value[], nextAttrs: A) =>
      trace.emit(next, values as GraphValue[], nextAttrs),
  }
  return op.gradient(context)
}
