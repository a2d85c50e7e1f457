import type { CollectiveGroup } from '../peer/collective-group.ts'
import { PeerError } from '../util/errors.ts'

/** The place in the group of a rank among all. errors: `peer.mismatch`. */
export function placeOf(where: string, group: CollectiveGroup, rank: number): number {
  const place = group.ranks.indexOf(rank)
  if (place >= 0) return place
  throw new PeerError(
    'peer.mismatch',
    `${where}: expected a rank of the group [${group.ranks.join(', ')}], got ${rank}. Ranks count among all ranks.`,
  )
}
