import { invariant } from '../../util/errors.ts'
import type { Memory } from '../memory/memory-device.ts'
import { noteOnAllRanks } from '../plan/agreement.ts'
import type { Prepared } from '../plan/prepare.ts'
import type { OnMark, RunOutputs } from '../plan/step-program.ts'
import { tailElements } from '../trace/bucket.ts'
import type { GradientExchange } from '../trace/exchange.ts'
import { StepNotes } from '../trace/step-notes.ts'
import { gradientWeight, type JointReduction } from '../trace/trace.ts'
import { type PackedBuffers, writeBuffers } from './shared-buffers.ts'
import type { StepClock } from './step-clock.ts'

/** Elements of a joint number: a value and a flag. */
export const jointElements = 2

/** The interface of a device to a step that ranks do together. Buckets are numbered as the program's updates. */
export interface DevicePort {
  readonly memory: Memory
  /** The scalars of the run. */
  readonly scalars: Float32Array
  /** Copies a bucket's gradients to `into` once backward has made them, and behind those of the first one the scalar outputs that ranks average. */
  readGradients(bucket: number, into: Float32Array<ArrayBuffer>): Promise<void>
  /** Resolves when what is written to a bucket comes behind all that backward does with it. */
  whenBehind(bucket: number): Promise<void>
  /** Runs joint segment `index`; returns its [value, flag] pairs. */
  runJoint(index: number): Promise<Float32Array<ArrayBuffer>>
  /** Puts what all ranks' pairs make together in the place of pair `pair`. */
  writeJoint(index: number, pair: number, joined: Float32Array<ArrayBuffer>): void
  /** All joint segments have run, and all pairs are written. */
  endJoint(): void
  /** Updates this rank's slice of a bucket's parameters, from element `start` on, and copies it to `slice`. */
  update(bucket: number, slice: Float32Array<ArrayBuffer>, start: number): Promise<void>
  /** Modules' buffers that all ranks take from one. */
  readonly shared: PackedBuffers
  /** Reads them, as they are behind backward. */
  readShared(into: Float32Array<ArrayBuffer>): Promise<void>
}

/** Scalar outputs of forward and backward, which ranks average: their places among the outputs. */
export const averagedOutputs = ({ settings }: GradientExchange, { outputs }: Prepared): number[] =>
  outputs.flatMap(({ type, isJoint }, index) =>
    settings.averagesOutputs && type.shape.length === 0 && type.dtype === 'f32' && !isJoint
      ? [index]
      : [],
  )

interface TravellingBucket {
  /** The elements of the bucket that this rank updates. */
  readonly start: number
  readonly end: number
  readonly gradients: Float32Array<ArrayBuffer>
  readonly parameters: Float32Array<ArrayBuffer>
}

/**
 * The part of a step that ranks do together, bucket by bucket, on any device: owner-computes data parallelism.
 *
 * For each bucket: gradients to the host as soon as its part of backward has run, reduce-scatter, this rank's sum back to the
 * device, optimizer on this rank's slice, updated slice to the host, all-gather, parameters to the device. Buckets go through
 * this independently, so both halves of a bucket's exchange overlap later parts of backward. Only a program with joint nodes (a norm over all
 * buckets, a loss scale) waits for all sums before the first update, and exchanges 8 bytes a rank for each of them. Every rank ends with the
 * owner's bits, whatever adapter the others have (WGSL's division and square root differ between them).
 *
 * cost: 2(N-1)/N x parameter bytes per rank and step, as an all-reduce; 1/N of the optimizer's state and work.
 * source: ZeRO stage 1, Rajbhandari et al., arXiv 1910.02054; buckets after PyTorch's DistributedDataParallel.
 */
export class StepExchange {
  readonly #exchange: GradientExchange
  readonly #prepared: Prepared
  readonly #port: DevicePort
  readonly #clock: StepClock
  readonly #averaged: readonly number[]
  readonly #buckets: readonly TravellingBucket[]
  /** By bucket of the step under way, as far as they have come. */
  #reduced: Promise<void>[] = []
  #updated: Promise<void>[] = []
  #notes = new StepNotes(0)
  #onMark: OnMark | undefined

