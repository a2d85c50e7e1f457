import { TabringError } from './errors.ts'
import { checkArgument } from './options.ts'
import { ownOf } from './own-of.ts'

// What a type checker would refuse, for callers without one: JavaScript drops surplus arguments, and answers unknown names with undefined.

interface Class {
  readonly name: string
  readonly prototype: object
}

type Method = (this: unknown, ...args: unknown[]) => unknown

/** The class of an object as an error names it: its own, which extends `kind`; of tensors that one. */
function classOf(object: unknown, kind: Class): string {
  const own = object instanceof (kind as never) ? (object as object).constructor.name : ''
  return kind.name === 'Tensor' ? kind.name : own || kind.name
}

/** Returns whether a function was called with what `map` and `forEach` of an array give: an item, its place and the array. */
const isOfLoop = ([item, at, list]: readonly unknown[]): boolean =>
  Array.isArray(list) && typeof at === 'number' && Object.is(list[at], item)

/** errors: a TypeError, naming `where`, for an argument after the first `max`, except those of a loop. `instead`: what to write, in brackets. */
export function refuseExtra(
  where: string,
  args: readonly unknown[],
  max: number,
  instead = '',
): void {
  const at = args.findIndex((arg, i) => i >= max && arg !== undefined)
  if (at === 1 && args.length === 3 && isOfLoop(args)) return
  checkArgument(
    where,
    `argument ${at + 1}`,
    args[at],
    at < 0,
    `omitted${instead && ` (${instead})`}`,
  )
}

/** Makes the methods of a class refuse more arguments than they take. `max`: of those whose signatures have defaults, how many that is. */
export function countArguments(
  kind: Class,
  max: Readonly<Record<string, number>> = {},
  instead: Readonly<Record<string, string>> = {},
): void {
  const own = Object.getOwnPropertyDescriptors(kind.prototype)
  for (const [name, property] of Object.entries(own)) {
    const method: unknown = property.value
    if (typeof method !== 'function' || name === 'constructor') continue
    const count = ownOf(max, name) ?? method.length
    const value: Method = function (...args) {
      refuseExtra(`${classOf(this, kind)}.${name}`, args, count, ownOf(instead, name))
      return (method as Method).apply(this, args)
    }
    for (const key of ['name', 'length'] as const)
      Object.defineProperty(value, key, { value: method[key] })
    Object.defineProperty(kind.prototype, name, { ...property, value })
  }
}

/** PyTorch's names of what is no method there. */
const fields = new Set(['ndim', 'T', 'mT', 'param_groups'])

const isField = (kind: Class, name: string): boolean =>
  Boolean(Object.getOwnPropertyDescriptor(kind.prototype, name)?.get)

/**
 * Makes PyTorch's names throw what to write instead: those that only the spelling tells from names of this class, and those in `others`.
 *
 * Names of methods throw where they are called, or taken for a number: objects may have them for themselves. Names of fields throw where
 * they are read. Classes that are extended have `isOpen`: a subclass may set those too.
 */
export function refusePythonNames(
  kind: Class,
  others: Readonly<Record<string, string>> = {},
  isOpen = false,
): void {
  const spelled = Object.getOwnPropertyNames(kind.prototype).map((name) => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    name,
  ])
  for (const [name, instead] of [...spelled, ...Object.entries(others)]) {
    if (Object.hasOwn(kind.prototype, name)) continue
    const refuse = (object: unknown): never => {
      throw new TabringError(
        'graph.misuse',
        `${classOf(object, kind)}: ${name} is a name of PyTorch. Write ${instead}.`,
      )
    }
    const isRead = fields.has(name) || isField(kind, instead)
    Object.defineProperty(kind.prototype, name, {
      get() {
        if (isRead) refuse(this)
        const method = () => refuse(this)
        return Object.defineProperty(method, Symbol.toPrimitive, { value: method })
      },
      set(value: unknown) {
        if (isRead && !isOpen) refuse(this)
        Object.defineProperty(this, name, {
          value,
          writable: true,
          enumerable: true,
          configurable: true,
        })
      },
      configurable: true,
    })
  }
}

/** The results of `where`, by name. PyTorch's are in order: a loop over these, as in `const [a, b] = …`, is refused with what to write. */
export function byName<Results extends object>(where: string, results: Results): Results {
  return Object.defineProperty(results, Symbol.iterator, {
    value: (): never => {
      throw new TabringError(
        'graph.misuse',
        `${where}: returns an object, not a list. Write const { ${Object.keys(results).join(', ')} } = ….`,
      )
    },
  })
}
