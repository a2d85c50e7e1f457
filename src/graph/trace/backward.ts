import { barrier } from '../../kernels/barrier/barrier.ts'
import { detach } from '../../kernels/detach/detach.ts'
import { fromScalar } from '../../kernels/from-scalar/from-scalar.ts'
import { type MapAttrs, map, singleStep } from '../../kernels/map/map.ts'
import type { GradientContext, Op, Value } from '../../kernels/op.ts'
import { reshape } from '../../kernels/reshape/reshape.ts'
import { comparisons } from '../../kernels/scalar/arithmetic.ts'
import { TabringError } from '../../util/errors.ts'
import type { DType } from '../../util/shape.ts'
import { refuseDivided } from './divided.ts'
import type { Parameter } from './parameter.ts'
import { Recomputation } from './region.ts'
import { gradientWeight, type Trace } from './trace.ts'
import {
  type GradientHook,
  type GraphNode,
  type GraphValue,
  nextNodeId,
  nodesBehind,
} from './value.ts'

/** Adds the backward pass of a loss of one element, and its gradients to those of the trace. errors: those of `gradientsOf`. */
export function addBackward(trace: Trace, loss: GraphValue): void {
  const { shape } = loss.type
  const from = nextNodeId()
  const slot = trace.seedSlot()
  const [unit] = trace.emit(fromScalar, [], { slot })
  const seed = shape.length === 0 ? unit : trace.emit(reshape, [unit], { shape })[0]
  const found = gradientsOf(trace, loss, seed)
  if (found.tensors.size > 0) {
    // Other tensors' gradients are those of the loss as it stands.
    const { scalars } = trace
    const inverse = scalars.add(() => (scalars.value(slot) === 0 ? 0 : 1 / scalars.value(slot)))
    const [whole] = trace.emit(fromScalar, [], { slot: inverse })
    for (const [value, gradient] of found.tensors)
      found.tensors.set(
        value,
        trace.emit(map, [gradient, whole], { steps: singleStep('mul', 2) })[0],
      )
  }
  addGradients(trace, loss, found, from, [loss])
}

/** The same from a tensor whose gradient, by the loss of another rank, has come from there. shape: gradient as value */
export function addBackwardFrom(trace: Trace, value: GraphValue, gradient: GraphValue): void {
  const from = nextNodeId()
  addGradients(trace, value, gradientsOf(trace, value, gradient), from)
}

/** Adds what a backward pass has found to the gradients of the trace. `from`: its first node. `losses`: this rank's, which it began at. */
function addGradients(
  trace: Trace,
  output: GraphValue,
  { parameters, tensors }: Gradients,
  from: number,
  losses: readonly GraphValue[] = [],
): void {
  const { scalars, gradients, tensorGradients } = trace
  const behind = nodesBehind([output])
  refuseMixedRanks(trace, [...parameters.keys()])
  refuseOtherBeginnings(behind)
  refuseDivided(trace.divided, output, parameters)
  for (const [parameter, gradient] of parameters) {
    trace.reached.add(parameter)
    // Ranks sum their gradients, so that each begins with its share: equal ones, unless a run says otherwise.
    // (`Weighing` finds out what they count for.)
    const size = parameter.exchange?.size ?? parameter.meanOver
    if (size > 1) scalars.setInitial(gradientWeight, 1 / size)
    const earlier = gradients.get(parameter)
    const sum = earlier ? addTo(trace, earlier, gradient) : gradient
    gradients.set(parameter, sum)
    trace.lossesOf.set(sum, [...((earlier && trace.lossesOf.get(earlier)) ?? []), ...losses])
  }
  for (const [value, gradient] of tensors) {
    const earlier = tensorGradients.get(value)
    tensorGradients.set(value, earlier ? add(trace, earlier, gradient) : gradient)
  }
  for (const { outputs } of behind) {
    for (const value of outputs) {
      const over = trace.means.get(value)
      if (over) trace.meansBehind.add(over)
    }
  }
  trace.backwards.push({ from, to: nextNodeId() })
}

