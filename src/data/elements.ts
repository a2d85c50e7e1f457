import { clipped } from '../util/clipped.ts'
import { halfValue } from '../util/half.ts'
import { isOf } from '../util/kind-of.ts'
import type { FileNumbers } from './descriptions.ts'
import { malformed } from './malformed.ts'

/** The arrays that hold the elements of files, by the name that safetensors has for their type. */
export const elementArrays = {
  F64: Float64Array,
  F32: Float32Array,
  /** Raw bits; JavaScript of today has no array for it everywhere. */
  F16: Uint16Array,
  /** Raw bits. */
  BF16: Uint16Array,
  I64: BigInt64Array,
  I32: Int32Array,
  I16: Int16Array,
  I8: Int8Array,
  U64: BigUint64Array,
  U32: Uint32Array,
  U16: Uint16Array,
  U8: Uint8Array,
  /** One byte each, 0 or 1. */
  BOOL: Uint8Array,
} as const

export type SafetensorsDtype = keyof typeof elementArrays

/** NumPy's types by its code for them: the kind of number, and its bytes. */
export const numpyTypes = {
  f8: 'F64',
  f4: 'F32',
  f2: 'F16',
  i8: 'I64',
  i4: 'I32',
  i2: 'I16',
  i1: 'I8',
  u8: 'U64',
  u4: 'U32',
  u2: 'U16',
  u1: 'U8',
  b1: 'BOOL',
} as const

export type NumpyCode = keyof typeof numpyTypes

/** Beyond 2^53 the product is inexact, but then far from any file's size. */
export const countOf = (shape: readonly number[]): number =>
  shape.includes(0) ? 0 : shape.reduce((product, dim) => product * dim, 1)

/** Reverses the bytes of each element. */
export function swapBytes(bytes: Uint8Array, itemBytes: number): void {
  for (let at = 0; at < bytes.length; at += itemBytes) {
    for (let [i, j] = [at, at + itemBytes - 1]; i < j; i++, j--) {
      const byte = bytes[i]
      bytes[i] = bytes[j]
      bytes[j] = byte
    }
  }
}

/**
 * Returns the elements that fill `bytes`: a view where that is possible, float16 as float32, whole numbers of 64 bits in 32.
 *
 * errors: `data.malformed` for another number of bytes than `shape` has, and for a whole number that does not fit.
 */
export function elementsIn(
  bytes: Uint8Array<ArrayBuffer>,
  type: Exclude<SafetensorsDtype, 'BF16'>,
  { shape, isLittle, where }: { shape: readonly number[]; isLittle: boolean; where: string },
): FileNumbers {
  const array = elementArrays[type]
  const width = array.BYTES_PER_ELEMENT
  requireSize(bytes.length, width * countOf(shape), shape, where)
  // Typed arrays begin at multiples of their elements' size.
  const isOrdered = isLittle || width === 1
  const own = isOrdered && bytes.byteOffset % width === 0 ? bytes : bytes.slice()
  if (!isOrdered) swapBytes(own, width)
  const data = new array(own.buffer, own.byteOffset, own.length / width)
  if (type === 'F16') return Float32Array.from(data as Uint16Array, halfValue)
  return isOf(data, BigInt64Array, BigUint64Array) ? narrowed(data, where) : data
}

/** errors: `data.malformed` unless a file, or a part of it, has the bytes of its elements. */
export function requireSize(
  got: number,
  expected: number,
  shape: readonly number[],
  where: string,
): void {
  if (got === expected) return
  throw malformed(
    where,
    `${expected} bytes for ${clipped(shape.join(' x ')) || 'one'} elements`,
    `${got} (${got < expected ? 'truncated' : 'surplus bytes'})`,
  )
}

/** Whole numbers of 64 bits in 32. errors: `data.malformed` for the first that does not fit, by its place. */
function narrowed(
  data: BigInt64Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>,
  where: string,
): FileNumbers {
  const isSigned = isOf(data, BigInt64Array)
  const halves = new Int32Array(data.buffer, data.byteOffset, 2 * data.length)
  const out = new (isSigned ? Int32Array : Uint32Array)(data.length)
  for (let i = 0; i < data.length; i++) {
    const low = halves[2 * i]
    out[i] = low
    if (halves[2 * i + 1] === (isSigned ? low >> 31 : 0)) continue
    throw malformed(
      where,
      `64-bit whole numbers that fit into ${isSigned ? 'int32' : 'uint32'}`,
      `${data[i]} as element ${i}`,
      "Save smaller numbers, or array.astype('float64').",
    )
  }
  return out
}
