import { TabringError } from '../../src/entries/index.ts'
import { seededRandom } from '../../src/util/virtual-env.ts'
import { type Callable, withoutRight, wrongValues } from './api-arguments.ts'
import { misnamed, parameterName, unnamed } from './parameter-names.ts'

// Calls with wrong values, and what is wrong with how they are answered.

/** A wrong value in the place of an argument that is right. */
export interface Attempt {
  readonly what: string
  /** The place of the only one, from 0. */
  readonly at?: number
  readonly change: (args: unknown[]) => unknown[]
}

const seed = 20_261_127

const put = (args: unknown[], at: number, value: unknown): unknown[] =>
  Array.from({ length: Math.max(args.length, at + 1) }, (_, i) => (i === at ? value : args[i]))

/** Each value in each of the first places, and where there are several some of all at once. `taken`: how many places there are. */
export function attemptsOf(name: string, taken: number): Attempt[] {
  const positions = [0, 1, 2].slice(0, Math.max(1, taken))
  const single = positions.flatMap((at) =>
    wrongValues.map(([value, make]) => ({
      what: `${name}, argument ${at + 1}: ${value}`,
      at,
      change: (args: unknown[]) => put(args, at, make()),
    })),
  )
  if (positions.length === 1) return single
  const own = [...name].reduce((sum, letter) => 31 * sum + letter.charCodeAt(0), seed)
  const random = seededRandom(own)
  const several = Array.from({ length: 8 }, () => {
    const chosen = positions.map(() => wrongValues[Math.floor(random() * wrongValues.length)])
    return {
      what: `${name}(${chosen.map(([value]) => value).join(', ')})`,
      change: () => chosen.map(([, make]) => make()),
    }
  })
  return [...single, ...several]
}

/** `where: what is wrong. What to do.` */
const form = /: .+\. \S/s

/** Of a whole error, whatever it quotes. */
const maxChars = 600

/** What is wrong with an error; undefined for one of the library. */
export function complaint(what: string, error: unknown): string | undefined {
  if (!(error instanceof Error)) return `${what}: threw what is no error`
  if (!(error instanceof TabringError)) return `${what}: ${error.stack ?? error}`
  if (error.message.length > maxChars)
    return `${what}: ${error.message.length} characters: ${error.message.slice(0, maxChars)}…`
  if (/\[object |\ba [AEIO][a-z]|\ban Uint/.test(error.message))
    return `${what}: a text that is no English: ${error.message}`
  return form.test(error.message) ? undefined : `${what}: a text without advice: ${error.message}`
}

const patience = 10_000

/** How the errors of a function's attempts are judged. */
export const judgeOf =
  (name: string, value: Callable) =>
  ({ what, at }: Attempt, error: unknown): string | undefined => {
    const wrong = complaint(what, error)
    const argument = at === undefined ? undefined : parameterName(value, at)
    if (wrong !== undefined || Object.hasOwn(withoutRight, name)) return wrong
    return misnamed(name, error) ?? (argument && unnamed(name, argument, error))
  }

/** Whether it settles; a promise of the library that waits for ever would end the test without its name. */
export async function complaintOf(
  what: string,
  result: PromiseLike<unknown>,
  judge: (error: unknown) => string | undefined = (error) => complaint(what, error),
): Promise<string | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(resolve, patience, `${what}: the promise does not settle`)
  })
  const settled = Promise.resolve(result).then(() => undefined, judge)
  return Promise.race([settled, late]).finally(() => clearTimeout(timer))
}

export const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
