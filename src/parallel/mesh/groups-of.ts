import type { StepGroups } from '../../graph/trace/exchange.ts'
import type { Trace } from '../../graph/trace/trace.ts'
import { GroupMeetings } from '../../peer/group/group-meetings.ts'
import { agreeOnStep } from './agree-on-step.ts'

/** The groups that meet in a step. */
export function groupsOf(trace: Trace): StepGroups {
  trace.groups ??= new GroupMeetings((groups) => agreeOnStep(trace, groups))
  return trace.groups
}
