import { clipped } from '../util/clipped.ts'
import { ArgumentTypeError, DataError, ShapeError } from '../util/errors.ts'
import { isDetached, isRecord, kindOf, quoted } from '../util/kind-of.ts'
import { checkArgument, checkList, checkNumber, checkOptions } from '../util/options.ts'
import { permutation } from '../util/random.ts'
import { countElements, formatShape } from '../util/shape.ts'
import { withArticle } from '../util/with-article.ts'
import type { DatasetDescription, FileArray } from './descriptions.ts'
import {
  checkElements,
  type Dataset,
  dtypeOf,
  isNumberArray,
  type Sample,
  type SampleKey,
} from './samples.ts'

/** errors: `config.invalid` unless `index` is a whole number from 0 to length - 1. */
export function requireIndex(where: string, index: number, length: number): void {
  if (!Number.isInteger(index) || index < 0 || index >= length)
    throw new DataError(
      'config.invalid',
      `${where}: expected an index from 0 to ${length - 1}, got ${quoted(index)}. Use an index within the data set's length.`,
    )
}

/** `describe` of a data set over others. errors: `config.invalid` where one of them cannot be described. */
export function describeInner(where: string, dataset: Dataset<never>): DatasetDescription {
  const described = dataset.describe?.()
  if (!described)
    throw notDescribed(where, `${withArticle(dataset.constructor.name)} without describe()`)
  return described
}

/** The error for something that is code and cannot be posted to the loader's own workers. */
export const notDescribed = (where: string, got: string) =>
  new DataError(
    'config.invalid',
    `${where}: a worker cannot recreate this data set, because it has ${got}. Give DataLoader your own worker file that calls serveSamples, or use numWorkers 0.`,
  )

/**
 * A data set of tensors by field, whose first dimension is the sample: host tensors, or arrays as `readNpy` and `readIdx` give them.
 *
 * Sample i is a copy of row i of each, float64 as f32 and whole numbers of up to 16 bits as i32. A one-dimensional array of them or of i32
 * gives plain numbers (class labels).
 * errors: `shape.mismatch` if the tensors differ in length.
 */
export class TensorDataset implements Dataset {
  readonly tensors: Readonly<Record<string, FileArray>>
  readonly length: number

  constructor(tensors: Readonly<Record<string, FileArray>>) {
    for (const [name, tensor] of Object.entries(checkTensors(tensors))) {
      checkArgument(
        'TensorDataset',
        `tensors.${clipped(name)}`,
        tensor,
        isRecord(tensor) && Array.isArray(tensor.shape) && isNumberArray(tensor.data),
        'hostTensor(shape, array)',
      )
      checkElements('TensorDataset', tensor, `tensors.${clipped(name)}.`)
    }
    const lengths = Object.entries(tensors).map(([name, { shape }]) => ({ name, rows: shape[0] }))
    const [first] = lengths
    const other = lengths.find(({ rows }) => rows === undefined || rows !== first.rows)
    if (!first || other)
      throw new ShapeError(
        'shape.mismatch',
        `TensorDataset: tensors must have equal first dimensions, got ${clipped(lengths.map(({ name, rows }) => `${name}: ${rows}`).join(', ')) || 'none'}. Cut them to the same length.`,
      )
    this.tensors = tensors
    this.length = first.rows
  }

  get(index: number): Sample {
    requireIndex('TensorDataset', index, this.length)
    return Object.fromEntries(
      Object.entries(this.tensors).map(([name, { shape, data }]) => {
        const rowShape = shape.slice(1)
        if (data.length !== countElements(shape))
          throw new DataError(
            'data.malformed',
            `TensorDataset: "${clipped(name)}" must keep its ${countElements(shape)} elements, got ${kindOf(data)}. Transfer a copy.`,
          )
        const dtype = dtypeOf(data)
        if (rowShape.length === 0 && dtype === 'i32') return [name, data[index]]
        const count = countElements(rowShape)
        const row = data.subarray(index * count, (index + 1) * count)
        const make = dtype === 'f32' ? Float32Array : dtype === 'i32' ? Int32Array : Uint32Array
        return [name, { shape: rowShape, data: make.from(row) }]
      }),
    )
  }

  describe(): DatasetDescription {
    return { kind: 'tensors', tensors: this.tensors }
  }
}

/** errors: a TypeError for what has no host tensors by name: a tensor of a traced function has no contents. */
function checkTensors<T extends object>(tensors: T): T {
  const advice =
    "Write { x: hostTensor([4, 2], array) }; a model's parameters are read with `await parameter.read()`."
  if (isRecord(tensors) && !('shape' in tensors)) return tensors
  throw new ArgumentTypeError(
    `TensorDataset: tensors must be an object with host tensors by name, got ${quoted(tensors)}. ${advice}`,
  )
}

