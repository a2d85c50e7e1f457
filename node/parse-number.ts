import { InvalidArgumentError } from 'commander'
import { clipped } from '../src/util/clipped.ts'

/** Returns a parser of an option's value for Commander: a whole number in a range. */
export function wholeNumber(minimum: number, maximum = Number.MAX_SAFE_INTEGER) {
  return (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isSafeInteger(value) && value >= minimum && value <= maximum)
      return value
    const range =
      maximum === Number.MAX_SAFE_INTEGER
        ? `of ${minimum} or more`
        : `from ${minimum} to ${maximum}`
    throw new InvalidArgumentError(`Expected a whole number ${range}, got "${clipped(text)}".`)
  }
}

/** Returns a parser of an option's value for Commander: a number above 0, or of 0 too. */
export function positiveNumber(canBeZero: boolean) {
  return (text: string): number => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isFinite(value) && (value > 0 || (canBeZero && value === 0)))
      return value
    throw new InvalidArgumentError(
      `Expected a number ${canBeZero ? 'of 0 or more' : 'above 0'}, got "${clipped(text)}".`,
    )
  }
}
