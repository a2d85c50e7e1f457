import Papa from 'papaparse'
import { DataError } from '../util/errors.ts'
import { TensorDataset } from './datasets.ts'

export interface CsvOptions {
  /** default: the one of `,` `;` tab `|` that fits. */
  delimiter?: string
  /** Whether the first record names the columns. default true; else they are called 0, 1, ... */
  header?: boolean
}

/** Which columns become what. */
export interface CsvColumns {
  /** Columns of `x`. default: all that are not the label or the target. */
  features?: readonly string[]
  /** The column whose values are classes: `y` as i32, numbered in the order of the sorted values. */
  label?: string
  /** The column whose values are numbers: `y` as f32. */
  target?: string
}

const refuse = (name: string, expected: string, got: string) =>
  new DataError(
    'data.malformed',
    `${name}: expected ${expected}, got ${got}. Correct the file, or choose other columns.`,
  )

/** A text table. Records count from 1, the header included, as editors count lines where no field holds a line break. */
export class CsvTable {
  readonly name: string
  readonly columns: readonly string[]
  /** shape: [records, columns]. */
  readonly records: readonly (readonly string[])[]
  readonly #firstRecord: number

  constructor(
    name: string,
    columns: readonly string[],
    records: readonly (readonly string[])[],
    firstRecord: number,
  ) {
    this.name = name
    this.columns = columns
    this.records = records
    this.#firstRecord = firstRecord
  }

  /** One column's texts. errors: `data.malformed` for a column that is not there. */
  texts(column: string): string[] {
    const at = this.columns.indexOf(column)
    if (at < 0) throw refuse(this.name, `a column "${column}"`, this.columns.join(', '))
    return this.records.map((record) => record[at])
  }

  /** One column's numbers. errors: `data.malformed`, naming the record of a value that is no number. */
  numbers(column: string): Float32Array<ArrayBuffer> {
    return Float32Array.from(this.texts(column), (text, row) => {
      const value = text.trim() === '' ? Number.NaN : Number(text)
      if (!Number.isFinite(value))
        throw refuse(
          this.name,
          `a number in column "${column}" of record ${row + this.#firstRecord}`,
          text.trim() === '' ? 'nothing' : `"${text}"`,
        )
      return value
    })
  }

  /** The distinct texts of a column in order: class c of `dataset` is entry c. */
  classes(column: string): string[] {
    return [...new Set(this.texts(column))].sort()
  }

  /**
   * The table as samples: `x` f32 [features], and `y` after `columns`.
   *
   * errors: as `texts` and `numbers`.
   */
  dataset({ features, label, target }: CsvColumns = {}): TensorDataset {
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
      const number = new Map(this.classes(label).map((text, i) => [text, i]))
      const data = Int32Array.from(this.texts(label), (text) => number.get(text)!)
      return new TensorDataset({ ...tensors, y: { shape: [count], data } })
    }
    if (target !== undefined)
      return new TensorDataset({
        ...tensors,
        y: { shape: [count], data: this.numbers(target) },
      })
    return new TensorDataset(tensors)
  }
}

/**
 * Parses comma-separated values (RFC 4180: quotes, doubled quotes, line breaks in quotes; any usual delimiter).
 *
 * `name` is the file's name in errors. Empty lines are passed over.
 * errors: `data.malformed`, naming the record, for bytes that are not UTF-8, an unclosed quote, a record with another number
 * of fields than the first, column names that repeat, or no record at all.
 */
export async function readCsv(
  source: string | Blob,
  name: string,
  { delimiter = '', header = true }: CsvOptions = {},
): Promise<CsvTable> {
  const text = typeof source === 'string' ? source : await decodeText(source, name)
  // An empty line at the end would count as a record in Papa's guess of the delimiter.
  const { data, errors } = Papa.parse<string[]>(text.replace(/[\r\n]+$/, ''), {
    delimiter,
    // Papa drops nothing, so that a record's number is its line where no field spans several.
    skipEmptyLines: false,
  })
  const wrong = errors.find(({ type }) => type === 'Quotes')
  if (wrong) throw refuse(name, 'closed quotes', `${wrong.message} in record ${wrong.row! + 1}`)
  const isEmpty = (record: readonly string[]) => record.length === 1 && record[0].trim() === ''
  const first = data.findIndex((record) => !isEmpty(record))
  if (first < 0) throw refuse(name, 'one record or more', 'an empty file')
  const width = data[first].length
  data.forEach((record, row) => {
    if (!isEmpty(record) && record.length !== width)
      throw refuse(
        name,
        `${width} field${width === 1 ? '' : 's'} in record ${row + 1} as in the first`,
        `${record.length}`,
      )
  })
  const columns = header
    ? data[first].map((column) => column.trim())
    : data[first].map((_, i) => String(i))
  const repeated = columns.find((column, i) => columns.indexOf(column) !== i)
  if (repeated !== undefined)
    throw refuse(name, 'distinct column names', `"${repeated}" more than once`)
  const begin = header ? first + 1 : first
  const records = data.slice(begin)
  const kept = records.filter((record) => !isEmpty(record))
  return new CsvTable(name, columns, kept, begin + 1)
}

async function decodeText(blob: Blob, name: string): Promise<string> {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(await blob.arrayBuffer())
  } catch {
    throw refuse(name, 'UTF-8 text', 'other bytes')
  }
}
