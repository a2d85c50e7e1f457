import { getProcessGroup } from '../distributed/process-group.ts'
import type { GradientExchange } from '../graph/exchange.ts'
import { poolAlignment } from '../graph/pool.ts'
import type { StoredTensor } from '../graph/stored-tensor.ts'
import type { Tensor } from '../graph/tensor.ts'
import { activeTrace } from '../graph/trace.ts'
import { Module } from '../nn/module.ts'
import type { ProcessGroup } from '../peer/group.ts'
import { chunkRange } from '../peer/plan.ts'
import { checkNumber, checkOptions } from '../util/options.ts'
import { gatherTexts } from './gather-texts.ts'

export interface DistributedDataParallelOptions {
  /** The ranks that train together; default: the group of `initProcessGroup`. */
  processGroup?: ProcessGroup
  /** Gradients travel in buckets of at most this many MiB; default 25, as in PyTorch. */
  bucketCapMb?: number
}

/**
 * A module whose copies on all ranks stay equal: gradients are averaged over ranks while backward runs.
 *
 * As torch.nn.parallel.DistributedDataParallel, with one difference: each rank updates its slice of the parameters and gathers the
 * rest, so that ranks with different adapters keep the same bits. Every rank must build the same module and compile the same steps;
 * where a group trains several modules, every rank begins their steps in the same order.
 * A compiled step weighs this rank by the step scalar `gradientWeight`, 1 / world size unless a run gives another share. Random masks
 * are those that one rank would draw for the same samples, if all ranks have equally many; else runs give `sampleOffset`.
 */
export class DistributedDataParallel extends Module {
  readonly module: Module
  /** Resolves when all ranks hold rank 0's parameters and buffers. errors: those of the group. */
  readonly ready: Promise<void>
  readonly #rank: number
  readonly #exchange: RingExchange

  constructor(module: Module, options: DistributedDataParallelOptions = {}) {
    super()
    this.module = module
    const name = 'DistributedDataParallel'
    checkOptions(name, options, { processGroup: true, bucketCapMb: true })
    checkNumber(name, 'bucketCapMb', options.bucketCapMb, (mb) => mb > 0, 'above 0')
    const group = options.processGroup ?? getProcessGroup()
    this.#rank = group.rank
    const parameters = module.parameters()
    this.ready = broadcast([...parameters, ...module.buffers()], group)
    // Compiling a step waits for it too and reports the error there; here it must not count as unhandled.
    this.ready.catch(() => undefined)
    this.#exchange = new RingExchange(group, (options.bucketCapMb ?? 25) * 2 ** 20, this.ready)
    for (const parameter of parameters) parameter.exchange = this.#exchange
  }

  forward(x: Tensor, ...others: unknown[]): Tensor {
    activeTrace('forward').rank = this.#rank
    return this.module.forward(x, ...others)
  }

  /**
   * Returns `fn()`; programs of `compileAccumulated` that run inside it add up their gradients and send nothing, the next one that runs
   * outside takes the sum, exchanges and updates.
   *
   * As torch's no_sync, on all ranks alike. `fn` may be asynchronous: await it. Wrong inside: runs that update.
   */
  noSync<R>(fn: () => R): R {
    const exchange = this.#exchange
    const leave = () => {
      exchange.pauses--
    }
    exchange.pauses++
    let result: R
    try {
      result = fn()
    } catch (error) {
      leave()
      throw error
    }
    if (result instanceof Promise) return result.finally(leave) as R
    leave()
    return result
  }
}

/** Copies rank 0's contents of the tensors to all ranks, as one message. */
async function broadcast(tensors: readonly StoredTensor[], group: ProcessGroup): Promise<void> {
  if (group.size === 1) return
  const total = tensors.reduce((sum, { count }) => sum + count, 0)
  const packed = new Float32Array(total)
  // Integers travel as their bits.
  const bits = new Int32Array(packed.buffer)
  let start = 0
  for (const tensor of tensors) {
    const data = await tensor.read()
    if (data instanceof Int32Array) bits.set(data, start)
    else packed.set(data, start)
    start += tensor.count
  }
  await group.broadcast(packed, 0)
  start = 0
  for (const tensor of tensors) {
    const array = tensor.dtype === 'i32' ? bits : packed
    tensor.assign(array.slice(start, start + tensor.count))
    start += tensor.count
  }
}

/** Keys above all buckets', below those that groups count for themselves. */
const firstScalarBucket = 50_000

/**
 * The ring as step programs see it: collectives keyed by step and bucket, so that ranks may launch them in different orders.
 *
 * The group numbers the steps, of all models that train in it: one that is made anew in the same group, as where a run goes back for a
 * loss that is no number, uses no key a second time.
 */
class RingExchange implements GradientExchange {
  readonly rank: number
  readonly size: number
  readonly bucketCapBytes: number
  readonly ready: Promise<void>
  /** How many `noSync` are under way: they may overlap. */
  pauses = 0
  readonly #group: ProcessGroup
  /** Of the step under way. */
  #sequence = 0

  constructor(group: ProcessGroup, bucketCapBytes: number, ready: Promise<void>) {
    this.rank = group.rank
    this.size = group.size
    this.bucketCapBytes = bucketCapBytes
    this.ready = ready
    this.#group = group
  }

  get isSynchronizing(): boolean {
    return this.pauses === 0
  }

  chunk(length: number, rank: number): { start: number; end: number } {
    return chunkRange(length, this.size, rank, poolAlignment)
  }

  get nextSequence(): number {
    return this.#group.nextSequence
  }

  beginStep(): void {
    this.#sequence = this.#group.takeSequence()
  }

  reduceScatter(bucket: number, data: Float32Array<ArrayBuffer>, onmet?: () => void) {
    return this.#group.reduceScatter(data, this.#key(bucket, onmet))
  }

  allGather(bucket: number, data: Float32Array<ArrayBuffer>, onmet?: () => void) {
    return this.#group.allGather(data, this.#key(bucket, onmet))
  }

  gather(data: Float32Array<ArrayBuffer>): Promise<void> {
    return this.#group.allGather(data, { alignment: poolAlignment })
  }

  gatherTexts(own: string): Promise<readonly string[]> {
    return gatherTexts(this.#group, own)
  }

  async gatherScalars(
    index: number,
    values: Float32Array<ArrayBuffer>,
    onmet?: () => void,
  ): Promise<Float32Array<ArrayBuffer>> {
    const words = new Uint32Array(values.buffer, values.byteOffset, values.length)
    const all = await this.#group.allGatherU32(words, {
      sequence: this.#sequence,
      bucket: firstScalarBucket + index,
      onmet,
    })
    return new Float32Array(Uint32Array.from(all).buffer)
  }

  #key(bucket: number, onmet: (() => void) | undefined) {
    return { sequence: this.#sequence, bucket, alignment: poolAlignment, onmet }
  }
}
