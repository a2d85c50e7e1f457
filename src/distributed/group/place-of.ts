import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { ArgumentTypeError, PeerError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { formatShape } from '../../util/shape.ts'

/** errors: a TypeError for what is no number, such as the options without the rank before them. */
export function checkRank(where: string, name: string, rank: number): void {
  if (typeof rank === 'number') return
  throw new ArgumentTypeError(
    `${where}: ${name} must be a number, got ${kindOf(rank)}. Pass a global rank, such as 0: it comes before the options.`,
  )
}

/** The place in the group of a rank among all. errors: `peer.mismatch`; a TypeError for what is no number. */
export function placeOf(where: string, name: string, group: CollectiveGroup, rank: number): number {
  const place = group.ranks.indexOf(rank)
  if (place >= 0) return place
  checkRank(where, name, rank)
  throw new PeerError(
    'peer.mismatch',
    `${where}: ${name} must be a rank of the group ${formatShape(group.ranks)}, got ${rank}. Pass the global rank.`,
  )
}
