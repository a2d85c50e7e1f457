import type { HostArray, Op } from '../../kernels/op.ts'
import { type EndAttrs, isEnd, send } from '../../kernels/transfer/ends.ts'
import { clipped } from '../../util/clipped.ts'
import { GpuError, TabringError } from '../../util/errors.ts'
import { nextTask, oneAtATime } from '../../util/next-task.ts'
import {
  bytesOf,
  countElements,
  formatShape,
  type HostDType,
  type TensorType,
} from '../../util/shape.ts'
import { FiniteCheck } from '../inside/finite-check.ts'
import type { OnNode, ReadValue } from '../inside/probe.ts'
import {
  fromBytes,
  type HostData,
  roundStored,
  toBytes,
  toHostArray,
} from '../memory/host-values.ts'
import type { Phase } from '../plan/phases.ts'
import type { Prepared } from '../plan/prepare.ts'
import {
  type CheckedInputs,
  checkInputs,
  checkRun,
  countUpdate,
  fillScalars,
  hostArrays,
  noTimes,
  noteTimes,
  type OnMark,
  type ProgramMemory,
  type RunInputs,
  type RunOutputs,
  refuseNoSync,
  type StepProgram,
  type StepTimes,
} from '../plan/step-program.ts'
import type { PreparedSyncPoint } from '../plan/stops.ts'
import { callOf, type GraphNode, type GraphValue, storageOf } from '../trace/value.ts'
import type { Wires } from './crossings.ts'
import { HostPort } from './host-port.ts'
import { StepClock } from './step-clock.ts'
import { StepExchange } from './step-exchange.ts'
import { HostWorkWatch, markExchange } from './work-watch.ts'

/** A long run gives way to other tasks of its page or worker this often. */
const breathAfterMs = 100

const toHostData = (values: HostArray, { dtype }: TensorType): HostData =>
  dtype === 'f32'
    ? Float32Array.from(values)
    : dtype === 'i32'
      ? Int32Array.from(values)
      : Uint32Array.from(values)

const emptyOf = ({ shape, dtype }: TensorType): HostData =>
  new hostArrays[dtype as HostDType](countElements(shape))

/** Numbers as `ModelQuery` gives them. */
const toCheck = (values: HostArray, type: TensorType): HostData =>
  type.dtype === 'f16' ? Float32Array.from(values) : toHostData(values, type)

/** Returns the result of `compute`. errors: `gpu.limit`, naming op and shapes, where JavaScript has no memory for the results. */
function withinMemory<T>({ op, outputs }: GraphNode, compute: () => T): T {
  try {
    return compute()
  } catch (thrown) {
    // Of an array's length, or of its memory; nothing else in a reference throws one.
    if (!(thrown instanceof RangeError)) throw thrown
    const results = outputs.map(({ type }) => `${type.dtype}${formatShape(type.shape)}`).join(', ')
    throw new GpuError(
      'gpu.limit',
      `${op.name}: the CPU's memory has no room for results of ${results} (${thrown.message}). Use smaller tensors.`,
      { cause: thrown },
    )
  }
}

export interface ReferenceProgramOptions {
  readonly onNode?: OnNode
  /** Runs update and count steps; default true. */
  readonly allowUpdates?: boolean
}

/**
 * Program that runs the ops' references one after the other: the device `reference`.
 *
 * numerics: each op computes in f64 and rounds its results to float32, so it is at least as close to the exact result as a GPU.
 */
export class ReferenceProgram implements StepProgram {
  readonly prepared: Prepared
  times: StepTimes = noTimes
  readonly encodeMs = 0
  onMark: OnMark | undefined
  readonly #scalars: Float32Array<ArrayBuffer>
  readonly #clock = new StepClock()
  readonly #phases: ReadonlyMap<GraphNode, Phase>
  /** By node at which ranks synchronize. */
  readonly #syncPoints: ReadonlyMap<GraphNode, PreparedSyncPoint>
  /** By node of forward and backward: intermediates that nothing reads after it. */
  readonly #dead = new Map<GraphNode, GraphValue[]>()
  readonly #inTurn = oneAtATime()
  #lastBreathMs = 0
  #maxBytes = 0
  #wires: Wires | undefined
  /** Of a run that is watched, of a step that ranks or devices split. */
  #watch: HostWorkWatch | undefined
  readonly #allowUpdates: boolean
  readonly #onNode: OnNode | undefined
  readonly #check: FiniteCheck | undefined

