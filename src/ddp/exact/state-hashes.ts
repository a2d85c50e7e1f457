import type { StoredData } from '../../graph/memory/pool.ts'
import { formatHash, hashWords } from '../../kernels/hash/hash-words.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { PeerError } from '../../util/errors.ts'
import { describeDifference } from '../hashes/replica-check.ts'

/** 64 bits, of the bits of arrays on the host, in order. `hash`: of one array, as `hashWords`. */
export const hashOf = (
  arrays: readonly StoredData[],
  hash: (words: Uint32Array) => [number, number] = hashWords,
): [number, number] =>
  hashWords(
    Uint32Array.from(
      arrays.flatMap(({ buffer, byteOffset, length }) =>
        hash(new Uint32Array(buffer, byteOffset, length)),
      ),
    ),
  )

/** Compares parts of the ranks' states by name: `hashOf` of each. errors: `train.diverged`, naming the step, the first part that differs and the hash of each rank. */
export async function compareStates(
  group: CollectiveGroup,
  step: number,
  parts: Readonly<Record<string, readonly StoredData[]>>,
  hash: (words: Uint32Array) => [number, number],
): Promise<void> {
  const own = Uint32Array.from(Object.values(parts).flatMap((arrays) => hashOf(arrays, hash)))
  const all = await group.allGatherU32(own, { label: 'exact state' })
  for (const [i, name] of Object.keys(parts).entries()) {
    const hashes = Array.from({ length: group.size }, (_, rank) =>
      formatHash(all.subarray(rank * own.length + 2 * i)),
    )
    const difference = describeDifference(hashes)
    if (difference === undefined) continue
    throw new PeerError('train.diverged', `replicas: after step ${step} the ${name} ${difference}`)
  }
}
