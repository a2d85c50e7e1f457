import { type CollectiveGroup, destroyed } from '../../peer/group/collective-group.ts'
import { type NewGroupOptions, ProcessGroup } from '../../peer/group/group.ts'
import { type NonGroupMember, nonGroupMember } from '../../peer/group/non-group-member.ts'
import { setDefaultRanks } from '../../util/default-ranks.ts'
import { TabringError } from '../../util/errors.ts'
import { type Joined, joinedName } from '../launcher/joined.ts'
import { tellLauncher } from '../launcher/tell-launcher.ts'

/** As torch.distributed, each context has one default group: this module keeps it, and knows no way to form one. */

let current: ProcessGroup | undefined
let joining: AbortController | undefined

/**
 * Makes what `form` gives the default group. `form` hears by its signal when `destroyProcessGroup` was called meanwhile.
 *
 * errors: `graph.misuse` when a group is there already; `peer.aborted` when it was destroyed meanwhile; those of `form`.
 */
export async function makeDefault(
  form: (ended: AbortSignal) => Promise<ProcessGroup>,
): Promise<ProcessGroup> {
  if (current || joining) {
    throw new TabringError(
      'graph.misuse',
      `initProcessGroup: this rank is in a group${current ? ` of ${current.size}` : ''} already. Call destroyProcessGroup() first.`,
    )
  }
  const abort = new AbortController()
  joining = abort
  try {
    const group = await form(abort.signal)
    if (abort.signal.aborted) {
      group.destroy()
      throw abort.signal.reason
    }
    current = group
    setDefaultRanks(group)
    tellLauncher(joinedName, { rank: group.rank, worldSize: group.size } satisfies Joined)
    return group
  } finally {
    if (joining === abort) joining = undefined
  }
}

/** The default group. errors: `graph.misuse` before initProcessGroup, beginning with `where`. */
export function getProcessGroup(where = 'process group'): ProcessGroup {
  if (!current) {
    throw new TabringError(
      'graph.misuse',
      `${where}: expected a process group, got none. Call initProcessGroup() first, also for one rank.`,
    )
  }
  return current
}

/** The default group, if there is one. */
export const defaultGroup = (): ProcessGroup | undefined => current

/** Whether there is a default group. */
export const isInitialized = (): boolean => current !== undefined

/**
 * A group of some ranks, or without an argument of all; `GroupMember.NON_GROUP_MEMBER` on the others, whose calls with it do nothing. As
 * torch.distributed.new_group: all ranks call it alike and in the same order. Links are the default group's, and so is how long a collective may
 * stand still, but for `timeoutMs`.
 *
 * errors: see `ProcessGroup.newGroup`.
 */
export const newGroup = (
  ranks?: readonly number[] | null,
  options?: NewGroupOptions,
): Promise<CollectiveGroup | NonGroupMember> =>
  getProcessGroup('newGroup').newGroup(ranks ?? undefined, options)

/**
 * Leaves the default group in good order, with all groups made of it, and ends a joining that is under way; a no-op when there is none.
 *
 * All ranks call it: each waits until the others have what it sent, and leave too, at most 6 s. The group is gone from here at once. With a
 * `group` that `newGroup` made it ends that one alone, when what it has under way has ended; with one of `formProcessGroup` it leaves that.
 * errors: `graph.misuse` for a smaller group that was destroyed already.
 */
export async function destroyProcessGroup(given?: CollectiveGroup | NonGroupMember): Promise<void> {
  if (given === nonGroupMember) return
  if (given && given !== current) {
    if (given instanceof ProcessGroup) return given.leave()
    if (given.isDestroyed) throw destroyed('destroyProcessGroup', given)
    return given.retire()
  }
  const group = current
  current = undefined
  setDefaultRanks(undefined)
  joining?.abort(
    new TabringError('peer.aborted', 'initProcessGroup: destroyProcessGroup() was called.'),
  )
  joining = undefined
  await group?.leave()
}
