import { poolAlignment } from '../../graph/memory/pool.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import type { BucketPlace } from '../../graph/trace/exchange.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { type ChunkRange, chunkRange } from '../../peer/algorithms/plan.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import { Float16Bits } from '../../peer/collective/float16-bits.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { invariant } from '../../util/errors.ts'
import { halfValue } from '../../util/half.ts'
import { keys } from './collective-keys.ts'
import { addBrain, encodeBrain, type WireType } from './wire-numbers.ts'

/** The keys that a bucket's hook may take, one after the other. */
interface HookKeys extends Pick<CollectiveOptions, 'choice'> {
  readonly sequence: number
  onstarted: (() => void) | undefined
  taken: number
}

/** Contents of a bucket: gradients as the step has weighed them, which sum up to the mean, or `size` times that, whose mean it is. */
interface Content {
  scale: 'weighed' | 'whole' | 'taken'
}

/**
 * A bucket of gradients, as a communication hook gets it, with collectives for which the hook needs no keys.
 *
 * As in PyTorch it holds this rank's own gradients, and the hook is to average them over the ranks. If ranks have unequal weights in the
 * step, the gradients are already scaled by them. Parameters start at multiples of 64 elements; the padding is 0.
 */
export class GradBucket {
  readonly rank: number
  readonly size: number
  readonly #group: CollectiveGroup
  readonly #bucket: Bucket
  readonly #place: BucketPlace
  readonly #buffer: Float32Array<ArrayBuffer>
  readonly #keys: HookKeys
  readonly #wire: WireType | undefined
  readonly #content: Content

  constructor(
    group: CollectiveGroup,
    bucket: Bucket,
    place: BucketPlace,
    buffer: Float32Array<ArrayBuffer>,
    {
      sequence,
      onstarted,
      choice,
    }: Pick<CollectiveOptions, 'onstarted' | 'choice'> & { sequence: number },
    wire?: { readonly number: WireType; readonly keys: HookKeys; readonly content: Content },
  ) {
    this.rank = group.rank
    this.size = group.size
    this.#group = group
    this.#bucket = bucket
    this.#place = place
    this.#buffer = buffer
    this.#keys = wire?.keys ?? { sequence, onstarted, choice, taken: 0 }
    this.#wire = wire?.number
    this.#content = wire?.content ?? { scale: 'weighed' }
  }

  /** Returns its position in the step's order of exchange. */
  index(): number {
    return this.#place.index
  }

  /** Returns whether it is the last bucket of the step. */
  isLast(): boolean {
    return this.#place.isLast
  }

