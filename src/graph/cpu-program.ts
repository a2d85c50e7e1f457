import type { HostArray } from '../kernels/op.ts'
import { TabringError } from '../util/errors.ts'
import { countElements, type TensorType } from '../util/shape.ts'
import { tailElements } from './bucket.ts'
import { callOf } from './lower.ts'
import type { Prepared, PreparedUpdate } from './prepare.ts'
import {
  checkInputs,
  fillScalars,
  type HostData,
  type OnMark,
  type ProgramMemory,
  type RunInputs,
  type RunOutputs,
  type StepProgram,
  type StepTimes,
} from './step-program.ts'
import { gradientWeight } from './trace.ts'
import { type GraphNode, type GraphValue, storageOf } from './value.ts'

/** A long run gives way to other tasks of its page or worker this often. */
const breathAfterMs = 100

const breathe = () => new Promise<void>((resolve) => setTimeout(resolve))

/** Rounds float32 contents in place, as storing them on a device would. */
function round(values: HostArray, { dtype }: TensorType): HostArray {
  if (dtype === 'f32') for (let i = 0; i < values.length; i++) values[i] = Math.fround(values[i])
  return values
}

/** The contents as references take them: floats as f64. */
const toHostArray = (data: HostData): HostArray =>
  data instanceof Float32Array ? Float64Array.from(data) : data

const toHostData = (values: HostArray, { dtype }: TensorType): HostData =>
  dtype === 'f32'
    ? Float32Array.from(values)
    : dtype === 'i32'
      ? Int32Array.from(values)
      : Uint32Array.from(values)

/**
 * A program that runs the ops' references one after the other: the same interface as on a GPU, slow, for any place that runs JavaScript.
 *
 * numerics: each op computes in f64 and rounds its results to float32, so it is at least as close to the exact result as a GPU.
 */
export class CpuProgram implements StepProgram {
  readonly prepared: Prepared
  readonly times: StepTimes = { encode: 0, compute: 0, ring: 0 }
  onMark: OnMark | undefined
  readonly #scalars: Float32Array<ArrayBuffer>
  /** By node of forward and backward: intermediates that nothing reads after it. */
  readonly #dead = new Map<GraphNode, GraphValue[]>()
  #last: Promise<unknown> = Promise.resolve()
  #lastBreathMs = 0
  #mostBytes = 0

  constructor(prepared: Prepared) {
    this.prepared = prepared
    this.#scalars = new Float32Array(Math.max(1, prepared.trace.scalars.size))
    for (const { update } of prepared.updates) update.bucket.allocate('host')
    const lastUse = new Map<GraphValue, GraphNode>()
    for (const node of [...prepared.nodes, ...prepared.updateNodes]) {
      for (const value of [...node.inputs, ...node.outputs]) lastUse.set(storageOf(value), node)
    }
    const updates = new Set(prepared.updateNodes)
    for (const [value, node] of lastUse) {
      // Buckets update side by side, in no fixed order, so what they read stays to the end.
      if (value.leaf || prepared.fixed.has(value) || updates.has(node)) continue
      this.#dead.set(node, [...(this.#dead.get(node) ?? []), value])
    }
  }

  /** Nodes with something to compute: what would be dispatches. */
  get dispatchCount(): number {
    const { nodes, updateNodes } = this.prepared
    return [...nodes, ...updateNodes].filter(({ op }) => !op.isView).length
  }

