import { ShapeError } from '../util/errors.ts'
import { kindOf } from '../util/kind-of.ts'
import { RandomStream } from '../util/random.ts'
import { countElements, type Shape } from '../util/shape.ts'
import type { DatasetDescription, HostNumbers, HostTensor } from './descriptions.ts'

export type { HostNumbers, HostTensor } from './descriptions.ts'

/** Arrays of numbers that become tensors of one dimension. */
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

/** Numbers in plain arrays, one level a dimension. */
export type NestedNumbers = readonly (number | NestedNumbers)[]

/** What a field of a sample may be: a tensor, arrays that become one, a number (a class label), or a text (a file name). */
export type SampleValue = HostTensor | NumberArray | NestedNumbers | number | string

/** One sample by field. `defaultCollate` says which type a field's batch has. */
export type Sample = Readonly<Record<string, SampleValue>>

/** What decides the random draws of a sample: nothing else does, so any split over ranks and workers draws alike. */
export interface SampleKey {
  readonly seed: number
  readonly epoch: number
  /** The sample's number in the data set that the loader has. */
  readonly index: number
}

/** A data set with numbered samples, as `torch.utils.data.Dataset`. */
export interface Dataset<S = Sample> {
  readonly length: number
  /** Sample `index`, from 0 to length - 1. Random transforms draw from `drawsOf(key)`. */
  get(index: number, key: SampleKey): S | Promise<S>
  /** The data set as plain data from which a worker makes it anew; absent where only a worker of its own can. */
  describe?(): DatasetDescription
}

/** The random numbers of one sample in one epoch. */
export const drawsOf = ({ seed, epoch, index }: SampleKey): RandomStream =>
  new RandomStream(seed, index, 'augment', epoch)

export const isHostTensor = (value: unknown): value is HostTensor =>
  typeof value === 'object' &&
  value !== null &&
  'shape' in value &&
  Array.isArray(value.shape) &&
  'data' in value &&
  (value.data instanceof Float32Array ||
    value.data instanceof Int32Array ||
    value.data instanceof Uint32Array)

/** Returns the tensor. errors: `shape.mismatch` when the shape holds another number of elements. */
export function hostTensor(shape: Shape, data: HostNumbers): HostTensor {
  if (!Array.isArray(shape))
    throw new ShapeError(
      'shape.mismatch',
      `hostTensor: expected a shape such as [2, 3], got ${kindOf(shape)}. The shape comes first, then the data.`,
    )
  if (countElements(shape) !== data.length)
    throw new ShapeError(
      'shape.mismatch',
      `hostTensor: [${shape.join(', ')}] holds ${countElements(shape)} elements, got ${data.length}. Correct the shape.`,
    )
  return { shape, data }
}
