import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { hasNames, quoted } from '../../util/kind-of.ts'
import { isNotNegative } from '../../util/options.ts'

/** A scheduler's state as JSON, with PyTorch's keys. */
export type SchedulerState = Record<string, unknown>

/** A field of a scheduler: its key in the state, and what it may be. */
export interface StateField {
  readonly key: string
  readonly isValid: (value: never) => boolean
  readonly expected: string
  /** True if the constructor takes it as an argument of that name. */
  readonly isArgument?: boolean
}

export type StateFields = Readonly<Record<string, StateField>>

/** A rule for lists with at least one number for each of `count` groups. */
export const numbers = (count: number, isOne: (value: number) => boolean = Number.isFinite) => ({
  isValid: (list: number[]) => Array.isArray(list) && list.length >= count && list.every(isOne),
  expected: `a list of ${count} ${isOne === isNotNegative ? 'numbers from 0 up' : 'numbers'}`,
})

/** Keys of PyTorch's states that no scheduler here has a use for. */
const fromPyTorch = [
  'verbose',
  '_get_lr_called_within_step',
  '_is_initial',
  'lr_lambdas',
  'mode_worse',
  'use_beta1',
  '_schedule_phases',
  'anneal_func',
  '_anneal_func_type',
]

/** The state, if a scheduler with these fields may take it over: all of its keys and no others. errors: `data.malformed`. */
export function checkState(
  scheduler: string,
  state: SchedulerState,
  fields: readonly StateField[],
): SchedulerState {
  const refuse = (expected: string, got: string): never => {
    throw new TabringError(
      'data.malformed',
      `loadStateDict: ${scheduler} expected ${expected}, got ${got}. Load a state of the same kind of scheduler with the same number of groups.`,
    )
  }
  if (!hasNames(state)) refuse('a state', quoted(state))
  const given = Object.keys(state)
  const known = fields.map(({ key }) => key)
  for (const { key, isValid, expected } of fields) {
    if (!Object.hasOwn(state, key))
      refuse(`"${clipped(key)}"`, clipped(given.join(', ')) || 'an empty state')
    if (!isValid(state[key] as never))
      refuse(`${expected} as "${clipped(key)}"`, quoted(state[key]))
  }
  const surplus = given.find((key) => !known.includes(key) && !fromPyTorch.includes(key))
  if (surplus !== undefined) refuse(`only ${known.join(', ')}`, `"${clipped(surplus)}"`)
  return state
}