  get memory(): ProgramMemory {
    const { peakBytes, lowerBoundBytes } = this.prepared.plan
    return { peakBytes, lowerBoundBytes, deviceBytes: this.#mostBytes, otherBytes: 0 }
  }

  run(inputs: RunInputs, scalars: Readonly<Record<string, number>> = {}): Promise<RunOutputs> {
    const contents = new Map(
      checkInputs(this.prepared, inputs).map(([name, data]) => {
        if (ArrayBuffer.isView(data)) return [name, toHostArray(data.slice())]
        throw new TabringError(
          'device.mismatch',
          `run: input "${name}" must be on the cpu, where the program runs, got upload memory of a GPU. Turn pinMemory off.`,
        )
      }),
    )
    const given = { ...scalars }
    const run = this.#last.then(() => this.#run(contents, given))
    this.#last = run.catch(() => undefined)
    return run
  }

  destroy(): void {
    // Nothing outlives a run but parameters and pools, which are not the program's.
  }

  async #run(
    inputs: ReadonlyMap<string, HostArray>,
    scalars: Readonly<Record<string, number>>,
  ): Promise<RunOutputs> {
    const { prepared } = this
    const began = performance.now()
    fillScalars(prepared, scalars, this.#scalars)
    const values = new Map<GraphValue, HostArray>()
    await this.#execute(prepared.nodes, inputs, values)
    const outputs: RunOutputs = {}
    for (const [value, place] of prepared.fixed) {
      const contents = toHostData(this.#read(value, inputs, values), value.type)
      if (place.kind === 'pool')
        place.pool.write(contents as Float32Array<ArrayBuffer>, place.start)
      else if (place.kind === 'output') {
        outputs[prepared.outputs[place.index].name] = contents
      }
    }
    this.times.compute = performance.now() - began
    const { exchange } = prepared.trace
    const isAlone = !exchange || exchange.size === 1 || prepared.updates.length === 0
    if (isAlone) {
      await this.#execute(prepared.updateNodes, inputs, values)
      return outputs
    }
    exchange.beginStep()
    await Promise.all(
      prepared.updates.map((update, index) =>
        this.#exchange(update, index, outputs, inputs, values),
      ),
    )
    this.times.ring = performance.now() - began - this.times.compute
    return outputs
  }

  /** One bucket's exchange, as SynchronizedUpdates does it: the sum of gradients, this rank's update, everyone's results. */
  async #exchange(
    { update: { bucket, nodes } }: PreparedUpdate,
    index: number,
    outputs: RunOutputs,
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): Promise<void> {
    const exchange = this.prepared.trace.exchange!
    const { elements } = bucket
    const averaged = this.prepared.outputs.filter(
      ({ type }) => type.shape.length === 0 && type.dtype === 'f32',
    )
    const gradients = new Float32Array(elements + tailElements)
    const own = bucket.gradientPool.host(0, elements)
    gradients.set(own)
    if (index === 0) {
      const weight = this.#scalars[this.prepared.trace.scalars.named(gradientWeight, 1).slot]
      averaged.forEach(({ name }, i) => {
        gradients[elements + i] = outputs[name][0] * weight
      })
    }
    await exchange.reduceScatter(index, gradients)
    own.set(gradients.subarray(0, elements))
    await this.#execute(nodes, inputs, values)
    const { start, end } = bucket.ownSlice(exchange)
    const parameters = new Float32Array(elements + tailElements)
    const stored = bucket.parameterPool.host(0, elements)
    parameters.set(stored.subarray(start, end) as Float32Array, start)
    parameters.set(gradients.subarray(elements), elements)
    await exchange.allGather(index, parameters)
    stored.set(parameters.subarray(0, elements))
    if (index > 0) return
    averaged.forEach(({ name }, i) => {
      outputs[name][0] = parameters[elements + i]
    })
  }

  async #execute(
    nodes: readonly GraphNode[],
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): Promise<void> {
    for (const node of nodes) {
      if (performance.now() - this.#lastBreathMs > breathAfterMs) {
        await breathe()
        this.#lastBreathMs = performance.now()
      }
      if (!node.op.isView) this.#compute(node, inputs, values)
      for (const value of this.#dead.get(node) ?? []) values.delete(value)
    }
  }

  #compute(
    node: GraphNode,
    inputs: ReadonlyMap<string, HostArray>,
    values: Map<GraphValue, HostArray>,
  ): void {
    const contents = node.inputs.map((value) => this.#read(value, inputs, values))
    const results = node.op.reference(contents, callOf(node), [...this.#scalars])
    node.outputs.forEach((value, i) => {
      values.set(value, round(results[i], value.type))
    })
    for (const at of node.op.updates ?? []) {
      const { leaf, type } = storageOf(node.inputs[at])
      const changed = toHostData(round(contents[at], type), type) as Float32Array<ArrayBuffer>
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
    for (const { length } of values.values()) bytes += 4 * length
    this.#mostBytes = Math.max(this.#mostBytes, bytes)
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
