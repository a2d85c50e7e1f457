import type { Parameter } from '../graph/trace/parameter.ts'
import { TabringError } from '../util/errors.ts'

/** Settings that every optimizer has; the others are the optimizer's own. */
export interface CommonSettings {
  /** Learning rate. */
  lr: number
}

/**
 * Parameters that share settings. Numbers may be changed between steps: each step reads them anew, nothing is compiled again.
 *
 * What decides which kernels and states there are is fixed by compiling: whether momentum is 0, `nesterov`, `amsgrad`, `centered`. A run
 * that finds another is refused with `graph.misuse`; only momentum may fall to 0.
 *
 * The optional ones are kept here by learning-rate schedulers, as in PyTorch.
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

/** What an optimizer is made of: parameters, or groups of them with settings of their own over the common ones. */
export type Params<Settings> =
  | readonly Parameter[]
  | readonly (Partial<Settings> & { readonly params: readonly Parameter[] })[]

/** `over` on top of `base`; what is undefined in it does not count. */
export const overlay = <T extends object>(base: T, over: Partial<T>): T => ({
  ...base,
  ...(Object.fromEntries(
    Object.entries(over).filter(([, value]) => value !== undefined),
  ) as Partial<T>),
})

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
      `${optimizer}: ${name} must be ${range}, got ${value}. Give another ${name}.`,
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
