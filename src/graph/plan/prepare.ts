import type { Op, OpCall } from '../../kernels/op.ts'
import { contiguous } from '../../kernels/strided.ts'
import { syncRanks } from '../../kernels/sync-ranks/sync-ranks.ts'
import { isEnd } from '../../kernels/transfer/ends.ts'
import { strided } from '../../kernels/view/view.ts'
import { calledAs } from '../../util/called-as.ts'
import { clipped } from '../../util/clipped.ts'
import type { PlacedDevice } from '../../util/device.ts'
import { ArgumentTypeError, messageOf, ShapeError, TabringError } from '../../util/errors.ts'
import { hasNames, isRecord, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkRecord } from '../../util/options.ts'
import { formatShape, type HostDType, type TensorType, tensorType } from '../../util/shape.ts'
import { switchValue } from '../../util/switches.ts'
import { rewrite, withoutRewrites } from '../rewrite/rewrite.ts'
import type { GradientExchange } from '../trace/exchange.ts'
import type { ModuleBuffer } from '../trace/module-buffer.ts'
import { refusePromise } from '../trace/refuse-promise.ts'
import type { StageTask } from '../trace/stage-marks.ts'
import { nameTensors } from '../trace/stored-tensor.ts'
import { Tensor, TracedTensor } from '../trace/tensor.ts'
import { checkLimits } from './check-limits.ts'
import { type JointStage, stagesOf } from './joint-stages.ts'
import { type LoweredNode, type LoweringChoice, lowerNodes } from './lower.ts'
import { type Phase, type PhaseRange, phaseRanges, phasesOf } from './phases.ts'
import { type Place, type Plan, type PlanOptions, planMemory } from './plan.ts'
import {
  crossingsOf,
  type PreparedCrossing,
  type PreparedSyncPoint,
  type Stop,
  stopsOf,
  syncPointsOf,
} from './stops.ts'
import '../functions/tensor-methods.ts'
import {
  type Accumulation,
  type BucketUpdate,
  gradientWeight,
  type Settled,
  Trace,
  withTrace,
} from '../trace/trace.ts'
import {
  callOf,
  emitNode,
  type GraphNode,
  GraphValue,
  makerOf,
  nodesBehind,
  storageOf,
} from '../trace/value.ts'
import { refuseOtherGradients, refuseOtherModes, refuseReplaced } from './refuse-replaced.ts'
import { Weighing } from './weighing.ts'
import type { Work } from './work.ts'

/** Inputs of the traced function by name. */
export type InputTypes = Readonly<Record<string, TensorType>>
/** Return value of a traced function: tensors by name. */
export type Outputs = Readonly<Record<string, Tensor>>
/** A function that can be compiled: called once per trace, with tensors that have no contents. Its types hold the names of inputs and outputs. */
export type TracedFunction<Types extends InputTypes = InputTypes, Out extends Outputs = Outputs> = (
  inputs: { [Name in keyof Types]: Tensor },
) => Out

export interface PrepareOptions extends PlanOptions {
  /** No rewrites and the first variant of every op: slow and simple, for comparison. Default: the switch `naive`. */
  readonly useNaiveKernels?: boolean
  /** Makes this program part of a gradient accumulation; compileAccumulated creates both parts. */
  readonly accumulation?: Accumulation
}

/** Options that `compile` adds for itself. */
export interface TraceOptions extends PrepareOptions {
  readonly settled?: Settled
  /** Called with each trace before the function is, so that one that throws is known. */
  readonly onTrace?: (trace: Trace) => void
}

