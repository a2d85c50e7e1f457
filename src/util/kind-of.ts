import { formatShape, type Shape } from './shape.ts'

/** What a value is, in a few words for the `got` of an error: `an array of 3`, `Float64Array of 2`, `the number 1.5`, `nothing`. */
export function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return `a plain array of ${value.length}`
  if (ArrayBuffer.isView(value) && 'length' in value)
    return `${value.constructor.name} of ${value.length}`
  if (typeof value === 'number') return `the number ${value}`
  if (typeof value === 'string') return `the string ${JSON.stringify(value.slice(0, 40))}`
  if (typeof value !== 'object') return typeof value === 'function' ? 'a function' : `${value}`
  if ('data' in value && 'shape' in value && Array.isArray(value.shape))
    return `a tensor ${formatShape(value.shape as Shape)} of ${kindOf(value.data)}`
  return `an object with ${Object.keys(value).join(', ') || 'no fields'}`
}
