import { runInNewContext } from 'node:vm'

const other = runInNewContext('globalThis') as typeof globalThis

/** The value with arrays, maps and plain objects of another realm in place of this one's, as those of a frame are. */
export function ofOtherRealm(value: unknown): unknown {
  if (value instanceof ArrayBuffer) return new other.Uint8Array(new Uint8Array(value)).buffer
  if (ArrayBuffer.isView(value)) {
    const { name } = value.constructor
    const Other = Reflect.get(other, name) as typeof Float32Array | undefined
    return Other ? Other.from(value as Float32Array) : value
  }
  if (Array.isArray(value)) return other.Array.from(value, ofOtherRealm)
  if (value instanceof Map)
    return new other.Map([...value].map(([key, one]) => [key, ofOtherRealm(one)]))
  if (typeof value !== 'object' || value === null) return value
  if (Object.getPrototypeOf(value) !== Object.prototype) return value
  return Object.assign(
    new other.Object(),
    ...Object.entries(value).map(([key, one]) => ({ [key]: ofOtherRealm(one) })),
  )
}
