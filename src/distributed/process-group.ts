import { type CollectiveGroup, destroyed } from '../peer/collective-group.ts'
import { ProcessGroup } from '../peer/group.ts'
import { type NonGroupMember, nonGroupMember } from '../peer/non-group-member.ts'
import { setDefaultRanks } from '../util/default-ranks.ts'
import { TabringError } from '../util/errors.ts'
import { formGroup, type InitProcessGroupOptions } from './form-group.ts'
import { type Joined, joinedName } from './joined.ts'
import { tellLauncher } from './tell-launcher.ts'

/** As torch.distributed, each context has one default group: this module keeps it. */

let current: ProcessGroup | undefined
let joining: AbortController | undefined

/**
 * Joins ranks into a group; resolves when all have joined and all links are up. As `initProcessGroup`, which makes it the default one
 * besides: for several ranks in one context.
 *
 * errors: `peer.timeout`, naming the ranks that are missing; `peer.mismatch` where ranks disagree, naming both; `peer.unreachable` where two
 * cannot be linked, on all ranks; `config.invalid`; `signal.*` of the server.
 */
export function formProcessGroup(options: InitProcessGroupOptions = {}): Promise<ProcessGroup> {
  return formGroup(options, options?.signal)
}

/**
 * Joins the ranks and makes them the default group: torch.distributed.init_process_group. Resolves when all have joined.
 *
 * errors: those of `formProcessGroup`; `graph.misuse` when a group is there already; `peer.aborted` when it was destroyed meanwhile.
 */
export async function initProcessGroup(
  options: InitProcessGroupOptions = {},
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
    const signals = options.signal ? [options.signal, abort.signal] : [abort.signal]
    const group = await formGroup(options, AbortSignal.any(signals))
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

/** The default group. errors: `graph.misuse` before initProcessGroup. */
export function getProcessGroup(): ProcessGroup {
  if (!current) {
    throw new TabringError(
      'graph.misuse',
      'process group: there is none. Call initProcessGroup() first, also for one rank.',
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
 * torch.distributed.new_group: all ranks call it alike and in the same order. Deadlines and links are the default group's.
 *
 * errors: see `ProcessGroup.newGroup`.
 */
export const newGroup = (
  ranks?: readonly number[] | null,
): Promise<CollectiveGroup | NonGroupMember> => getProcessGroup().newGroup(ranks ?? undefined)

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
