import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { nonGroupMember } from '../../peer/group/non-group-member.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { defaultGroup } from './default-group.ts'
import { type GroupArgument, groupOf } from './group-of.ts'
import { placeOf } from './place-of.ts'

/** As torch.distributed.GroupMember. */
export const GroupMember = {
  /** All ranks; undefined without a default group. */
  get WORLD(): ProcessGroup | undefined {
    return defaultGroup()
  },
  /** What `newGroup` gives to ranks outside of the group. */
  NON_GROUP_MEMBER: nonGroupMember,
} as const

/** This rank's number in the group, by default among all; -1 outside of it. errors: `graph.misuse` without a default group. */
export const getRank = (group?: GroupArgument): number =>
  group === nonGroupMember ? -1 : groupOf('getRank', group)!.rank

/** How many ranks the group has, by default all; -1 outside of it. errors: `graph.misuse` without a default group. */
export const getWorldSize = (group?: GroupArgument): number =>
  group === nonGroupMember ? -1 : groupOf('getWorldSize', group)!.size

/** All ranks of a group, as they count among all. errors: `graph.misuse` for a group that was destroyed. */
export const getProcessGroupRanks = (group: CollectiveGroup): number[] => [
  ...groupOf('getProcessGroupRanks', group)!.ranks,
]

/** The number in a group of a rank that counts among all. errors: `peer.mismatch` for one outside of it; `graph.misuse` for a group that was destroyed. */
export const getGroupRank = (group: CollectiveGroup, globalRank: number): number =>
  placeOf('getGroupRank', groupOf('getGroupRank', group)!, globalRank)

/** The number among all of a rank that counts in a group. errors: `peer.mismatch` for one that it has not; `graph.misuse` for a group that was destroyed. */
export function getGlobalRank(group: CollectiveGroup, groupRank: number): number {
  const rank = groupOf('getGlobalRank', group)!.ranks[groupRank]
  if (rank !== undefined) return rank
  throw new PeerError(
    'peer.mismatch',
    `getGlobalRank: expected a rank in the group from 0 to ${group.size - 1}, got ${groupRank}. It counts in the group.`,
  )
}

/**
 * How the group's ranks are linked, as `initProcessGroup` was told: `auto` where that was left to it, `links` where they were made by hand.
 *
 * errors: `config.invalid` outside of the group, `graph.misuse` without a default group.
 */
export function getBackend(group?: GroupArgument): string {
  if (group === nonGroupMember) {
    throw new TabringError(
      'config.invalid',
      'getBackend: expected a group that this rank is in, got GroupMember.NON_GROUP_MEMBER. Ask on its members.',
    )
  }
  return groupOf('getBackend', group)!.backend
}
