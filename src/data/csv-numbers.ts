import { clipped } from '../util/clipped.ts'
import { quoted } from '../util/kind-of.ts'

/** How a table's numbers are written. */
export interface CsvNumbers {
  /** The mark before a number's fraction. Default `.`. */
  decimal?: '.' | ','
  /** The mark between a number's groups of three digits, such as `,` in 1,234. Default: none. */
  thousands?: string
  /**
   * The number in the place of missing values (empty, `NA`, `NaN`, `null` and the others of pandas), as pandas' `fillna`; `skip` leaves out
   * records with a missing value in any column, as `dropna`; `keep` takes `NA` and its like as texts, as `keep_default_na=False`. Default:
   * they are errors in the columns that are used.
   */
  missing?: number | 'skip' | 'keep'
}

/** What pandas takes as missing, besides nothing. */
const missingTexts = new Set(
  '#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null'.split(
    '|',
  ),
)
export const isMissing = (value: string): boolean => value === '' || missingTexts.has(value)

// No expression here tries a text in more ways than it has characters: files come from strangers.

/** A decimal number as spreadsheets and Python write it; JavaScript's `0x10` and `0b11` are texts. */
export const decimal = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i
const partsOfDecimal = /^([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?$/i

/** `text` without those of `characters` that end it. */
export function withoutEnd(text: string, characters: string): string {
  let end = text.length
  while (end > 0 && characters.includes(text[end - 1])) end--
  return text.slice(0, end)
}

/** A decimal number without what spellings differ in: its digits from the first to the last that is not 0, times a power of ten. */
function exactly(text: string): string {
  const [, sign, whole, fraction = '', exponent = '0'] = partsOfDecimal.exec(text)!
  const digits = (whole + fraction).replace(/^0+/, '')
  const significant = withoutEnd(digits, '0')
  if (significant === '') return '0'
  const power = BigInt(exponent) + BigInt(digits.length - significant.length - fraction.length)
  return `${sign === '-' ? '-' : ''}${significant}e${power}`
}

/** Returns whether a decimal number in the range of f32 is written as a whole one that f32 does not hold. */
export function isRoundedWhole(text: string): boolean {
  if (!/^[+-]?\d+$/.test(text)) return false
  const digits = text.replace(/^[+-]?0*(?=\d)/, '')
  return BigInt(digits) !== BigInt(Math.fround(Number(digits)))
}

/** Returns whether values are decimal numbers of which no two that differ are the same number in f64. */
export function areDistinctNumbers(values: Iterable<string>): boolean {
  const spelt = new Map<number, string>()
  for (const text of values) {
    const value = Number(text)
    const isExact =
      Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value))
    if (!decimal.test(text) || !isExact) return false
    const exact = exactly(text)
    if ((spelt.get(value) ?? exact) !== exact) return false
    spelt.set(value, exact)
  }
  return true
}

/** A number as `decimal` takes it, of one that is written as the options say; what is not written so is no number. */
export function plainNumber(text: string, { decimal: mark = '.', thousands }: CsvNumbers): string {
  const [whole, ...rest] = text.split(mark)
  const groups = thousands === undefined ? [whole] : whole.split(thousands)
  const first = groups[0].replace(/^[+-]/, '')
  const areThousands =
    groups.length === 1 ||
    (/^\d{1,3}$/.test(first) && groups.slice(1).every((group) => /^\d{3}$/.test(group)))
  // A point is no decimal mark where that is a comma.
  const isOther = mark !== '.' && [...groups, ...rest].some((part) => part.includes('.'))
  return areThousands && !isOther ? [groups.join(''), ...rest].join('.') : 'another number'
}

export const gotOf = (value: string) => (value === '' ? 'nothing' : `"${clipped(value)}"`)

export const missingRemedy =
  'Correct the file, pass missing: 0 for a number in its place or missing: "skip" to leave out such records, or choose other columns.'

/** What to do about a text that is no number as the options say, but would be with others. */
export function remedyFor(value: string, now: CsvNumbers): string | undefined {
  const marks = [',', '.', ' ', "'", '\u00a0', '\u202f']
  const isNumber = (numbers: CsvNumbers) => decimal.test(plainNumber(value, { ...now, ...numbers }))
  const decimals = ([',', '.'] as const).filter((mark) => isNumber({ decimal: mark }))
  const thousands = marks.filter((mark) => isNumber({ thousands: mark }))
  const both = marks.filter((mark) => isNumber({ decimal: ',', thousands: mark }))
  const one = [
    ...decimals.map((mark) => `decimal: ${quoted(mark)}`),
    ...thousands.map((mark) => `thousands: ${quoted(mark)}`),
  ]
  const two = both.map((mark) => `decimal: "," and thousands: ${quoted(mark)}`)
  const words = one.length > 0 ? one : two
  return words.length > 0
    ? `Pass ${words.join(' or ')} as the file means it, or correct the file.`
    : undefined
}
