import { halfBits, halfValue } from '../../util/half.ts'

/** What collectives need of a Float16Array, which not every platform and not every `lib` has. */
export interface Float16Elements extends ArrayBufferView {
  readonly [Symbol.toStringTag]: 'Float16Array'
  readonly length: number
  [index: number]: number
}

/**
 * float16 by its bits, for collectives where there is no Float16Array: `new Float16Bits(array.buffer, array.byteOffset, array.length)` of a
 * Uint16Array that holds bits, or `encode` of numbers.
 *
 * A Uint16Array itself is refused, since its elements may as well be whole numbers.
 */
export class Float16Bits extends Uint16Array {
  /** The bits nearest to the numbers, ties to even; too large ones become infinite. */
  static encode(values: ArrayLike<number>): Float16Bits {
    const bits = new Float16Bits(values.length)
    for (let i = 0; i < values.length; i++) bits[i] = halfBits(values[i]!)
    return bits
  }

  /** What the elements are. */
  get elementType(): 'float16' {
    return 'float16'
  }

  /** The numbers that the bits mean. */
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
