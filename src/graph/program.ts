import type { Gpu } from '../gpu/device.ts'
import { mapped } from '../gpu/readback.ts'
import { TabringError } from '../util/errors.ts'
import { countElements, type TensorType } from '../util/shape.ts'
import { currentLayout } from './parameter.ts'
import type { Place } from './plan.ts'
import type { Prepared } from './prepare.ts'
import type { Runtime } from './runtime.ts'
import { SynchronizedUpdates } from './synchronize.ts'

export type HostData =
  | Float32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>
export type RunInputs = Readonly<Record<string, HostData>>
export type RunOutputs = Record<string, HostData>

/** How many runs may be under way before the next one waits for the oldest. */
const runsInFlight = 3

/** Milliseconds that parts of the last run took on the host's clock. */
export interface StepTimes {
  /** JavaScript that wrote inputs and encoded and submitted the commands. */
  encode: number
  /** From the submit to the last bucket's gradients on the host; 0 with one rank. */
  compute: number
  /** From there to the last bucket gathered; 0 with one rank. */
  ring: number
}

const copyOf = (inputs: RunInputs): RunInputs =>
  Object.fromEntries(Object.entries(inputs).map(([name, data]) => [name, data.slice()]))

/** Reports something that happened in a run: a name and `performance.now()`. */
export type OnMark = (name: string, atMs: number) => void

/** Inputs, scalars, intermediates and outputs of a program on the device. */
export class ProgramBuffers {
  readonly inputs = new Map<string, { buffer: GPUBuffer; type: TensorType }>()
  readonly outputs: GPUBuffer[]
  readonly scalars: GPUBuffer
  readonly scalarValues: Float32Array<ArrayBuffer>
  readonly #shared: GPUBuffer[]

