/**
 * How a run of float32 elements is written on the wire.
 *
 * `encode` and its inverses `add` and `copy` work on element ranges, so a segment can be cut anywhere. For a lossy codec
 * `copy` then `encode` must give the same bytes again (ranks pass on what they decoded), and the owner of a chunk must
 * keep what it encoded, decoded, so that all ranks end with the same bits.
 */
export interface Codec {
  readonly name: string
  /** 1 to 15, in the frame's kind field: neighbours compare it before data flows. */
  readonly typeCode: number
  readonly bytesPerElement: number
  /** Writes source[start, start + count) to `target` from byte `at` on. */
  encode(
    source: Float32Array,
    start: number,
    count: number,
    target: Uint8Array<ArrayBuffer>,
    at: number,
  ): void
  /** target[start + i] += element i of `message` from byte `at` on. */
  add(
    message: Uint8Array<ArrayBuffer>,
    at: number,
    count: number,
    target: Float32Array,
    start: number,
  ): void
  /** target[start + i] = element i of `message` from byte `at` on. */
  copy(
    message: Uint8Array<ArrayBuffer>,
    at: number,
    count: number,
    target: Float32Array,
    start: number,
  ): void
}

/** IEEE single precision as it lies in memory; lossless. Little-endian, as every platform with WebGPU is. */
export const float32Codec: Codec = {
  name: 'float32',
  typeCode: 1,
  bytesPerElement: 4,
  encode(source, start, count, target, at) {
    target.set(bytesOf(source, start, count), at)
  },
  add(message, at, count, target, start) {
    const values = floatsAt(message, at, count)
    for (let i = 0; i < count; i++) target[start + i]! += values[i]!
  },
  copy(message, at, count, target, start) {
    // As bytes: a copy through numbers may change the payload of a NaN, and records are not numbers.
    bytesOf(target, start, count).set(message.subarray(at, at + 4 * count))
  },
}

function bytesOf(floats: Float32Array, start: number, count: number): Uint8Array {
  return new Uint8Array(floats.buffer, floats.byteOffset + 4 * start, 4 * count)
}

/** A view where the bytes are 4-aligned, as they are behind a 32-byte header in a buffer of its own; else a copy. */
function floatsAt(message: Uint8Array<ArrayBuffer>, at: number, count: number): Float32Array {
  const position = message.byteOffset + at
  if (position % 4 === 0) return new Float32Array(message.buffer, position, count)
  return new Float32Array(message.slice(at, at + 4 * count).buffer)
}
