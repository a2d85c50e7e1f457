import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { lastPartsOf } from '../plan/backward-parts.ts'
import type { JointSegment, Prepared, PreparedUpdate } from '../plan/prepare.ts'
import type { GradientExchange } from '../trace/exchange.ts'
import { PartQueue } from './part-queue.ts'
import type { ProgramBuffers } from './program-buffers.ts'
import { type PackedBuffers, packBuffers } from './shared-buffers.ts'
import { StepClock } from './step-clock.ts'
import { averagedOutputs, type DevicePort, jointElements } from './step-exchange.ts'

const jointBytes = 4 * jointElements

/** Records dispatches [start, end) of the program. */
export type EncodeRange = (encoder: GPUCommandEncoder, start: number, end: number) => void

/** Records commands. */
type Record = (encoder: GPUCommandEncoder) => void

interface BucketStaging {
  readonly prepared: PreparedUpdate
  readonly hasSlice: boolean
  readonly gradients: GPUBuffer
  readonly parameters: GPUBuffer
}

/**
 * A GPU in a step with other ranks: each bucket comes to the host through a staging buffer, and back by the queue.
 *
 * The device does what it is given in order, so parts of backward are given to it little by little, and updates come between them. Commands that
 * have nothing to wait for between them share a submit.
 */
export class GpuPort implements DevicePort {
  readonly clock = new StepClock()
  readonly memory: Gpu
  readonly shared: PackedBuffers
  readonly #exchange: GradientExchange
  readonly #joint: readonly JointSegment[]
  readonly #programBuffers: ProgramBuffers
  readonly #encode: EncodeRange
  readonly #buckets: readonly BucketStaging[]
  /** A staging buffer for the numbers that ranks agree on after each joint segment. */
  readonly #jointStaging: readonly (GPUBuffer | undefined)[]
  readonly #averaged: readonly number[]
  readonly #sharedStaging: GPUBuffer | undefined
  readonly #queue: PartQueue
  /** By bucket: the part of backward behind which what ranks make of its gradients may take their place, and its update run. */
  readonly #lastParts: readonly number[]
  /** By bucket of the step under way: mapped when its part of backward has run. */
  #maps: Promise<void>[] = []
  #leaveBackward: () => void = () => undefined
  /** Commands recorded with the first update that this rank has. */
  #first: Record | undefined
  #copyOutputs: Record = () => undefined

