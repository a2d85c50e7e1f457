/**
 * Elements of collectives: the types, how two of them are combined, and how they lie in a message.
 *
 * Map: types and operations - combining - bytes.
 */
import { ArgumentTypeError } from '../../util/errors.ts'
import { halfBits, halfValue } from '../../util/half.ts'
import { isDetached, isOf, kindOf } from '../../util/kind-of.ts'
import { Float16Bits, type Float16Elements } from './float16-bits.ts'

/** Arrays of the element types that collectives carry. */
export type ElementArray = Float32Array | Float16Bits | Int32Array | Uint32Array | Uint8Array
/** Arrays that collectives accept; also a Float16Array, if the platform has it. */
export type CollectiveArray = ElementArray | Float16Elements

/** The array, or of a Float16Array the bits that lie in it. */
export function elementsOf(array: CollectiveArray): ElementArray {
  return array?.[Symbol.toStringTag] === 'Float16Array'
    ? new Float16Bits(array.buffer as ArrayBuffer, array.byteOffset, array.length)
    : (array as ElementArray)
}

/** The place is the type's number on the wire. */
const names = ['none', 'float32', 'float16', 'int32', 'uint32', 'uint8'] as const
export type ElementTypeName = Exclude<(typeof names)[number], 'none'>

/**
 * The place is the operation's number on the wire. `avg` divides by the size: float16 each part before it is added, so that sums stay in its
 * range, as NCCL does; else each finished sum, once, where it is finished.
 */
export const reduceOps = ['sum', 'avg', 'min', 'max', 'product'] as const
/** As torch.distributed.ReduceOp. */
export type ReduceOp = (typeof reduceOps)[number]

/** `target[i] = target[i] op values[i]`, rounded to the type. */
type Combine = (target: ElementArray, values: ElementArray) => void

export interface ElementType {
  readonly name: ElementTypeName
  readonly code: number
  readonly bytes: number
  readonly combine: Readonly<Record<Exclude<ReduceOp, 'avg'>, Combine>>
  /** `target[i] /= count`; none for whole numbers. */
  readonly divide?: (target: ElementArray, count: number) => void
  /** An average divides what is added, and not the sum, which could leave the type's range. */
  readonly dividesFirst?: true
}

const combining =
  (of: (a: number, b: number) => number): Combine =>
  (target, values) => {
    for (let i = 0; i < values.length; i++) target[i] = of(target[i]!, values[i]!)
  }

const halves =
  (of: (a: number, b: number) => number): Combine =>
  (target, values) => {
    for (let i = 0; i < values.length; i++)
      target[i] = halfBits(of(halfValue(target[i]!), halfValue(values[i]!)))
  }

const minMax = { min: combining(Math.min), max: combining(Math.max) }

/** Sums and products wrap around, as they do in C. */
const wholeNumbers = {
  ...minMax,
  sum: combining((a, b) => a + b),
  product: combining(Math.imul),
}

const types: readonly ElementType[] = [
  {
    name: 'float32',
    code: 1,
    bytes: 4,
    combine: {
      ...minMax,
      // Without a call for each element: gradients come this way.
      sum(target, values) {
        for (let i = 0; i < values.length; i++) target[i]! += values[i]!
      },
      product: combining((a, b) => a * b),
    },
    divide(target, count) {
      for (let i = 0; i < target.length; i++) target[i]! /= count
    },
  },
  {
    name: 'float16',
    code: 2,
    bytes: 2,
    dividesFirst: true,
    combine: {
      sum: halves((a, b) => a + b),
      min: halves(Math.min),
      max: halves(Math.max),
      product: halves((a, b) => a * b),
    },
    divide(target, count) {
      for (let i = 0; i < target.length; i++) target[i] = halfBits(halfValue(target[i]!) / count)
    },
  },
  { name: 'int32', code: 3, bytes: 4, combine: wholeNumbers },
  { name: 'uint32', code: 4, bytes: 4, combine: wholeNumbers },
  { name: 'uint8', code: 5, bytes: 1, combine: wholeNumbers },
]

/** errors: a TypeError for an array of another type, naming `where` and the argument. */
export function elementTypeOf(array: ElementArray, where: string, name = 'array'): ElementType {
  const at = [Float32Array, Float16Bits, Int32Array, Uint32Array, Uint8Array].findIndex(
    (type) => array instanceof type || isOf(array, type),
  )
  const type = types[at]
  if (type && !isDetached(array)) return type
  const isUint16 = isOf(array, Uint16Array)
  throw new ArgumentTypeError(
    `${where}: ${name} must be a Float32Array, Float16Array, Int32Array, Uint32Array or Uint8Array, got ${kindOf(array)}${isUint16 ? ', which could hold whole numbers or float16 bits' : ''}. ${isUint16 ? 'Pass whole numbers as Int32Array.from(array), float16 bits as new Float16Bits(array.buffer, array.byteOffset, array.length).' : 'Copy it into one of these.'}`,
  )
}

/** A type's number in words. */
export const elementTypeName = (code: number): string => names[code] ?? `type ${code}`

/** A new array of the same type. */
export function sameType<A extends CollectiveArray>(array: A, length: number): A {
  return new (array.constructor as new (length: number) => A)(length)
}

/** The bytes of array[start, start + count). */
export function bytesOf(array: ElementArray, start: number, count: number): Uint8Array {
  const { BYTES_PER_ELEMENT: bytes, buffer, byteOffset } = array
  return new Uint8Array(buffer, byteOffset + bytes * start, bytes * count)
}

/** Elements of `like`'s type that lie in a message: a view where they are aligned, as they are behind a header; else a copy. */
export function elementsAt<A extends ElementArray>(
  like: A,
  message: Uint8Array<ArrayBuffer>,
  at: number,
  count: number,
): A {
  const Type = like.constructor as new (buffer: ArrayBuffer, offset?: number, length?: number) => A
  const position = message.byteOffset + at
  const bytes = like.BYTES_PER_ELEMENT
  if (position % bytes === 0) return new Type(message.buffer, position, count)
  return new Type(message.slice(at, at + bytes * count).buffer)
}
