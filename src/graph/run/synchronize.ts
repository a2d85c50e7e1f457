import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { invariant } from '../../util/errors.ts'
import { lastPartsOf } from '../plan/backward-parts.ts'
import type { JointSegment, Prepared, PreparedUpdate } from '../plan/prepare.ts'
import { SentNotes } from '../plan/step-notes.ts'
import type { OnMark, RunOutputs } from '../plan/step-program.ts'
import { tailElements } from '../trace/bucket.ts'
import type { GradientExchange, StepNotes } from '../trace/exchange.ts'
import { gradientWeight } from '../trace/trace.ts'
import { joinRanks, jointElements } from './combine-joint.ts'
import { PartQueue } from './part-queue.ts'
import type { ProgramBuffers } from './program-buffers.ts'
import { type PackedBuffer, packBuffers, writeBuffers } from './shared-buffers.ts'
import { StepClock } from './step-clock.ts'

const jointBytes = 4 * jointElements

interface BucketBuffers {
  readonly prepared: PreparedUpdate
  /** The elements of the bucket that this rank updates. */
  readonly start: number
  readonly end: number
  readonly gradients: Float32Array<ArrayBuffer>
  readonly parameters: Float32Array<ArrayBuffer>
  readonly gradientStaging: GPUBuffer
  readonly parameterStaging: GPUBuffer
}

/** Records dispatches [start, end) of the program. */
export type EncodeRange = (encoder: GPUCommandEncoder, start: number, end: number) => void

/** Records commands that go to the device ahead of others in the same submit. */
type RecordFirst = (encoder: GPUCommandEncoder) => void

/**
 * The part of a step that ranks do together, bucket by bucket: owner-computes data parallelism.
 *
 * For each bucket: gradients to the host as soon as its part of backward has run, reduce-scatter, this rank's sum back to the
 * device, optimizer on this rank's slice, updated slice to the host, all-gather, parameters to the device. Buckets go through
 * this independently, so both halves of a bucket's exchange overlap later parts of backward: the device does what it is given in order, so
 * parts are given to it little by little, and updates come between them. Only a program with joint nodes (a norm over all
 * buckets, a loss scale) waits for all sums before the first update, and exchanges 8 bytes a rank for each of them. Commands that have
 * nothing to wait for between them share a submit. Every rank ends with the owner's bits, whatever adapter the others have (WGSL's
 * division and square root differ between them).
 *
 * cost: 2(N-1)/N x parameter bytes per rank and step, as an all-reduce; 1/N of the optimizer's state and work.
 * source: ZeRO stage 1, Rajbhandari et al., arXiv 1910.02054; buckets after PyTorch's DistributedDataParallel.
 */
export class SynchronizedUpdates {
  readonly clock = new StepClock()
  readonly #gpu: Gpu
  readonly #exchange: GradientExchange
  readonly #prepared: Prepared
  readonly #programBuffers: ProgramBuffers
  readonly #buckets: BucketBuffers[]
  /** A staging buffer for the numbers that ranks agree on after each joint segment. */
  readonly #jointStaging: (GPUBuffer | undefined)[]
  /** Scalar outputs of forward and backward, which the first bucket's tail averages over ranks. */
  readonly #averaged: number[]
  /** Modules' buffers of which all ranks take one rank's, and where they come to the host. */
  readonly #shared: readonly PackedBuffer[]
  readonly #sharedStaging: GPUBuffer | undefined
  #firstMaps: Promise<void>[] = []
  #reduced: Promise<void>[] = []
  #sharedMap: Promise<void> | undefined
  #leaveBackward: (() => void) | undefined
  readonly #queue: PartQueue
  /** By bucket: the part of backward behind which what ranks make of its gradients may take their place, and its update run. */
  readonly #lastParts: readonly number[]
  /** Takes a bucket that is reduced on to its update; undefined where all buckets wait for each other. */
  #updateNext: ((index: number) => Promise<void>) | undefined
  readonly #updated: Promise<void>[] = []
  /** What ranks send each other in the step under way. */
  #notes: StepNotes = new SentNotes(0)

