import { PeerError } from '../../util/errors.ts'
import type { CollectiveOptions } from '../collective/collectives.ts'

/** A group, as far as it gathers bytes. */
interface Gathering {
  readonly ranks: readonly number[]
  allGatherBytes(bytes: Uint8Array, options?: CollectiveOptions): Promise<Uint8Array[]>
}

/**
 * What every rank says, in rank order: anything that JSON holds. All ranks call it alike; `label` says what for, and ranks compare it.
 *
 * cost, errors: `allGatherBytes`'; `peer.protocol` for what is no JSON.
 */
export async function gatherJson<T>(
  label: string,
  group: Gathering,
  own: T,
  options: CollectiveOptions = {},
): Promise<T[]> {
  const bytes = new TextEncoder().encode(JSON.stringify(own))
  const told = await group.allGatherBytes(bytes, { label, ...options })
  return told.map((bytes, rank): T => {
    try {
      return JSON.parse(new TextDecoder().decode(bytes))
    } catch (cause) {
      throw new PeerError(
        'peer.protocol',
        `${label}: rank ${group.ranks[rank]} sent ${bytes.length} bytes that are not JSON. Call the same functions on all ranks.`,
        { cause },
      )
    }
  })
}
