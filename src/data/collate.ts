import { DataError } from '../util/errors.ts'
import { countElements, formatShape, sameShape } from '../util/shape.ts'
import { type HostNumbers, type HostTensor, isHostTensor, type Sample } from './samples.ts'

/** Samples stacked field by field: tensors gain a first dimension, numbers become i32, texts stay a list. */
export type Batch = Readonly<Record<string, HostTensor | readonly string[]>>

const refuse = (field: string, expected: string, got: string) =>
  new DataError(
    'data.malformed',
    `collate: field "${field}": expected ${expected}, got ${got}. Make all samples alike, or give DataLoader a collate function.`,
  )

/**
 * Stacks samples into a batch.
 *
 * errors: `data.malformed` for samples that differ in fields, shapes or types, and for a number that is no whole number
 * (a float is a tensor of shape []).
 */
export function defaultCollate(samples: readonly Sample[]): Batch {
  const [first] = samples
  if (!first) return {}
  return Object.fromEntries(
    Object.keys(first).map((field) => [
      field,
      stack(
        field,
        samples.map((sample) => sample[field]),
      ),
    ]),
  )
}

function stack(field: string, values: readonly Sample[string][]): Batch[string] {
  const [first] = values
  if (typeof first === 'string') {
    const other = values.find((value) => typeof value !== 'string')
    if (other !== undefined) throw refuse(field, 'texts', typeof other)
    return values as readonly string[]
  }
  if (typeof first === 'number') {
    const wrong = values.find((value) => !Number.isInteger(value))
    if (wrong !== undefined)
      throw refuse(field, 'whole numbers', isHostTensor(wrong) ? 'a tensor' : String(wrong))
    return { shape: [values.length], data: Int32Array.from(values as number[]) }
  }
  if (!isHostTensor(first)) throw refuse(field, 'a tensor, a number or a text', typeof first)
  const count = countElements(first.shape)
  const make = first.data.constructor as new (count: number) => HostNumbers
  const data = new make(count * values.length)
  values.forEach((value, row) => {
    if (
      !isHostTensor(value) ||
      !(value.data instanceof make) ||
      !sameShape(value.shape, first.shape)
    )
      throw refuse(
        field,
        `${make.name} ${formatShape(first.shape)} as in the first sample`,
        isHostTensor(value)
          ? `${value.data.constructor.name} ${formatShape(value.shape)} in sample ${row} of the batch`
          : typeof value,
      )
    data.set(value.data, row * count)
  })
  return { shape: [values.length, ...first.shape], data }
}

/** How many samples a batch has. */
export const countOf = (batch: Batch): number => {
  const [first] = Object.values(batch)
  return first === undefined ? 0 : isHostTensor(first) ? first.shape[0] : first.length
}

/**
 * A short batch filled up with zeros to `rows`, for a program compiled for that many; give it `count: countOf(batch)`.
 *
 * A batch of `rows` comes back unchanged.
 */
export function padBatch(batch: Batch, rows: number): Batch {
  if (countOf(batch) === rows) return batch
  return Object.fromEntries(
    Object.entries(batch).map(([field, value]) => {
      if (!isHostTensor(value)) return [field, value]
      const make = value.data.constructor as new (count: number) => HostNumbers
      const shape = [rows, ...value.shape.slice(1)]
      const data = new make(countElements(shape))
      data.set(value.data)
      return [field, { shape, data }]
    }),
  )
}
