import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { hasNames, isDetached, isOf, isTexts, kindOf, quoted } from '../util/kind-of.ts'
import { checkArgument, checkNumber, checkOptions, checkRecord } from '../util/options.ts'
import { ownOf } from '../util/own-of.ts'
import { checkShape, countElements, formatShape, type HostDType, sameShape } from '../util/shape.ts'
import type { HostNumbers, HostTensor } from './descriptions.ts'
import {
  checkElements,
  dtypeOf,
  isHostTensor,
  isNumberArray,
  type NestedNumbers,
  type Sample,
  type SampleValue,
} from './samples.ts'

/** Samples stacked field by field: tensors gain a leading dimension, numbers become one-dimensional, strings become a list. */
export type Batch = Readonly<Record<string, HostTensor | readonly string[]>>

/** Element types of fields that override the choice of `defaultCollate`. */
export type FieldDTypes = Readonly<Record<string, HostDType>>

export interface CollateOptions {
  dtypes?: FieldDTypes
}

const refuse = (
  field: string,
  expected: string,
  got: string,
  remedy = 'Give all samples the same form, or pass DataLoader a collateFn.',
) =>
  new DataError(
    'data.malformed',
    `collate: field "${clipped(field)}": expected ${expected}, got ${got}. ${remedy}`,
  )

/**
 * Stacks samples into a batch, like PyTorch's `default_collate`. A string field becomes a list.
 *
 * The element type depends on the kind of the values, never on their sizes or fractions, so all batches agree. A plain number is i32 (a
 * class label); a plain array, nested or not, is f32. A tensor or typed array keeps its type, with other floats becoming f32 and smaller
 * integers i32. `dtypes` overrides this: `{ y: 'f32' }` for numbers with fractions, `{ tokens: 'i32' }` for plain arrays of whole numbers.
 * shape: each field gains a leading dimension, the samples; a number has no other.
 * errors: `data.malformed`, naming field and sample, for samples with different fields, shapes or types, and for a fraction or a number out
 * of range if the type is i32 or u32; `config.invalid` for `dtypes` of fields that samples do not have, and for an unknown option.
 */
export function defaultCollate(samples: readonly Sample[], options: CollateOptions = {}): Batch {
  const { dtypes = {} } = checkOptions('defaultCollate', options, { dtypes: true })
  const isList = Array.isArray(samples)
  checkArgument('defaultCollate', 'samples', samples, isList, 'a list of samples')
  const stack = new Stack(samples.length, dtypes)
  for (const sample of samples) stack.add(sample)
  return stack.batch
}

/** A field's values in a batch: texts, or elements with the shape and type of the first sample's. */
type Column = string[] | { readonly first: Elements; readonly batched: HostTensor }

/** A batch under way: each sample is copied as it comes, since a data set may fill one array again and again. */
export class Stack {
  readonly #columns = new Map<string, Column>()
  readonly #count: number
  readonly #dtypes: FieldDTypes
  #rows = 0

  /** `count`: how many samples will come. */
  constructor(count: number, dtypes: FieldDTypes = {}) {
    this.#count = count
    this.#dtypes = dtypes
  }

