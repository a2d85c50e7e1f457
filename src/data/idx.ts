import { DataError, messageOf } from '../util/errors.ts'

/**
 * The IDX format of the MNIST files, plain or compressed with gzip.
 *
 *     byte 0, 1   zero
 *     byte 2      element type; 0x08 is the unsigned byte
 *     byte 3      rank R
 *     4 x R       the dimensions, 32-bit unsigned, big-endian
 *     then        the elements, last dimension fastest, and nothing after them
 *
 * source: the format's description on the MNIST page (LeCun, Cortes, Burges).
 */

const elementTypes: Record<number, string> = {
  8: 'unsigned byte',
  9: 'signed byte',
  11: 'int16',
  12: 'int32',
  13: 'float32',
  14: 'float64',
}

const unsignedByte = 8

export interface IdxArray {
  /** shape: one entry a dimension. */
  dims: number[]
  /** shape: the product of `dims`; a view of the parsed bytes. */
  values: Uint8Array<ArrayBuffer>
}

const hex = (byte: number) => `0x${byte.toString(16).padStart(2, '0')}`

/**
 * Returns the array of unsigned bytes that an uncompressed IDX file holds.
 *
 * `name` is the file's name in errors.
 * errors: `data.malformed` for a wrong magic number, element type or rank, and for missing or surplus bytes.
 */
export function parseIdx(bytes: Uint8Array<ArrayBuffer>, name: string, rank: number): IdxArray {
  const refuse = (expected: string, got: string) =>
    new DataError(
      'data.malformed',
      `${name}: expected ${expected}, got ${got}. Check or fetch the file again.`,
    )
  if (bytes.length < 4)
    throw refuse('an IDX header of 4 bytes or more', `${bytes.length} bytes (truncated)`)
  const magic = [...bytes.subarray(0, 4)].map(hex).join(' ')
  const wantedMagic = [0, 0, unsignedByte, rank].map(hex).join(' ')
  if (bytes[0] !== 0 || bytes[1] !== 0 || !(bytes[2] in elementTypes))
    throw refuse(`the IDX magic number ${wantedMagic}`, magic)
  if (bytes[2] !== unsignedByte)
    throw refuse('elements of type unsigned byte', `type ${elementTypes[bytes[2]]}`)
  if (bytes[3] !== rank)
    throw refuse(`${rank} dimension${rank === 1 ? '' : 's'}`, `${bytes[3]} in the header`)
  const headerBytes = 4 + 4 * rank
  if (bytes.length < headerBytes)
    throw refuse(`an IDX header of ${headerBytes} bytes`, `${bytes.length} bytes (truncated)`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const dims = Array.from({ length: rank }, (_, i) => view.getUint32(4 + 4 * i))
  // At most three dimensions below 2^32 each: beyond 2^53 the product is inexact, but then far from any file's size.
  const sizeBytes = dims.reduce((product, dim) => product * dim, 1)
  const got = bytes.length - headerBytes
  if (got !== sizeBytes)
    throw refuse(
      `${sizeBytes} bytes for ${dims.join(' x ')} elements`,
      `${got} (${got < sizeBytes ? 'truncated' : 'surplus bytes'})`,
    )
  return { dims, values: bytes.subarray(headerBytes) }
}

/**
 * Returns `bytes` uncompressed when they begin with gzip's magic number, else unchanged.
 *
 * errors: `data.malformed` when the gzip stream is damaged or ends early.
 */
export async function gunzipIfCompressed(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
): Promise<Uint8Array<ArrayBuffer>> {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer())
  } catch (thrown) {
    throw new DataError(
      'data.malformed',
      `${name}: expected a whole gzip stream, got one that is truncated or damaged after ${bytes.length} bytes. Check or fetch the file again.`,
      { cause: messageOf(thrown) },
    )
  }
}

/** Returns the array in an IDX file, plain or gzip. errors: as `gunzipIfCompressed` and `parseIdx`. */
export async function readIdx(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
  rank: number,
): Promise<IdxArray> {
  return parseIdx(await gunzipIfCompressed(bytes, name), name, rank)
}
