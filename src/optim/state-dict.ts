import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import { isWhole } from '../util/is-whole.ts'
import { hasNames, isOf, isRecord, quoted } from '../util/kind-of.ts'
import type { Shape } from '../util/shape.ts'
import { formatShape } from '../util/shape.ts'

/** A tensor of an optimizer's state, on the host. */
export interface StateTensor {
  readonly shape: Shape
  readonly data: Float32Array<ArrayBuffer>
}

export type StateEntry = Readonly<Record<string, number | StateTensor | null>>
export type SettingValue = number | boolean | null | readonly number[]

/**
 * An optimizer's state in PyTorch's layout and with its keys: `state` by parameter index over all groups, `param_groups` with the indices
 * in `params`.
 */
export interface OptimizerStateDict {
  readonly state: Readonly<Record<number, StateEntry>>
  readonly param_groups: readonly Readonly<Record<string, SettingValue>>[]
}

/** The tensors that an optimizer keeps of each parameter, by PyTorch's names: always, or while a setting is on. */
export type StateNames = Readonly<Record<string, true | 'amsgrad' | 'centered' | 'momentum'>>

/** Of them those that sum squares. */
const squares = ['exp_avg_sq', 'max_exp_avg_sq', 'square_avg', 'sum']

/** The updates that a saved entry counts, if it does: PyTorch 1.13 and later count in a tensor. */
export function stepsIn({ step }: StateEntry): number | undefined {
  if (typeof step === 'number') return step
  return step?.data.length === 1 ? step.data[0] : undefined
}

/** Returns whether a parameter has been updated: of others PyTorch's SGD saves nulls. */
const isBegun = (entry: StateEntry): boolean => Object.values(entry).some((value) => value !== null)

/**
 * Checks that `saved` is an optimizer's state at all, of groups with those numbers of parameters, whole for each that was updated: the rest
 * may be read without care.
 *
 * errors: `data.malformed`.
 */
export function requireState(
  optimizer: string,
  saved: unknown,
  counts: readonly number[],
  names: StateNames,
  savesStep: boolean,
): void {
  const refuse = (expected: string, got: unknown) =>
    new TabringError(
      'data.malformed',
      `loadStateDict: ${optimizer} expected ${expected}, got ${typeof got === 'string' ? clipped(got) : quoted(got)}. Load the result of optimizer.stateDict() of the same model and groups.`,
    )
  const { state, param_groups: groups } = (saved ?? {}) as Partial<OptimizerStateDict>
  if (!isRecord(state) || !Array.isArray(groups))
    throw refuse(
      `an optimizer's state with "state" and "param_groups"`,
      hasNames(saved) ? Object.keys(saved).join(', ') || 'an empty one' : saved,
    )
  const sizes = groups.slice(0, counts.length + 1).map((group) => {
    const params: unknown = isRecord(group) && group['params']
    return Array.isArray(params) ? params.length : -1
  })
  if (groups.length !== counts.length || sizes.some((size, i) => size !== counts[i]))
    throw refuse(`groups of ${formatShape(counts)} parameters`, formatShape(sizes))
  const params = groups.flatMap((group) => group['params'] as unknown[])
  if (!params.every(isWhole) || new Set(params).size !== params.length)
    throw refuse('each parameter by a number of its own in "params"', 'others')
  const groupOf = new Map(
    groups.flatMap((group) => (group['params'] as number[]).map((one) => [String(one), group])),
  )
  for (const [key, entry] of Object.entries(state)) {
    const group = groupOf.get(key)
    if (!group) throw refuse('states of the parameters in "params"', `one of "${clipped(key)}"`)
    if (!isRecord(entry)) throw refuse(`a state of parameter ${clipped(key)}`, entry)
    const refuseEntry = (what: string, name: string, value: unknown) =>
      refuse(`${what} as "${clipped(name)}" of ${clipped(key)}`, value)
    for (const [name, value] of Object.entries(entry)) {
      if (value !== null && typeof value !== 'number' && !isTensor(value))
        throw refuseEntry('a number or a float32 tensor', name, value)
      if (!Object.hasOwn(names, name) && !(savesStep && name === 'step'))
        throw refuse(
          `only ${Object.keys(names).join(', ')} of ${clipped(key)}`,
          `"${clipped(name)}"`,
        )
      if (squares.includes(name) && isTensor(value) && value.data.some((one) => one < 0))
        throw refuseEntry('sums of squares', name, 'numbers below 0')
    }
    if (!isBegun(entry as StateEntry)) continue
    const steps = stepsIn(entry as StateEntry)
    if (savesStep && !isWhole(steps)) throw refuseEntry('a whole number', 'step', steps)
    for (const [name, setting] of Object.entries(names))
      if (!isTensor(entry[name]) && (setting === true || group[setting]))
        throw refuseEntry('a float32 tensor', name, entry[name])
  }
}

