import { Tensor } from '../../graph/trace/tensor.ts'

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

/** Joins values of one structure: tensors that stand in the same place go to `join`; of everything else the first is taken. */
export function zipTensors(
  values: readonly unknown[],
  join: (tensors: readonly Tensor[]) => Tensor,
): unknown {
  const [first] = values
  if (first instanceof Tensor) return join(values as Tensor[])
  const at = (pick: (value: never) => unknown) => zipTensors((values as never[]).map(pick), join)
  if (Array.isArray(first)) return first.map((_, i) => at((value: unknown[]) => value[i]))
  if (first instanceof Map) {
    const keys = [...first.keys()]
    return new Map(keys.map((key) => [key, at((value: Map<unknown, unknown>) => value.get(key))]))
  }
  if (!isRecord(first)) return first
  return Object.fromEntries(
    Object.keys(first).map((key) => [key, at((value: Record<string, unknown>) => value[key])]),
  )
}
