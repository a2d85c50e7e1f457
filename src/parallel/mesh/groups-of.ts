import type { RankGroup, StepGroups } from '../../graph/trace/exchange.ts'
import { activeTrace, type Trace } from '../../graph/trace/trace.ts'
import { GroupSyncPoints } from '../../peer/group/group-sync-points.ts'
import { agreeOnSettings } from './agree-on-settings.ts'

/** The groups that synchronize in a step. */
export function groupsOf(trace: Trace): StepGroups {
  trace.groups ??= new GroupSyncPoints((groups) => agreeOnSettings(trace, groups))
  return trace.groups
}

/**
 * A forward pre-hook that adds a group to those of the step, where the module trains: if the function throws afterwards, the group's ranks hear
 * of it.
 */
export const joinsStep =
  (group: RankGroup) =>
  ({ training }: { readonly training: boolean }): undefined => {
    if (training) groupsOf(activeTrace('forward')).numberOf(group)
  }
