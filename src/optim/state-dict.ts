import { TabringError } from '../util/errors.ts'
import type { Shape } from '../util/shape.ts'

/** A tensor of an optimizer's state on the host. */
export interface StateTensor {
  readonly shape: Shape
  readonly data: Float32Array<ArrayBuffer>
}

export type StateEntry = Readonly<Record<string, number | StateTensor | null>>
export type SettingValue = number | boolean | null | readonly number[]

/**
 * An optimizer's state in PyTorch's layout and with its keys: `state` by the parameter's index over all groups, `param_groups` with
 * the indices in `params`.
 */
export interface OptimizerStateDict {
  readonly state: Readonly<Record<number, StateEntry>>
  readonly param_groups: readonly Readonly<Record<string, SettingValue>>[]
}

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

/**
 * Takes a saved group's settings over.
 *
 * Settings of PyTorch's that only choose an implementation are passed over (`foreach`, `capturable`, `differentiable`, `fused`).
 * errors: `data.malformed` for a setting that this optimizer does not have, unless it is off.
 */
export function groupFromDict(
  optimizer: string,
  group: Record<string, unknown>,
  saved: Readonly<Record<string, SettingValue>>,
): void {
  const implementation = ['params', 'foreach', 'capturable', 'differentiable', 'fused']
  const fromSchedulers = ['initialLr', 'maxLr', 'minLr', 'maxMomentum', 'baseMomentum']
  for (const [key, value] of Object.entries(saved)) {
    if (implementation.includes(key)) continue
    const name = toCamel(key)
    if (name in group || fromSchedulers.includes(name)) {
      group[name] = Array.isArray(value) ? [...value] : value
    } else if (value) {
      throw new TabringError(
        'data.malformed',
        `loadStateDict: ${optimizer} has no setting "${key}", got ${JSON.stringify(value)}. Load a state that this kind of optimizer saved.`,
      )
    }
  }
}