  constructor(prepared: Prepared, { allowUpdates = true, onNode }: ReferenceProgramOptions = {}) {
    this.prepared = prepared
    this.#allowUpdates = allowUpdates
    this.#check = onNode ? undefined : FiniteCheck.of()
    this.#onNode = onNode ?? this.#check?.onNode
    this.#scalars = new Float32Array(Math.max(1, prepared.trace.scalars.size))
    this.#phases = new Map(prepared.nodes.map((node, i) => [node, prepared.nodePhases[i]]))
    const { forwarded } = prepared.trace
    const synchronizes = allowUpdates && forwarded?.size !== 1
    this.#syncPoints = new Map(
      synchronizes ? prepared.syncPoints.map((syncPoint) => [syncPoint.node, syncPoint]) : [],
    )
    for (const { update } of prepared.updates) update.bucket.allocate('host')
    const lastUse = new Map<GraphValue, GraphNode>()
    const late = [...prepared.jointNodes, ...prepared.updateNodes, ...prepared.trace.after]
    for (const node of [...prepared.nodes, ...late]) {
      for (const value of [...node.inputs, ...node.outputs]) lastUse.set(storageOf(value), node)
    }
    const updates = new Set(late)
    for (const [value, node] of lastUse) {
      // Buckets update side by side, in no fixed order, so what they read stays to the end.
      if (value.leaf || prepared.fixed.has(value) || updates.has(node)) continue
      this.#dead.set(node, [...(this.#dead.get(node) ?? []), value])
    }
  }

  /** Nodes with something to compute: what would be dispatches. */
  get dispatchCount(): number {
    const { nodes, jointNodes, updateNodes, trace } = this.prepared
    return [...nodes, ...jointNodes, ...updateNodes, ...trace.after].filter(({ op }) => !op.isView)
      .length
  }

  get memory(): ProgramMemory {
    const { peakBytes, lowerBoundBytes } = this.prepared.plan
    return { peakBytes, lowerBoundBytes, deviceBytes: this.#maxBytes, ioBytes: 0 }
  }

  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
  ): Promise<RunOutputs> {
    refuseNoSync(this.prepared)
    const contents = this.#contentsOf(checkInputs(this.prepared, inputs))
    const given = { ...scalars }
    return this.#after(() => this.#run(contents, given))
  }

  async runPart(
    inputs: CheckedInputs,
    scalars: Float32Array<ArrayBuffer>,
    wires: Wires,
  ): Promise<RunOutputs> {
    this.#scalars.set(scalars)
    this.#wires = wires
    return this.#runFilled(this.#contentsOf(inputs), performance.now())
  }

  async shadow(scalars: Readonly<Record<string, number>> = {}): Promise<void> {
    refuseNoSync(this.prepared)
    if (!this.#exchanges) return
    await this.#after(() => this.#run(undefined, { ...scalars }))
  }

  #after(run: () => Promise<RunOutputs>): Promise<RunOutputs> {
    return this.#inTurn(() => {
      const own = run()
      if (this.#allowUpdates) countUpdate(this.prepared, own)
      return own
    })
  }

  get #exchanges(): boolean {
    const { exchange, accumulation } = this.prepared.trace
    const isUpdate = this.prepared.updates.length > 0 && accumulation?.part !== 'add'
    return exchange?.exchangesGradients === true && isUpdate
  }

  check(inputs: RunInputs, scalars: Readonly<Record<string, number>>): void {
    this.#contentsOf(checkRun(this.prepared, inputs, scalars))
  }

  destroy(): void {
    // Nothing outlives a run but parameters and pools, which are not the program's.
  }

  /** Copies of the inputs by name. errors: `device.mismatch` for one in upload memory. */
  #contentsOf(inputs: CheckedInputs): Map<string, HostArray> {
    return new Map(
      inputs.map(([name, data]) => {
        if (ArrayBuffer.isView(data)) return [name, toHostArray(data.slice())]
        throw new TabringError(
          'device.mismatch',
          `run: input "${clipped(name)}" is in the upload memory of a GPU, but the program runs on the device reference. Turn pinMemory off.`,
        )
      }),
    )
  }

  /** `given` undefined: a shadow's run. */
  async #run(
    given: ReadonlyMap<string, HostArray> | undefined,
    scalars: Readonly<Record<string, number>>,
  ): Promise<RunOutputs> {
    const beganMs = performance.now()
    fillScalars(this.prepared, scalars, given, this.#scalars, this.#allowUpdates)
    const { exchange, syncPoints } = this.prepared.trace
    if (this.#allowUpdates && this.#exchanges) exchange!.beginStep()
    else if (this.#syncPoints.size > 0) syncPoints!.beginStep()
    return this.#runFilled(given, beganMs)
  }

  async #runFilled(
    given: ReadonlyMap<string, HostArray> | undefined,
    beganMs: number,
  ): Promise<RunOutputs> {
    const { prepared } = this
    // As its parameters may have been moved away and back.
    for (const { update } of prepared.updates) update.bucket.allocate('host')
    const inputs = given ?? new Map<string, HostArray>()
    this.#clock.begin(beganMs)
    const isSplit = prepared.stops.length > 0
    this.#watch =
      this.onMark && isSplit && !this.#exchanges ? new HostWorkWatch(this.onMark) : undefined
    const values = new Map<GraphValue, HostArray>()
    if (given) await this.#execute(prepared.nodes, inputs, values)
    else await this.#shadowForward()
    const outputs: RunOutputs = {}
    const keep = (isJoint: boolean) => {
      for (const [value, place] of prepared.fixed) {
        if (place.kind !== 'output') continue
        const output = prepared.outputs[place.index]
        if (output.isJoint !== isJoint) continue
        if (!given && !isJoint) outputs[output.name] = emptyOf(output.type)
        else outputs[output.name] = toHostData(this.#read(value, inputs, values), value.type)
      }
    }
    keep(false)
    if (!this.#allowUpdates) return outputs
    if (!this.#exchanges) {
      await this.#execute([...prepared.jointNodes, ...prepared.updateNodes], inputs, values)
    } else {
      const execute = (nodes: readonly GraphNode[]) => this.#execute(nodes, inputs, values)
      const run = { scalars: this.#scalars, values, outputs, execute }
      const port = new HostPort(prepared.trace.exchange!, prepared, run)
      const step = new StepExchange(prepared.trace.exchange!, prepared, port, this.#clock)
      step.begin(undefined)
      for (const index of prepared.updates.keys()) step.take(index)
      await step.end()
      step.averageOutputs(outputs)
    }
    keep(true)
    await this.#execute(prepared.trace.after, inputs, values)
    this.#check?.sumUp()
    this.#watch?.leave()
    const endedMs = performance.now()
    this.times = this.#clock.read(endedMs)
    noteTimes(outputs, { parts: this.times, beganMs, endedMs })
    return outputs
  }

  /** Forward and backward of a rank without samples: zeros at sync points, and zeros for gradients. */
  async #shadowForward(): Promise<void> {
    const { syncPoints, updates, trace } = this.prepared
    for (const syncPoint of syncPoints) {
      const zeros = new Float32Array(syncPoint.given.length)
      await trace.syncPoints!.syncRanks(syncPoint.number, zeros, syncPoint)
    }
    for (const { update } of updates) {
      const { elements, gradientPool } = update.bucket
      gradientPool.host(0, elements).fill(0)
    }
  }

  async #execute(
    nodes: readonly GraphNode[],
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): Promise<void> {
    const { trace, workOf } = this.prepared
    const watch = this.#watch
    for (const node of nodes) {
      const phase = this.#phases.get(node) ?? 'optimizer'
      const leave = this.#clock.enter(phase)
      if (performance.now() - this.#lastBreathMs > breathAfterMs) {
        await nextTask()
        this.#lastBreathMs = performance.now()
      }
      const isCrossing = isEnd(node.op)
      const isSyncPoint = isCrossing || this.#syncPoints.has(node)
      if (!node.op.isView && !isCrossing) {
        watch?.enter(workOf.get(node)!)
        this.#compute(node, inputs, values)
      }
      if (isSyncPoint) watch?.leave()
      leave()
      await this.#syncRanks(node, inputs, values)
      if (isCrossing) await this.#cross(node, inputs, values)
      if (!node.op.isView) {
        const readValue: ReadValue = async (value) =>
          toCheck(this.#read(value, inputs, values), value.type)
        await this.#onNode?.(node, readValue, trace)
      }
      for (const value of this.#dead.get(node) ?? []) values.delete(value)
    }
  }

  /** Replaces a node's result at a sync point by that of all ranks. */
  async #syncRanks(
    node: GraphNode,
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): Promise<void> {
    const syncPoint = this.#syncPoints.get(node)
    if (!syncPoint) return
    const { given, taken, number } = syncPoint
    const own = new Float32Array(given.length)
    for (const { value, start, wire, count } of given.rows)
      own.set(this.#read(value, inputs, values).subarray(start, start + count), wire)
    const { syncPoints } = this.prepared.trace
    const exchange = markExchange(syncPoint, this.onMark, (run) => this.#clock.exchange(run))
    const all = await exchange((onAllBegun) =>
      syncPoints!.syncRanks(number, own, syncPoint, onAllBegun),
    )
    const results = new Map(node.outputs.map((value) => [value, this.#read(value, inputs, values)]))
    for (const { value, start, wire, count } of taken.rows)
      results.get(value)!.set(all.subarray(wire, wire + count), start)
    for (const [value, contents] of results) this.#keep(value, contents, values)
  }

  /** Sends a value to another part of the step, or waits for one. */
  async #cross(
    { op, inputs: [sent], outputs: [received], attrs }: GraphNode,
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): Promise<void> {
    const { number } = attrs as EndAttrs
    if (op === (send as Op))
      await this.#wires!.send(number, toBytes(this.#read(sent, inputs, values), sent.type))
    else {
      const leave = this.#clock.enter('wait')
      const contents = await this.#wires!.receive(number)
      leave()
      this.#keep(received, fromBytes(contents, received.type), values)
    }
  }

  /** Gradients lie in their bucket as soon as they are there: what completes the bucket reads them. */
  #keep(value: GraphValue, contents: HostArray, values: Map<GraphValue, HostArray>): void {
    values.set(value, contents)
    const place = this.prepared.fixed.get(value)
    if (place?.kind !== 'pool') return
    const stored = toHostData(contents, value.type) as Float32Array<ArrayBuffer>
    place.pool.allocate('host').write(stored, place.start)
  }

  #compute(
    node: GraphNode,
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): void {
    const contents = node.inputs.map((value) => this.#read(value, inputs, values))
    const results = withinMemory(node, () =>
      node.op.reference(contents, callOf(node), [...this.#scalars]),
    )
    node.outputs.forEach((value, i) => {
      this.#keep(value, roundStored(results[i], value.type), values)
    })
    for (const at of node.op.updates ?? []) {
      const { leaf, type } = storageOf(node.inputs[at])
      const changed = toHostData(roundStored(contents[at], type), type) as Float32Array<ArrayBuffer>
      const home =
        leaf?.kind === 'pool'
          ? leaf
          : leaf?.kind === 'parameter'
            ? leaf.parameter.place('host')
            : leaf?.kind === 'buffer'
              ? leaf.buffer.place('host')
              : undefined
      home?.pool.write(changed, home.start)
    }
    let bytes = 0
    for (const { type } of values.keys()) bytes += bytesOf(type)
    this.#maxBytes = Math.max(this.#maxBytes, bytes)
  }

  #read(
    value: GraphValue,
    inputs: ReadonlyMap<string, HostArray>,
    values: ReadonlyMap<GraphValue, HostArray>,
  ): HostArray {
    const root = storageOf(value)
    const { leaf } = root
    if (!leaf) return values.get(root)!
    if (leaf.kind === 'input') return inputs.get(leaf.name)!
    const stored =
      leaf.kind === 'pool'
        ? { pool: leaf.pool.allocate('host'), start: leaf.start }
        : leaf.kind === 'parameter'
          ? leaf.parameter.place('host')
          : leaf.buffer.place('host')
    const contents = stored.pool.host(stored.start, countElements(root.type.shape), root.type.dtype)
    return toHostArray(contents.slice())
  }
}