  /** errors: those of `defaultCollate`. */
  add(sample: Sample): void {
    const row = this.#rows++
    checkArgument(
      'defaultCollate',
      `samples[${row}]`,
      sample,
      hasNames(sample) && !isHostTensor(sample),
      'an object with values by name, as { x, y }',
    )
    if (row === 0) requireDTypes(sample, this.#dtypes)
    const fields = row === 0 ? Object.keys(sample) : [...this.#columns.keys()]
    const extra = Object.keys(sample).find((field) => !fields.includes(field))
    if (extra !== undefined)
      throw refuse(
        extra,
        `only the fields ${clipped(fields.join(', '))}`,
        `it in sample ${row} of the batch`,
      )
    for (const field of fields) {
      const value = ownOf(sample, field) as SampleValue
      if (row === 0) this.#columns.set(field, this.#columnOf(field, value))
      const column = this.#columns.get(field)!
      if (!Array.isArray(column)) addRow(field, column, value, row, ownOf(this.#dtypes, field))
      else if (typeof value === 'string') column.push(value)
      else throw refuse(field, 'texts', inSample(value, row))
    }
  }

  get batch(): Batch {
    const columns = [...this.#columns].map(([field, column]) => {
      return [field, Array.isArray(column) ? column : column.batched] as const
    })
    return Object.fromEntries(columns)
  }

  #columnOf(field: string, value: SampleValue): Column {
    if (typeof value === 'string') return []
    const first = elementsOf(field, value, 0)
    const dtype = ownOf(this.#dtypes, field) ?? first.dtype
    const shape = [this.#count, ...first.shape]
    return { first, batched: { shape, data: new arrays[dtype](countElements(shape)) } }
  }
}

function requireDTypes(first: Sample, dtypes: FieldDTypes): void {
  checkRecord('collate', 'dtypes', dtypes)
  for (const [field, dtype] of Object.entries(dtypes)) {
    if (
      Object.hasOwn(arrays, dtype) &&
      Object.hasOwn(first, field) &&
      typeof first[field] !== 'string'
    )
      continue
    throw new DataError(
      'config.invalid',
      `collate: dtypes must be f32, i32 or u32 for numeric fields, got ${clipped(field)}: ${quoted(dtype)} for samples with ${clipped(Object.keys(first).join(', '))}. Correct it.`,
    )
  }
}

const inSample = (value: unknown, row: number) => `${kindOf(value)} in sample ${row} of the batch`

const arrays = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }
const ranges = { i32: [-(2 ** 31), 2 ** 31 - 1], u32: [0, 2 ** 32 - 1] } as const

/** One sample's value as elements under a shape, of the type that it has where none is declared. */
interface Elements {
  readonly shape: readonly number[]
  readonly dtype: HostDType
  readonly data: ArrayLike<number>
}

function addRow(
  field: string,
  { first, batched: { data } }: Exclude<Column, string[]>,
  value: SampleValue,
  row: number,
  declared: HostDType | undefined,
): void {
  const dtype = declared ?? first.dtype
  const count = countElements(first.shape)
  const own = elementsOf(field, value, row)
  if (!sameShape(own.shape, first.shape) || (!declared && own.dtype !== dtype))
    throw refuse(
      field,
      `${first.dtype} ${formatShape(first.shape)} as in the first sample`,
      `${own.dtype} ${formatShape(own.shape)} in sample ${row} of the batch`,
    )
  if (own.data.length !== count)
    throw refuse(
      field,
      `${count} elements under ${formatShape(own.shape)}`,
      `${own.data.length} in sample ${row} of the batch`,
    )
  if (dtype !== 'f32' && !isOf(own.data, arrays[dtype])) requireWhole(field, own.data, dtype, row)
  data.set(own.data, row * count)
}

function elementsOf(field: string, value: SampleValue, row: number): Elements {
  if (typeof value === 'number') return { shape: [], dtype: 'i32', data: [value] }
  if (isDetached(isHostTensor(value) ? value.data : value))
    throw refuse(field, 'an array', inSample(value, row), 'Transfer a copy.')
  if (isHostTensor(value)) {
    checkShape(`collate: field "${clipped(field)}"`, value.shape)
    return { shape: value.shape, dtype: dtypeOf(value.data), data: value.data }
  }
  if (isNumberArray(value)) return { shape: [value.length], dtype: dtypeOf(value), data: value }
  if (Array.isArray(value)) return flatten(field, value, row)
  throw refuse(field, 'a tensor, numbers, arrays of them, or a string', inSample(value, row))
}

function flatten(field: string, value: NestedNumbers, row: number): Elements {
  const shape: number[] = []
  for (let inner: unknown = value; Array.isArray(inner); inner = inner[0]) shape.push(inner.length)
  const data: number[] = []
  const walk = (part: unknown, depth: number): void => {
    const isLeaf = depth === shape.length
    if (isLeaf ? typeof part !== 'number' : !Array.isArray(part) || part.length !== shape[depth])
      throw refuse(
        field,
        `nested arrays of numbers ${formatShape(shape)}`,
        `${kindOf(part)} within sample ${row} of the batch`,
      )
    if (isLeaf) data.push(part as number)
    else for (const inner of part as unknown[]) walk(inner, depth + 1)
  }
  walk(value, 0)
  return { shape, dtype: 'f32', data }
}

function requireWhole(
  field: string,
  data: ArrayLike<number>,
  dtype: 'i32' | 'u32',
  row: number,
): void {
  const [low, high] = ranges[dtype]
  for (let i = 0; i < data.length; i++)
    if (!Number.isInteger(data[i]) || data[i] < low || data[i] > high)
      throw refuse(
        field,
        `${dtype}: whole numbers from ${low} to ${high}`,
        `${data[i]} in sample ${row} of the batch`,
        `Plain numbers are i32 in every batch. For another type, pass dtypes: { ${field}: 'f32' } to DataLoader or defaultCollate.`,
      )
}

/** Returns the number of samples in a batch. errors: `data.malformed` for fields with other numbers of rows; for a field that is no rows, naming it. */
export const batchSizeOf = (batch: Batch): number => rowsOf('batchSizeOf', batch)

/** The rows of all fields. errors: a TypeError for what is no batch; those of `checkElements`; `data.malformed` for other numbers of rows. */
function rowsOf(where: string, batch: Batch): number {
  checkRecord(where, 'batch', batch)
  const all = Object.entries(batch).map(([name, value]) => {
    const field = `batch.${clipped(name)}`
    const isRows = isHostTensor(value) ? value.shape.length > 0 : isTexts(value)
    checkArgument(where, field, value, isRows, 'a tensor of rows, or a list of texts')
    if (!isHostTensor(value)) return value.length
    checkElements(`${where}: ${field}`, value)
    return value.shape[0]
  })
  const [size = 0] = all
  if (all.every((count) => count === size)) return size
  throw new DataError(
    'data.malformed',
    `${where}: all fields must have the same number of rows, got ${clipped(all.join(', '))}. Pad the fields before, each for itself.`,
  )
}

/**
 * Returns a short batch padded with zeros to `rows`, for a program compiled for that many; pass `count: batchSizeOf(batch)` to the run.
 *
 * A batch of `rows` is returned unchanged. errors: as batchSizeOf.
 */
export function padBatch(batch: Batch, rows: number): Batch {
  const size = rowsOf('padBatch', batch)
  if (size === rows) return batch
  const isEnough = (count: number) => Number.isInteger(count) && count >= size
  checkNumber(
    'padBatch',
    'rows',
    rows,
    isEnough,
    `a whole number of at least ${size}, the batch's`,
    true,
  )
  return Object.fromEntries(
    Object.entries(batch).map(([field, value]) => {
      if (!isHostTensor(value)) return [field, value]
      const make = value.data.constructor as new (count: number) => HostNumbers
      const shape = [rows, ...value.shape.slice(1)]
      checkShape('padBatch', shape, 'rows')
      const data = new make(countElements(shape))
      data.set(value.data)
      return [field, { shape, data }]
    }),
  )
}
