import { clipped } from './clipped.ts'
import { formatShape, type Shape } from './shape.ts'

/** What a value is, in a few words for the `got` of an error: `an array of 3`, `Float64Array of 2`, `the number 1.5`, `nothing`. */
export function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return `a plain array of ${value.length}`
  if (ArrayBuffer.isView(value) && 'length' in value)
    return `${value.constructor.name} of ${value.length}`
  if (typeof value === 'number') return `the number ${value}`
  if (typeof value === 'string') return `the string ${JSON.stringify(clipped(value))}`
  if (typeof value !== 'object') return typeof value === 'function' ? 'a function' : String(value)
  if ('shape' in value && isShort(value.shape)) {
    const tensor = `a tensor ${formatShape(value.shape as Shape)}`
    return 'data' in value ? `${tensor} of ${kindOf(value.data)}` : tensor
  }
  return `an object with ${clipped(Object.keys(value).join(', ')) || 'no fields'}`
}

/** Whether it has values by name. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A value as an error quotes it: texts, numbers and short lists of numbers as they are written, and of the rest what kind it is. */
export function quoted(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(clipped(value))
  if (isShort(value)) return JSON.stringify(value)
  return typeof value === 'object' || typeof value === 'function' ? kindOf(value) : String(value)
}

const isShort = (value: unknown): boolean =>
  Array.isArray(value) && value.length <= 10 && value.every((one) => typeof one === 'number')
