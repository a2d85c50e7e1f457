import { clipped } from './clipped.ts'
import { ArgumentTypeError, TabringError } from './errors.ts'
import { hasNames, isPlain, isRecord, quoted } from './kind-of.ts'

/** The longest list of options of the library has 320. units: characters. */
const maxNames = 400

/** What an option may be that `checkOptions` checks, by JavaScript's word for it or a function, with how to say it. */
const kinds = {
  flag: ['boolean', 'true or false'],
  text: ['string', 'a text'],
  list: [Array.isArray, 'a list'],
  object: [hasNames, 'an object with values by name'],
  size: [(value: number) => isCount(value), 'a whole number above 0'],
  group: [(value: unknown) => isRecord(value) && 'takeSequence' in value, 'a group'],
} as const satisfies Record<string, readonly [string | ((value: never) => boolean), string]>

type Kind = keyof typeof kinds | 'function' | 'number'

/** Every option of `T` by name, so that none is forgotten, and what it may be; true where the function itself checks that. */
export type OptionNames<T> = Readonly<Record<keyof T, true | Kind>>

/**
 * The options, if they are an object without other names than `known`: JavaScript does not know the types, and a misspelt option would
 * do nothing.
 *
 * errors: `config.invalid`, naming `where`, the argument (`name`) and the option; a TypeError for what is no object.
 */
export function checkOptions<T extends object>(
  where: string,
  options: T,
  known: OptionNames<T>,
  name = 'options',
): T {
  const names = clipped(Object.keys(known).join(', '), maxNames) || 'none'
  if (!isPlain(options)) {
    // PyTorch has it in this place without its name.
    const [only, second] = Object.keys(known)
    const isValue = only && !second && ['number', 'string', 'boolean'].includes(typeof options)
    const example = isValue ? `${only}: ${quoted(options)}` : 'name: value'
    throw new ArgumentTypeError(
      `${where}: expected an object with ${name} (${names}), got ${quoted(options)}. Write { ${example} }.`,
    )
  }
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(known, name))
  if (unknown !== undefined) {
    const meant = nameMeant(unknown, Object.keys(known))
    throw new TabringError(
      'config.invalid',
      `${where}: expected ${name} among ${names}, got ${quoted(unknown)}. ${meant ? `Write ${meant}` : 'Correct its name'}, or remove it.`,
    )
  }
  for (const [name, kind] of Object.entries<true | Kind>(known)) {
    const value: unknown = options[name as keyof T]
    // Null is PyTorch's None, which is no flag.
    if (kind === true || value === undefined || (value === null && kind !== 'flag')) continue
    const [is, expected] = kind in kinds ? kinds[kind as keyof typeof kinds] : [kind, `a ${kind}`]
    const isOne = typeof is === 'string' ? typeof value === is : is(value as never)
    checkArgument(where, name, value, isOne, expected)
  }
  return options
}

/** errors: `config.invalid`, a TypeError, naming the function and its argument, for one that is not `expected`. */
export function checkArgument(
  where: string,
  name: string,
  value: unknown,
  isValid: boolean,
  expected: string,
): void {
  if (isValid) return
  throw new ArgumentTypeError(
    `${where}: ${name} must be ${expected}, got ${quoted(value)}. Correct this argument.`,
  )
}

/** errors: as `checkArgument`, for what is no list, or not one of `expected` throughout. */
export function checkList<T>(
  where: string,
  name: string,
  list: readonly T[],
  isOne: (one: T) => boolean,
  expected: string,
): void {
  const wrong = Array.isArray(list) ? list.findIndex((one) => !isOne(one)) : -1
  const [what, value] = wrong < 0 ? [name, list] : [`${name}[${wrong}]`, list[wrong]]
  checkArgument(
    where,
    what,
    value,
    Array.isArray(list) && wrong < 0,
    wrong < 0 ? `a list of ${expected}` : `one of the ${expected}`,
  )
}

