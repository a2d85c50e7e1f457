import { Tensor } from '../../graph/trace/tensor.ts'
import { ShapeError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

/** `value` with every tensor in it replaced; arrays, maps and plain objects are walked, everything else is kept as it is. */
export function mapTensors(value: unknown, replace: (tensor: Tensor) => unknown): unknown {
  if (value instanceof Tensor) return replace(value)
  const inside = (item: unknown) => mapTensors(item, replace)
  if (Array.isArray(value)) return value.map(inside)
  if (value instanceof Map) return new Map([...value].map(([key, item]) => [key, inside(item)]))
  if (!isRecord(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, inside(item)]))
}

/**
 * Joins values of one structure: tensors that stand in the same place go to `join`; of numbers, texts and the like, which must be equal, the
 * first is taken.
 *
 * errors: `shape.unsupported` for values of other structures, unequal numbers, and objects of classes.
 */
export function zipTensors(
  values: readonly unknown[],
  join: (tensors: readonly Tensor[]) => Tensor,
): unknown {
  const [first] = values
  const refuse = (what: string) =>
    new ShapeError(
      'shape.unsupported',
      `gather: ${what}. Return tensors, or arrays, maps and plain objects of tensors, of one structure for each share.`,
    )
  const inside = (parts: readonly (readonly unknown[])[], what: string) => {
    if (parts.some((own) => own.length !== parts[0].length))
      throw refuse(
        `the replicas returned ${what} of ${parts.map((own) => own.length).join(', ')} parts`,
      )
    return parts[0].map((_, i) =>
      zipTensors(
        parts.map((own) => own[i]),
        join,
      ),
    )
  }
  if (values.every((value) => value instanceof Tensor)) return join(values as Tensor[])
  if (values.every((value) => Array.isArray(value))) return inside(values, 'arrays')
  if (values.every((value) => value instanceof Map)) {
    const maps = values as Map<unknown, unknown>[]
    const keys = [...maps[0].keys()]
    return new Map(
      inside(
        maps.map((map) => [...map].map(([, value]) => value)),
        'maps',
      ).map((value, i) => [keys[i], value]),
    )
  }
  if (values.every(isRecord)) {
    const keys = Object.keys(first as object)
    const parts = values.map((value) => {
      const own = value as Record<string, unknown>
      const missing = keys.find((key) => !(key in own))
      if (missing !== undefined)
        throw refuse(`a replica returned no "${missing}", and the first did`)
      return [...keys, ...Object.keys(own).filter((key) => !keys.includes(key))].map(
        (key) => own[key],
      )
    })
    return Object.fromEntries(inside(parts, 'objects').map((value, i) => [keys[i], value]))
  }
  if (typeof first !== 'object' && typeof first !== 'function') {
    if (values.every((value) => Object.is(value, first))) return first
    throw refuse(`the replicas returned ${values.map(String).join(', ')} in one place`)
  }
  if (values.every((value) => value === null)) return null
  throw refuse(`a replica returned ${kindOf(values.find((value) => !isRecord(value)) ?? first)}`)
}
