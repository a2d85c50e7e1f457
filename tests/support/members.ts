import type { CollectiveGroup } from '../../src/peer/group/collective-group.ts'
import { type NonGroupMember, nonGroupMember } from '../../src/peer/group/non-group-member.ts'

/** The group on its members; undefined on ranks outside. */
export const ifMember = (group: CollectiveGroup | NonGroupMember): CollectiveGroup | undefined =>
  group === nonGroupMember ? undefined : group
