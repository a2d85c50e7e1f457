import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isDetached, isRecord, isTexts, kindOf, quoted } from '../util/kind-of.ts'
import {
  checkArgument,
  checkList,
  checkNumber,
  checkOptions,
  checkRecord,
} from '../util/options.ts'
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
  checkOptions('defaultCollate', options, { dtypes: true })
  checkList('defaultCollate', 'samples', samples, isRecord, 'samples, objects with values by name')
  const { dtypes = {} } = options
  const [first] = samples
  if (!first) return {}
  const fields = Object.keys(first)
  requireDTypes(first, dtypes)
  samples.forEach((sample, row) => {
    const extra = Object.keys(sample).find((field) => !Object.hasOwn(first, field))
    if (extra !== undefined)
      throw refuse(
        extra,
        `only the fields ${clipped(fields.join(', '))}`,
        `it in sample ${row} of the batch`,
      )
  })
  return Object.fromEntries(
    fields.map((field) => {
      const values = samples.map((sample) => ownOf(sample, field) as SampleValue)
      if (typeof values[0] !== 'string') return [field, stack(field, values, ownOf(dtypes, field))]
      const row = values.findIndex((value) => typeof value !== 'string')
      if (row >= 0) throw refuse(field, 'texts', inSample(values[row], row))
      return [field, values as string[]]
    }),
  )
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

function stack(
  field: string,
  values: readonly SampleValue[],
  declared: HostDType | undefined,
): HostTensor {
  const first = elementsOf(field, values[0], 0)
  const dtype = declared ?? first.dtype
  const count = countElements(first.shape)
  const data: HostNumbers = new arrays[dtype](count * values.length)
  values.forEach((value, row) => {
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
    if (dtype !== 'f32' && !(own.data instanceof arrays[dtype]))
      requireWhole(field, own.data, dtype, row)
    data.set(own.data, row * count)
  })
  return { shape: [values.length, ...first.shape], data }
}

function elementsOf(field: string, value: SampleValue, row: number): Elements {
  if (typeof value === 'number') return { shape: [], dtype: 'i32', data: [value] }
  if (isDetached(isHostTensor(value) ? value.data : value))
    throw refuse(field, 'an array', inSample(value, row), 'Transfer a copy.')
  if (isHostTensor(value))
    return { shape: value.shape, dtype: dtypeOf(value.data), data: value.data }
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

/** Returns the number of samples in a batch: the rows of its first field. errors: for a field that is no rows, naming it. */
export function batchSizeOf(batch: Batch): number {
  const [first = 0] = rowsOf('batchSizeOf', batch)
  return first
}

/** The rows of each field. errors: a TypeError for what is no batch; those of `checkElements`. */
function rowsOf(where: string, batch: Batch): number[] {
  checkRecord(where, 'batch', batch)
  return Object.entries(batch).map(([name, value]) => {
    const field = `batch.${clipped(name)}`
    const isRows = isHostTensor(value) ? value.shape.length > 0 : isTexts(value)
    checkArgument(where, field, value, isRows, 'a tensor of rows, or a list of texts')
    if (!isHostTensor(value)) return value.length
    checkElements(`${where}: ${field}`, value)
    return value.shape[0]
  })
}

/**
 * Returns a short batch padded with zeros to `rows`, for a program compiled for that many; pass `count: batchSizeOf(batch)` to the run.
 *
 * A batch of `rows` is returned unchanged. errors: as batchSizeOf, and `data.malformed` for fields with other numbers of rows.
 */
export function padBatch(batch: Batch, rows: number): Batch {
  const all = rowsOf('padBatch', batch)
  const [size = 0] = all
  if (all.some((count) => count !== size))
    throw new DataError(
      'data.malformed',
      `padBatch: all fields must have the same number of rows, got ${clipped(all.join(', '))}. Pad the fields before, each for itself.`,
    )
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
