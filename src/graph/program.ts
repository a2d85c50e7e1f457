import { type Gpu, rejected } from '../gpu/device.ts'
import { mapped } from '../gpu/readback.ts'
import type { StagedTensor } from '../gpu/staging.ts'
import { GpuError } from '../util/errors.ts'
import { tell } from '../util/log.ts'
import { bytesOf, countElements, type HostDType, type TensorType } from '../util/shape.ts'
import { formatCall } from './format-call.ts'
import { describePlan } from './inside/plan-dump.ts'
import { Profile } from './inside/profile.ts'
import { ValueCheck } from './inside/value-check.ts'
import { backwardParts } from './last-parts.ts'
import { Meetings } from './meetings.ts'
import { PhaseTimer, sharesOfOnePhase, splitTime } from './phase-timer.ts'
import { computeRanges } from './phases.ts'
import type { Place } from './plan.ts'
import type { Prepared } from './prepare.ts'
import type { Runtime } from './runtime.ts'
import {
  checkInputs,
  checkScalars,
  copyInputs,
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
} from './step-program.ts'
import { currentLayout } from './stored-tensor.ts'
import { submitCuts } from './submit-cuts.ts'
import { SynchronizedUpdates } from './synchronize.ts'
import type { GraphNode } from './value.ts'

/** How many runs may be under way before the next one waits for the oldest. */
const runsInFlight = 3

