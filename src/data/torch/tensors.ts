import { elementArrays, type SafetensorsDtype, swapBytes } from '../elements.ts'
import type { SafeTensor } from '../safetensors.ts'
import { Unfit } from './pickle-reader.ts'

/** What PyTorch's storages hold: an element's type, where arrays here have it, and its size in bytes. */
export const storageTypes: Readonly<
  Record<string, { readonly dtype?: SafetensorsDtype; readonly itemBytes: number }>
> = {
  FloatStorage: { dtype: 'F32', itemBytes: 4 },
  DoubleStorage: { dtype: 'F64', itemBytes: 8 },
  HalfStorage: { dtype: 'F16', itemBytes: 2 },
  BFloat16Storage: { dtype: 'BF16', itemBytes: 2 },
  LongStorage: { dtype: 'I64', itemBytes: 8 },
  IntStorage: { dtype: 'I32', itemBytes: 4 },
  ShortStorage: { dtype: 'I16', itemBytes: 2 },
  CharStorage: { dtype: 'I8', itemBytes: 1 },
  ByteStorage: { dtype: 'U8', itemBytes: 1 },
  BoolStorage: { dtype: 'BOOL', itemBytes: 1 },
  UntypedStorage: { dtype: 'U8', itemBytes: 1 },
  ComplexFloatStorage: { itemBytes: 8 },
  ComplexDoubleStorage: { itemBytes: 16 },
  QInt8Storage: { itemBytes: 1 },
  QUInt8Storage: { itemBytes: 1 },
  QInt32Storage: { itemBytes: 4 },
  QUInt4x2Storage: { itemBytes: 1 },
  QUInt2x4Storage: { itemBytes: 1 },
}

/** PyTorch's element types by name; those that have no storage class are given beside an untyped one. */
export const dtypes: Readonly<Record<string, SafetensorsDtype>> = {
  float32: 'F32',
  float64: 'F64',
  float16: 'F16',
  bfloat16: 'BF16',
  int64: 'I64',
  int32: 'I32',
  int16: 'I16',
  int8: 'I8',
  uint64: 'U64',
  uint32: 'U32',
  uint16: 'U16',
  uint8: 'U8',
  bool: 'BOOL',
}

/** Bytes that tensors are views of: `bytes` themselves where the pickle has them, or a record of the file. */
export interface Storage {
  /** Such as `FloatStorage`. */
  readonly typeName: string
  readonly dtype: SafetensorsDtype | undefined
  readonly itemBytes: number
  /** Elements. */
  readonly length: number
  /** The record's name. */
  readonly key: string
  /** Elements of the record: more than its own where a legacy file gives a part of one. */
  readonly recordLength: number
  /** Elements of the record before its own. */
  readonly begin: number
  readonly bytes?: Uint8Array | undefined
  readonly isBigEndian?: boolean
}

export const isStorage = (value: unknown): value is Storage =>
  typeof value === 'object' && value !== null && 'typeName' in value

/** A tensor whose elements are not read yet. strides and offset: in elements. */
export class StoredTensor {
  constructor(
    readonly storage: Storage,
    readonly dtype: SafetensorsDtype | undefined,
    readonly offset: number,
    readonly shape: readonly number[],
    readonly strides: readonly number[],
  ) {}

  get length(): number {
    return this.shape.reduce((product, dim) => product * dim, 1)
  }

  get itemBytes(): number {
    return this.dtype ? elementArrays[this.dtype].BYTES_PER_ELEMENT : this.storage.itemBytes
  }
}

const maxDims = 64
export const isSize = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0
export const isSizes = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length <= maxDims && value.every(isSize)

/** Returns a view of a storage. errors: `Unfit` for one that is not within it. */
export function viewOf(
  storage: Storage,
  [offset, shape, strides]: readonly unknown[],
  dtype = storage.dtype,
): StoredTensor {
  if (!isSize(offset) || !isSizes(shape) || !isSizes(strides) || shape.length !== strides.length)
    throw new Unfit('a tensor with an offset, a shape and strides of whole numbers')
  const tensor = new StoredTensor(storage, dtype, offset, shape, strides)
  const last = shape.reduce((at, dim, i) => at + (dim - 1) * strides[i], offset)
  const length = (storage.length * storage.itemBytes) / tensor.itemBytes
  if (!Number.isSafeInteger(tensor.length) || (tensor.length > 0 && !(last < length)))
    throw new Unfit(`a tensor [${shape.join(', ')}] within the ${length} elements of its storage`)
  return tensor
}

/** Returns the strides of a whole tensor in row-major order. */
export function stridesOf(shape: readonly number[]): number[] {
  let stride = 1
  return shape
    .map((_, i) => {
      const own = stride
      stride *= Math.max(1, shape[shape.length - 1 - i])
      return own
    })
    .reverse()
}

/** Returns the elements of a tensor in row-major order, from the bytes of its storage's record. */
export function elementsOf(
  tensor: StoredTensor,
  dtype: SafetensorsDtype,
  record: Uint8Array,
  isBigEndian: boolean,
): SafeTensor {
  const { shape, strides, storage, itemBytes, length } = tensor
  const begin = storage.begin * storage.itemBytes + tensor.offset * itemBytes
  const bytes = new Uint8Array(length * itemBytes)
  if (isContiguous(shape, strides)) bytes.set(record.subarray(begin, begin + bytes.length))
  else copyStrided(bytes, record.subarray(begin), shape, strides, itemBytes)
  if (isBigEndian) swapBytes(bytes, itemBytes)
  return { dtype, shape: [...shape], data: new elementArrays[dtype](bytes.buffer) } as SafeTensor
}

function isContiguous(shape: readonly number[], strides: readonly number[]): boolean {
  let expected = 1
  for (let d = shape.length - 1; d >= 0; d--) {
    if (shape[d] !== 1 && strides[d] !== expected) return false
    expected *= shape[d]
  }
  return true
}

function copyStrided(
  to: Uint8Array,
  from: Uint8Array,
  shape: readonly number[],
  strides: readonly number[],
  itemBytes: number,
): void {
  const index = shape.map(() => 0)
  let at = 0
  for (let i = 0; i < to.length; i += itemBytes) {
    for (let b = 0; b < itemBytes; b++) to[i + b] = from[at * itemBytes + b]
    let d = shape.length - 1
    at += strides[d]
    while (++index[d] === shape[d] && d > 0) {
      at += strides[d - 1] - strides[d] * shape[d]
      index[d--] = 0
    }
  }
}
