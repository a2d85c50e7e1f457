import { Tensor } from '../../graph/trace/tensor.ts'
import { clipped } from '../../util/clipped.ts'
import { ShapeError } from '../../util/errors.ts'
import { inWords, isOf, isPlain, kindOf, quoted } from '../../util/kind-of.ts'

/** `value` with every tensor in it replaced; arrays, maps and plain objects are walked, everything else is kept as it is. */
export function mapTensors(value: unknown, replace: (tensor: Tensor) => unknown): unknown {
  if (value instanceof Tensor) return replace(value)
  const inside = (item: unknown) => mapTensors(item, replace)
  if (Array.isArray(value)) return value.map(inside)
  if (isOf(value, Map)) return new Map([...value].map(([key, item]) => [key, inside(item)]))
  if (!isPlain(value)) return value
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
      `gather: outputs must have one structure, and ${what}. Return tensors, or arrays, maps and plain objects of tensors, of one structure for each share.`,
    )
  const at = (parts: readonly unknown[]) => zipTensors(parts, join)
  if (values.every((value) => value instanceof Tensor)) return join(values as Tensor[])
  if (values.every((value) => Array.isArray(value))) {
    const lengths = values.map(({ length }) => length)
    if (lengths.some((length) => length !== lengths[0]))
      throw refuse(`the replicas returned arrays of ${lengths.join(', ')} parts`)
    return values[0].map((_, i) => at(values.map((own) => own[i])))
  }
  const keyed = (maps: readonly Map<unknown, unknown>[]) => {
    const keys = [...new Set(maps.flatMap((map) => [...map.keys()]))]
    const missing = keys.find((key) => !maps.every((map) => map.has(key)))
    if (missing !== undefined) throw refuse(`not all replicas returned ${quoted(missing)}`)
    return keys.map((key) => [key, at(maps.map((map) => map.get(key)))] as const)
  }
  if (values.every((value) => isOf(value, Map))) return new Map(keyed(values))
  if (values.every(isPlain))
    return Object.fromEntries(keyed(values.map((value) => new Map(Object.entries(value)))))
  if (typeof first !== 'object' && typeof first !== 'function') {
    if (values.every((value) => Object.is(value, first))) return first
    throw refuse(`the replicas returned ${clipped(values.map(inWords).join(', '))} in one place`)
  }
  if (values.every((value) => value === null)) return null
  throw refuse(`a replica returned ${kindOf(values.find((value) => !isPlain(value)) ?? first)}`)
}