/** errors: `graph.misuse` where ranks share some parameters otherwise than others, whose gradients would be weighed wrongly. */
function refuseMixedRanks(trace: Trace, parameters: readonly Parameter[]): void {
  const shared = parameters.find(({ sharedBy, replicatedBy }) => sharedBy ?? replicatedBy)
  if (!shared) return
  const refuse = (problem: string) => new TabringError('graph.misuse', `backward: ${problem}`)
  if (parameters.some(({ exchange }) => exchange))
    throw refuse(
      'the model is wrapped in DistributedDataParallel and has parameters that fullyShard, replicate or parallelizeModule shares. Use one of them.',
    )
  const averaged = parameters.find(({ meanOver }) => meanOver > 1)
  const other = parameters.find(({ meanOver }) => averaged && meanOver !== averaged.meanOver)
  if (averaged && other)
    throw refuse(
      `ranks average the gradient of ${averaged.title}, but not that of ${other.title} with it. Call fullyShard or replicate on a module that has all parameters of the loss.`,
    )
  if (trace.accumulation)
    throw refuse(
      'compileAccumulated does not work with fullyShard, replicate or parallelizeModule yet. Use compile.',
    )
}

/** errors: `graph.misuse` where ranks that divide parameters of the loss may have begun with different values of others. */
function refuseOtherBeginnings(behind: readonly GraphNode[]): void {
  const parameters = behind.flatMap(({ inputs }) =>
    inputs.flatMap(({ leaf }) => (leaf?.kind === 'parameter' ? [leaf.parameter as Parameter] : [])),
  )
  const groups = new Set(
    parameters.flatMap(({ sharedBy, isShard }) => (sharedBy && !isShard ? [sharedBy] : [])),
  )
  for (const group of groups) {
    const other = parameters.find(({ sharedBy, sameOn }) => sharedBy !== group && sameOn !== group)
    if (!other || group.size === 1) continue
    throw new TabringError(
      'graph.misuse',
      `backward: the loss reads ${other.title}, which parallelizeModule was not called for, so that ranks may have different values of it. Give the whole model to one call of parallelizeModule, and name the layers to divide in its plan, as "layers.*.net1". For another model, such as a frozen teacher, call it with an empty plan.`,
    )
  }
}

/** Results of a backward pass: gradients by parameter, and by other tensors that asked for one. */
interface Gradients {
  readonly parameters: Map<Parameter, GraphValue>
  readonly tensors: Map<GraphValue, GraphValue>
}

/**
 * Adds the ops of the backward pass to the trace and returns the gradient by everything behind `output` that asked for one.
 *
 * Reverse accumulation over nodes from the last to the first; a value used twice gets the sum of its gradients, added in
 * that order, and goes through the value's hooks when that sum is complete. Ops before any such tensor get no gradient ops. Ops of a
 * checkpointed region read copies that are computed again.
 * errors: `graph.misuse` when an op on the way has no gradient, or when nothing behind `output` asked for one.
 */
function gradientsOf(trace: Trace, output: GraphValue, seed: GraphValue): Gradients {
  const nodes = nodesBehind([output])
  const isWanted = wantedAmong(trace, nodes)
  if (!isWanted(output)) throw nothingRequiresGrad()
  const gradients = new Map<GraphValue, GraphValue>([[output, seed]])
  const hooksDone = new Set<GradientHook>()
  const runHooks = (value: GraphValue): void => {
    for (const hook of value.hooks ?? []) {
      if (hooksDone.has(hook)) continue
      hooksDone.add(hook)
      for (const other of hook.values) {
        const gradient = gradients.get(other)
        if (gradient) trace.divided.addGradient(other, gradient)
      }
      const replaced = hook.run(hook.values.map((other) => gradients.get(other)))
      replaced.forEach((gradient, i) => {
        if (gradient) gradients.set(hook.values[i], gradient)
      })
    }
  }
  const recomputation = new Recomputation(
    (op, inputs, attrs) => trace.emit(op, inputs, attrs),
    (node) => trace.regions.get(node),
  )
  for (const node of nodes.reverse()) {
    if (node.outputs.every((value) => gradients.get(value) === undefined)) continue
    for (const value of node.outputs) if (gradients.has(value)) runHooks(value)
    if (!node.inputs.some(isWanted)) continue
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
        earlier
          ? add(trace, earlier, gradient as GraphValue, input.type.dtype)
          : (gradient as GraphValue),
      )
    })
  }
  const found: Gradients = { parameters: new Map(), tensors: new Map() }
  for (const value of [...gradients.keys()]) {
    const { leaf } = value
    if (leaf?.kind !== 'parameter' && !trace.asked.has(value)) continue
    // Hooks of what a node gave ran with the node.
    if (!value.node) runHooks(value)
    const gradient = trace.toFloat(gradients.get(value)!)
    trace.divided.addGradient(value, gradient)
    if (leaf?.kind === 'parameter') found.parameters.set(leaf.parameter as Parameter, gradient)
    else found.tensors.set(value, gradient)
  }
  return found
}

