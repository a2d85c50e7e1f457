/** Returned by `newGroup` on ranks outside the group: torch.distributed's GroupMember.NON_GROUP_MEMBER. */
export const nonGroupMember = 'GroupMember.NON_GROUP_MEMBER'
// A literal: TypeScript widens a unique symbol in `[await newGroup(ranks)]`, and does not narrow objects by `===`.
/** Type of `GroupMember.NON_GROUP_MEMBER`. */
export type NonGroupMember = typeof nonGroupMember
