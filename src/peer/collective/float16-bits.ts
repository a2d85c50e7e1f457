import { halfBits, halfValue } from '../../util/half.ts'
import { isDetached, isOf } from '../../util/kind-of.ts'
import { checkArgument } from '../../util/options.ts'

/** The part of Float16Array that collectives use; not every platform and not every TypeScript `lib` has the class. */
export interface Float16Elements extends ArrayBufferView {
  readonly [Symbol.toStringTag]: 'Float16Array'
  readonly length: number
  [index: number]: number
}

/**
 * float16 numbers as bits, for platforms without Float16Array. Make one from a Uint16Array of bits with
 * `new Float16Bits(array.buffer, array.byteOffset, array.length)`, or from numbers with `encode`.
 *
 * Collectives refuse a plain Uint16Array, because its elements could be whole numbers.
 */
export class Float16Bits extends Uint16Array {
  /** Returns the nearest float16 of each number, ties to even; numbers that are too large become infinite. */
  static encode(values: ArrayLike<number>): Float16Bits {
    const isNumbers =
      (Array.isArray(values) && values.every((one) => typeof one === 'number')) ||
      (ArrayBuffer.isView(values) && !isOf(values, DataView) && !isDetached(values))
    checkArgument('Float16Bits.encode', 'values', values, isNumbers, 'an array of numbers')
    const bits = new Float16Bits(values.length)
    for (let i = 0; i < values.length; i++) bits[i] = halfBits(values[i]!)
    return bits
  }

  /** The element type. */
  get elementType(): 'float16' {
    return 'float16'
  }

  /** Returns the numbers as float32. */
  decode(): Float32Array<ArrayBuffer> {
    return Float32Array.from(this, halfValue)
  }

  override subarray(begin?: number, end?: number): Float16Bits {
    return super.subarray(begin, end) as Float16Bits
  }

  override slice(start?: number, end?: number): Float16Bits {
    return super.slice(start, end) as Float16Bits
  }
}
