import { ones } from '../../src/entries/index.ts'
import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import {
  call,
  called,
  makesGroup,
  otherArguments,
  tensorArguments,
  withoutRight,
} from './api-arguments.ts'
import { isPromise } from './api-attempts.ts'
import { publicMethods } from './api-methods.ts'

// What the spec of options passes: every option that an export or a method of one takes, which its own error for an unknown one lists.

/** A value of each kind, of which an option takes one. */
export const ofEachKind: Readonly<Record<string, readonly unknown[]>> = {
  flag: [true, false],
  number: [0, -1, 1.5, Number.NaN, 1e30],
  text: ['', 'abc', 'x'.repeat(10_000)],
  list: [[], [1, 4], ['a'], [Symbol('s')]],
  function: [() => 0],
  symbol: [Symbol('s')],
  bigint: [10n],
  object: [{}, { x: 1 }],
  instance: [new Date(0), new Map([['x', 1]]), Float32Array.of(1, 2)],
}

/** Options that take values of several kinds, of one export or of all. */
export const mixedKinds: Readonly<Record<string, readonly string[]>> = {
  'DataLoader sampler': ['list', 'instance'],
  'DistributedDataParallel exact': ['flag', 'object'],
  outputPadding: ['number', 'list'],
  padding: ['number', 'list'],
  posWeight: ['list', 'instance'],
  stride: ['number', 'list'],
  weight: ['list', 'instance'],
}

/** Options that the promise of a `Work` or a later call checks. */
export const leftOutOptions: readonly string[] = [
  'isend group',
  'irecv group',
  'P2POp group',
  'P2POp tag',
]

const unknown = 'noSuchOption'

const isOptions = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

/** What takes options. */
interface Taker {
  readonly name: string
  readonly isTraced: boolean
  readonly args: () => unknown[]
  readonly call: (args: unknown[]) => unknown
}

/** An export's options at one place of its arguments. */
export interface OptionsOf {
  readonly name: string
  readonly options: readonly string[]
  /** `base`: what the options are set on. */
  readonly pass: (option: string, value: unknown, base?: object) => unknown
}

const last = 5

/** What a call throws, or rejects with; undefined for one that does neither. */
export async function errorOf(pass: () => unknown): Promise<unknown> {
  try {
    const result = pass()
    // What waits for other ranks has taken its options.
    if (isPromise(result)) await Promise.race([result, new Promise((end) => setTimeout(end, 10))])
    return undefined
  } catch (error) {
    return error
  }
}

/** The options that are taken, by the error for one that is not. */
export async function optionsOf({ name, isTraced, args, call }: Taker): Promise<OptionsOf[]> {
  const all: OptionsOf[] = []
  for (let at = 0; at < last; at++) {
    const pass = (option: string, given: unknown, base: object = {}) => {
      const run = () => {
        const right = args()
        while (right.length <= at) right.push(undefined)
        right[at] = Object.assign(base, isOptions(right[at]) ? right[at] : {}, { [option]: given })
        return call(right)
      }
      return isTraced ? withTrace(new Trace(), run) : run()
    }
    const error = await errorOf(() => pass(unknown, 1))
    const known = error instanceof Error && /among (.*), got "noSuchOption"/.exec(error.message)
    if (known) all.push({ name, options: known[1].split(', '), pass })
  }
  return all
}

const make = (shape: readonly number[], dtype?: 'f32' | 'i32' | 'u32') => ones(shape, dtype)

const exportsWithOptions = called
  .filter(([name]) => !Object.hasOwn(withoutRight, name) && !makesGroup.includes(name))
  .map(([name, value]): Taker => {
    const isTraced = withTrace(new Trace(), () => tensorArguments(name, make) !== undefined)
    const args = () => (isTraced ? tensorArguments(name, make) : otherArguments(name)) ?? []
    return { name, isTraced, args, call: (given) => call(value, given) }
  })

type Methods = Record<string, (...given: unknown[]) => unknown>

const methodsWithOptions = (): Taker[] =>
  publicMethods().map(({ name, key, make, isTraced, args }) => ({
    name,
    isTraced,
    args,
    call: (given) => (make() as Methods)[key](...given),
  }))

export const withOptions = (): Taker[] => [...exportsWithOptions, ...methodsWithOptions()]
