import { Parameter } from '../graph/trace/parameter.ts'
import { TabringError } from '../util/errors.ts'
import { isRecord, quoted } from '../util/kind-of.ts'
import { checkOptions, type OptionNames } from '../util/options.ts'
import { groupNames } from './settings.ts'
import { settingKind } from './state-dict.ts'

/** Checks of what optimizers are made of. */

const namesOf = <T extends object>(settings: T) =>
  Object.fromEntries(Object.keys(settings).map((name) => [name, true])) as OptionNames<T>

/** errors: `config.invalid` for a setting that the optimizer with these defaults does not have. */
export function checkSettingNames<T extends object>(
  optimizer: string,
  options: Partial<T>,
  defaults: T,
): void {
  checkOptions(optimizer, options, namesOf(defaults))
}

/** errors: `config.invalid` for a setting that there is not, `graph.misuse` for a group of anything but parameters. */
export function checkGroup<T extends object>(
  optimizer: string,
  group: Partial<T> & { readonly params: readonly unknown[] },
  defaults: T,
): void {
  checkOptions<object>(`${optimizer}, group`, group, { ...namesOf(defaults), ...groupNames })
  requireParameters(optimizer, group.params)
}

/** errors: `config.invalid` for a setting of another kind than its default: no number, no flag, or a list of another length. */
export function checkKinds<T extends object>(optimizer: string, settings: T, defaults: T): void {
  for (const [name, value] of Object.entries(defaults)) {
    const own: unknown = Reflect.get(settings, name)
    if (settingKind(own) === settingKind(value)) continue
    throw new TabringError(
      'config.invalid',
      `${optimizer}: ${name} must be ${settingKind(value)}, got ${quoted(own)}. Change ${name}.`,
    )
  }
}

const classOf = (value: unknown): string =>
  isRecord(value) && typeof value.constructor === 'function'
    ? value.constructor.name
    : quoted(value)

/** errors: `graph.misuse`. */
export function requireList(optimizer: string, params: unknown): void {
  if (Array.isArray(params)) return
  throw new TabringError(
    'graph.misuse',
    `${optimizer}: params must be a list of parameters or groups, got ${classOf(params)}. Pass model.parameters().`,
  )
}

/** errors: `graph.misuse` for what is no list of parameters. */
export function requireParameters(optimizer: string, params: readonly unknown[]): void {
  requireList(optimizer, params)
  const at = params.findIndex((one) => !(one instanceof Parameter))
  if (at < 0) return
  throw new TabringError(
    'graph.misuse',
    `${optimizer}: params[${at}] must be a parameter, got ${classOf(params[at])}. Pass model.parameters().`,
  )
}
