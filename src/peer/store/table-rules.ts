import { sameBytes } from '../../util/same-bytes.ts'
import { counterText, sumOf } from './counter.ts'

/** The part of a table that `add` and `compareSet` need where its values are not sealed. */
interface Table {
  get(key: string): Uint8Array | undefined
  set(key: string, value: Uint8Array): unknown
}

/** See `Store.add`; the amount has been checked. */
export function addIn(where: string, values: Table, key: string, amount: number): number {
  const sum = sumOf(where, values.get(key), amount)
  values.set(key, counterText(sum))
  return sum
}

/** See `Store.compareSet`. */
export function compareSetIn(
  values: Table,
  key: string,
  expected: Uint8Array,
  desired: Uint8Array,
): Uint8Array {
  const current = values.get(key)
  if (!current && expected.length > 0) return expected
  if (current && !sameBytes(current, expected)) return current
  values.set(key, desired)
  return desired
}
