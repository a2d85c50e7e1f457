import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import { TracedTensor } from '../../graph/trace/tensor.ts'
import { GraphValue } from '../../graph/trace/value.ts'
import { formatHash } from '../../kernels/hash/hash-words.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { PeerError } from '../../util/errors.ts'
import { tensorType } from '../../util/shape.ts'
import { TensorHashes } from './tensor-hashes.ts'

/**
 * Compares the parameters of all ranks by one 64-bit hash per bucket, computed on the device.
 *
 * cost: one or two dispatches and 8 bytes per bucket on the device, 8 bytes per bucket and rank on the wire.
 */
export class ReplicaCheck {
  readonly #buckets: readonly Bucket[]
  readonly #hashes: TensorHashes

  private constructor(buckets: readonly Bucket[], hashes: TensorHashes) {
    this.#buckets = buckets
    this.#hashes = hashes
  }

  /** Creates a check. Call it after the training step has been compiled. `runtime`: that of the step; default: that of the default device. */
  static async create(
    runtime: AnyRuntime | undefined,
    buckets: readonly Bucket[],
  ): Promise<ReplicaCheck> {
    const pools = () =>
      buckets.map(({ elements, parameterPool: pool }) => {
        const value = new GraphValue(tensorType([elements]), { kind: 'pool', pool, start: 0 })
        return new TracedTensor(value)
      })
    return new ReplicaCheck(buckets, await TensorHashes.create(runtime, pools))
  }

  /** Returns this rank's hashes, two words per bucket, in bucket order. */
  hashes(): Promise<Uint32Array<ArrayBuffer>> {
    return this.#hashes.words()
  }

  /** Compares the hashes of all ranks. errors: `train.diverged`, naming the step, the first bad bucket and the ranks that differ from rank 0. */
  async compare(group: CollectiveGroup, step: number): Promise<void> {
    if (group.size === 1) return
    const own = await this.hashes()
    const all = await group.allGatherU32(own, { label: 'verifySync' })
    for (const [i, { index, parameters }] of this.#buckets.entries()) {
      const hashOf = (rank: number) =>
        formatHash([all[rank * own.length + 2 * i], all[rank * own.length + 2 * i + 1]])
      const others = Array.from({ length: group.size }, (_, rank) => rank).filter(
        (rank) => hashOf(rank) !== hashOf(0),
      )
      if (others.length === 0) continue
      throw new PeerError(
        'train.diverged',
        `replicas: after step ${step} bucket ${index} (${parameters[0].name} and ${parameters.length - 1} more) must hash to rank 0's ${hashOf(0)}, got ${others.map((rank) => `${hashOf(rank)} on rank ${rank}`).join(', ')}. A device computed or kept wrong bits; restart without that rank.`,
      )
    }
  }

  /** Frees the device memory. */
  destroy(): void {
    this.#hashes.destroy()
  }
}
