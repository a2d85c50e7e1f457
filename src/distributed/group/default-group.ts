import { destroyed } from '../../peer/group/collective-checks.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { type NewGroupOptions, ProcessGroup } from '../../peer/group/group.ts'
import { type NonGroupMember, nonGroupMember } from '../../peer/group/non-group-member.ts'
import { callLauncher } from '../../util/call-launcher.ts'
import { clippedName } from '../../util/clipped.ts'
import { setDefaultRanks } from '../../util/default-ranks.ts'
import { TabringError } from '../../util/errors.ts'
import { checkArgument, checkText } from '../../util/options.ts'
import { type Joined, joinedName } from '../launcher/joined.ts'

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
      `initProcessGroup: this rank is already in a process group${current ? ` of ${current.size}` : ''}. Call destroyProcessGroup() first.`,
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
    callLauncher(joinedName, { rank: group.rank, worldSize: group.size } satisfies Joined)
    return group
  } finally {
    if (joining === abort) joining = undefined
  }
}

/** Returns the default group. `where` begins the error's text. errors: `graph.misuse` before `initProcessGroup`. */
export function getProcessGroup(where = 'process group'): ProcessGroup {
  if (!current) {
    checkText('getProcessGroup', 'where', where)
    throw new TabringError(
      'graph.misuse',
      `${clippedName(where)}: there is no default process group. Call initProcessGroup() first, even for one rank.`,
    )
  }
  return current
}

/** The default group, if there is one. */
export const defaultGroup = (): ProcessGroup | undefined => current

/** Returns whether a default group exists: torch.distributed.is_initialized. */
export const isInitialized = (): boolean => current !== undefined

/**
 * Creates a group of some ranks, or of all without an argument. Returns `GroupMember.NON_GROUP_MEMBER` on the other ranks, whose calls with it
 * do nothing.
 *
 * As torch.distributed.new_group: all ranks call it with the same arguments and in the same order. It uses the links of the default group, and
 * its collective timeout unless `timeoutMs` is given.
 *
 * errors: see `ProcessGroup.newGroup`.
 */
export const newGroup = (
  ranks?: readonly number[] | null,
  options?: NewGroupOptions,
): Promise<CollectiveGroup | NonGroupMember> =>
  getProcessGroup('newGroup').newGroup(ranks ?? undefined, options)

/**
 * Leaves the default group and all its subgroups, and cancels a pending `initProcessGroup`. Does nothing if there is no group.
 *
 * All ranks call it. Each waits, at most 6 s, until the others have received what it sent and leave too. This rank has no default group from
 * the moment of the call. With a group from `newGroup` it ends only that group, after its collectives in flight; with one from
 * `createProcessGroup` it leaves that group.
 * errors: `graph.misuse` for a subgroup that has already been destroyed.
 */
export async function destroyProcessGroup(group?: CollectiveGroup | NonGroupMember): Promise<void> {
  if (group === nonGroupMember) return
  if (group !== undefined && group !== null && group !== current) {
    if (group instanceof ProcessGroup) return group.leave()
    checkArgument(
      'destroyProcessGroup',
      'group',
      group,
      group instanceof CollectiveGroup,
      'a process group',
    )
    if (group.isDestroyed) throw destroyed('destroyProcessGroup', group)
    return group.retire()
  }
  const own = current
  current = undefined
  setDefaultRanks(undefined)
  joining?.abort(
    new TabringError(
      'peer.aborted',
      'initProcessGroup: destroyProcessGroup() was called before all ranks had joined. Await initProcessGroup first.',
    ),
  )
  joining = undefined
  await own?.leave()
}