/** Staged inputs of one run, each with the buffer that it goes to. */
type StagedInputs = readonly { readonly staged: StagedTensor; readonly buffer: GPUBuffer }[]

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
        return { buffer: this.#shared[place.object], offset: place.offset }
      case 'scalars':
        return { buffer: this.scalars, offset: 0 }
      case 'pool':
        return { buffer: place.pool.allocate(gpu).buffer, offset: place.start * 4 }
      case 'stored': {
        const { pool, start } = place.tensor.place(gpu)
        return { buffer: pool.buffer, offset: start * 4 }
      }
    }
  }

  /**
   * Writes the inputs, which a shadow has none of, and the scalars, counting a step unless told not to; returns the staged inputs, whose
   * copies the run records first.
   *
   * errors: `graph.misuse` for a missing input, a wrong type or length, a staged tensor that a run has used.
   */
  write(
    gpu: Gpu,
    prepared: Prepared,
    inputs: RunInputs | undefined,
    scalars: Readonly<Record<string, number>>,
    isCounted = true,
  ): StagedInputs {
    const stagedInputs: { staged: StagedTensor; buffer: GPUBuffer }[] = []
    for (const [name, data] of inputs ? checkInputs(prepared, inputs) : []) {
      const { buffer } = this.inputs.get(name)!
      if (ArrayBuffer.isView(data)) gpu.write(buffer, data)
      else stagedInputs.push({ staged: data, buffer })
    }
    fillScalars(prepared, scalars, this.scalarValues, isCounted)
    gpu.write(this.scalars, this.scalarValues)
    return stagedInputs
  }

  /** Sizes of the buffers as they were made. */
  get intermediateBytes(): number {
    return this.#shared.reduce((sum, { size }) => sum + size, 0)
  }
  get otherBytes(): number {
    const inputs = [...this.inputs.values()].map(({ buffer }) => buffer)
    return [...inputs, ...this.outputs, this.scalars].reduce((sum, { size }) => sum + size, 0)
  }

  destroy(): void {
    for (const { buffer } of this.inputs.values()) buffer.destroy()
    for (const buffer of [...this.outputs, ...this.#shared, this.scalars]) buffer.destroy()
  }
}

/** The device has no room for a program: names the ops with the largest results. */
function outOfMemory({ nodes, trace }: Prepared, bytes: number): GpuError {
  const resultBytes = ({ outputs }: GraphNode) =>
    outputs.reduce((sum, { type }) => sum + bytesOf(type), 0)
  const largest = nodes
    .filter(({ op }) => !op.isView)
    .sort((a, b) => resultBytes(b) - resultBytes(a))
    .slice(0, 3)
    .map((node) => `${formatCall(node, trace)} with ${resultBytes(node)} bytes`)
  return new GpuError(
    'gpu.limit',
    `device: the program needs ${bytes} bytes beside its parameters, which are not free; the largest results are ${largest.join(', ')}. Use a smaller batch, or checkpoint() parts of the model.`,
  )
}

/**
 * A step program on the device: pipelines compiled, bind groups made, ready to be replayed.
 *
 * A run writes the inputs and one small block of scalars, and encodes the recorded dispatches; it creates no buffer, bind group or pipeline.
 * With one rank a run is one submit; one that takes the device more than about 100 ms is cut into several, once a run has been timed, so on
 * devices with timestamps alone. With several ranks it is one submit per bucket for forward and backward, and one per bucket for the update; one more for numbers that
 * ranks agree on between the two, and one for what reads all new parameters (a running average).
 */
export class GpuProgram implements StepProgram {
  readonly prepared: Prepared
  times: StepTimes = noTimes
  encodeMs = 0
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
  readonly #meetings: Meetings | undefined
  /** What switches ask for; both undefined as a rule. */
  readonly #profile: Profile | undefined
  readonly #check: ValueCheck | undefined
  readonly #timer: PhaseTimer | undefined
  /** The newest run under way. */
  #latest: Promise<unknown> | undefined
  /** With one rank: where a run is cut into submits. */
  #cuts: readonly number[] = []
  #layout = -1
  #runs = 0
  #lastEndedMs = 0

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
    this.#profile = Profile.of(gpu, prepared)
    this.#check = ValueCheck.of(gpu, prepared, this.#buffers)
    const { exchange, accumulation } = prepared.trace
    const exchanges = prepared.updates.length > 0 && accumulation?.part !== 'add'
    if (exchange?.exchangesGradients && exchanges) {
      this.#updates = new SynchronizedUpdates(gpu, exchange, prepared, this.#buffers)
    }
    this.#meetings = Meetings.of(gpu, prepared, this.#buffers)
    if (!this.#profile && !this.#check) {
      this.#timer = PhaseTimer.of(gpu, this.#updates ? computeRanges(prepared) : prepared.phases)
    }
  }

  /** Compiles all pipelines in parallel and makes the program's buffers. errors: `gpu.compile`, `gpu.limit`, `gpu.validation`. */
  static async create(runtime: Runtime, prepared: Prepared): Promise<GpuProgram> {
    const { gpu, pipelines } = runtime
    const compiled = await Promise.all(
      prepared.plan.dispatches.map(({ dispatch }) => pipelines.get(dispatch)),
    )
    // A buffer without memory makes its bind groups invalid too, which must not count as an error of its own.
    gpu.device.pushErrorScope('validation')
    gpu.device.pushErrorScope('out-of-memory')
    const program = new GpuProgram(runtime, prepared, compiled)
    program.#bind()
    const errorOf = () => gpu.device.popErrorScope().catch(() => null)
    const [tooMuch, invalid] = await Promise.all([errorOf(), errorOf()])
    gpu.check()
    if (invalid && !tooMuch) throw rejected(invalid.message)
    if (!tooMuch) {
      tell(3, 'plan', () => describePlan(prepared, program.memory, runtime))
      return program
    }
    const { deviceBytes, otherBytes } = program.memory
    program.destroy()
    throw outOfMemory(prepared, deviceBytes + otherBytes)
  }

  get memory(): ProgramMemory {
    const { peakBytes, lowerBoundBytes } = this.prepared.plan
    const { intermediateBytes, otherBytes } = this.#buffers
    const readback = this.#staging.reduce((sum, { buffer }) => sum + buffer.size, 0)
    return {
      peakBytes,
      lowerBoundBytes,
      deviceBytes: intermediateBytes,
      otherBytes: otherBytes + readback,
    }
  }

  get dispatchCount(): number {
    return this.#pipelines.length
  }

  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
  ): Promise<RunOutputs> {
    return this.#begin(inputs, scalars)
  }

  async shadow(scalars: Readonly<Record<string, number>> = {}): Promise<void> {
    if (this.#updates) await this.#begin(undefined, scalars)
  }

  /** `inputs` undefined: a shadow's run. */
  async #begin(
    inputs: RunInputs | undefined,
    scalars: Readonly<Record<string, number>>,
  ): Promise<RunOutputs> {
    const gpu = this.#gpu
    gpu.check()
    refuseNoSync(this.prepared)
    const staging = this.#staging[this.#runs++ % runsInFlight]
    // Buckets, like the switches' instruments, exist once: then one run goes after the other.
    const isSerial = this.#updates ?? this.#meetings ?? this.#profile ?? this.#check
    if (inputs && (staging.isBusy || (isSerial && this.#latest))) {
      inputs = copyInputs(inputs, this.#buffers.inputs.keys())
      scalars = { ...scalars }
    }
    const waitsFor = () => (isSerial ? this.#latest : staging.isBusy)
    for (let busy = waitsFor(); busy; busy = waitsFor()) await busy.catch(() => undefined)
    if (this.#layout !== currentLayout()) this.#bind()
    const began = performance.now()
    this.#timer?.begin()
    const staged = this.#buffers.write(gpu, this.prepared, inputs, scalars)
    const running = this.#updates
      ? this.#runSynchronized(this.#updates, staged, staging.buffer, began, !inputs)
      : this.#runAlone(staged, staging.buffer, began)
    const watched = this.#profile ? this.#profile.watch(running, began) : running
    const outputs = watched.then((values) => this.#timed(values, began))
    const ended = outputs.finally(() => {
      staging.isBusy = undefined
      if (this.#latest === ended) this.#latest = undefined
    })
    ended.catch(() => undefined)
    staging.isBusy = ended
    this.#latest = ended
    return outputs
  }

  check(inputs: RunInputs, scalars: Readonly<Record<string, number>>): void {
    checkInputs(this.prepared, inputs)
    checkScalars(this.prepared, scalars)
  }

  destroy(): void {
    this.#buffers.destroy()
    this.#updates?.destroy()
    this.#meetings?.destroy()
    this.#profile?.destroy()
    this.#timer?.destroy()
    for (const { buffer } of this.#staging) buffer.destroy()
  }

  async #runAlone(staged: StagedInputs, staging: GPUBuffer, began: number): Promise<RunOutputs> {
    let encoder = this.#gpu.device.createCommandEncoder()
    for (const input of staged) input.staged.record(encoder, input.buffer)
    if (this.#meetings) {
      this.#meetings.exchange.beginStep()
      let start = 0
      for (const [index, { end }] of this.prepared.meetings.entries()) {
        this.#encode(encoder, start, end)
        await this.#meetings.hold(index, encoder)
        encoder = this.#gpu.device.createCommandEncoder()
        start = end
      }
      this.#encode(encoder, start, this.#pipelines.length)
    } else if (this.#check) {
      this.#gpu.submit(encoder)
      await this.#check.run((own, from, to) => this.#encode(own, from, to))
      encoder = this.#gpu.device.createCommandEncoder()
    } else {
      let start = 0
      for (const cut of this.#cuts) {
        this.#encode(encoder, start, cut)
        this.#gpu.submit(encoder)
        encoder = this.#gpu.device.createCommandEncoder()
        start = cut
      }
      this.#encode(encoder, start, this.#pipelines.length)
    }
    this.#copyOutputs(encoder, staging)
    this.#timer?.resolve(encoder)
    this.#gpu.submit(encoder)
    for (const input of staged) input.staged.release()
    this.encodeMs = performance.now() - began
    const [outputs, deviceMs] = await Promise.all([this.#readOutputs(staging), this.#timer?.read()])
    if (deviceMs) this.#cuts = submitCuts(this.prepared.phases, deviceMs)
    return outputs
  }

  async #runSynchronized(
    updates: SynchronizedUpdates,
    staged: StagedInputs,
    staging: GPUBuffer,
    began: number,
    isShadow: boolean,
  ): Promise<RunOutputs> {
    const { joint, meetings } = this.prepared
    const gpu = this.#gpu
    const mark = this.onMark
    const encodeUpdate = (encoder: GPUCommandEncoder, from: number, to: number) =>
      this.#encode(encoder, from, to)
    updates.begin(began, encodeUpdate, mark)
    let waitedMs = 0
    let meeting = 0
    const parts = backwardParts(this.prepared)
    for (const [bucket, part] of parts.entries()) {
      const isLast = bucket === parts.length - 1
      const { end } = part
      let { start } = part
      const room = updates.room()
      if (room) {
        const fullMs = performance.now()
        await room
        waitedMs += performance.now() - fullMs
      }
      let encoder = gpu.device.createCommandEncoder()
      if (bucket === 0) for (const input of staged) input.staged.record(encoder, input.buffer)
      while (meeting < meetings.length && meetings[meeting].end <= end) {
        if (!isShadow) this.#encode(encoder, start, meetings[meeting].end)
        await this.#meetings!.hold(meeting, encoder, isShadow, (run) => updates.aside(run))
        encoder = gpu.device.createCommandEncoder()
        start = meetings[meeting++].end
      }
      if (end > start && !isShadow) this.#encode(encoder, start, end)
      if (isLast && joint.length === 0) this.#copyOutputs(encoder, staging)
      updates.copyGradients(encoder, bucket, isShadow)
      if (isLast) updates.copySharedBuffers(encoder)
      if (isLast) this.#timer?.resolve(encoder)
      gpu.submit(encoder)
      if (bucket === 0) for (const input of staged) input.staged.release()
      if (mark) {
        const ended = () => mark(`part ${bucket} done`, performance.now())
        gpu.queue.onSubmittedWorkDone().then(ended)
      }
      updates.submitted(bucket, mark)
    }
    this.encodeMs = performance.now() - began - waitedMs
    mark?.('backward submitted', performance.now())
    const updated = updates.run(encodeUpdate, mark, (encoder) =>
      this.#copyOutputs(encoder, staging),
    )
    // With joint nodes, outputs are copied behind them: mapping the staging buffer earlier would be an error.
    if (joint.length > 0) await updated
    const [outputs] = await Promise.all([this.#readOutputs(staging), updated, this.#timer?.read()])
    return updates.reduceOutputs(outputs)
  }

  /** Notes the times of a run that began at `beganMs` and has ended now. */
  #timed(outputs: RunOutputs, beganMs: number): RunOutputs {
    const { phases } = this.prepared
    const shares = this.#timer?.shares ?? this.#profile?.shares(phases) ?? sharesOfOnePhase(phases)
    const endedMs = performance.now()
    if (this.#updates) {
      const times = this.#updates.clock.read(endedMs)
      const { forward, backward } = splitTime(times.backward, shares && { ...shares, optimizer: 0 })
      this.times = { ...times, forward, backward }
    } else {
      const ms = endedMs - Math.max(beganMs, this.#lastEndedMs)
      this.times = { ...noTimes, ...splitTime(ms, shares) }
    }
    this.#lastEndedMs = endedMs
    noteTimes(outputs, { parts: this.times, beganMs, endedMs })
    return outputs
  }

  #encode(encoder: GPUCommandEncoder, start: number, end: number): void {
    if (this.#profile?.isTiming) {
      for (let i = start; i < end; i++) this.#encodePass(encoder, i, i + 1, this.#profile.pass(i))
      return
    }
    const timed = this.#timer?.passes(start, end) ?? []
    for (const { start, end, descriptor } of timed)
      this.#encodePass(encoder, start, end, descriptor)
    if (timed.length === 0) this.#encodePass(encoder, start, end)
  }

  #encodePass(
    encoder: GPUCommandEncoder,
    start: number,
    end: number,
    descriptor?: GPUComputePassDescriptor,
  ): void {
    const pass = encoder.beginComputePass(descriptor)
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
      const array = hostArrays[type.dtype as HostDType]
      outputs[name] = new array(bytes, this.#outputOffsets[i], countElements(type.shape)).slice()
    })
    staging.unmap()
    return outputs
  }

  #bind(): void {
    const { device, counters } = this.#gpu
    for (const { update } of this.prepared.updates) update.bucket.allocate(this.#gpu)
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
