import { ArgumentTypeError, TabringError } from './errors.ts'

/** Every option of `T` by name, so that none is forgotten. */
export type OptionNames<T> = Readonly<Record<keyof T, true>>

/**
 * The options, if they are an object without other names than `known`: JavaScript does not know the types, and a misspelt option would
 * do nothing.
 *
 * errors: `config.invalid`, naming `where` and the option; a TypeError for what is no object.
 */
export function checkOptions<T extends object>(
  where: string,
  options: T,
  known: OptionNames<T>,
): T {
  const names = Object.keys(known).join(', ')
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new ArgumentTypeError(
      `${where}: expected an object with options (${names}), got ${String(options)}. Write { name: value }.`,
    )
  }
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(known, name))
  if (unknown !== undefined) {
    throw new TabringError(
      'config.invalid',
      `${where}: expected options among ${names}, got "${unknown}". Correct its name, or leave it out.`,
    )
  }
  return options
}
