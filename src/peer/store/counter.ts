import { PeerError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'

/** A counter as stores keep it: decimal text. */
export function counterText(value: number): Uint8Array {
  return new TextEncoder().encode(String(value))
}

/**
 * Returns a counter after `amount` was added, `current` being its bytes, or undefined where there is none yet. As torch's HashStore,
 * it takes the whole number that a text begins with (C++'s stoll), and nothing at all for 0.
 *
 * errors: `config.invalid` for a text that begins with no number, or a sum that a number does not hold exactly.
 */
export function sumOf(where: string, current: Uint8Array | undefined, amount: number): number {
  let from = 0
  if (current && current.length > 0) {
    const text = new TextDecoder().decode(current)
    const found = /^[ \t\n\v\f\r]*([+-]?\d+)/.exec(text)
    if (!found) {
      throw new PeerError(
        'config.invalid',
        `${where}: expected a value that begins with a whole number, got ${quoted(text)}. Give the counter its own key.`,
      )
    }
    from = Number(found[1])
  }
  const sum = from + amount
  if (!Number.isSafeInteger(from) || !Number.isSafeInteger(sum)) {
    throw new PeerError(
      'config.invalid',
      `${where}: expected a sum between ±${Number.MAX_SAFE_INTEGER}, got about ${sum}. Start a new counter.`,
    )
  }
  return sum
}