  constructor(gpu: Gpu, exchange: GradientExchange, prepared: Prepared, buffers: ProgramBuffers) {
    this.#gpu = gpu
    this.#exchange = exchange
    this.#prepared = prepared
    this.#programBuffers = buffers
    this.#lastParts = lastPartsOf(prepared)
    // Without updates to let in there is nothing to wait for.
    const isPaced = exchange.settings.overlaps && prepared.joint.length === 0
    this.#queue = new PartQueue(prepared.updates.length, isPaced)
    this.#averaged = prepared.outputs.flatMap(({ type, isJoint }, index) =>
      exchange.settings.averagesOutputs &&
      type.shape.length === 0 &&
      type.dtype === 'f32' &&
      !isJoint
        ? [index]
        : [],
    )
    invariant(this.#averaged.length <= tailElements, () => 'more scalar outputs than a tail holds')
    const usage = bufferUsage.MAP_READ | bufferUsage.COPY_DST
    this.#jointStaging = prepared.joint.map(({ reductions: { length } }, index) =>
      length > 0
        ? gpu.createBuffer(`readback of joint numbers ${index}`, length * jointBytes, usage)
        : undefined,
    )
    const { parts, words } = packBuffers(prepared.sharedBuffers)
    this.#shared = parts
    if (words > 0) {
      this.#sharedStaging = gpu.createBuffer("readback of modules' buffers", 4 * words, usage)
    }
    this.#buckets = prepared.updates.map((update, index) => {
      const { wireElements: wire } = update.update.bucket
      const { start, end } = update.update.bucket.ownSlice(exchange)
      return {
        prepared: update,
        start,
        end,
        gradients: new Float32Array(wire),
        parameters: new Float32Array(wire),
        gradientStaging: gpu.createBuffer(`readback of gradients ${index}`, wire * 4, usage),
        parameterStaging: gpu.createBuffer(
          `readback of parameters ${index}`,
          (end - start) * 4,
          usage,
        ),
      }
    })
  }

  /** Counts a step, which began at `beganMs`. */
  begin(beganMs: number, encode: EncodeRange, onMark: OnMark | undefined): void {
    this.clock.begin(beganMs)
    this.#leaveBackward = this.clock.enter('backward')
    this.#exchange.beginStep()
    this.#firstMaps = []
    this.#reduced = []
    this.#sharedMap = undefined
    this.#updated.length = 0
    const { own } = this.#exchange.flags
    this.#notes = this.#prepared.trace.weighing?.stepNotes(own) ?? new SentNotes(own)
    this.#queue.begin()
    this.#updateNext =
      this.#prepared.joint.length === 0
        ? (index) => this.#update(this.#buckets[index], index, encode, onMark)
        : undefined
  }

  /** Waits until the next part of backward may be submitted; undefined where it may be now. errors: the device's. */
  room(): Promise<void> | undefined {
    return this.#queue.room()
  }

  /** Runs an exchange in the middle of forward or backward. */
  async aside<T>(meet: (onMet: () => void) => Promise<T>): Promise<T> {
    this.#leaveBackward?.()
    try {
      return await this.clock.exchange(meet)
    } finally {
      this.#leaveBackward = this.clock.enter('backward')
    }
  }

  /** Records, behind all of backward, the copies that bring the buffers that all ranks take from this one into their staging buffer. */
  copySharedBuffers(encoder: GPUCommandEncoder): void {
    if (!this.#sharedStaging || !this.#isRoot) return
    for (const { buffer, start } of this.#shared) {
      const home = buffer.place(this.#gpu)
      encoder.copyBufferToBuffer(
        home.pool.buffer,
        4 * home.start,
        this.#sharedStaging,
        4 * start,
        4 * buffer.count,
      )
    }
  }

  /**
   * Records the copies that bring bucket `index` (and, with the first, the averaged scalars) into its staging buffer; for a shadow, which
   * has none, zeros.
   */
  copyGradients(encoder: GPUCommandEncoder, index: number, isShadow = false): void {
    const { prepared, gradientStaging } = this.#buckets[index]
    if (isShadow) {
      encoder.clearBuffer(gradientStaging)
      return
    }
    const { bucket } = prepared.update
    encoder.copyBufferToBuffer(
      bucket.gradientPool.buffer,
      0,
      gradientStaging,
      0,
      bucket.elements * 4,
    )
    if (index > 0) return
    this.#averaged.forEach((output, i) => {
      encoder.copyBufferToBuffer(
        this.#programBuffers.outputs[output],
        0,
        gradientStaging,
        (bucket.elements + i) * 4,
        4,
      )
    })
  }

  /** Asks for bucket `index` right after its submit, so that it maps, and is exchanged, before later submits are done. */
  submitted(index: number, onMark: OnMark | undefined): void {
    const map = mapped(this.#gpu, this.#buckets[index].gradientStaging)
    map.catch(() => undefined)
    this.#firstMaps[index] = map
    this.#queue.submitted(index, map)
    const reduced = map.then(async () => {
      if (!this.#exchange.settings.overlaps) await this.#queue.ran()
      onMark?.(`bucket ${index} on the host`, performance.now())
      await this.#reduce(this.#buckets[index], index, onMark)
      onMark?.(`bucket ${index} reduced`, performance.now())
    })
    reduced.catch(() => undefined)
    this.#reduced[index] = reduced
    const update = this.#updateNext
    if (update) {
      this.#updated[index] = reduced.then(() => update(index))
      this.#updated[index].catch(() => undefined)
    }
    if (index < this.#buckets.length - 1) return
    if (this.#sharedStaging && this.#isRoot) {
      this.#sharedMap = mapped(this.#gpu, this.#sharedStaging)
      this.#sharedMap.catch(() => undefined)
    }
  }

  /**
   * Takes all buckets through exchange and update; `onJoint` records its commands behind the joint nodes.
   *
   * errors: the exchange's, the device's; `graph.misuse` where the ranks' weights do not add up, before anything is updated.
   */
  async run(
    encode: EncodeRange,
    onMark: OnMark | undefined,
    onJoint: (encoder: GPUCommandEncoder) => void,
  ): Promise<void> {
    Promise.all(this.#firstMaps).then(this.#leaveBackward, () => undefined)
    const shared = this.#takeSharedBuffers()
    // Until the buckets are done; a failure of theirs comes first.
    shared.catch(() => undefined)
    try {
      await this.#updateAll(encode, onMark, onJoint)
    } catch (error) {
      // The group goes on where ranks refuse a step, so nothing of it may be under way in the next one.
      if (this.#notes.isRefused) await Promise.allSettled([...this.#reduced, shared])
      throw error
    }
    await shared
    const { afterStart, plan } = this.#prepared
    if (afterStart < plan.dispatches.length) {
      const encoder = this.#gpu.device.createCommandEncoder()
      encode(encoder, afterStart, plan.dispatches.length)
      this.#gpu.submit(encoder)
    }
  }

  async #updateAll(
    encode: EncodeRange,
    onMark: OnMark | undefined,
    onJoint: (encoder: GPUCommandEncoder) => void,
  ): Promise<void> {
    const { joint } = this.#prepared
    const gpu = this.#gpu
    if (joint.length === 0) {
      await Promise.all(this.#updated)
    } else {
      await Promise.all(this.#reduced)
      for (const [index, segment] of joint.entries()) {
        if (segment.reductions.length > 0) await this.#agree(segment, index, encode)
      }
      const last = joint[joint.length - 1]
      const finishJoint: RecordFirst = (encoder) => {
        if (last.reductions.length === 0) encode(encoder, last.start, last.end)
        onJoint(encoder)
      }
      // It goes along with the first update that this rank has; a rank without any submits it by itself.
      const carrier = this.#buckets.findIndex(({ start, end }) => end > start)
      if (carrier < 0) {
        const encoder = gpu.device.createCommandEncoder()
        finishJoint(encoder)
        gpu.submit(encoder)
      }
      await Promise.all(
        this.#buckets.map((bucket, index) =>
          this.#update(bucket, index, encode, onMark, index === carrier ? finishJoint : undefined),
        ),
      )
    }
  }

  /** The outputs with every averaged scalar replaced by its weighted mean over ranks. */
  reduceOutputs(outputs: RunOutputs): RunOutputs {
    const [{ parameters, prepared }] = this.#buckets
    const tail = parameters.subarray(prepared.update.bucket.elements)
    this.#averaged.forEach((output, i) => {
      const { name } = this.#prepared.outputs[output]
      outputs[name][0] = tail[i] * this.#notes.outputs
    })
    this.#exchange.flags.sum = this.#notes.flags
    return outputs
  }

  destroy(): void {
    for (const staging of this.#jointStaging) staging?.destroy()
    this.#sharedStaging?.destroy()
    for (const { gradientStaging, parameterStaging } of this.#buckets) {
      gradientStaging.destroy()
      parameterStaging.destroy()
    }
  }

  /** Sums a bucket over ranks; this rank's slice of the sum goes back to the device. */
  async #reduce(
    { gradients, gradientStaging, start, end, prepared }: BucketBuffers,
    index: number,
    onMark: OnMark | undefined,
  ) {
    const { elements, gradientPool } = prepared.update.bucket
    gradients.set(new Float32Array(gradientStaging.getMappedRange()))
    gradientStaging.unmap()
    if (index === 0) this.#weighTail(gradients, elements)
    const place = { index, isLast: index === this.#buckets.length - 1 }
    await this.clock.exchange((onMet) =>
      this.#exchange.reduceGradients(prepared.update.bucket, place, gradients, this.#notes, () => {
        onMet()
        onMark?.(`bucket ${index} met for reduceScatter`, performance.now())
      }),
    )
    await this.#queue.whenSubmitted(this.#lastParts[index])
    if (end > start) {
      this.#gpu.write(gradientPool.buffer, gradients.subarray(start, end), start * 4)
    }
  }

  /** Runs a joint segment and replaces each [value, flag] by what all ranks' make together, in the order of ranks. */
  async #agree(
    { start, end, reductions }: JointSegment,
    index: number,
    encode: EncodeRange,
  ): Promise<void> {
    const gpu = this.#gpu
    const staging = this.#jointStaging[index]!
    const encoder = gpu.device.createCommandEncoder()
    encode(encoder, start, end)
    for (const [i, { pool }] of reductions.entries()) {
      encoder.copyBufferToBuffer(pool.buffer, 0, staging, i * jointBytes, jointBytes)
    }
    gpu.submit(encoder)
    await mapped(gpu, staging)
    const own = new Float32Array(staging.getMappedRange().slice(0))
    staging.unmap()
    const all = await this.clock.exchange((onMet) =>
      this.#exchange.gatherScalars(index, own, onMet),
    )
    for (const [i, reduction] of reductions.entries()) {
      gpu.write(reduction.pool.buffer, joinRanks(reduction, all, i, reductions.length))
    }
  }

  /** Updates this rank's slice, behind what `first` records, and gathers the others'. */
  async #update(
    bucket: BucketBuffers,
    index: number,
    encode: EncodeRange,
    onMark: OnMark | undefined,
    first?: RecordFirst,
  ): Promise<void> {
    const gpu = this.#gpu
    const { gradients, parameters, start, end, prepared } = bucket
    const { elements, parameterPool } = prepared.update.bucket
    if (end > start) {
      const leave = this.clock.enter('optimizer')
      const encoder = gpu.device.createCommandEncoder()
      first?.(encoder)
      encode(encoder, prepared.start, prepared.end)
      const bytes = (end - start) * 4
      encoder.copyBufferToBuffer(parameterPool.buffer, start * 4, bucket.parameterStaging, 0, bytes)
      gpu.submit(encoder)
      await mapped(gpu, bucket.parameterStaging)
      parameters.set(new Float32Array(bucket.parameterStaging.getMappedRange(0, bytes)), start)
      bucket.parameterStaging.unmap()
      leave()
    }
    parameters.set(gradients.subarray(elements), elements)
    await this.clock.exchange((onMet) =>
      this.#exchange.allGather(index, parameters, () => {
        onMet()
        onMark?.(`bucket ${index} met for allGather`, performance.now())
      }),
    )
    gpu.write(parameterPool.buffer, parameters.subarray(0, start), 0)
    gpu.write(parameterPool.buffer, parameters.subarray(end, elements), end * 4)
    onMark?.(`bucket ${index} gathered`, performance.now())
  }

  get #isRoot(): boolean {
    return this.#exchange.bufferRoot === this.#exchange.rank
  }

  /** Spreads the root's buffers, as they are behind backward, to all ranks. */
  async #takeSharedBuffers(): Promise<void> {
    const staging = this.#sharedStaging
    if (!staging) return
    const isRoot = this.#isRoot
    let words = new Float32Array(staging.size / 4)
    if (isRoot) {
      await this.#sharedMap
      words = new Float32Array(staging.getMappedRange().slice(0))
      staging.unmap()
    }
    await this.clock.exchange((onMet) => this.#exchange.broadcastBuffers(words, onMet))
    if (!isRoot) writeBuffers(this.#gpu, this.#shared, words)
  }

  #weighTail(gradients: Float32Array, elements: number): void {
    const { scalars } = this.#prepared.trace
    const weight = this.#programBuffers.scalarValues[scalars.named(gradientWeight, 1).slot]
    for (let i = elements; i < gradients.length; i++) {
      // What counts for nothing may be a mean over nothing.
      gradients[i] = weight === 0 ? 0 : gradients[i] * weight
    }
  }
}
