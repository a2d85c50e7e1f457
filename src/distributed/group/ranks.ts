import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { nonGroupMember } from '../../peer/group/non-group-member.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { defaultGroup } from './default-group.ts'
import { type GroupArgument, groupOf } from './group-of.ts'
import { placeOf } from './place-of.ts'

/** Special group values: torch.distributed.GroupMember. */
export const GroupMember = {
  /** The group of all ranks; undefined if there is no default group. */
  get WORLD(): ProcessGroup | undefined {
    return defaultGroup()
  },
  /** Returned by `newGroup` on ranks outside the group. */
  NON_GROUP_MEMBER: nonGroupMember,
} as const

/** Returns this rank's number in the group, by default its global rank; -1 outside the group. errors: `graph.misuse` if there is no default group. */
export const getRank = (group?: GroupArgument): number =>
  group === nonGroupMember ? -1 : groupOf('getRank', group)!.rank

/** Returns the number of ranks in the group, by default of all; -1 outside the group. errors: `graph.misuse` if there is no default group. */
export const getWorldSize = (group?: GroupArgument): number =>
  group === nonGroupMember ? -1 : groupOf('getWorldSize', group)!.size

/** Returns the global ranks of a group. errors: `graph.misuse` for a destroyed group. */
export const getProcessGroupRanks = (group: CollectiveGroup): number[] => [
  ...groupOf('getProcessGroupRanks', group)!.ranks,
]

/** Returns the number in a group of a global rank. errors: `peer.mismatch` for a rank outside the group; `graph.misuse` for a destroyed group. */
export const getGroupRank = (group: CollectiveGroup, globalRank: number): number =>
  placeOf('getGroupRank', 'globalRank', groupOf('getGroupRank', group)!, globalRank)

/** Returns the global rank of a rank of a group. errors: `peer.mismatch` for a number outside the group; `graph.misuse` for a destroyed group. */
export function getGlobalRank(group: CollectiveGroup, groupRank: number): number {
  const { ranks, size } = groupOf('getGlobalRank', group)!
  if (Number.isInteger(groupRank) && ranks[groupRank] !== undefined) return ranks[groupRank]
  throw new PeerError(
    'peer.mismatch',
    `getGlobalRank: groupRank must be a rank in the group from 0 to ${size - 1}, got ${quoted(groupRank)}. Pass the rank's number in the group.`,
  )
}

/**
 * Returns the `backend` option that `initProcessGroup` got: `auto` by default, `links` if the caller passed the links.
 *
 * errors: `config.invalid` outside the group; `graph.misuse` if there is no default group.
 */
export function getBackend(group?: GroupArgument): string {
  if (group === nonGroupMember) {
    throw new TabringError(
      'config.invalid',
      'getBackend: this rank is not in the group (GroupMember.NON_GROUP_MEMBER). Call it only on members of the group.',
    )
  }
  return groupOf('getBackend', group)!.backend
}
