import type { CollectiveOptions, ProcessGroup } from '../../peer/group.ts'

/** How long a bucket is on the wire, at best: long enough that frames cost little, short enough that the next one can overlap it. units: ms. */
const targetMs = 35
const leastBytes = 64 * 2 ** 10
const mostBytes = 8 * 2 ** 20

const firstProbeBytes = 64 * 2 ** 10
const largeProbeBytes = 2 ** 20
/** Of which the fastest counts: what else goes on only slows one down. */
const probesOfASize = 3
/** Collectives of one measurement: two sizes of probes, and a word after each. */
export const probeKeys = 4 * probesOfASize

/** A bucket of so many bytes for links of `bytesPerMs`: 20 to 50 ms of it, from 64 KiB to 8 MiB, in whole KiB. */
export function bucketBytesFor(bytesPerMs: number): number {
  const bytes = Math.min(mostBytes, Math.max(leastBytes, bytesPerMs * targetMs))
  return Math.round(bytes / 2 ** 10) * 2 ** 10
}

/**
 * The size at which buckets close, of the rate at which this group's all-reduces go: the same number on all ranks, that of the slowest.
 *
 * cost: 3 all-reduces of 64 KiB, on links that take them in under 10 ms also 3 of 1 MiB; 4 bytes a rank after each. errors: the group's.
 */
export async function measureBucketBytes(
  group: ProcessGroup,
  options: readonly CollectiveOptions[],
  now: () => number = () => performance.now(),
): Promise<number> {
  if (group.size === 1) return mostBytes
  const left = [...options]
  const probe = async (bytes: number): Promise<number> => {
    let best = Number.POSITIVE_INFINITY
    for (let i = 0; i < probesOfASize; i++) {
      const began = now()
      // By the ring, of which it is known how much goes over each link.
      await group.allReduce(new Float32Array(bytes / 4), { ...left.shift(), algorithm: 'ring' })
      const micros = Math.max(1, Math.round((now() - began) * 1000))
      // The slowest rank's word is everybody's; it also keeps a fast rank from beginning the next probe early.
      const all = await group.allGatherU32(Uint32Array.of(micros), left.shift())
      best = Math.min(best, Math.max(...all) / 1000)
    }
    return best
  }
  const sentOf = (bytes: number) => (2 * (group.size - 1) * bytes) / group.size
  const firstMs = await probe(firstProbeBytes)
  if (firstMs > 10) return bucketBytesFor(sentOf(firstProbeBytes) / firstMs)
  return bucketBytesFor(sentOf(largeProbeBytes) / (await probe(largeProbeBytes)))
}
