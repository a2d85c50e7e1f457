import { clipped } from './clipped.ts'

/** What a value is, in a few words for the `got` of an error: `an array of 3`, `Float64Array of 2`, `the number 1.5`, `nothing`. */
export function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return `a plain array of ${value.length}`
  if (ArrayBuffer.isView(value) && 'length' in value)
    return `${value.constructor.name} of ${value.length}${isDetached(value) ? ', whose buffer was transferred away' : ''}`
  if (typeof value === 'number') return `the number ${value}`
  if (typeof value === 'string') return `the string ${JSON.stringify(clipped(value))}`
  if (typeof value === 'bigint') return `the bigint ${clipped(`${value}n`)}`
  if (typeof value !== 'object')
    return typeof value === 'function' ? 'a function' : clipped(String(value))
  if (isOf(value, ArrayBuffer))
    return isDetached(value)
      ? 'an ArrayBuffer that was transferred away'
      : `an ArrayBuffer of ${value.byteLength} bytes`
  if (isOf(value, Promise)) return 'a promise, which lacks an await'
  if (isOf(value, URL)) return `the URL ${clipped(value.href)}`
  if ('shape' in value && isShort(value.shape)) {
    const tensor = `a tensor [${value.shape.join(', ')}]`
    // A parameter inherits a name for it, to refuse what is set.
    return Object.hasOwn(value, 'data')
      ? `${tensor} of ${kindOf(Reflect.get(value, 'data'))}`
      : tensor
  }
  if (!hasNames(value)) return `a ${clipped(tagOf(value))}`
  const kind = isPlain(value) ? '' : ' of a class'
  return `an object${kind} with ${clipped(Object.keys(value).join(', ')) || 'no fields'}`
}

/** Returns whether it has values by name. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns whether it is what a literal makes, in any realm, with values by name: no list, and an object of no class. */
export const isPlain = (value: unknown): value is Record<string, unknown> =>
  hasNames(value) && !Object.getPrototypeOf(Object.getPrototypeOf(value) ?? value)

/** Returns whether it has values by name, as data: also an object of a class, but no list, date, map, promise or array of numbers. */
export const hasNames = (value: unknown): value is Record<string, unknown> =>
  /^(Object|Module)$/.test(tagOf(value))

/** The platform's name of what a value is, the same in every realm. */
const tagOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1)

/** Returns whether it is of one of these classes of the platform, of any realm: `instanceof` knows those of this realm alone, none of a frame's. */
export const isOf = <Classes extends (abstract new (...args: never[]) => unknown)[]>(
  value: unknown,
  ...classes: Classes
): value is InstanceType<Classes[number]> => classes.some(({ name }) => name === tagOf(value))

/** Returns whether it is a signal, or none. */
export const isSignal = (value: unknown): boolean =>
  value === undefined || value === null || isOf(value, AbortSignal)

/** Returns whether it is a text. */
export const isText = (value: unknown): value is string => typeof value === 'string'

/** Returns whether it is a list of texts. */
export const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every(isText)

/** Returns whether it is an object that a loop can go through. */
export const isIterable = (value: unknown): value is Iterable<unknown> =>
  typeof value === 'object' &&
  value !== null &&
  typeof (value as Partial<Iterable<unknown>>)[Symbol.iterator] === 'function' &&
  !isDetached(value)

/** How many elements an array has, for the `got` of an error; of one whose buffer was transferred away, that it was. */
export const countOf = (array: { readonly length: number }): string =>
  isDetached(array) ? kindOf(array) : String(array.length)

/** Returns whether it is a buffer, or an array of one, that was transferred away, as to a worker: the platform throws where it is read. */
export function isDetached(value: unknown): boolean {
  const buffer = ArrayBuffer.isView(value) ? value.buffer : value
  if (!isOf(buffer, ArrayBuffer) || buffer.byteLength > 0) return false
  try {
    // ArrayBuffer.detached is not on every platform.
    new Uint8Array(buffer)
    return false
  } catch {
    return true
  }
}

/** A value as an error quotes it: texts, numbers and short lists of numbers as they are written, and of the rest what kind it is. */
export function quoted(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(clipped(value))
  if (isShort(value)) return `[${value.join(',')}]`
  const isPlain = typeof value === 'number' || typeof value === 'boolean' || value === undefined
  return isPlain ? String(value) : kindOf(value)
}

/** A value as a sentence shows it: as `quoted`, but texts without quotes. */
export const inWords = (value: unknown): string =>
  typeof value === 'string' ? clipped(value) : quoted(value)

const isShort = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.length <= 10 && value.every((one) => typeof one === 'number')