  constructor(exchange: GradientExchange, prepared: Prepared, port: DevicePort, clock: StepClock) {
    this.#exchange = exchange
    this.#prepared = prepared
    this.#port = port
    this.#clock = clock
    this.#averaged = averagedOutputs(exchange, prepared)
    invariant(this.#averaged.length <= tailElements, () => 'more scalar outputs than a tail holds')
    this.#buckets = prepared.updates.map(({ update: { bucket } }) => ({
      ...bucket.ownSlice(exchange),
      gradients: new Float32Array(bucket.wireElements),
      parameters: new Float32Array(bucket.wireElements),
    }))
  }

  begin(onMark: OnMark | undefined): void {
    const { own } = this.#exchange.flags
    this.#notes = this.#prepared.trace.weighing?.stepNotes(own) ?? new StepNotes(own)
    this.#onMark = onMark
    this.#reduced = []
    this.#updated = []
  }

  /** Takes a bucket through exchange, and update where buckets do not wait for each other: the device has its part of backward. */
  take(index: number): void {
    const reduced = this.#reduce(index)
    reduced.catch(() => undefined)
    this.#reduced[index] = reduced
    if (this.#prepared.joint.length > 0) return
    const updated = reduced.then(() => this.#update(index))
    updated.catch(() => undefined)
    this.#updated[index] = updated
  }

  /**
   * Resolves when all buckets are updated on all ranks, each of which has been taken.
   *
   * errors: the exchange's, the device's; `graph.misuse` where the ranks' weights do not add up, before anything is updated.
   */
  async end(): Promise<void> {
    const shared = this.#share()
    // Until the buckets are done; a failure of theirs comes first.
    shared.catch(() => undefined)
    try {
      if (this.#prepared.joint.length > 0) {
        await Promise.all(this.#reduced)
        await this.#agree()
        this.#updated = this.#buckets.map((_, index) => this.#update(index))
      }
      await Promise.all(this.#updated)
    } catch (error) {
      // The group stays usable where ranks refuse a step, so nothing of it may be under way in the next one.
      const { refusal } = this.#notes
      if (refusal) {
        noteOnAllRanks(refusal)
        await Promise.allSettled([...this.#reduced, shared])
      }
      throw error
    }
    await shared
    this.#exchange.flags.sum = this.#notes.flags
  }

  /** The outputs with every averaged scalar replaced by its weighted mean over ranks. */
  averageOutputs(outputs: RunOutputs): RunOutputs {
    const tail = this.#tailOf(this.#buckets[0].parameters)
    for (const [i, output] of this.#averaged.entries())
      outputs[this.#prepared.outputs[output].name][0] = tail[i] * this.#notes.outputs
    return outputs
  }

  /** Sums a bucket over ranks; this rank's slice of the sum goes back to the device. */
  async #reduce(index: number): Promise<void> {
    const { gradients, start, end } = this.#buckets[index]
    await this.#port.readGradients(index, gradients)
    this.#mark(`bucket ${index} on the host`)
    if (index === 0) this.#weighTail(this.#tailOf(gradients))
    const { bucket } = this.#prepared.updates[index].update
    const place = { index, isLast: index === this.#buckets.length - 1 }
    await this.#clock.exchange((onAllBegun) =>
      this.#exchange.reduceGradients(bucket, place, gradients, this.#notes, () => {
        onAllBegun()
        this.#mark(`bucket ${index} met for reduceScatter`)
      }),
    )
    await this.#port.whenBehind(index)
    bucket.gradientPool.write(gradients.subarray(start, end), start)
    this.#mark(`bucket ${index} reduced`)
  }

  /** Runs the joint segments; ranks' numbers are joined in the order of ranks. */
  async #agree(): Promise<void> {
    for (const [index, { reductions }] of this.#prepared.joint.entries()) {
      const own = await this.#port.runJoint(index)
      if (reductions.length === 0) continue
      const all = await this.#clock.exchange((onAllBegun) =>
        this.#exchange.gatherScalars(index, own, onAllBegun),
      )
      for (const [pair, reduction] of reductions.entries())
        this.#port.writeJoint(index, pair, joinRanks(reduction, all, pair, reductions.length))
    }
    this.#port.endJoint()
  }

  /** Updates this rank's slice and gathers the others'. */
  async #update(index: number): Promise<void> {
    const { gradients, parameters, start, end } = this.#buckets[index]
    await this.#port.update(index, parameters.subarray(start, end), start)
    const { elements, parameterPool } = this.#prepared.updates[index].update.bucket
    parameters.set(gradients.subarray(elements), elements)
    await this.#clock.exchange((onAllBegun) =>
      this.#exchange.allGather(index, parameters, () => {
        onAllBegun()
        this.#mark(`bucket ${index} met for allGather`)
      }),
    )
    parameterPool.write(parameters.subarray(0, start))
    parameterPool.write(parameters.subarray(end, elements), end)
    this.#mark(`bucket ${index} gathered`)
  }

  /** Spreads the root's buffers to all ranks. */
  async #share(): Promise<void> {
    const { shared, memory } = this.#port
    if (shared.length === 0) return
    const isRoot = this.#exchange.bufferRoot === this.#exchange.rank
    const words = new Float32Array(shared.length)
    if (isRoot) await this.#port.readShared(words)
    await this.#clock.exchange((onAllBegun) => this.#exchange.broadcastBuffers(words, onAllBegun))
    if (!isRoot) writeBuffers(memory, shared, words)
  }

  /** Returns the words that travel behind the first bucket. */
  #tailOf(data: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
    return data.subarray(this.#prepared.updates[0].update.bucket.elements)
  }

  #weighTail(tail: Float32Array): void {
    const weight = this.#port.scalars[this.#prepared.trace.scalars.named(gradientWeight, 1).slot]
    for (const i of this.#averaged.keys()) {
      // What counts for nothing may be a mean over nothing.
      tail[i] = weight === 0 ? 0 : tail[i] * weight
    }
  }

  #mark(name: string): void {
    this.#onMark?.(name, performance.now())
  }
}

/**
 * Combines the [value, flag] pairs of all ranks, in the order of ranks: the same bits on each.
 *
 * `all` holds `count` pairs of each rank, rank after rank; those at `index` belong to this reduction.
 */
function joinRanks(
  { join }: JointReduction,
  all: Float32Array,
  index: number,
  count: number,
): Float32Array<ArrayBuffer> {
  let value = 0
  let flag = 0
  for (let at = jointElements * index; at < all.length; at += jointElements * count) {
    value = join === 'sum' ? value + all[at] : Math.max(value, all[at])
    flag = Math.max(flag, all[at + 1])
  }
  return Float32Array.of(value, flag)
}