/** For which device programs are prepared, and with which kernels. */
export type LoweringTarget = Pick<LoweringChoice, 'limits' | 'variants'> & {
  /** Default: the current WebGPU device. */
  readonly device?: PlacedDevice
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

/** A stage over all buckets as dispatches [start, end), and what ranks must agree on after them: nothing only in the last one. */
export interface JointSegment extends JointStage {
  readonly start: number
  readonly end: number
}

/** A traced function, rewritten, lowered and planned; nothing is on the device yet. */
export interface Prepared {
  readonly trace: Trace
  readonly inputs: InputTypes
  /** `isJoint`: the joint nodes make it, and ranks agree on it already. */
  readonly outputs: readonly {
    readonly name: string
    readonly type: TensorType
    readonly isJoint: boolean
  }[]
  readonly plan: Plan
  /** All nodes in execution order, views included: forward and backward, what is between exchange and update, then the updates. */
  readonly nodes: readonly GraphNode[]
  readonly jointNodes: readonly GraphNode[]
  readonly updateNodes: readonly GraphNode[]
  /** Where outputs and gradients go. */
  readonly fixed: ReadonlyMap<GraphValue, Place>
  /** Dispatches [0, computeEnd) are forward and backward. */
  readonly computeEnd: number
  /** The phase of each of `nodes`. */
  readonly nodePhases: readonly Phase[]
  /** Purpose of each node that computes, for a run that is watched. */
  readonly workOf: ReadonlyMap<GraphNode, Work>
  /** All dispatches by phase, in order: forward and backward as they alternate, then the optimizer's. */
  readonly phases: readonly PhaseRange[]
  readonly updates: readonly PreparedUpdate[]
  /** Where a run exchanges with other devices and ranks before its gradients are complete, in order. */
  readonly stops: readonly Stop[]
  /** Those of `stops`; none where no layer needs other ranks. */
  readonly syncPoints: readonly PreparedSyncPoint[]
  /** Those of `stops`; none where all of the step is on one device. */
  readonly crossings: readonly PreparedCrossing[]
  /** Modules' buffers that the step changes and of which all ranks take one rank's. */
  readonly sharedBuffers: readonly ModuleBuffer[]
  /** Segments that run between the exchange of all buckets and the first update; empty for most programs. */
  readonly joint: readonly JointSegment[]
  /** Dispatches [afterStart, ..) run when all updates are done. */
  readonly afterStart: number
  /** Every op with the call that it is used for, in order. */
  readonly calls: readonly { readonly op: Op; readonly call: OpCall }[]
  /** Variant by call, as chosen. */
  readonly chosen: Readonly<Record<string, string>>
}

/** A traced and rewritten step, or the part of it that one device computes. */
export interface TracedStep {
  readonly trace: Trace
  readonly inputs: InputTypes
  /** `isJoint`: it comes of the joint nodes, and ranks agree on it already. */
  readonly outputs: readonly {
    readonly name: string
    readonly value: GraphValue
    readonly isJoint: boolean
  }[]
  /** Forward and backward, in execution order. */
  readonly nodes: readonly GraphNode[]
  /** Between exchange and update. */
  readonly joint: readonly GraphNode[]
  readonly updates: readonly BucketUpdate[]
  readonly after: readonly GraphNode[]
  /** Where outputs and gradients go. */
  readonly fixed: ReadonlyMap<GraphValue, Place>
  /** Meetings of ranks in all parts of the step, counted in order. */
  readonly syncPointNumbers: ReadonlyMap<GraphNode, number>
  /** The node that leaves a gradient in its bucket. */
  gradientNode(gradient: GraphValue): GraphNode
}

/** Calls `fn` on tensors without contents and returns everything that a program or an eager run needs. */
export function prepare(
  target: LoweringTarget,
  fn: TracedFunction,
  inputs: InputTypes,
  options: TraceOptions = {},
): Prepared {
  return planStep(target, traceStep(target.device, fn, inputs, options), options)
}

/** Calls `fn` on tensors without contents. `device`: that of tensors that were not moved to one. */
export function traceStep(
  device: PlacedDevice | undefined,
  fn: TracedFunction,
  inputs: InputTypes,
  { useNaiveKernels = switchValue('naive'), accumulation, settled, onTrace }: TraceOptions = {},
): TracedStep {
  const trace = new Trace(accumulation, settled, device)
  onTrace?.(trace)
  checkArgument('compile', 'fn', fn, typeof fn === 'function', 'a function of tensors by name')
  checkTypes(inputs)
  nameTensors()
  const named = withTrace(trace, () => {
    const returned = callWith(fn, inputs, trace)
    refusePromise('compile', returned)
    const isNamed = hasNames(returned) && !(returned instanceof Tensor)
    checkArgument(
      'compile',
      'fn()',
      returned,
      isNamed,
      'an object of tensors by name, such as { loss }',
    )
    const outputs = Object.entries(returned).map(([name, tensor]): [string, GraphValue] => {
      // A run's outputs are set by name, which this one is no name for.
      checkArgument('compile', 'an output', name, name !== '__proto__', 'another name')
      if (tensor instanceof Tensor) return [name, trace.toFloat(tensor.value)]
      throw new TabringError(
        'graph.misuse',
        `compile: output "${clipped(name)}" must be a Tensor, got ${quoted(tensor)}. Return an object of tensors.`,
      )
    })
    return [
      ...outputs,
      ...trace.checks.map(({ name, value }): [string, GraphValue] => [name, value]),
    ]
  })
  for (const done of trace.whenTraced) done()
  trace.weighing = weighingOf(trace)
  const outputValues = named.map(([, value]) => value)
  const tracedJoint = [...trace.joint]
  const isJoint = ({ node }: GraphValue) => node !== undefined && trace.joint.includes(node)
  const gradientValues = trace.updates.flatMap(({ gradients }) => gradients)
  const kept = [...outputValues.filter((value) => !isJoint(value)), ...gradientValues]
  const traced = nodesBehind(kept, trace.effects)
  refuseReadsAfterUpdate(traced, trace)
  const updated = trace.updates.flatMap(({ bucket }) => bucket.parameters)
  trace.refusals.push(refuseReplaced(traced, updated, trace.watched), refuseOtherModes(trace.modes))
  if (trace.reached.size > 0) trace.refusals.push(refuseOtherGradients(traced))
  const { nodes, find } = (useNaiveKernels ? withoutRewrites : rewrite)({ nodes: traced, kept })

  addAtOnce(nodes)

  const fixed = new Map<GraphValue, Place>()
  for (const { node, pool } of trace.reductions) {
    fixed.set(node.outputs[0], { kind: 'pool', pool, start: 0 })
  }
  const gradientRoots = gradientValues.map((value) => storageOf(find(value)))
  // A dispatch cannot read and write one bucket, so a gradient that two parameters share is copied to both places.
  const shared = new Set(gradientRoots.filter((root, i) => gradientRoots.indexOf(root) !== i))
  const copies = new Map<GraphValue, GraphValue>()
  /** Gives a kept value its place; one that already has another, or is no op's result, is copied there. */
  const fix = (value: GraphValue, place: Place): void => {
    const final = find(value)
    const root = storageOf(final)
    if (root.node && !fixed.has(root) && !shared.has(root)) {
      fixed.set(root, place)
      return
    }
    const copy = emitNode(strided as Op, [final], contiguous(final.type.shape))
    const list = isJoint(value) ? tracedJoint : nodes
    list.push(copy)
    fixed.set(copy.outputs[0], place)
    copies.set(value, copy.outputs[0])
  }
  for (const { bucket, gradients } of trace.updates) {
    gradients.forEach((value, i) => {
      fix(value, { kind: 'pool', pool: bucket.gradientPool, start: bucket.starts[i] })
    })
  }
  outputValues.forEach((value, index) => {
    fix(value, { kind: 'output', index })
  })
  const gradientNode = (value: GraphValue): GraphNode => makerOf(copies.get(value) ?? find(value))!
  for (const { gradients, completion } of trace.updates) {
    const last = Math.max(...gradients.map((value) => nodes.indexOf(gradientNode(value))))
    if (completion.length > 0) nodes.splice(last + 1, 0, ...completion)
  }

  return {
    trace,
    inputs,
    outputs: named.map(([name, value]) => ({ name, value, isJoint: isJoint(value) })),
    nodes,
    joint: tracedJoint,
    updates: trace.updates,
    after: trace.after,
    fixed,
    syncPointNumbers: new Map(
      [...nodes, ...tracedJoint]
        .filter(({ op }) => op === (syncRanks as Op))
        .map((node, i) => [node, i]),
    ),
    gradientNode,
  }
}

/** Moves each op that adds to sums behind what makes its input, which is still near the processor then and need not be kept. */
function addAtOnce(nodes: GraphNode[]): void {
  for (const node of nodes.filter(({ op }) => op.addsUp).reverse()) {
    nodes.splice(nodes.indexOf(node), 1)
    const made = Math.max(...node.inputs.map((value) => nodes.indexOf(makerOf(value)!)))
    nodes.splice(made + 1, 0, node)
  }
}

/**
 * Calls the function with a tensor for each input.
 *
 * errors: `graph.misuse`, naming an input that it has read though there is none, where undefined, or what every object has, is what ends it.
 */
function callWith(fn: TracedFunction, types: InputTypes, trace: Trace): ReturnType<TracedFunction> {
  const typeOf: typeof tensorType = (...type) =>
    calledAs('compile', 'tensorType', () => tensorType(...type))
  const tensors = Object.fromEntries(
    Object.entries(types).map(([name, { shape, dtype }]) => [
      name,
      new TracedTensor(new GraphValue(typeOf(shape, dtype), { kind: 'input', name })),
    ]),
  )
  const all = clipped(Object.keys(types).join(', ')) || 'none'
  const asOne = `The function gets one object with the inputs by name. Write ({ ${all === 'none' ? '' : all} }) => ….`
  if (fn.length > 1)
    throw new TabringError(
      'graph.misuse',
      `compile: the function takes ${fn.length} arguments. ${asOne}`,
    )
  let missing: string | undefined
  const noting = new Proxy(tensors, {
    get(target, name, receiver) {
      if (typeof name === 'string' && !Object.hasOwn(target, name)) missing ??= name
      return Reflect.get(target, name, receiver)
    },
  })
  try {
    return fn(noting)
  } catch (error) {
    const text = messageOf(error)
    if (missing === undefined || !/\bundefined\b|not a func/.test(text))
      throw trace.divided.explained(error)
    const name = clipped(missing)
    const advice =
      missing in TracedTensor.prototype ? asOne : `To declare it: { ${name}: tensorType([…]) }.`
    throw new TabringError(
      'graph.misuse',
      `compile: ${clipped(text)} (The function reads "${name}", which is none of its inputs: ${all}. ${advice})`,
      { cause: error },
    )
  }
}

/** Chooses kernels and plans memory for a step, or for the part of it that the device computes. errors: `gpu.limit`. */
export function planStep(
  target: LoweringTarget,
  step: TracedStep,
  { useNaiveKernels = switchValue('naive'), sharesBuffers }: PrepareOptions = {},
): Prepared {
  const { trace, inputs, outputs, nodes, joint, fixed, gradientNode } = step
  const stages = stagesOf(joint, trace.reductions)
  const jointNodes = stages.flatMap((stage) => stage.nodes)
  const updateNodes = step.updates.flatMap((update) => update.nodes)
  const { lowered, chosen } = lowerNodes([...nodes, ...jointNodes, ...updateNodes, ...step.after], {
    limits: target.limits,
    variants: target.variants,
    useNaiveKernels,
  })
  checkLimits(lowered, target.limits, trace)
  const plan = planMemory(lowered, fixed, target.limits.maxBufferBytes, { sharesBuffers })
  const position = new Map<GraphNode, number>(lowered.map(({ node }, at) => [node, at]))
  const endBefore = (at: number) => (at === 0 ? 0 : plan.endOfNode[at - 1])
  const endOf = (node: GraphNode) => plan.endOfNode[position.get(node)!]
  const computeEnd = endBefore(nodes.filter(({ op }) => !op.isView).length)
  const afterStart = endBefore(lowered.length - step.after.length)
  const nodePhases = phasesOf(trace, nodes)
  const computePhases = nodePhases.filter((_, i) => !nodes[i].op.isView)
  let gradientsEnd = 0
  const updates = step.updates.map((update): PreparedUpdate => {
    const complete = [...update.gradients.map(gradientNode), ...update.completion]
    gradientsEnd = Math.max(gradientsEnd, ...complete.map(endOf))
    const own = update.nodes.map((node) => position.get(node)!)
    return {
      update,
      gradientsEnd,
      start: own.length ? endBefore(own[0]) : afterStart,
      end: own.length ? plan.endOfNode[own[own.length - 1]] : afterStart,
    }
  })
  const works = worksOf(lowered, computePhases, trace)
  const stops = stopsOf({
    nodes: lowered.map(({ node }) => node),
    ends: plan.endOfNode,
    computeEnd,
    works,
    fixed,
    numberOf: (syncPoint) => step.syncPointNumbers.get(syncPoint)!,
    hasRanks: trace.syncPoints !== undefined,
    isExchanged: trace.forwarded !== undefined,
  })
  return {
    trace,
    inputs,
    outputs: outputs.map(({ name, value, isJoint }) => ({ name, type: value.type, isJoint })),
    plan,
    nodes,
    jointNodes,
    updateNodes,
    fixed,
    computeEnd,
    nodePhases,
    workOf: new Map(lowered.map(({ node }, at) => [node, works[at]])),
    phases: phaseRanges(
      lowered.map((_, i) => computePhases[i] ?? 'optimizer'),
      plan.endOfNode,
    ),
    updates,
    stops,
    syncPoints: syncPointsOf(stops),
    crossings: crossingsOf(stops),
    sharedBuffers: sharedBuffersOf(nodes, trace.exchange),
    joint: segmentsOf(stages, computeEnd, endOf),
    afterStart,
    calls: lowered.map(({ node }) => ({ op: node.op, call: callOf(node) })),
    chosen,
  }
}

/** Returns the purpose of each node. In a pipeline what belongs to no task counts for the task before it. */
function worksOf(
  lowered: readonly LoweredNode[],
  computePhases: readonly Phase[],
  trace: Trace,
): Work[] {
  let task: StageTask | undefined
  return lowered.map(({ node }, at) => {
    const phase = computePhases[at] ?? 'optimizer'
    const own = isEnd(node.op) ? undefined : trace.taskOf(node)
    task = phase === 'optimizer' ? undefined : (own ?? task)
    return { phase, task }
  })
}

/** Returns the weights of the step's runs; undefined for whole updates of one rank, and where there is nothing to weigh. */
function weighingOf(trace: Trace): Weighing | undefined {
  const { accumulation, exchange, scalars, meansBehind, updates } = trace
  const isShared = exchange !== undefined && exchange.size > 1
  if (updates.length === 0 || !scalars.has(gradientWeight) || !(isShared || accumulation)) return
  return new Weighing({
    means: [...meansBehind],
    scalars,
    name: gradientWeight,
    part: accumulation?.part,
    partWeight: accumulation?.weight,
    tally: accumulation?.tally,
    ranks: () => ({
      size: exchange?.size ?? 1,
      dividesByAll: exchange?.uneven?.dividesByAll ?? true,
    }),
    consistency: trace.consistency,
  })
}

/** In the order in which the step first changes them, the same on all ranks. */
function sharedBuffersOf(
  nodes: readonly GraphNode[],
  exchange: GradientExchange | undefined,
): ModuleBuffer[] {
  if (!exchange || exchange.size === 1) return []
  const changed = nodes.flatMap(({ op, inputs }) =>
    (op.updates ?? []).map((at) => storageOf(inputs[at]).leaf),
  )
  const buffers = changed.flatMap((leaf) =>
    leaf?.kind === 'buffer' ? [leaf.buffer as ModuleBuffer] : [],
  )
  return [...new Set(buffers)].filter((buffer) => buffer.exchange === exchange)
}

const hostTypes: ReadonlySet<string> = new Set<HostDType>(['f32', 'i32', 'u32'])

/** errors: a TypeError, or a ShapeError for what hosts do not hold: f16 lives between ops. */
export function checkTypes(inputs: InputTypes): void {
  checkRecord('compile', 'inputs', inputs)
  for (const [name, type] of Object.entries<unknown>(inputs)) {
    // A run's inputs are written by name, which this one is no name for.
    checkArgument('compile', 'an input', name, name !== '__proto__', 'another name')
    if (isRecord(type) && Array.isArray(type.shape) && typeof type.dtype === 'string') continue
    const isShape = Array.isArray(type) && type.every((size) => typeof size === 'number')
    const example = isShape ? formatShape(type) : '[1, 4]'
    throw new ArgumentTypeError(
      `compile: input "${clipped(name)}" must be a tensor's type, got ${isShape ? `the shape ${example}` : quoted(type)}. Write { ${clipped(name)}: tensorType(${example}) }.`,
    )
  }
  const other = Object.entries(inputs).find(([, { dtype }]) => !hostTypes.has(dtype))
  if (!other) return
  throw new ShapeError(
    'shape.unsupported',
    `compile: input "${clipped(other[0])}" must be f32, i32 or u32, got ${clipped(other[1].dtype)}. Pass f32, and call half() in the function for 16 bits.`,
  )
}

/** The dispatches of each stage. */
function segmentsOf(
  stages: readonly JointStage[],
  computeEnd: number,
  endOf: (node: GraphNode) => number,
): JointSegment[] {
  let start = computeEnd
  return stages.map((stage) => {
    const end = endOf(stage.nodes[stage.nodes.length - 1])
    const segment = { ...stage, start, end }
    start = end
    return segment
  })
}

/** Updates run after everything else in a program, so nothing traced after one may read what it changes. */
function refuseReadsAfterUpdate(nodes: readonly GraphNode[], trace: Trace): void {
  const early = nodes.find((node) => node.inputs.some((value) => trace.joint.includes(value.node!)))
  if (early) {
    throw new TabringError(
      'graph.misuse',
      `compile: "${early.op.name}" reads a gradient norm, which exists only after backward on all ranks. Return the norm and compute with it on the host.`,
    )
  }
  for (const { bucket, nodes: updates } of trace.updates) {
    const updatedAt = updates[0]?.id ?? Number.POSITIVE_INFINITY
    const late = nodes.find(
      (node) =>
        node.id > updatedAt &&
        node.inputs.some(
          ({ leaf }) =>
            leaf?.kind === 'parameter' &&
            bucket.parameters.some((parameter) => parameter === leaf.parameter),
        ),
    )
    if (late) {
      throw new TabringError(
        'graph.misuse',
        `compile: "${late.op.name}" reads a parameter after optimizer.step() in the same function. Call step() last, or compile the second part separately.`,
      )
    }
  }
}