  constructor(gpu: Gpu, prepared: Prepared) {
    const storage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC
    for (const [name, type] of Object.entries(prepared.inputs)) {
      const sizeBytes = countElements(type.shape) * 4
      this.inputs.set(name, { buffer: gpu.createBuffer(`input ${name}`, sizeBytes, storage), type })
    }
    this.outputs = prepared.outputs.map(({ name, type }) =>
      gpu.createBuffer(`output ${name}`, countElements(type.shape) * 4, storage),
    )
    this.scalarValues = new Float32Array(Math.max(1, prepared.trace.scalars.size))
    this.scalars = gpu.createBuffer('step scalars', this.scalarValues.byteLength, storage)
    this.#shared = prepared.plan.sharedBytes.map((sizeBytes, i) =>
      gpu.createBuffer(`intermediates ${i}`, sizeBytes, storage),
    )
  }

  /** The buffer and byte offset of a place. */
  locate(gpu: Gpu, place: Place): { buffer: GPUBuffer; offset: number } {
    switch (place.kind) {
      case 'input':
        return { buffer: this.inputs.get(place.name)!.buffer, offset: 0 }
      case 'output':
        return { buffer: this.outputs[place.index], offset: 0 }
      case 'shared':
        return { buffer: this.#shared[place.object], offset: 0 }
      case 'scalars':
        return { buffer: this.scalars, offset: 0 }
      case 'pool':
        return { buffer: place.pool.allocate(gpu), offset: place.start * 4 }
      case 'parameter': {
        const { pool, start } = place.parameter.place(gpu)
        return { buffer: pool.buffer, offset: start * 4 }
      }
    }
  }

  /** Writes the inputs and the scalars. errors: `graph.misuse` for a missing input, a wrong type or length. */
  write(
    gpu: Gpu,
    prepared: Prepared,
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>>,
  ): void {
    for (const [name, { buffer, type }] of this.inputs) {
      const data = inputs[name]
      const count = countElements(type.shape)
      const array = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }[type.dtype]
      if (!(data instanceof array) || data.length !== count) {
        throw new TabringError(
          'graph.misuse',
          `run: input "${name}" must be a ${array.name} of ${count} elements, got ${data ? `${data.constructor.name} of ${data.length}` : 'nothing'}. Give what the program was compiled for.`,
        )
      }
      gpu.write(buffer, data)
    }
    for (const name in scalars) prepared.trace.scalars.set(name, scalars[name])
    for (const before of prepared.trace.beforeStep) before()
    prepared.trace.scalars.fill(this.scalarValues)
    gpu.write(this.scalars, this.scalarValues)
  }

  destroy(): void {
    for (const { buffer } of this.inputs.values()) buffer.destroy()
    for (const buffer of [...this.outputs, ...this.#shared, this.scalars]) buffer.destroy()
  }
}

/**
 * A step program on the device: pipelines compiled, bind groups made, ready to be replayed.
 *
 * A run writes the inputs and one small block of scalars, and encodes the recorded dispatches; it creates no buffer, bind group or pipeline.
 * With one rank a run is one submit. With several it is one submit per bucket for forward and backward, and one per bucket for the update.
 */
export class StepProgram {
  readonly prepared: Prepared
  readonly times: StepTimes = { encode: 0, compute: 0, ring: 0 }
  onMark: OnMark | undefined
  readonly #gpu: Gpu
  readonly #pipelines: GPUComputePipeline[]
  readonly #layouts: GPUBindGroupLayout[]
  readonly #bindGroups: GPUBindGroup[] = []
  /** Workgroup counts, three a dispatch. */
  readonly #groups: Uint32Array
  readonly #buffers: ProgramBuffers
  readonly #staging: { buffer: GPUBuffer; isBusy: Promise<unknown> | undefined }[]
  readonly #outputOffsets: number[]
  readonly #updates: SynchronizedUpdates | undefined
  /** The newest run under way. */
  #latest: Promise<unknown> | undefined
  #layout = -1
  #runs = 0

  private constructor(
    runtime: Runtime,
    prepared: Prepared,
    compiled: readonly { pipeline: GPUComputePipeline; layout: GPUBindGroupLayout }[],
  ) {
    const { gpu } = runtime
    this.#gpu = gpu
    this.prepared = prepared
    this.#pipelines = compiled.map(({ pipeline }) => pipeline)
    this.#layouts = compiled.map(({ layout }) => layout)
    this.#groups = Uint32Array.from(
      prepared.plan.dispatches.flatMap(({ dispatch }) => dispatch.groups),
    )
    this.#buffers = new ProgramBuffers(gpu, prepared)
    let bytes = 0
    this.#outputOffsets = prepared.outputs.map(({ type }) => {
      const offset = bytes
      bytes += countElements(type.shape) * 4
      return offset
    })
    this.#staging = Array.from({ length: runsInFlight }, (_, i) => ({
      buffer: gpu.createBuffer(
        `readback of outputs ${i}`,
        bytes,
        GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      ),
      isBusy: undefined,
    }))
    const { exchange } = prepared.trace
    if (exchange && exchange.size > 1 && prepared.updates.length > 0) {
      this.#updates = new SynchronizedUpdates(gpu, exchange, prepared, this.#buffers)
    }
  }

  /** Compiles all pipelines in parallel and makes the program's buffers. errors: `gpu.compile`, `gpu.limit`. */
  static async create(runtime: Runtime, prepared: Prepared): Promise<StepProgram> {
    const { gpu, pipelines } = runtime
    for (const { update } of prepared.updates) update.bucket.allocate(gpu)
    const compiled = await Promise.all(
      prepared.plan.dispatches.map(({ dispatch }) => pipelines.get(dispatch)),
    )
    const program = new StepProgram(runtime, prepared, compiled)
    program.#bind()
    gpu.check()
    return program
  }

  /** Dispatches of one run. */
  get dispatchCount(): number {
    return this.#pipelines.length
  }

  /**
   * Runs the program once.
   *
   * The data is copied before this returns, so callers may reuse their arrays at once. With one rank, several runs may be under way;
   * each promise resolves with that run's outputs. With several ranks runs go one after the other, and each resolves when the
   * parameters of all buckets are gathered.
   * errors: `graph.misuse` for wrong inputs; the device's first error; the exchange's errors.
   */
  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
  ): Promise<RunOutputs> {
    const gpu = this.#gpu
    gpu.check()
    const staging = this.#staging[this.#runs++ % runsInFlight]
    if (staging.isBusy || (this.#updates && this.#latest)) {
      inputs = copyOf(inputs)
      scalars = { ...scalars }
    }
    // Buckets have one set of buffers: with several ranks one run goes after the other.
    const waitsFor = () => (this.#updates ? this.#latest : staging.isBusy)
    for (let busy = waitsFor(); busy; busy = waitsFor()) await busy.catch(() => undefined)
    if (this.#layout !== currentLayout()) this.#bind()
    const began = performance.now()
    this.#buffers.write(gpu, this.prepared, inputs, scalars)
    const outputs = this.#updates
      ? this.#runSynchronized(this.#updates, staging.buffer, began)
      : this.#runAlone(staging.buffer, began)
    const ended = outputs.finally(() => {
      staging.isBusy = undefined
      if (this.#latest === ended) this.#latest = undefined
    })
    ended.catch(() => undefined)
    staging.isBusy = ended
    this.#latest = ended
    return outputs
  }

  destroy(): void {
    this.#buffers.destroy()
    this.#updates?.destroy()
    for (const { buffer } of this.#staging) buffer.destroy()
  }

  async #runAlone(staging: GPUBuffer, began: number): Promise<RunOutputs> {
    const encoder = this.#gpu.device.createCommandEncoder()
    this.#encode(encoder, 0, this.#pipelines.length)
    this.#copyOutputs(encoder, staging)
    this.#gpu.submit(encoder)
    this.times.encode = performance.now() - began
    return this.#readOutputs(staging)
  }

  async #runSynchronized(
    updates: SynchronizedUpdates,
    staging: GPUBuffer,
    began: number,
  ): Promise<RunOutputs> {
    const { computeEnd } = this.prepared
    const gpu = this.#gpu
    updates.begin()
    let start = 0
    for (const [bucket, { gradientsEnd }] of this.prepared.updates.entries()) {
      const isLast = bucket === this.prepared.updates.length - 1
      const end = isLast ? computeEnd : gradientsEnd
      const encoder = gpu.device.createCommandEncoder()
      if (end > start) this.#encode(encoder, start, end)
      if (isLast) this.#copyOutputs(encoder, staging)
      updates.copyGradients(encoder, bucket)
      gpu.submit(encoder)
      updates.submitted(bucket)
      start = end
    }
    this.times.encode = performance.now() - began
    const mark = this.onMark
    if (mark) {
      mark('backward submitted', performance.now())
      gpu.queue.onSubmittedWorkDone().then(() => mark('backward done', performance.now()))
    }
    const [outputs] = await Promise.all([
      this.#readOutputs(staging),
      updates.run((encoder, from, to) => this.#encode(encoder, from, to), mark),
    ])
    Object.assign(this.times, updates.times)
    return updates.reduceOutputs(outputs)
  }

  #encode(encoder: GPUCommandEncoder, start: number, end: number): void {
    const pass = encoder.beginComputePass()
    const pipelines = this.#pipelines
    const bindGroups = this.#bindGroups
    const groups = this.#groups
    for (let i = start; i < end; i++) {
      pass.setPipeline(pipelines[i])
      pass.setBindGroup(0, bindGroups[i])
      pass.dispatchWorkgroups(groups[3 * i], groups[3 * i + 1], groups[3 * i + 2])
    }
    pass.end()
    this.#gpu.counters.dispatches += end - start
  }

  #copyOutputs(encoder: GPUCommandEncoder, staging: GPUBuffer): void {
    this.prepared.outputs.forEach(({ type }, i) => {
      const bytes = countElements(type.shape) * 4
      if (bytes === 0) return
      encoder.copyBufferToBuffer(
        this.#buffers.outputs[i],
        0,
        staging,
        this.#outputOffsets[i],
        bytes,
      )
    })
  }

  async #readOutputs(staging: GPUBuffer): Promise<RunOutputs> {
    await mapped(this.#gpu, staging)
    const bytes = staging.getMappedRange()
    const outputs: RunOutputs = {}
    this.prepared.outputs.forEach(({ name, type }, i) => {
      const array = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }[type.dtype]
      outputs[name] = new array(bytes, this.#outputOffsets[i], countElements(type.shape)).slice()
    })
    staging.unmap()
    return outputs
  }

  #bind(): void {
    const { device, counters } = this.#gpu
    this.prepared.plan.dispatches.forEach(({ dispatch, bindings }, i) => {
      const entries = bindings.map(({ place, sizeBytes }, binding) => {
        const { buffer, offset } = this.#buffers.locate(this.#gpu, place)
        return { binding, resource: { buffer, offset, size: sizeBytes || buffer.size } }
      })
      counters.bindGroups++
      this.#bindGroups[i] = device.createBindGroup({
        label: dispatch.label,
        layout: this.#layouts[i],
        entries,
      })
    })
    this.#layout = currentLayout()
  }
}
