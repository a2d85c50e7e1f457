import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'

/** A scheduler's state as JSON, with PyTorch's keys. */
export type SchedulerState = Record<string, unknown>

/** Keys that tell kinds of schedulers apart. */
const ofOneKind = [
  'step_size',
  'gamma',
  'milestones',
  'factor',
  'total_iters',
  'start_factor',
  'end_factor',
  'T_max',
  'T_0',
  'T_mult',
  'total_steps',
  'cycle_momentum',
  'min_lrs',
  'patience',
  '_milestones',
  '_schedulers',
]

/**
 * The state, if a scheduler with `own` state may take it over: all of its keys with values of the same type and length, and none of another
 * kind's. A null is a number that is not there yet.
 *
 * errors: `data.malformed`.
 */
export function checkState(
  scheduler: string,
  state: SchedulerState,
  own: SchedulerState,
): SchedulerState {
  const refuse = (expected: string, got: string): never => {
    throw new TabringError(
      'data.malformed',
      `loadStateDict: ${scheduler} expected ${expected}, got ${got}. Load a state of the same kind of scheduler with the same number of groups.`,
    )
  }
  if (typeof state !== 'object' || state === null) refuse('a state', quoted(state))
  const given = clipped(Object.keys(state).join(', '))
  for (const [key, value] of Object.entries(own)) {
    if (!Object.hasOwn(state, key)) refuse(`"${clipped(key)}"`, given || 'an empty state')
    if (!isAlike(value, state[key])) {
      refuse(`"${clipped(key)}" like ${JSON.stringify(value)}`, quoted(state[key]))
    }
  }
  const foreign = ofOneKind.find((key) => key in state && !(key in own))
  if (foreign !== undefined) refuse('a state of the same kind', `one with "${clipped(foreign)}"`)
  return state
}

function isAlike(own: unknown, given: unknown): boolean {
  if (Array.isArray(own)) {
    if (!Array.isArray(given) || given.length !== own.length) return false
    return own.every((value, i) => isAlike(value, given[i]))
  }
  if (own === null || typeof own === 'number') return given === null || typeof given === 'number'
  return typeof given === typeof own && given !== null && !Array.isArray(given)
}
