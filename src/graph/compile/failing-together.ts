import { messageOf } from '../../util/errors.ts'
import { agree, type Comparison, compareInTurn, isOnAllRanks } from '../plan/agreement.ts'
import type { StepProgram } from '../plan/step-program.ts'
import type { PreparedSyncPoint } from '../plan/stops.ts'
import type { CompilingRanks, RankGroup } from '../trace/exchange.ts'
import type { Trace } from '../trace/trace.ts'

/** Ranks that wait for each other in a step. */
type StepEnd = Pick<CompilingRanks, keyof RankGroup | 'abort'>

/** A program, and the ranks that wait for each other in its runs. */
export interface MadeProgram {
  readonly program: StepProgram
  readonly groups: readonly StepEnd[]
}

/**
 * Compares a step with other ranks: `transfers`, if any, then the sync points of each group and the settings of optimizers.
 *
 * Returns the groups that were compared. errors: those of `agree`.
 */
export async function agreeOnStep(
  { groups, consistency }: Pick<Trace, 'groups' | 'consistency'>,
  syncPoints: readonly PreparedSyncPoint[],
  transfers?: Comparison,
): Promise<CompilingRanks[]> {
  const numbers = [...new Set(syncPoints.map(({ group }) => group))].sort((a, b) => a - b)
  const comparisons = numbers.map((number): Comparison => {
    const group = groups!.groups[number - 1]
    const own = syncPoints.filter((one) => one.group === number)
    const lines = own.map(
      (one) => `collective ${one.number}: ${one.syncPoint} ${one.given.length} elements`,
    )
    return { group, compare: () => agree(group, [...lines, ...consistency.lines]) }
  })
  const all = [transfers ?? [], comparisons].flat()
  await compareInTurn(all)
  return all.map(({ group }) => group)
}

/**
 * Ends the groups where `work` fails on this rank, since others wait for what it will not send.
 *
 * A group that has failed is left as it is: its ranks know. So is one whose ranks all have the error, and one of a single rank.
 */
export async function endingAll<T>(
  groups: readonly StepEnd[],
  what: string,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const waiting = isOnAllRanks(error) ? [] : groups.filter(({ size }) => size > 1)
    for (const group of waiting)
      group.abort(`rank ${group.ranks[group.rank]} ${what}: ${messageOf(error)}`)
    throw error
  }
}

/** Errors of runs that ended before they changed anything. */
const refused = new WeakSet<object>()

/** Notes that the run which rejects with this does not take place. */
export function noteRefusedRun(error: object): void {
  refused.add(error)
}

/** Returns whether a run that rejected with this did not take place. */
export const isRefusedRun = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && refused.has(error)

/** Makes a run that fails on this rank, or is refused there, end the groups. */
export function failingTogether<Program extends StepProgram>(
  program: Program,
  groups: readonly StepEnd[],
): Program {
  if (groups.length === 0) return program
  const { run, shadow } = program
  const ending = <T>(work: () => Promise<T>) => endingAll(groups, 'failed in a step', work)
  program.run = (...given) => ending(() => run.apply(program, given))
  program.shadow = (scalars) => ending(() => shadow.call(program, scalars))
  return program
}
