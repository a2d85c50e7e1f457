import { type AnyRuntime, checkRuntime } from '../../graph/memory/runtime.ts'
import { Bucket } from '../../graph/trace/bucket.ts'
import { TracedTensor } from '../../graph/trace/tensor.ts'
import { GraphValue } from '../../graph/trace/value.ts'
import { formatHash } from '../../kernels/hash/hash-words.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { PeerError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { checkArgument, checkList } from '../../util/options.ts'
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
    if (runtime) checkRuntime('ReplicaCheck.create', runtime)
    const isBucket = (one: unknown) => one instanceof Bucket
    checkList('ReplicaCheck.create', 'buckets', buckets, isBucket, 'buckets of a step')
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

  /** Compares the hashes of all ranks. errors: `train.diverged`, naming the step, the first bad bucket and the hash of each rank. */
  async compare(group: CollectiveGroup, step: number): Promise<void> {
    checkArgument(
      'ReplicaCheck.compare',
      'group',
      group,
      group instanceof CollectiveGroup,
      'a group',
    )
    if (group.size === 1) return
    const own = await this.hashes()
    const all = await group.allGatherU32(own, { label: 'verifySync' })
    for (const [i, { index, parameters }] of this.#buckets.entries()) {
      const hashes = Array.from({ length: group.size }, (_, rank) =>
        formatHash([all[rank * own.length + 2 * i], all[rank * own.length + 2 * i + 1]]),
      )
      const difference = describeDifference(hashes)
      if (difference === undefined) continue
      throw new PeerError(
        'train.diverged',
        `replicas: after step ${step} bucket ${index} (${parameters[0].name} and ${parameters.length - 1} more) ${difference}`,
      )
    }
  }

  /** Frees the device memory. */
  destroy(): void {
    this.#hashes.destroy()
  }
}

/** Says which ranks have which hash, and which are wrong if most ranks agree; undefined where all agree. `hashes`: by rank. */
export function describeDifference(hashes: readonly string[]): string | undefined {
  const ranksOf = new Map<string, number[]>()
  hashes.forEach((hash, rank) => {
    ranksOf.set(hash, [...(ranksOf.get(hash) ?? []), rank])
  })
  if (ranksOf.size < 2) return undefined
  const [[max, right], ...others] = [...ranksOf].sort(([, a], [, b]) => b.length - a.length)
  const each = others.map(([hash, ranks]) => `${hash} on ${formatRanks(ranks)}`).join(', ')
  const found = `hashes to ${max} on ${formatRanks(right)}, but to ${each}.`
  if (2 * right.length <= hashes.length)
    return `${found} A device computed or kept wrong bits, and the hashes do not tell which. Restart, with other devices if it happens again.`
  const wrong = others.flatMap(([, ranks]) => ranks).sort((a, b) => a - b)
  return `${found} ${formatRanks(wrong).replace('r', 'R')} computed or kept wrong bits. Restart without ${wrong.length === 1 ? 'it' : 'them'}.`
}