/** errors: a TypeError, naming `where`, for what is no data set. */
export function checkDataset(where: string, dataset: unknown, name = 'dataset'): void {
  const isDataset = isRecord(dataset) && typeof dataset.get === 'function'
  checkArgument(where, name, dataset, isDataset, 'a data set, with length and get(index, key)')
  const { length } = dataset as Dataset<unknown>
  checkNumber(
    where,
    "the data set's length",
    length,
    (count) => Number.isSafeInteger(count) && count >= 0 && count < 2 ** 32,
    `a whole number below 2^32`,
    true,
  )
}

/** The samples of another data set at `indices`, in that order. errors: `config.invalid` for an index out of range. */
export class Subset<S> implements Dataset<S> {
  readonly dataset: Dataset<S>
  readonly indices: Uint32Array<ArrayBuffer>

  constructor(dataset: Dataset<S>, indices: ArrayLike<number>) {
    checkDataset('Subset', dataset)
    const isList = Array.isArray(indices) || (ArrayBuffer.isView(indices) && !isDetached(indices))
    checkArgument('Subset', 'indices', indices, isList, 'a list of whole numbers')
    for (let i = 0; i < indices.length; i++) requireIndex('Subset', indices[i], dataset.length)
    this.dataset = dataset
    this.indices = Uint32Array.from(indices)
  }

  get length(): number {
    return this.indices.length
  }

  get(index: number, key: SampleKey): S | Promise<S> {
    requireIndex('Subset', index, this.length)
    return this.dataset.get(this.indices[index], key)
  }

  describe(): DatasetDescription {
    return {
      kind: 'subset',
      of: describeInner('Subset', this.dataset as Dataset<never>),
      indices: this.indices,
    }
  }
}

/** A concatenation of data sets. */
export class ConcatDataset<S> implements Dataset<S> {
  readonly datasets: readonly Dataset<S>[]
  readonly length: number

  constructor(datasets: readonly Dataset<S>[]) {
    checkArgument(
      'ConcatDataset',
      'datasets',
      datasets,
      Array.isArray(datasets),
      'a list of data sets',
    )
    for (const [n, dataset] of datasets.entries())
      checkDataset('ConcatDataset', dataset, `datasets[${n}]`)
    this.datasets = datasets
    this.length = datasets.reduce((sum, { length }) => sum + length, 0)
  }

  get(index: number, key: SampleKey): S | Promise<S> {
    requireIndex('ConcatDataset', index, this.length)
    let own = index
    let at = 0
    while (own >= this.datasets[at].length) own -= this.datasets[at++].length
    return this.datasets[at].get(own, key)
  }

  describe(): DatasetDescription {
    return {
      kind: 'concat',
      of: this.datasets.map((dataset) => describeInner('ConcatDataset', dataset as Dataset<never>)),
    }
  }
}

/**
 * Splits a data set at random into disjoint parts: by whole `lengths` that add up to its length, or by fractions that add up to 1.
 *
 * The split depends only on seed and length. Fractions round down; the remainder goes to the parts one by one from the first, as in
 * PyTorch.
 * errors: `config.invalid` if the lengths do not add up, for a seed out of range, and for an unknown option.
 */
export function randomSplit<S>(
  dataset: Dataset<S>,
  lengths: readonly number[],
  options: { seed?: number } = {},
): Subset<S>[] {
  checkOptions('randomSplit', options, { seed: true })
  checkDataset('randomSplit', dataset)
  checkList('randomSplit', 'lengths', lengths, (one) => typeof one === 'number', 'numbers')
  const { seed = 0 } = options
  const sum = lengths.reduce((total, length) => total + length, 0)
  let counts = [...lengths]
  if (lengths.every((length) => length >= 0 && length <= 1) && Math.abs(sum - 1) < 1e-9) {
    counts = lengths.map((fraction) => Math.floor(dataset.length * fraction))
    let left = dataset.length - counts.reduce((total, count) => total + count, 0)
    for (let part = 0; left > 0; part = (part + 1) % counts.length, left--) counts[part]++
  }
  const total = counts.reduce((all, count) => all + count, 0)
  if (total !== dataset.length || !counts.every((count) => Number.isInteger(count) && count >= 0))
    throw new DataError(
      'config.invalid',
      `randomSplit: expected lengths that add up to ${dataset.length}, or fractions that add up to 1, got ${formatShape(lengths)}. Correct them.`,
    )
  const order = permutation(seed, splitEpoch, dataset.length)
  let start = 0
  return counts.map((count) => {
    const part = order.subarray(start, start + count)
    start += count
    return new Subset(dataset, part)
  })
}

/** No training run has this epoch, so that a split never repeats an epoch's order. */
export const splitEpoch = 0xffffffff