  constructor(
    gpu: Gpu,
    exchange: GradientExchange,
    prepared: Prepared,
    buffers: ProgramBuffers,
    encode: EncodeRange,
  ) {
    this.memory = gpu
    this.#exchange = exchange
    this.#joint = prepared.joint
    this.#programBuffers = buffers
    this.#encode = encode
    this.#lastParts = lastPartsOf(prepared)
    // Without updates to let in there is nothing to wait for.
    const isPaced = exchange.settings.overlaps && prepared.joint.length === 0
    this.#queue = new PartQueue(prepared.updates.length, isPaced)
    this.#averaged = averagedOutputs(exchange, prepared)
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    const stagingOf = (what: string, bytes: number) =>
      gpu.createBuffer(`readback of ${what}`, bytes, usage)
    this.#jointStaging = prepared.joint.map(({ reductions: { length } }, index) =>
      length > 0 ? stagingOf(`joint numbers ${index}`, length * jointBytes) : undefined,
    )
    this.shared = packBuffers(prepared.sharedBuffers)
    const { length } = this.shared
    if (length > 0) this.#sharedStaging = stagingOf("modules' buffers", 4 * length)
    this.#buckets = prepared.updates.map((update, index) => {
      const { bucket } = update.update
      const { start, end } = bucket.ownSlice(exchange)
      return {
        prepared: update,
        hasSlice: end > start,
        gradients: stagingOf(`gradients ${index}`, bucket.wireElements * 4),
        parameters: stagingOf(`parameters ${index}`, (end - start) * 4),
      }
    })
  }

  get scalars(): Float32Array {
    return this.#programBuffers.scalarValues
  }

  /** Counts a step, which began at `beganMs`. `copyOutputs`: recorded behind the joint nodes, where there are some. */
  begin(beganMs: number, copyOutputs: Record): void {
    this.clock.begin(beganMs)
    this.#leaveBackward = this.clock.enter('backward')
    this.#maps = []
    this.#queue.begin()
    this.#first = undefined
    this.#copyOutputs = copyOutputs
  }

  /** Waits until the next part of backward may be submitted; undefined where it may be now. errors: the device's. */
  room(): Promise<void> | undefined {
    return this.#queue.room()
  }

  /** Runs an exchange in the middle of forward or backward. */
  async aside<T>(exchange: (onAllBegun: () => void) => Promise<T>): Promise<T> {
    this.#leaveBackward()
    try {
      return await this.clock.exchange(exchange)
    } finally {
      this.#leaveBackward = this.clock.enter('backward')
    }
  }

  /**
   * Records the copies that bring bucket `index` (and, with the first, the averaged scalars; with the last, the buffers that all ranks take from this
   * one) into staging buffers; for a shadow, which has no gradients, zeros.
   */
  copy(encoder: GPUCommandEncoder, index: number, isShadow: boolean): void {
    const { prepared, gradients } = this.#buckets[index]
    const { elements, gradientPool } = prepared.update.bucket
    if (isShadow) encoder.clearBuffer(gradients)
    else {
      encoder.copyBufferToBuffer(gradientPool.buffer, 0, gradients, 0, elements * 4)
      if (index === 0)
        for (const [i, output] of this.#averaged.entries()) {
          const { [output]: from } = this.#programBuffers.outputs
          encoder.copyBufferToBuffer(from, 0, gradients, (elements + i) * 4, 4)
        }
    }
    if (index < this.#buckets.length - 1 || !this.#sharedStaging) return
    if (this.#exchange.bufferRoot !== this.#exchange.rank) return
    for (const { buffer, start } of this.shared.parts) {
      const { pool, start: from } = buffer.place(this.memory)
      const bytes = 4 * buffer.count
      encoder.copyBufferToBuffer(pool.buffer, 4 * from, this.#sharedStaging, 4 * start, bytes)
    }
  }

  /** Asks for bucket `index` right after its submit, so that it maps, and is exchanged, before later submits are done. */
  submitted(index: number): void {
    this.#maps[index] = mapped(this.memory, this.#buckets[index].gradients)
    this.#queue.submitted(index, this.#maps[index])
    if (index === this.#buckets.length - 1)
      Promise.all(this.#maps).then(
        () => this.#leaveBackward(),
        () => undefined,
      )
  }

  async readGradients(index: number, into: Float32Array<ArrayBuffer>): Promise<void> {
    await this.#maps[index]
    if (!this.#exchange.settings.overlaps) await this.#queue.ran()
    const { gradients } = this.#buckets[index]
    into.set(new Float32Array(gradients.getMappedRange()))
    gradients.unmap()
  }

  whenBehind(index: number): Promise<void> {
    return this.#queue.whenSubmitted(this.#lastParts[index])
  }

  async runJoint(index: number): Promise<Float32Array<ArrayBuffer>> {
    const { start, end, reductions } = this.#joint[index]
    const staging = this.#jointStaging[index]
    if (!staging) {
      // Only the last one: it goes along with what comes next.
      this.#first = (encoder) => this.#encode(encoder, start, end)
      return new Float32Array()
    }
    const encoder = this.memory.device.createCommandEncoder()
    this.#encode(encoder, start, end)
    for (const [i, { pool }] of reductions.entries())
      encoder.copyBufferToBuffer(pool.buffer, 0, staging, i * jointBytes, jointBytes)
    this.memory.submit(encoder)
    await mapped(this.memory, staging)
    const own = new Float32Array(staging.getMappedRange().slice(0))
    staging.unmap()
    return own
  }

  writeJoint(index: number, pair: number, joined: Float32Array<ArrayBuffer>): void {
    this.memory.write(this.#joint[index].reductions[pair].pool.buffer, joined)
  }

  endJoint(): void {
    const last = this.#first
    this.#first = (encoder) => {
      last?.(encoder)
      this.#copyOutputs(encoder)
    }
    // A rank without updates has no later submit for this, so it makes one.
    if (this.#buckets.some(({ hasSlice }) => hasSlice)) return
    const encoder = this.memory.device.createCommandEncoder()
    this.#takeFirst(encoder)
    this.memory.submit(encoder)
  }

  async update(index: number, slice: Float32Array<ArrayBuffer>, start: number): Promise<void> {
    if (slice.length === 0) return
    const gpu = this.memory
    const { prepared, parameters } = this.#buckets[index]
    const leave = this.clock.enter('optimizer')
    const encoder = gpu.device.createCommandEncoder()
    this.#takeFirst(encoder)
    this.#encode(encoder, prepared.start, prepared.end)
    const { buffer } = prepared.update.bucket.parameterPool
    encoder.copyBufferToBuffer(buffer, start * 4, parameters, 0, slice.byteLength)
    gpu.submit(encoder)
    await mapped(gpu, parameters)
    slice.set(new Float32Array(parameters.getMappedRange(0, slice.byteLength)))
    parameters.unmap()
    leave()
  }

  #takeFirst(encoder: GPUCommandEncoder): void {
    this.#first?.(encoder)
    this.#first = undefined
  }

  async readShared(into: Float32Array<ArrayBuffer>): Promise<void> {
    const staging = this.#sharedStaging!
    await mapped(this.memory, staging)
    into.set(new Float32Array(staging.getMappedRange()))
    staging.unmap()
  }

  destroy(): void {
    for (const staging of this.#jointStaging) staging?.destroy()
    this.#sharedStaging?.destroy()
    for (const { gradients, parameters } of this.#buckets) {
      gradients.destroy()
      parameters.destroy()
    }
  }
}
