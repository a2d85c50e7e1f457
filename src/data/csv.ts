import Papa from 'papaparse'
import { clipped, clippedName } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isOf, isText, quoted } from '../util/kind-of.ts'
import { checkArgument, checkList, checkOptions, checkText } from '../util/options.ts'
import { readBytes } from './byte-source.ts'
import {
  areDistinctNumbers,
  type CsvNumbers,
  decimal,
  gotOf,
  isMissing,
  isRoundedWhole,
  missingRemedy,
  plainNumber,
  remedyFor,
  withoutEnd,
} from './csv-numbers.ts'
import { TensorDataset } from './datasets.ts'
import { foreignBytes, foreignFile } from './foreign.ts'
import { decodeUtf8 } from './utf8.ts'

export interface CsvOptions extends CsvNumbers {
  /** Default: the one of `,` `;` tab `|` that fits. */
  delimiter?: string
  /** True if the first record contains the column names. Default true; otherwise they are 0, 1, ... */
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

const isNothing = (value: string) => value === ''

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
  readonly #numbers: CsvNumbers
  /** Columns of whose rounded numbers the console has a line. */
  readonly #said = new Set<string>()

  constructor(
    name: string,
    columns: readonly string[],
    records: readonly (readonly string[])[],
    lines: readonly number[],
    numbers: CsvNumbers = {},
  ) {
    checkOptions('CsvTable', numbers, { decimal: true, thousands: true, missing: true })
    checkNumbers('CsvTable', numbers)
    checkText('CsvTable', 'name', name)
    checkList('CsvTable', 'columns', columns, isText, 'texts')
    const areRows = Array.isArray(records) && (records.length === 0 || Array.isArray(records[0]))
    checkArgument('CsvTable', 'records', records, areRows, 'a list of rows of texts')
    this.name = name
    this.#file = clippedName(name)
    this.columns = columns
    this.records = records
    this.lines = lines
    this.#numbers = numbers
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
   * Returns the numbers of a column. Logs a warning where f32 rounds whole numbers, such as identifiers.
   *
   * errors: `data.malformed`, naming line and column of a value that is missing, is not a decimal number or does not fit into f32.
   */
  numbers(column: string): Float32Array<ArrayBuffer> {
    const { missing } = this.#numbers
    const rounded: number[] = []
    const numbers = Float32Array.from(this.texts(column), (text, row) => {
      const where = () => this.#where(column, row)
      const value = text.trim()
      if (isMissing(value)) {
        if (typeof missing === 'number') return missing
        throw refuse(where(), 'a number', gotOf(value), missingRemedy)
      }
      const number = plainNumber(value, this.#numbers)
      if (!decimal.test(number))
        throw refuse(where(), 'a decimal number', gotOf(value), remedyFor(value, this.#numbers))
      if (!Number.isFinite(Math.fround(Number(number))))
        throw refuse(where(), 'a number that fits into f32 (up to 3.4e38)', clipped(value))
      if (isRoundedWhole(number)) rounded.push(row)
      return Number(number)
    })
    if (rounded.length > 0) this.#sayRounded(column, rounded, numbers)
    return numbers
  }

  #sayRounded(column: string, rows: readonly number[], numbers: Float32Array): void {
    if (this.#said.has(column)) return
    this.#said.add(column)
    const [first] = rows
    console.warn(
      `${this.#where(column, first)}: ${clipped(this.texts(column)[first])} is ${numbers[first]} in f32, as ${rows.length} whole ${rows.length === 1 ? 'number of the column is' : 'numbers of the column are'} rounded. If they are identifiers, leave the column out of features, or pass it as label.`,
    )
  }

  /**
   * Returns the distinct values of a column: class c of `dataset` is entry c.
   *
   * order: by number if all are numbers that f64 distinguishes (then 1 and 1.0 are one class), otherwise by UTF-16 code units. The latter
   * includes whole numbers beyond 2^53 - 1, such as identifiers, and numbers too large for f64. Spaces around a value are ignored.
   * errors: `data.malformed`, naming line and column of an empty value, and of `NA` and its like unless texts are kept.
   */
  classes(column: string): string[] {
    return this.#classify(column).classes
  }

  /**
   * Returns the table as samples: `x` f32 [features], and `y` according to `columns`.
   *
   * errors: as `numbers` and `classes`; `data.malformed` for a table without records; `config.invalid` for an unknown option, or a label together with a target.
   */
  dataset(which: CsvColumns = {}): TensorDataset {
    checkOptions(`dataset of ${this.#file}`, which, {
      features: 'list',
      label: 'text',
      target: 'text',
    })
    const { features, label, target } = which
    if (label !== undefined && target !== undefined)
      throw new DataError(
        'config.invalid',
        `${this.#file}: expected a label or a target, got label "${clipped(label)}" and target "${clipped(target)}". Remove one: y is either a class or a number.`,
      )
    const chosen = features ?? this.columns.filter((name) => name !== label && name !== target)
    const count = this.records.length
    if (count === 0) throw refuse(this.#file, 'one record or more', 'none besides the header')
    const x = new Float32Array(count * chosen.length)
    chosen.forEach((column, at) => {
      this.numbers(column).forEach((value, row) => {
        x[row * chosen.length + at] = value
      })
    })
    const tensors = { x: { shape: [count, chosen.length], data: x } }
    if (label !== undefined) {
      const data = this.#classify(label).targets
      return new TensorDataset({ ...tensors, y: { shape: [count], data } })
    }
    if (target !== undefined)
      return new TensorDataset({
        ...tensors,
        y: { shape: [count], data: this.numbers(target) },
      })
    return new TensorDataset(tensors)
  }

  /** Numbers the distinct values of a column from 0; a class is written as it is where it comes first. */
  #classify(column: string): { classes: string[]; targets: Int32Array<ArrayBuffer> } {
    const values = this.texts(column).map((text) => text.trim())
    const isKept = this.#numbers.missing === 'keep'
    const present = values.filter((value) => !isMissing(value))
    const numbers = new Map(
      [...new Set(present)].map((value) => [value, plainNumber(value, this.#numbers)]),
    )
    const areNumbers = numbers.size > 0 && areDistinctNumbers(numbers.values())
    const lacking = values.findIndex(isKept && !areNumbers ? isNothing : isMissing)
    if (lacking >= 0)
      throw refuse(
        this.#where(column, lacking),
        'a class',
        gotOf(values[lacking]),
        'Correct the file, pass missing: "skip" to leave out such records or missing: "keep" for a class of that name, or choose other columns.',
      )
    const key = (value: string) => (areNumbers ? Number(numbers.get(value)) : value)
    const written = new Map<string | number, string>()
    for (const value of values) if (!written.has(key(value))) written.set(key(value), value)
    const keys = [...written.keys()].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))
    const number = new Map(keys.map((one, i) => [one, i]))
    return {
      classes: keys.map((one) => written.get(one)!),
      targets: Int32Array.from(values, (value) => number.get(key(value))!),
    }
  }

  #where(column: string, row: number): string {
    return `${this.#file}, line ${this.lines[row]}, column "${clipped(column)}"`
  }
}

/**
 * Parses comma-separated values (RFC 4180: quotes, doubled quotes, line breaks in quotes; any common delimiter).
 *
 * `name` is the file's name in errors. Line ends may be mixed, and a first line such as `sep=;`, as Excel writes it, is the delimiter. Empty
 * lines are skipped, as in pandas. In a table with one column only those before the header and
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
  const isSource = isText(source) || isOf(source, Blob, File)
  checkArgument('readCsv', 'source', source, isSource, 'a text, a Blob or a File')
  checkCsvOptions(options)
  const isPath =
    isText(source) && (/^\w+:\/\/\S+$/.test(source) || /^[^\r\n\t,;|]+\.[a-z]\w*$/i.test(source))
  checkArgument(
    'readCsv',
    'source',
    source,
    !isPath,
    "the table's text, as await (await fetch(path)).text() gives it, a Blob or a File, and no path",
  )
  const file = clippedName(name)
  const { header = true, decimal, thousands, missing } = options
  const bytes =
    typeof source === 'string'
      ? new TextEncoder().encode(source.slice(0, foreignBytes))
      : (await readBytes(source, file)).bytes
  const foreign = bytes.length > 0 && foreignFile(file, 'a table of text', bytes)
  if (foreign) throw foreign
  const whole = typeof source === 'string' ? source : decodeUtf8(bytes, file)
  const named = /^\ufeff?sep=([^\r\n"])(\r\n?|\n|$)/i.exec(whole)
  const rest = whole.slice(named?.[0].length ?? 0)
  const delimiter = options.delimiter || named?.[1] || delimiterOf(rest)
  const text = withLineFeeds(rest, delimiter)
  // An empty line at the end would be a record.
  const { data, errors } = Papa.parse<string[]>(withoutEnd(text, '\r\n'), {
    delimiter,
    newline: '\n',
    // Papa drops nothing, so that lines can be counted.
    skipEmptyLines: false,
  })
  const firstLine = named ? 2 : 1
  const breaksIn = (part: string) => (/[\r\n]/.test(part) ? part.match(/\r\n?|\n/g)!.length : 0)
  const wrong = errors.find(({ type }) => type === 'Quotes')
  if (wrong) {
    const line = firstLine + breaksIn(text.slice(0, wrong.index))
    throw refuse(`${file}, line ${line}`, 'closed quotes', wrong.message)
  }
  let line = firstLine
  const lines = data.map((fields) => {
    const record = { fields, line }
    line += 1 + fields.reduce((sum, field) => sum + breaksIn(field), 0)
    return record
  })
  const isEmpty = ({ fields }: { fields: readonly string[] }) =>
    fields.length === 1 && fields[0].trim() === ''
  const begin = lines.findIndex((record) => !isEmpty(record))
  if (begin < 0) throw refuse(file, 'one record or more', 'an empty file')
  const first = lines[begin]
  const width = first.fields.length
  const kept = lines.slice(begin).filter((record) => width === 1 || !isEmpty(record))
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
  const all = header ? kept.slice(1) : kept
  const isWhole = ({ fields }: { fields: readonly string[] }) =>
    !fields.some((field) => isMissing(field.trim()))
  const records = missing === 'skip' ? all.filter(isWhole) : all
  return new CsvTable(
    name,
    columns,
    records.map(({ fields }) => fields),
    records.map((record) => record.line),
    { decimal, thousands, missing },
  )
}

function checkCsvOptions(options: CsvOptions): void {
  checkOptions('readCsv', options, {
    delimiter: 'text',
    header: 'flag',
    decimal: true,
    thousands: true,
    missing: true,
  })
  checkNumbers('readCsv', options)
}

function checkNumbers(where: string, options: CsvNumbers): void {
  const { decimal: mark = '.', thousands, missing } = options
  const isMark = (one: unknown) => isText(one) && /^[^\d+\-\r\n]$/.test(one)
  checkArgument(where, 'decimal', mark, mark === '.' || mark === ',', '"." or ","')
  if (thousands !== undefined)
    checkArgument(
      where,
      'thousands',
      thousands,
      isMark(thousands) && thousands !== mark,
      'one character, no digit and not the decimal mark',
    )
  if (missing !== undefined)
    checkArgument(
      where,
      'missing',
      missing,
      typeof missing === 'number' || missing === 'skip' || missing === 'keep',
      'a number, "skip" or "keep"',
    )
}

/** The delimiter that fits the first records. */
function delimiterOf(text: string): string {
  // A comma alone if there is one column.
  const head = withoutEnd(text.slice(0, 2 ** 20).replace(/\r\n?/g, '\n'), '\n')
  return Papa.parse(head, { newline: '\n', preview: 1 }).meta.delimiter
}

/** `text` with line feeds alone between its records: files that were joined on two systems have several line ends. What is in quotes stays. */
function withLineFeeds(text: string, delimiter: string): string {
  if (!text.includes('\r')) return text
  const parts: string[] = []
  let from = 0
  let isFieldStart = true
  for (let at = 0; at < text.length; ) {
    const here = text[at]
    if (here === '"' && isFieldStart) {
      at = quoteEnd(text, at)
      isFieldStart = false
    } else if (here === '\r') {
      parts.push(text.slice(from, at))
      at += text[at + 1] === '\n' ? 2 : 1
      from = at
      isFieldStart = true
    } else {
      const isDelimiter = text.startsWith(delimiter, at)
      isFieldStart = isDelimiter || here === '\n'
      at += isDelimiter ? delimiter.length : 1
    }
  }
  return [...parts, text.slice(from)].join('\n')
}

/** Where the text continues after the quotes that open at `at`; doubled ones do not close them. */
function quoteEnd(text: string, at: number): number {
  for (let end = text.indexOf('"', at + 1); end >= 0; end = text.indexOf('"', end + 2))
    if (text[end + 1] !== '"') return end + 1
  return text.length
}