/** Returns whether a gradient flows to the value, or through it to what asked for one. */
export const requiresGradient = (trace: Trace, value: GraphValue): boolean =>
  wantedAmong(trace, nodesBehind([value]))(value)

/** Returns a test whether a value of `nodes`, or one that it is computed from, asked for a gradient. */
export function wantedAmong(
  trace: Trace,
  nodes: readonly GraphNode[],
): (value: GraphValue) => boolean {
  const wanted = new Set<GraphValue>()
  const isWanted = (value: GraphValue) =>
    wanted.has(value) || isTrainable(value) || trace.asked.has(value)
  for (const node of nodes) {
    if (isConstant(trace, node) || !node.inputs.some(isWanted)) continue
    for (const value of node.outputs) if (isFloat(value)) wanted.add(value)
  }
  return isWanted
}

/** Returns whether a node's results count as given: what is detached, comparisons, and gradients, as in PyTorch without `create_graph`. */
function isConstant({ backwards }: Trace, { id, op, attrs }: GraphNode): boolean {
  if (op === (detach as Op)) return true
  if (op === (map as Op) && (attrs as MapAttrs).steps.some(({ fn }) => fn in comparisons))
    return true
  return backwards.some(({ from, to }) => id >= from && id < to)
}

/** Nothing flows back through integers. */
export const isFloat = ({ type: { dtype } }: GraphValue): boolean =>
  dtype === 'f32' || dtype === 'f16'

const nothingRequiresGrad = () =>
  new TabringError(
    'graph.misuse',
    'backward: the loss does not depend on any tensor that requires a gradient. Compute it from parameters with requiresGrad true, or call requiresGrad_() on a tensor. Gradients do not flow through detach(), comparisons or integers.',
  )

/** `a + b`, elementwise; of and to f16 where that is the dtype of what they are gradients by. */
const add = (trace: Trace, a: GraphValue, b: GraphValue, dtype: DType = 'f32'): GraphValue =>
  dtype === 'f16'
    ? trace.emit(map, [trace.toHalf(a), trace.toHalf(b)], { steps: singleStep('add', 2), dtype })[0]
    : trace.emit(map, [a, b], { steps: singleStep('add', 2) })[0]

/**
 * The gradients of an earlier backward pass with those of this one. In a pipeline they are added as soon as a micro-batch has them: one sum
 * over all would keep the gradients of each until the last.
 */
function addTo(trace: Trace, earlier: GraphValue, gradient: GraphValue): GraphValue {
  if (!trace.stages) return add(trace, earlier, gradient)
  const from = nextNodeId()
  const [before] = trace.emit(barrier, [earlier], { copy: 0 })
  const sum = add(trace, before, gradient)
  const of = trace.rules.findLast((rule) => rule.from <= gradient.node!.id)?.of
  if (of) trace.rules.push({ from, to: nextNodeId(), of })
  return sum
}

/**
 * A parameter's f16 copy is made again where backward reads it, so that it does not live from forward on; anything else is
 * read where it is.
 */
function copiedAgain(trace: Trace, value: GraphValue): GraphValue {
  const { node } = value
  const isCopy =
    node?.op === (map as Op) &&
    value.type.dtype === 'f16' &&
    (node.attrs as MapAttrs).steps.length === 0 &&
    node.inputs[0].leaf?.kind === 'parameter'
  return isCopy ? trace.emit(node.op, node.inputs, node.attrs)[0] : value
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
      `backward: "${op.name}" has no gradient, but the loss depends on a parameter through it. Remove it from the loss.`,
    )
  }
  // Values that are computed again for the rule are part of it.
  const from = nextNodeId()
  const context: GradientContext = {
    inputs: inputs.map((value) => copiedAgain(trace, read(value))),
    outputs: outputs.map(read),
    outputGradients,
    attrs,
    needs: (input) => isWanted(inputs[input]),
    emit: <A>(next: Op<A>, values: readonly Value[], nextAttrs: A) =>
      trace.emit(next, values as GraphValue[], nextAttrs),
  }
  const inputGradients = op.gradient(context)
  trace.rules.push({ from, to: nextNodeId(), of: node })
  return inputGradients
}
