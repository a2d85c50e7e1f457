import { messageOf } from '../../util/errors.ts'
import { agree } from '../plan/agreement.ts'
import type { StepProgram } from '../plan/step-program.ts'
import type { PreparedMeeting } from '../plan/stops.ts'
import type { CompilingRanks, StepGroups } from '../trace/exchange.ts'
import type { Alike } from '../trace/settings-check.ts'

/**
 * Compares the meetings of each group, and the settings of optimizers, with its other ranks.
 *
 * Returns the groups that meet. errors: those of `agree`.
 */
export async function agreeOnMeetings(
  groups: StepGroups | undefined,
  meetings: readonly PreparedMeeting[],
  alike: Alike,
): Promise<CompilingRanks[]> {
  if (!groups) return []
  const numbers = [...new Set(meetings.map(({ group }) => group))].sort((a, b) => a - b)
  for (const number of numbers) {
    const own = meetings.filter(({ group }) => group === number)
    await agree(groups.groups[number - 1], [
      ...own.map((one) => `collective ${one.number}: ${one.meeting} ${one.given.length} elements`),
      ...alike.lines,
    ])
  }
  return numbers.map((number) => groups.groups[number - 1])
}

/**
 * Ends the groups where `work` fails on this rank, since others wait for what it will not send.
 *
 * A group that has failed is left as it is: its ranks know.
 */
export async function endingAll<T>(
  groups: readonly CompilingRanks[],
  what: string,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    for (const group of groups)
      group.abort(`rank ${group.ranks[group.rank]} ${what}: ${messageOf(error)}`)
    throw error
  }
}

/** Makes a run that fails on this rank end the groups. */
export function failingTogether<Program extends StepProgram>(
  program: Program,
  groups: readonly CompilingRanks[],
): Program {
  if (groups.length === 0) return program
  const run = program.run.bind(program)
  program.run = (inputs, scalars) =>
    endingAll(groups, 'failed in a step', () => run(inputs, scalars))
  return program
}
