import { map } from '../kernels/map/map.ts'
import type { Op, OpCall } from '../kernels/op.ts'
import { TabringError } from '../util/errors.ts'
import type { TensorType } from '../util/shape.ts'
import { callOf, lowerNodes } from './lower.ts'
import { type Place, type Plan, type PlanOptions, planMemory } from './plan.ts'
import { rewrite, withoutRewrites } from './rewrite.ts'
import type { Runtime } from './runtime.ts'
import { Tensor, TracedTensor } from './tensor.ts'
import { type BucketUpdate, Trace, withTrace } from './trace.ts'
import { emitNode, type GraphNode, GraphValue, nodesBehind, storageOf } from './value.ts'

/** The traced function's inputs by name. */
export type InputTypes = Readonly<Record<string, TensorType>>
/** What a traced function returns: tensors by name. */
export type Outputs = Readonly<Record<string, Tensor>>
/** A function that can be compiled: it is called once per trace, with tensors that have no contents. */
export type TracedFunction = (inputs: Record<string, Tensor>) => Outputs

export interface PrepareOptions extends PlanOptions {
  /** No rewrites and the first variant of every op: slow, plain, for comparison. */
  readonly isNaive?: boolean
}

/** A bucket's exchange and update inside a prepared program. */
export interface PreparedUpdate {
  readonly update: BucketUpdate
  /** Dispatches [.., gradientsEnd) leave the bucket's gradients complete. */
  readonly gradientsEnd: number
  /** Dispatches [start, end) update this rank's part of the bucket. */
  readonly start: number
  readonly end: number
}

/** A traced function, rewritten, lowered and planned; nothing is on the device yet. */
export interface Prepared {
  readonly trace: Trace
  readonly inputs: InputTypes
  readonly outputs: readonly { readonly name: string; readonly type: TensorType }[]
  readonly plan: Plan
  /** Dispatches [0, computeEnd) are forward and backward. */
  readonly computeEnd: number
  readonly updates: readonly PreparedUpdate[]
  /** Every op with the call that it is used for, in order. */
  readonly calls: readonly { readonly op: Op; readonly call: OpCall }[]
  /** Variant by call, as chosen. */
  readonly chosen: Readonly<Record<string, string>>
}

/** Calls `fn` on tensors without contents and returns everything that a program or an eager run needs. */
export function prepare(
  runtime: Runtime,
  fn: TracedFunction,
  inputs: InputTypes,
  { isNaive = false, sharesBuffers }: PrepareOptions = {},
): Prepared {
  const trace = new Trace()
  const returned = withTrace(trace, () =>
    fn(
      Object.fromEntries(
        Object.entries(inputs).map(([name, type]) => [
          name,
          new TracedTensor(new GraphValue(type, { kind: 'input', name })),
        ]),
      ),
    ),
  )
  const named = Object.entries(returned)
  for (const [name, tensor] of named) {
    if (!(tensor instanceof Tensor)) {
      throw new TabringError(
        'graph.misuse',
        `compile: output "${name}" must be a Tensor, got ${typeof tensor}. Return an object of tensors.`,
      )
    }
  }
  const outputValues = named.map(([, tensor]) => tensor.value)
  const gradientValues = trace.updates.flatMap(({ gradients }) => gradients)
  const kept = [...outputValues, ...gradientValues]
  const traced = nodesBehind(kept)
  refuseReadsAfterUpdate(traced, trace)
  const { nodes, find } = (isNaive ? withoutRewrites : rewrite)({ nodes: traced, kept })

  const fixed = new Map<GraphValue, Place>()
  /** Gives a kept value its place; one that already has another, or is no op's result, is copied there. */
  const fix = (value: GraphValue, place: Place): void => {
    const final = find(value)
    const root = storageOf(final)
    if (root.node && !fixed.has(root)) {
      fixed.set(root, place)
      return
    }
    const copy = emitNode(map as Op, [final], { steps: [] })
    nodes.push(copy)
    fixed.set(copy.outputs[0], place)
    gradientRoots.set(value, copy.outputs[0])
  }
  const gradientRoots = new Map<GraphValue, GraphValue>()
  for (const { bucket, gradients } of trace.updates) {
    gradients.forEach((value, i) => {
      fix(value, { kind: 'pool', pool: bucket.gradientPool, start: bucket.starts[i] })
    })
  }
  outputValues.forEach((value, index) => {
    fix(value, { kind: 'output', index })
  })

  const updateNodes = trace.updates.flatMap((update) => update.nodes)
  const { lowered, chosen } = lowerNodes([...nodes, ...updateNodes], {
    limits: runtime.limits,
    variants: runtime.variants,
    isNaive,
  })
  const plan = planMemory(lowered, fixed, { sharesBuffers })
  const position = new Map<GraphNode, number>(lowered.map(({ node }, at) => [node, at]))
  const firstUpdate = updateNodes.length ? position.get(updateNodes[0])! : lowered.length
  const endBefore = (at: number) => (at === 0 ? 0 : plan.endOfNode[at - 1])
  const computeEnd = endBefore(firstUpdate)
  let gradientsEnd = 0
  const updates = trace.updates.map((update): PreparedUpdate => {
    for (const value of update.gradients) {
      const { node } = gradientRoots.get(value) ?? storageOf(find(value))
      gradientsEnd = Math.max(gradientsEnd, plan.endOfNode[position.get(node!)!])
    }
    const own = update.nodes.map((node) => position.get(node)!)
    return {
      update,
      gradientsEnd,
      start: own.length ? endBefore(own[0]) : computeEnd,
      end: own.length ? plan.endOfNode[own[own.length - 1]] : computeEnd,
    }
  })
  return {
    trace,
    inputs,
    outputs: named.map(([name, tensor]) => ({ name, type: tensor.value.type })),
    plan,
    computeEnd,
    updates,
    calls: lowered.map(({ node }) => ({ op: node.op, call: callOf(node) })),
    chosen,
  }
}

/** Updates run after everything else in a program, so nothing traced after one may read what it changes. */
function refuseReadsAfterUpdate(nodes: readonly GraphNode[], trace: Trace): void {
  for (const { bucket, nodes: updates } of trace.updates) {
    const updatedAt = updates[0]?.id ?? Number.POSITIVE_INFINITY
    const late = nodes.find(
      (node) =>
        node.id > updatedAt &&
        node.inputs.some(
          ({ leaf }) => leaf?.kind === 'parameter' && bucket.parameters.includes(leaf.parameter),
        ),
    )
    if (late) {
      throw new TabringError(
        'graph.misuse',
        `compile: "${late.op.name}" reads a parameter after optimizer.step() in the same function. Call step() last, or compile the second part on its own.`,
      )
    }
  }
}
