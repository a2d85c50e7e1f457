import type { Bucket } from '../../graph/bucket.ts'
import {
  type BucketPlace,
  type GradientExchange,
  type Meeting,
  type StepLayout,
  type UnevenInputs,
  Unsettled,
} from '../../graph/exchange.ts'
import type { Parameter } from '../../graph/parameter.ts'
import { poolAlignment } from '../../graph/pool.ts'
import type { StepProgram } from '../../graph/step-program.ts'
import type { ProcessGroup } from '../../peer/group.ts'
import { chunkRange } from '../../peer/plan.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { gatherTexts } from '../gather-texts.ts'
import { firstDifference, formatRanks, gatherLists } from './check-replicas.ts'
import { GradBucket } from './grad-bucket.ts'
import { keys, setupKeys } from './keys.ts'

/** A communication hook with its state. */
export type BoundHook = (bucket: GradBucket) => Float32Array | Promise<Float32Array>

export interface RingExchangeOptions {
  readonly parameters: readonly Parameter[]
  readonly firstBucketCapBytes: number
  readonly findsUnused: boolean
}

/**
 * The ring as step programs see it: collectives keyed by step and bucket, so that ranks may launch them in different orders.
 *
 * The group numbers the steps, of all models that train in it: one that is made anew in the same group, as where a run goes back for a
 * loss that is no number, uses no key a second time.
 */
export class RingExchange implements GradientExchange {
  readonly rank: number
  readonly size: number
  readonly parameters: readonly Parameter[]
  readonly findsUnused: boolean
  readonly programs = new Map<number, StepProgram>()
  uneven: UnevenInputs | undefined
  ready: Promise<void> = Promise.resolve()
  /** Once it is settled. */
  capBytes: number | undefined
  hook: BoundHook | undefined
  /** How many `noSync` are under way: they may overlap. */
  pauses = 0
  readonly #group: ProcessGroup
  readonly #firstCapBytes: number
  /** Of the step under way. */
  #sequence = 0
  #programCount = 0

  constructor(group: ProcessGroup, options: RingExchangeOptions) {
    this.rank = group.rank
    this.size = group.size
    this.parameters = options.parameters
    this.findsUnused = options.findsUnused
    this.#firstCapBytes = options.firstBucketCapBytes
    this.#group = group
  }

  get bucketCapBytes(): number {
    if (this.capBytes === undefined) throw new Unsettled('the size of buckets', this.ready)
    return this.capBytes
  }

  get firstBucketCapBytes(): number {
    return Math.min(this.#firstCapBytes, this.bucketCapBytes)
  }

  get isSynchronizing(): boolean {
    return this.pauses === 0
  }

  get bufferRoot(): number {
    return this.uneven?.root ?? 0
  }

  chunk(length: number, rank: number): { start: number; end: number } {
    return chunkRange(length, this.size, rank, poolAlignment)
  }

  get nextSequence(): number {
    return this.#group.nextSequence
  }

  countProgram(): number {
    return this.#programCount++
  }

  beginStep(): void {
    this.#sequence = this.#group.takeSequence()
  }

  async reduceGradients(
    bucket: Bucket,
    place: BucketPlace,
    data: Float32Array<ArrayBuffer>,
    onmet?: () => void,
  ): Promise<void> {
    const { hook } = this
    if (!hook) return this.#group.reduceScatter(data, this.#key(place.index, onmet))
    const sequence = this.#sequence
    const { elements } = bucket
    const tail = data.slice(elements)
    const gradients = new GradBucket(this.#group, bucket, place, data.slice(0, elements), {
      sequence,
      onmet,
    })
    const [reduced] = await Promise.all([
      hook(gradients),
      place.index === 0
        ? this.#group.allReduce(tail, { sequence, bucket: keys.tail })
        : Promise.resolve(),
    ])
    if (!(reduced instanceof Float32Array) || reduced.length !== elements) {
      const got =
        reduced instanceof Float32Array ? `${reduced.length} elements` : kindOf(reduced as unknown)
      throw new TabringError(
        'graph.misuse',
        `registerCommHook: the hook must give a Float32Array of the bucket's ${elements} elements, got ${got}. Return what bucket.buffer() becomes.`,
      )
    }
    data.set(reduced)
    data.set(tail, elements)
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

  gatherScalars(index: number, values: Float32Array<ArrayBuffer>, onmet?: () => void) {
    return this.#gatherFloats(keys.scalars + index, values, onmet)
  }

  async meet(
    index: number,
    values: Float32Array<ArrayBuffer>,
    meeting: Meeting,
    onmet?: () => void,
  ): Promise<Float32Array<ArrayBuffer>> {
    const bucket = keys.meetings + index
    if (meeting === 'gather') return this.#gatherFloats(bucket, values, onmet)
    const sum = values.slice()
    await this.#group.allReduce(sum, { sequence: this.#sequence, bucket, onmet })
    return sum
  }

  broadcastBuffers(words: Float32Array<ArrayBuffer>, onmet?: () => void): Promise<void> {
    const key = { sequence: this.#sequence, bucket: keys.buffers, onmet }
    return this.#group.broadcast(words, this.bufferRoot, key)
  }

  async settleLayout({ unused, buckets, meetings }: StepLayout): Promise<void> {
    const own = [JSON.stringify(unused), `${meetings} meetings`, ...buckets]
    const [key] = setupKeys(this.#group, 2)
    await this.ready
    const told = this.size > 1 ? await gatherLists(this.#group, own, key) : [own]
    const unusedOf = told.map(([names]): string[] => JSON.parse(names))
    if (!this.findsUnused && unusedOf.some((names) => names.length > 0)) throw unusedError(unusedOf)
    const difference = firstDifference(
      told.map(([, ...layout]) => layout),
      'no further bucket',
    )
    if (!difference) return
    throw new PeerError(
      'peer.mismatch',
      `compile: expected the same step on all ranks, got ${difference.told}. Compile the same function on all ranks, in the same order.`,
    )
  }

  async settleUsed(own: readonly Parameter[]): Promise<readonly Parameter[]> {
    const [key] = setupKeys(this.#group, 2)
    await this.ready
    const places = own.map((parameter) => String(this.parameters.indexOf(parameter)))
    const all = (await gatherLists(this.#group, places, key)).flat()
    return [...new Set(all)].map((place) => this.parameters[Number(place)])
  }

  async #gatherFloats(
    bucket: number,
    values: Float32Array<ArrayBuffer>,
    onmet: (() => void) | undefined,
  ): Promise<Float32Array<ArrayBuffer>> {
    const words = new Uint32Array(values.buffer, values.byteOffset, values.length)
    const key = { sequence: this.#sequence, bucket, onmet }
    const all = await this.#group.allGatherU32(words, key)
    return new Float32Array(Uint32Array.from(all).buffer)
  }

  #key(bucket: number, onmet: (() => void) | undefined) {
    return { sequence: this.#sequence, bucket, alignment: poolAlignment, onmet }
  }
}

function unusedError(unusedOf: readonly (readonly string[])[]): TabringError {
  const names = [...new Set(unusedOf.flat())]
  const told = names.map((name) => {
    const ranks = unusedOf.flatMap((own, rank) => (own.includes(name) ? [rank] : []))
    return `"${name}" on ${formatRanks(ranks)}`
  })
  return new TabringError(
    'graph.misuse',
    `DistributedDataParallel: expected a gradient for every parameter that requires one, got none for ${told.join(', ')}. Use them in the loss, freeze them with requiresGrad_(false), or wrap the model with findUnusedParameters: true.`,
  )
}
