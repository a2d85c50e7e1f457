/** What `newGroup` gives to ranks outside of the group: torch.distributed's GroupMember.NON_GROUP_MEMBER. */
export const nonGroupMember: unique symbol = Symbol('GroupMember.NON_GROUP_MEMBER')
export type NonGroupMember = typeof nonGroupMember
