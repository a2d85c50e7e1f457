import { ShapeError } from '../util/errors.ts'
import { countOf, isOf, kindOf } from '../util/kind-of.ts'
import { checkArgument, checkNumber, checkRecord } from '../util/options.ts'
import { RandomStream } from '../util/random.ts'
import {
  checkShape,
  countElements,
  formatShape,
  type HostDType,
  type Shape,
} from '../util/shape.ts'
import type { DatasetDescription, FileArray, HostNumbers, HostTensor } from './descriptions.ts'

/** Arrays of numbers that become one-dimensional tensors. */
export type NumberArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array

/** Numbers in plain arrays, one level per dimension. */
export type NestedNumbers = readonly (number | NestedNumbers)[]

/** Value of a sample's field: a tensor, arrays that become one, a number (a class label), or a string (a file name). */
export type SampleValue = HostTensor | NumberArray | NestedNumbers | number | string

/** One sample by field. `defaultCollate` documents the type of each field in a batch. */
export type Sample = Readonly<Record<string, SampleValue>>

/** What determines the random draws of a sample. Nothing else does, so draws are the same for any split over ranks and workers. */
export interface SampleKey {
  readonly seed: number
  readonly epoch: number
  /** Index of the sample in the loader's data set. */
  readonly index: number
}

/** A data set with indexed samples, like `torch.utils.data.Dataset`. */
export interface Dataset<S = Sample> {
  readonly length: number
  /** Returns sample `index`, from 0 to length - 1. Random transforms draw from `randomStreamOf(key)`. */
  get(index: number, key: SampleKey): S | Promise<S>
  /** Returns the data set as plain data from which a worker recreates it; absent if that needs your own worker. */
  describe?(): DatasetDescription
}

/** Returns the random stream of one sample in one epoch. */
export const randomStreamOf = (key: SampleKey): RandomStream => streamAt('randomStreamOf', key)

/** As `randomStreamOf`, for the method `where`. */
export function streamAt(where: string, key: SampleKey): RandomStream {
  checkRecord(where, 'key', key)
  for (const name of ['seed', 'epoch', 'index'] as const) {
    checkNumber(where, name, key[name], Number.isSafeInteger, 'a whole number', true)
  }
  return new RandomStream(key.seed, key.index, 'augment', key.epoch)
}

export const isHostTensor = (value: unknown): value is HostTensor =>
  typeof value === 'object' &&
  value !== null &&
  'shape' in value &&
  Array.isArray(value.shape) &&
  'data' in value &&
  isOf(value.data, Float32Array, Int32Array, Uint32Array)

export const isNumberArray = (value: unknown): value is NumberArray =>
  ArrayBuffer.isView(value) && !isOf(value, DataView, BigInt64Array, BigUint64Array)

/** The type in a batch of elements that are in this array: other floats become f32 and smaller whole numbers i32. */
export const dtypeOf = (data: NumberArray): HostDType => {
  if (isOf(data, Uint32Array)) return 'u32'
  return isOf(data, Float32Array, Float64Array) ? 'f32' : 'i32'
}

/** Returns a tensor on the host. errors: `shape.mismatch` if the shape does not match the number of elements. */
export function hostTensor(shape: Shape, data: HostNumbers): HostTensor {
  if (!Array.isArray(shape))
    throw new ShapeError(
      'shape.mismatch',
      `hostTensor: expected a shape such as [2, 3], got ${kindOf(shape)}. Pass the shape first, then the data.`,
    )
  checkArgument(
    'hostTensor',
    'data',
    data,
    isHostTensor({ shape, data }),
    'a Float32Array, Int32Array or Uint32Array',
  )
  checkElements('hostTensor', { shape, data })
  return { shape, data }
}

/**
 * errors: `shape.mismatch` unless a tensor has as many elements as its shape says, naming `where`, and after `path` its part; those of
 * `checkShape`.
 */
export function checkElements(where: string, { shape, data }: FileArray, path = ''): void {
  checkShape(where, shape, `${path}shape`)
  if (countElements(shape) === data.length) return
  throw new ShapeError(
    'shape.mismatch',
    `${where}: ${path}data must have the ${countElements(shape)} elements of shape ${formatShape(shape)}, got ${countOf(data)}. Correct the shape.`,
  )
}
