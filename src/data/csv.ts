import Papa from 'papaparse'
import { clipped, clippedName } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isText, quoted } from '../util/kind-of.ts'
import { checkArgument, checkList, checkOptions, checkText } from '../util/options.ts'
import { TensorDataset } from './datasets.ts'

export interface CsvOptions {
  /** Default: the one of `,` `;` tab `|` that fits. */
  delimiter?: string
  /** Whether the first record contains the column names. Default true; otherwise they are 0, 1, ... */
  header?: boolean
}

/** Which columns to use, and as what. */
export interface CsvColumns {
  /** Columns of `x`. Default: all except the label or target. */
  features?: readonly string[]
  /** Column with classes: `y` as i32, numbered in the order of `CsvTable.classes`. */
  label?: string
  /** Column with numbers: `y` as f32. Cannot be combined with `label`. */
  target?: string
}

const refuse = (
  where: string,
  expected: string,
  got: string,
  remedy = 'Correct the file, or choose other columns.',
) => new DataError('data.malformed', `${where}: expected ${expected}, got ${got}. ${remedy}`)

// No expression here tries a text in more ways than it has characters: files come from strangers.

/** A decimal number as spreadsheets and Python write it; JavaScript's `0x10` and `0b11` are texts. */
const decimal = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i
const partsOfDecimal = /^([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?$/i

/** A text table. Lines count from 1 as in editors, including the header and empty lines. */
export class CsvTable {
  readonly name: string
  /** The name in errors. */
  readonly #file: string
  readonly columns: readonly string[]
  /** shape: [records, columns]. */
  readonly records: readonly (readonly string[])[]
  /** Line on which each record starts. shape: [records] */
  readonly lines: readonly number[]
  readonly #places: ReadonlyMap<string, number>

  constructor(
    name: string,
    columns: readonly string[],
    records: readonly (readonly string[])[],
    lines: readonly number[],
  ) {
    checkText('CsvTable', 'name', name)
    checkList('CsvTable', 'columns', columns, isText, 'texts')
    const areRows = Array.isArray(records) && (records.length === 0 || Array.isArray(records[0]))
    checkArgument('CsvTable', 'records', records, areRows, 'a list of rows of texts')
    this.name = name
    this.#file = clippedName(name)
    this.columns = columns
    this.records = records
    this.lines = lines
    this.#places = new Map(columns.map((column, at) => [column, at]))
  }

  /** Returns the texts of a column, as in the file. errors: `data.malformed` for an unknown column. */
  texts(column: string): string[] {
    const at = this.#places.get(column)
    if (at === undefined)
      throw refuse(this.#file, `a column ${quoted(column)}`, clipped(this.columns.join(', ')))
    return this.records.map((record) => record[at])
  }

  /**
   * Returns the numbers of a column. errors: `data.malformed`, naming line and column of a value that is not a decimal number or does not
   * fit into f32.
   */
  numbers(column: string): Float32Array<ArrayBuffer> {
    return Float32Array.from(this.#values(column, 'a number'), (text, row) => {
      const where = () => this.#where(column, row)
      if (!decimal.test(text)) throw refuse(where(), 'a decimal number', `"${clipped(text)}"`)
      if (!Number.isFinite(Math.fround(Number(text))))
        throw refuse(where(), 'a number that fits into f32 (up to 3.4e38)', clipped(text))
      return Number(text)
    })
  }

  /**
   * Returns the distinct values of a column: class c of `dataset` is entry c.
   *
   * order: by number if all are numbers that f64 distinguishes (then 1 and 1.0 are one class), otherwise by UTF-16 code units. The latter
   * includes whole numbers beyond 2^53 - 1, such as identifiers, and numbers too large for f64. Spaces around a value are ignored.
   * errors: `data.malformed`, naming line and column of an empty value.
   */
  classes(column: string): string[] {
    return classify(this.#values(column, 'a class')).classes
  }

  /**
   * Returns the table as samples: `x` f32 [features], and `y` according to `columns`.
   *
   * errors: as `numbers` and `classes`; `config.invalid` for an unknown option, or a label together with a target.
   */
  dataset(which: CsvColumns = {}): TensorDataset {
    checkOptions(`dataset of ${this.#file}`, which, { features: true, label: true, target: true })
    const { features, label, target } = which
    if (label !== undefined && target !== undefined)
      throw new DataError(
        'config.invalid',
        `${this.#file}: expected a label or a target, got label "${clipped(label)}" and target "${clipped(target)}". Remove one: y is either a class or a number.`,
      )
    const chosen = features ?? this.columns.filter((name) => name !== label && name !== target)
    const count = this.records.length
    const x = new Float32Array(count * chosen.length)
    chosen.forEach((column, at) => {
      this.numbers(column).forEach((value, row) => {
        x[row * chosen.length + at] = value
      })
    })
    const tensors = { x: { shape: [count, chosen.length], data: x } }
    if (label !== undefined) {
      const data = classify(this.#values(label, 'a class')).targets
      return new TensorDataset({ ...tensors, y: { shape: [count], data } })
    }
    if (target !== undefined)
      return new TensorDataset({
        ...tensors,
        y: { shape: [count], data: this.numbers(target) },
      })
    return new TensorDataset(tensors)
  }

  /** A column's texts without the spaces around them, none of them empty. */
  #values(column: string, expected: string): string[] {
    return this.texts(column).map((text, row) => {
      const value = text.trim()
      if (value === '') throw refuse(this.#where(column, row), expected, 'nothing')
      return value
    })
  }

  #where(column: string, row: number): string {
    return `${this.#file}, line ${this.lines[row]}, column "${clipped(column)}"`
  }
}

/** `text` without those of `characters` that end it. */
function withoutEnd(text: string, characters: string): string {
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

/** Whether values are decimal numbers of which no two that differ are the same number in f64. */
function areDistinctNumbers(values: Iterable<string>): boolean {
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

/** Numbers the distinct values from 0; a class is written as it is where it comes first. */
function classify(values: readonly string[]): {
  classes: string[]
  targets: Int32Array<ArrayBuffer>
} {
  const areNumbers = areDistinctNumbers(new Set(values))
  const key = (value: string) => (areNumbers ? Number(value) : value)
  const written = new Map<string | number, string>()
  for (const value of values) if (!written.has(key(value))) written.set(key(value), value)
  const keys = [...written.keys()].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))
  const number = new Map(keys.map((one, i) => [one, i]))
  return {
    classes: keys.map((one) => written.get(one)!),
    targets: Int32Array.from(values, (value) => number.get(key(value))!),
  }
}

/**
 * Parses comma-separated values (RFC 4180: quotes, doubled quotes, line breaks in quotes; any common delimiter).
 *
 * `name` is the file's name in errors. Empty lines are skipped, as in pandas. In a table with one column only those before the header and
 * at the end are skipped; any other is a missing value.
 * errors: `data.malformed`, naming the line, for bytes that are not UTF-8, an unclosed quote, a record with a different number of fields
 * than the first, repeated column names, or no record at all; `config.invalid` for an unknown option.
 */
export async function readCsv(
  source: string | Blob,
  name: string,
  options: CsvOptions = {},
): Promise<CsvTable> {
  checkText('readCsv', 'name', name)
  checkOptions('readCsv', options, { delimiter: true, header: true })
  const file = clippedName(name)
  const { delimiter = '', header = true } = options
  const text = typeof source === 'string' ? source : await decodeText(source, file)
  // An empty line at the end would count as a record in Papa's guess of the delimiter.
  const { data, errors } = Papa.parse<string[]>(withoutEnd(text, '\r\n'), {
    delimiter,
    // Papa drops nothing, so that lines can be counted.
    skipEmptyLines: false,
  })
  const lineBreak = text.includes('\n') ? '\n' : '\r'
  const breaksIn = (part: string) => part.split(lineBreak).length - 1
  const wrong = errors.find(({ type }) => type === 'Quotes')
  if (wrong) {
    const line = 1 + breaksIn(text.slice(0, wrong.index))
    throw refuse(`${file}, line ${line}`, 'closed quotes', wrong.message)
  }
  let line = 1
  const all = data.map((fields) => {
    const record = { fields, line }
    line += 1 + fields.reduce((sum, field) => sum + breaksIn(field), 0)
    return record
  })
  const isEmpty = ({ fields }: { fields: readonly string[] }) =>
    fields.length === 1 && fields[0].trim() === ''
  const begin = all.findIndex((record) => !isEmpty(record))
  if (begin < 0) throw refuse(file, 'one record or more', 'an empty file')
  const first = all[begin]
  const width = first.fields.length
  const kept = all.slice(begin).filter((record) => width === 1 || !isEmpty(record))
  const odd = kept.find(({ fields }) => fields.length !== width)
  if (odd)
    throw refuse(
      `${file}, line ${odd.line}`,
      `${width} field${width === 1 ? '' : 's'} as in line ${first.line}`,
      `${odd.fields.length}`,
      'Correct the line, quote values that contain the delimiter, or pass the delimiter of the file.',
    )
  const columns = first.fields.map((column, i) => (header ? column.trim() : String(i)))
  const seen = new Set<string>()
  const repeated = columns.find((column) => seen.size === seen.add(column).size)
  if (repeated !== undefined)
    throw refuse(
      `${file}, line ${first.line}`,
      'distinct column names',
      `"${clipped(repeated)}" more than once`,
      'Rename one, or read it with header: false.',
    )
  const records = header ? kept.slice(1) : kept
  return new CsvTable(
    name,
    columns,
    records.map(({ fields }) => fields),
    records.map((record) => record.line),
  )
}

async function decodeText(blob: Blob, name: string): Promise<string> {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(await blob.arrayBuffer())
  } catch {
    throw refuse(name, 'UTF-8 text', 'other bytes', 'Save the file as UTF-8.')
  }
}
