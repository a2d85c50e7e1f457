import type { Parameter } from '../graph/trace/parameter.ts'
import { TabringError } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'

/** Settings common to all optimizers; each optimizer adds its own. */
export interface CommonSettings {
  /** Learning rate. */
  lr: number
}

/**
 * Parameters that share settings. Numbers can be changed between steps: each step reads them, nothing is compiled again.
 *
 * Settings that decide which kernels and states exist are fixed when the step is compiled: whether momentum is 0, `nesterov`, `amsgrad`,
 * `centered`. A run after a change fails with `graph.misuse`; only momentum may become 0.
 *
 * Learning-rate schedulers keep the optional fields here, as in PyTorch.
 */
export type ParamGroup<Settings extends CommonSettings = CommonSettings> = Settings & {
  readonly params: readonly Parameter[]
  initialLr?: number
  maxLr?: number
  minLr?: number
  maxMomentum?: number
  baseMomentum?: number
}

/** What a group has beside the optimizer's settings. */
export const groupNames = {
  params: true,
  initialLr: true,
  maxLr: true,
  minLr: true,
  maxMomentum: true,
  baseMomentum: true,
} as const

/** What an optimizer takes: parameters, or groups of parameters with settings that override the common ones. */
export type Params<Settings> =
  | readonly Parameter[]
  | readonly (Partial<Settings> & { readonly params: readonly Parameter[] })[]

/** `over` on top of `base`, with copies of lists; what is undefined in `over` does not count. */
export const overlay = <T extends object>(base: T, over: Partial<T>): T =>
  Object.fromEntries(
    [...Object.entries(base), ...Object.entries(over)]
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, Array.isArray(value) ? value.slice() : value]),
  ) as T

/** errors: `config.invalid`, naming the optimizer and the setting. */
export function checkSetting(
  optimizer: string,
  name: string,
  value: number,
  isValid: boolean,
  range: string,
): void {
  if (!isValid || typeof value !== 'number' || Number.isNaN(value)) {
    throw new TabringError(
      'config.invalid',
      `${optimizer}: ${name} must be ${range}, got ${quoted(value)}. Change ${name}.`,
    )
  }
}

/** errors: `config.invalid` unless each named setting is at least 0. */
export function checkNotNegative(
  optimizer: string,
  settings: Readonly<Record<string, number>>,
): void {
  for (const [name, value] of Object.entries(settings)) {
    checkSetting(optimizer, name, value, value >= 0, 'at least 0')
  }
}

/** errors: `config.invalid` unless both are at least 0 and below 1. */
export function checkBetas(optimizer: string, betas: readonly [number, number]): void {
  betas.forEach((beta, i) => {
    checkSetting(optimizer, `betas[${i}]`, beta, beta >= 0 && beta < 1, 'at least 0 and below 1')
  })
}
