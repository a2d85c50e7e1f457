import type { ProcessGroup } from '../peer/group.ts'
import { nonGroupMember } from '../peer/non-group-member.ts'
import { TabringError } from '../util/errors.ts'
import { type GroupArgument, groupOf } from './group-of.ts'
import { defaultGroup } from './process-group.ts'

/** As torch.distributed.GroupMember. */
export const GroupMember = {
  /** All ranks; undefined without a default group. */
  get WORLD(): ProcessGroup | undefined {
    return defaultGroup()
  },
  /** What `newGroup` gives to ranks outside of the group. */
  NON_GROUP_MEMBER: nonGroupMember as typeof nonGroupMember,
} as const

/** This rank's number in the group, by default among all; -1 outside of it. errors: `graph.misuse` without a default group. */
export const getRank = (group?: GroupArgument): number =>
  group === nonGroupMember ? -1 : groupOf('getRank', group)!.rank

/** How many ranks the group has, by default all; -1 outside of it. errors: `graph.misuse` without a default group. */
export const getWorldSize = (group?: GroupArgument): number =>
  group === nonGroupMember ? -1 : groupOf('getWorldSize', group)!.size

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