/** errors: as `checkArgument`, for what is no text. */
export const checkText = (where: string, name: string, value: string): void =>
  checkArgument(where, name, value, typeof value === 'string', 'a text')

/** errors: as `checkArgument`, for what has no values by name. */
export const checkRecord = (where: string, name: string, value: object): void =>
  checkArgument(where, name, value, hasNames(value), 'an object with values by name')

/** The option that a name in Python's spelling, or without its unit, stands for. */
function nameMeant(name: string, known: readonly string[]): string | undefined {
  const camel = name.replace(/_+(\w)/g, (_, letter: string) => letter.toUpperCase())
  const forms = [camel, `${camel}Ms`].map((form) => form.toLowerCase())
  return known.find((one) => forms.includes(one.toLowerCase()))
}

/** errors: `config.invalid` unless an option that is given is one of `choices`. */
export function checkChoice<T extends string | number>(
  where: string,
  name: string,
  value: T | undefined,
  choices: readonly T[],
): void {
  if (value === undefined || choices.includes(value)) return
  throw new TabringError(
    'config.invalid',
    `${where}: ${name} must be one of ${choices.map((choice) => `'${choice}'`).join(', ')}, got ${quoted(value)}. Use one of these.`,
  )
}

/** errors: `config.invalid` unless an option is a number for which `isValid`, or not given where it need not be. */
export function checkNumber(
  where: string,
  name: string,
  value: number | undefined,
  isValid: (value: number) => boolean,
  range: string,
  isRequired = false,
): void {
  if (typeof value === 'number' ? isValid(value) : value === undefined && !isRequired) return
  throw new TabringError(
    'config.invalid',
    `${where}: ${name} must be ${range}, got ${quoted(value)}. Change ${name}.`,
  )
}

/** errors: `config.invalid` unless an option that is given is true or false. */
export function checkFlag(where: string, name: string, value: boolean | undefined): void {
  if (value === undefined || typeof value === 'boolean') return
  throw new TabringError(
    'config.invalid',
    `${where}: ${name} must be true or false, got ${quoted(value)}. Pass one of the two.`,
  )
}

/** errors: as `checkFlag`, for each of these options. */
export function checkFlags(where: string, options: object, ...names: readonly string[]): void {
  for (const name of names) checkFlag(where, name, Reflect.get(options, name))
}

/** errors: `config.invalid` unless what keeps a divisor from 0 is a number that can, or undefined. */
export const checkEps = (where: string, eps: number | undefined): void =>
  checkNumber(where, 'eps', eps, isNotNegative, 'finite and at least 0')

/** errors: as `checkFlag`, also for nothing. */
export function requireFlag(where: string, name: string, value: boolean): void {
  checkFlag(where, name, value ?? (String(value) as never))
}

/** The longest that a timer of the platform waits. units: ms. */
export const longestTimeoutMs = 2 ** 31 - 1

/** errors: `config.invalid` unless an option that is given is a time that a timer waits. units: ms. */
export function checkTimeout(where: string, name: string, timeoutMs: number | undefined): void {
  const isTime = (ms: number) => ms > 0 && ms <= longestTimeoutMs
  checkNumber(where, name, timeoutMs, isTime, `above 0 and at most ${longestTimeoutMs} ms`)
}

/** Returns whether a number is finite and not below 0: for `checkNumber`. */
export const isNotNegative = (value: number): boolean => Number.isFinite(value) && value >= 0

/** Returns whether it is a number, which may be infinite: for `checkNumber`. */
export const isNoNan = (value: number): boolean => typeof value === 'number' && !Number.isNaN(value)

/** Returns whether a number is a share: for `checkNumber`. */
export const isShare = (value: number): boolean => isNotNegative(value) && value <= 1

/** Returns whether a number is whole and above 0: for `checkNumber`. */
export const isCount = (value: number): boolean => Number.isSafeInteger(value) && value > 0
