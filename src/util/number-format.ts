import { clipped } from './clipped.ts'
import { TabringError } from './errors.ts'

/** `:6.2f`, `.4e`: width, digits after the point, and notation, as Python's format specifications. */
const specification = /^:?(?<width>\d*)(?:\.(?<digits>\d+))?(?<notation>[fe])$/

/**
 * Returns what writes numbers as Python's `format` does with this specification: `:6.2f`, `:.4e`, `:f`.
 *
 * The colon may be left out; without digits there are six. What lies exactly between two texts goes away from zero.
 * errors: `config.invalid` for any other specification.
 */
export function numberFormat(
  spec: string,
  where = 'numberFormat',
  name = 'spec',
): (value: number) => string {
  const parts = specification.exec(spec)?.groups
  const digits = Number(parts?.digits ?? 6)
  if (!parts || digits > 100)
    throw new TabringError(
      'config.invalid',
      `${where}: ${name} must be a format such as ":6.2f" or ":.4e" with at most 100 digits, got "${clipped(spec)}". Correct the format.`,
    )
  const write = parts.notation === 'f' ? writeFixed : writeExponential
  return (value) => {
    const text = Number.isFinite(value) ? write(value, digits) : words(value)
    return text.padStart(Number(parts.width))
  }
}

const words = (value: number) => String(value).replace('Infinity', 'inf').replace('NaN', 'nan')

/** From 10^21 on, where `toFixed` changes its notation, numbers are whole. */
const writeFixed = (value: number, digits: number) =>
  Math.abs(value) < 1e21
    ? value.toFixed(digits)
    : `${BigInt(value)}${digits > 0 ? `.${'0'.repeat(digits)}` : ''}`

/** Python's exponents have two digits or more. */
const writeExponential = (value: number, digits: number) =>
  value.toExponential(digits).replace(/(?<=e[+-])(?=\d$)/, '0')