const isTensor = (value: unknown): value is StateTensor =>
  isRecord(value) && Array.isArray(value['shape']) && isOf(value['data'], Float32Array)

/** weightDecay -> weight_decay */
export const toSnake = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** weight_decay -> weightDecay */
export const toCamel = (name: string): string =>
  name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

/** Settings of a group for a state dict. */
export function groupToDict(
  group: Readonly<Record<string, unknown>>,
  params: readonly number[],
): Record<string, SettingValue> {
  const entries = Object.entries(group)
    .filter(([name, value]) => name !== 'params' && value !== undefined)
    .map(([name, value]) => [
      toSnake(name),
      (Array.isArray(value) ? [...value] : value) as SettingValue,
    ])
  return { ...Object.fromEntries(entries), params: [...params] }
}

/** What learning-rate schedulers keep in a group. */
const fromSchedulers = ['initialLr', 'maxLr', 'minLr', 'maxMomentum', 'baseMomentum']

/**
 * A group's settings as saved; the group itself stays as it is.
 *
 * Settings of PyTorch's that only choose an implementation are passed over (`foreach`, `capturable`, `differentiable`, `fused`).
 * errors: `data.malformed` for a setting that this optimizer does not have, unless it is off, for one that is missing, or of another type.
 */
export function groupFromDict(
  optimizer: string,
  group: Readonly<Record<string, unknown>>,
  settings: readonly string[],
  saved: Readonly<Record<string, SettingValue>>,
): Record<string, unknown> {
  const refuse = (problem: string): never => {
    throw new TabringError(
      'data.malformed',
      `loadStateDict: ${problem}. Load a state saved by the same kind of optimizer.`,
    )
  }
  const implementation = ['params', 'foreach', 'capturable', 'differentiable', 'fused']
  // Of exact/exact-optimizer.ts.
  const exact = ['exact_steps', 'exact_exponents']
  const taken: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(saved)) {
    if (implementation.includes(key) || exact.includes(key)) continue
    const name = toCamel(key)
    if (settings.includes(name)) {
      if (settingKind(value) !== settingKind(group[name])) {
        refuse(`${optimizer} expects ${settingKind(group[name])} as "${key}", got ${quoted(value)}`)
      }
    } else if (!fromSchedulers.includes(name)) {
      if (value) refuse(`${optimizer} has no setting "${key}", got ${quoted(value)}`)
      continue
    }
    taken[name] = Array.isArray(value) ? [...value] : value
  }
  const missing = settings.find((name) => !(name in taken))
  if (missing !== undefined) {
    refuse(
      `the setting "${toSnake(missing)}" of ${optimizer} is missing, got ${clipped(Object.keys(saved).join(', '))}`,
    )
  }
  return taken
}

/** What a setting is: `a number`, `true or false`, `2 numbers`. What is not finite is no number. */
export function settingKind(value: unknown): string {
  if (Array.isArray(value))
    return `${value.length} ${[...value].every(Number.isFinite) ? 'numbers' : 'values'}`
  if (typeof value === 'boolean') return 'true or false'
  return Number.isFinite(value) ? 'a number' : 'no number'
}
