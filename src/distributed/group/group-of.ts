import { destroyed } from '../../peer/group/collective-checks.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { type NonGroupMember, nonGroupMember } from '../../peer/group/non-group-member.ts'
import { ArgumentTypeError, TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { defaultGroup, getProcessGroup } from './default-group.ts'

/** A group argument, as in torch.distributed: undefined is the default group; `GroupMember.NON_GROUP_MEMBER` makes the call do nothing. */
export type GroupArgument = CollectiveGroup | NonGroupMember | undefined

/** The group of what trains or saves together, by default all ranks'. errors: `config.invalid` on a rank outside of it, and as `groupOf`. */
export function memberGroup<Group extends CollectiveGroup>(
  where: string,
  group: Group | undefined,
): Group | ProcessGroup {
  if ((group as GroupArgument) === nonGroupMember) {
    throw new TabringError(
      'config.invalid',
      `${where}: this rank is not in the processGroup (GroupMember.NON_GROUP_MEMBER). Call it only on members of the group.`,
    )
  }
  return groupOf(where, group) as Group | ProcessGroup
}

/** Calls for which a rank outside the group has been warned: once each. */
const warned = new Set<string>()

/**
 * The group that a call is for; undefined on a rank outside of it, which has nothing to do; logs that once.
 *
 * errors: `graph.misuse` where there is no default group, or the group was destroyed; a TypeError for another value.
 */
export function groupOf(where: string, group: GroupArgument): CollectiveGroup | undefined {
  if (group === undefined || group === null) return getProcessGroup(where)
  if (group instanceof CollectiveGroup) {
    if (group.isDestroyed) throw destroyed(where, group)
    return group
  }
  if (group !== nonGroupMember) {
    throw new ArgumentTypeError(
      `${where}: expected a group, GroupMember.NON_GROUP_MEMBER or undefined for all ranks, got ${kindOf(group)}. Pass what newGroup() returned.`,
    )
  }
  if (!warned.has(where)) {
    warned.add(where)
    console.warn(
      `tabring: ${where} does nothing on rank ${defaultGroup()?.rank ?? -1}, which is not in the given group.`,
    )
  }
  return undefined
}
