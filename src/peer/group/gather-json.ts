import { PeerError } from '../../util/errors.ts'
import type { CollectiveOptions } from '../collective/collectives.ts'

/** A group, as far as it gathers bytes. */
interface Gathering {
  readonly ranks: readonly number[]
  allGatherBytes(bytes: Uint8Array, options?: CollectiveOptions): Promise<Uint8Array[]>
}

/**
 * Gathers a value of every rank, in rank order: anything that JSON holds. All ranks call it in the same order; `label` says what for, and ranks compare
 * it. `isRight`: whether a rank may say that. It also gets what a hostile rank sends.
 *
 * cost, errors: `allGatherBytes`'; `peer.protocol`, naming the rank, for what is no JSON or not right.
 */
export async function gatherJson<T>(
  label: string,
  group: Gathering,
  own: T,
  isRight: (received: unknown) => received is T,
  options: CollectiveOptions = {},
): Promise<T[]> {
  const bytes = new TextEncoder().encode(JSON.stringify(own))
  const received = await group.allGatherBytes(bytes, { label, ...options })
  return received.map((bytes, rank) => {
    const refuse = (what: string, cause?: unknown) =>
      new PeerError(
        'peer.protocol',
        `${label}: rank ${group.ranks[rank]} sent ${bytes.length} bytes that are not ${what}. Call the same functions on all ranks.`,
        { cause },
      )
    let value: unknown
    try {
      value = JSON.parse(new TextDecoder().decode(bytes))
    } catch (cause) {
      throw refuse('JSON', cause)
    }
    if (!isRight(value)) throw refuse(`what ${label} gathers`)
    return value
  })
}
