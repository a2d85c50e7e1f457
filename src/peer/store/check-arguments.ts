import { clipped } from '../../util/clipped.ts'
import { ArgumentTypeError, PeerError, TabringError } from '../../util/errors.ts'
import { isDetached, isOf, quoted } from '../../util/kind-of.ts'
import { checkNumber, longestTimeoutMs } from '../../util/options.ts'

/** Checks of a store's arguments: JavaScript knows no types. */

/** errors: `config.invalid` for a time that no timer waits. */
export function checkTimeout(
  where: string,
  timeoutMs: number | undefined,
  isRequired = false,
): void {
  const isTime = (value: number) => value >= 0 && value <= longestTimeoutMs
  const range = `from 0 (no limit) to ${longestTimeoutMs}`
  checkNumber(where, 'timeoutMs', timeoutMs, isTime, range, isRequired)
}

/** `store.get("key")`: how errors name a call. errors: a TypeError for a key that is no text. */
export function nameOf(method: string, key: string): string {
  if (typeof key !== 'string') {
    throw new ArgumentTypeError(
      `store.${method}: key must be a string, got ${quoted(key)}. Write String(key).`,
    )
  }
  return `store.${method}(${quoted(key)})`
}

/** The keys, copied. errors: a TypeError for what is no list of texts. */
export function keysOf(keys: readonly string[]): string[] {
  if (!Array.isArray(keys)) {
    throw new ArgumentTypeError(
      `store.wait: keys must be an array, got ${quoted(keys)}. Write [key].`,
    )
  }
  for (const key of keys) nameOf('wait', key)
  return [...keys]
}

/** The value's bytes, copied: the caller may write into its array later. errors: a TypeError for what has none. */
export function bytesOf(where: string, value: string | Uint8Array): Uint8Array<ArrayBuffer> {
  if (typeof value === 'string') return new TextEncoder().encode(value)
  if (isOf(value, Uint8Array) && !isDetached(value)) return new Uint8Array(value)
  throw new ArgumentTypeError(
    `${where}: the value must be a string or a Uint8Array, got ${quoted(value)}. Convert it, for example with JSON.stringify.`,
  )
}

/** errors: `config.invalid` for what is no whole number. */
export function checkAmount(where: string, amount: number): void {
  if (Number.isSafeInteger(amount)) return
  throw new TabringError(
    'config.invalid',
    `${where}: amount must be a whole number, got ${quoted(amount)}. Round it.`,
  )
}

/** The error of a wait that took too long. */
export function lateError(where: string, missing: readonly string[], count: number, ms: number) {
  const shown = missing.slice(0, 16).map(quoted)
  const rest = count > shown.length ? ` and ${count - shown.length} more` : ''
  return new PeerError(
    'peer.timeout',
    `${where}: timed out after ${ms} ms without ${clipped(shown.join(', '), 400)}${rest}. Check that the rank that sets them is running, or wait longer.`,
  )
}