  /** Returns this rank's gradients. A hook may change them in place and return them. */
  buffer(): Float32Array<ArrayBuffer> {
    if (this.#content.scale === 'weighed') {
      this.#content.scale = 'whole'
      for (let i = 0; i < this.#buffer.length; i++) this.#buffer[i] *= this.size
    }
    return this.#buffer
  }

  /**
   * @internal The buffer divided by the ranks, for a hook that makes sums of it: the very bits that the step has weighed, unless a hook
   * around it has looked. From then on the buffer stays as it is.
   */
  weighed(): Float32Array<ArrayBuffer> {
    if (this.#content.scale === 'whole')
      for (let i = 0; i < this.#buffer.length; i++) this.#buffer[i] /= this.size
    this.#content.scale = 'taken'
    return this.#buffer
  }

  /** Returns the parameters of the bucket. */
  parameters(): readonly Parameter[] {
    return this.#bucket.parameters
  }

  /** Returns a view of the buffer for each parameter. */
  gradients(): Float32Array<ArrayBuffer>[] {
    const { parameters, starts } = this.#bucket
    const buffer = this.buffer()
    return parameters.map(({ count }, i) => buffer.subarray(starts[i], starts[i] + count))
  }

  /** Returns the range that a rank updates; only this range of its hook's result is used. units: elements. */
  ownRange(rank = this.rank): ChunkRange {
    const { elements, wireElements } = this.#bucket
    const { start, end } = chunkRange(wireElements, this.size, rank, poolAlignment)
    return { start: Math.min(start, elements), end: Math.min(end, elements) }
  }

  /** Returns the same bucket with sums that travel as 16-bit numbers. */
  withWireType(number: WireType): GradBucket {
    const { sequence, onstarted } = this.#keys
    const wire = { number, keys: this.#keys, content: this.#content }
    return new GradBucket(
      this.#group,
      this.#bucket,
      this.#place,
      this.#buffer,
      { sequence, onstarted },
      wire,
    )
  }

  /** Returns the sum of `values` over the ranks, with the same bits on each. All ranks pass the same number of values. errors: `peer.*`. */
  async allReduce(values: Float32Array): Promise<Float32Array<ArrayBuffer>> {
    if (this.#wire === 'f16') {
      const halves = Float16Bits.encode(values)
      await this.#group.allReduce(halves, this.reserveKeys())
      return halves.decode()
    }
    if (this.#wire === 'bf16') {
      const all = await this.gatherBytes(encodeBrain(values))
      const sum = new Float32Array(values.length)
      for (const bytes of all) addBrain(bytes, sum)
      return sum
    }
    const sum = Float32Array.from(values)
    await this.#group.allReduce(sum, this.reserveKeys())
    return sum
  }

  /** Returns the buffer with the sum over the ranks in this rank's range, and this rank's own gradients elsewhere. errors: `peer.*`. */
  async reduceScatter(): Promise<Float32Array<ArrayBuffer>> {
    const buffer = this.buffer()
    const sum = Float32Array.from(buffer)
    const { start, end } = this.ownRange()
    // Cut as parameters are, which travel with a tail.
    const { wireElements } = this.#bucket
    const options = () => ({ ...this.reserveKeys(), alignment: poolAlignment })
    if (this.#wire === 'f16') {
      const halves = new Float16Bits(wireElements)
      halves.set(Float16Bits.encode(buffer))
      await this.#group.reduceScatter(halves, options())
      for (let i = start; i < end; i++) sum[i] = halfValue(halves[i])
    } else if (this.#wire === 'bf16') {
      const all = await this.allToAllRanges((range) =>
        encodeBrain(buffer.subarray(range.start, range.end)),
      )
      const own = sum.subarray(start, end).fill(0)
      for (const bytes of all) addBrain(bytes, own)
    } else {
      const padded = new Float32Array(wireElements)
      padded.set(buffer)
      await this.#group.reduceScatter(padded, options())
      sum.set(padded.subarray(start, end), start)
    }
    return sum
  }

  /**
   * Returns what `encode` of each rank, including this one, returned for this rank's range, in rank order.
   *
   * `encode` returns the elements of a range as bytes, of the same length on each rank.
   * cost: the bytes of the other ranks' ranges; in a ring N times as many. errors: `peer.*`.
   */
  async allToAllRanges(
    encode: (range: ChunkRange, rank: number) => Uint8Array<ArrayBuffer>,
  ): Promise<Uint8Array[]> {
    const parts = Array.from({ length: this.size }, (_, rank) => encode(this.ownRange(rank), rank))
    // Ranges differ by a unit of alignment at most, but for the last one, which has the tail: parts are as long as the longest.
    const slot = Math.max(...parts.map(({ length }) => length))
    const given = new Uint8Array(slot * this.size)
    for (const [rank, part] of parts.entries()) given.set(part, slot * rank)
    const taken = new Uint8Array(slot * this.size)
    await this.#group.allToAll(given, taken, this.reserveKeys())
    return parts.map((_, from) =>
      taken.subarray(slot * from, slot * from + parts[this.rank].length),
    )
  }

  /** Returns every rank's numbers, one rank after another. All ranks pass as many. cost: N - 1 times their bytes. errors: `peer.*`. */
  gatherNumbers(values: Float32Array<ArrayBuffer>): Promise<Float32Array<ArrayBuffer>> {
    return this.#group.allGatherConcat(values, this.reserveKeys())
  }

  /** Returns every rank's bytes, in rank order. cost: N - 1 times the longest. errors: `peer.*`. */
  gatherBytes(bytes: Uint8Array): Promise<Uint8Array[]> {
    return this.#group.allGatherBytes(bytes, this.reserveKeys(2))
  }

  /**
   * Reserves `count` keys and returns the first, for hooks that call the group's collectives directly. The hooks of all ranks must reserve the
   * same numbers of keys in the same order.
   */
  reserveKeys(count = 1): CollectiveOptions {
    const { sequence, onstarted, choice, taken } = this.#keys
    this.#keys.taken += count
    this.#keys.onstarted = undefined
    invariant(
      this.#keys.taken <= keys.hooksPerBucket,
      () => `a hook took more than ${keys.hooksPerBucket} collectives for a bucket`,
    )
    const bucket = keys.hooks + this.#place.index * keys.hooksPerBucket + taken
    return { sequence, bucket, onstarted, choice }
  }
}
