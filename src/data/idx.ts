import { clippedName } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { checkText } from '../util/options.ts'
import { type ByteSource, readBytes } from './byte-source.ts'
import { countOf, elementArrays, elementsIn } from './elements.ts'
import { foreignFile } from './foreign.ts'
import { malformed } from './malformed.ts'
import { joined, maxUnpacked, unpackedParts } from './unpack.ts'

/**
 * The IDX format of the MNIST files, plain or compressed with gzip.
 *
 *     byte 0, 1   zero
 *     byte 2      element type: 0x08 unsigned byte, 0x09 signed byte, 0x0b int16, 0x0c int32, 0x0d float32, 0x0e float64
 *     byte 3      rank R
 *     4 x R       the dimensions, 32-bit unsigned, big-endian
 *     then        the elements, big-endian, last dimension fastest, and nothing after them
 *
 * source: the format's description on the MNIST page (LeCun, Cortes, Burges).
 */

const elementTypes = {
  8: { name: 'unsigned byte', type: 'U8' },
  9: { name: 'signed byte', type: 'I8' },
  11: { name: 'int16', type: 'I16' },
  12: { name: 'int32', type: 'I32' },
  13: { name: 'float32', type: 'F32' },
  14: { name: 'float64', type: 'F64' },
} as const

type ElementType = keyof typeof elementTypes

const unsignedByte = 8

/** Elements of an IDX file, in an array of the file's element type. */
export type IdxNumbers =
  | Uint8Array<ArrayBuffer>
  | Int8Array<ArrayBuffer>
  | Int16Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Float32Array<ArrayBuffer>
  | Float64Array<ArrayBuffer>

/** shape: `data` holds the product of `shape` elements, last dimension fastest. */
export interface IdxArray<Numbers extends IdxNumbers = IdxNumbers> {
  readonly shape: readonly number[]
  readonly data: Numbers
}

const hex = (byte: number) => `0x${byte.toString(16).padStart(2, '0')}`

/**
 * Returns the array that an uncompressed IDX file holds; bytes are a view of the file's, wider elements a copy.
 *
 * `name` is the file's name in errors.
 * errors: `data.malformed` for a wrong magic number or element type, and for missing or surplus bytes.
 */
export function parseIdx(bytes: Uint8Array<ArrayBuffer>, name: string): IdxArray {
  const { rank, type } = parseMagic(bytes, name, '0x00 0x00, a type from 0x08 to 0x0e and a rank')
  return parseElements(bytes, name, rank, type)
}

/** As `parseIdx`. errors: also for another element type than the unsigned byte, and another rank. */
export function parseIdxBytes(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
  rank: number,
): IdxArray<Uint8Array<ArrayBuffer>> {
  const wantedMagic = [0, 0, unsignedByte, rank].map(hex).join(' ')
  const got = parseMagic(bytes, name, wantedMagic)
  if (got.type !== unsignedByte)
    throw malformed(name, 'elements of type unsigned byte', `type ${elementTypes[got.type].name}`)
  if (got.rank !== rank)
    throw malformed(name, `${rank} dimension${rank === 1 ? '' : 's'}`, `${got.rank} in the header`)
  return parseElements(bytes, name, rank, unsignedByte) as IdxArray<Uint8Array<ArrayBuffer>>
}

function parseMagic(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
  wanted: string,
): { rank: number; type: ElementType } {
  if (bytes.length < 4)
    throw (
      foreignFile(name, 'an IDX file', bytes) ??
      malformed(name, 'an IDX header of 4 bytes or more', `${bytes.length} bytes (truncated)`)
    )
  const magic = [...bytes.subarray(0, 4)].map(hex).join(' ')
  if (bytes[0] !== 0 || bytes[1] !== 0 || !(bytes[2] in elementTypes))
    throw (
      foreignFile(name, `the IDX magic number ${wanted}`, bytes) ??
      malformed(name, `the IDX magic number ${wanted}`, magic)
    )
  return { rank: bytes[3], type: bytes[2] as ElementType }
}

function parseElements(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
  rank: number,
  type: ElementType,
): IdxArray {
  const headerBytes = 4 + 4 * rank
  if (bytes.length < headerBytes)
    throw malformed(
      name,
      `an IDX header of ${headerBytes} bytes`,
      `${bytes.length} bytes (truncated)`,
    )
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const shape = Array.from({ length: rank }, (_, i) => view.getUint32(4 + 4 * i))
  const elements = bytes.subarray(headerBytes)
  const data = elementsIn(elements, elementTypes[type].type, {
    shape,
    isLittle: false,
    where: name,
  })
  return { shape, data: data as IdxNumbers }
}

/**
 * Returns an IDX file uncompressed when its bytes begin with gzip's magic number, else as it is. Unpacks no more than the file's own header
 * says, and of another file the first bytes only: 1 MB of gzip may hold 1 GB.
 *
 * errors: `data.malformed` when the gzip stream is damaged or ends early, and for more bytes than the header says, or than `maxBytes`.
 */
export async function gunzipIfCompressed(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
  maxBytes = maxUnpacked,
): Promise<Uint8Array<ArrayBuffer>> {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes
  const parts: Uint8Array<ArrayBuffer>[] = []
  let length = 0
  let size: number | undefined
  const damaged = (cause: unknown) =>
    new DataError(
      'data.malformed',
      `${name}: the gzip stream is truncated or damaged after ${bytes.length} bytes. Check the file, or fetch it again.`,
      { cause },
    )
  for await (const part of unpackedParts([bytes], 'gzip', damaged)) {
    parts.push(part)
    length += part.length
    size ??= sizeOf(joined(parts))
    if (size === 0) break
    if (size !== undefined && size > maxBytes)
      throw malformed(name, `at most ${maxBytes} bytes without gzip`, `a header of ${size}`)
    if (length > (size ?? maxBytes))
      throw malformed(name, `${size ?? maxBytes} bytes without gzip, as its header says`, 'more')
  }
  return joined(parts)
}

/** The size of an IDX file by its first bytes; undefined while they are too few, 0 for another file. */
function sizeOf(head: Uint8Array): number | undefined {
  if (head.length < 4) return undefined
  const [first, second, type, rank] = head
  if (first !== 0 || second !== 0 || !(type in elementTypes)) return 0
  const headerBytes = 4 + 4 * rank
  if (head.length < headerBytes) return undefined
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength)
  const shape = Array.from({ length: rank }, (_, i) => view.getUint32(4 + 4 * i))
  const width = elementArrays[elementTypes[type as ElementType].type].BYTES_PER_ELEMENT
  return headerBytes + width * countOf(shape)
}

/** Returns the unsigned bytes in an IDX file of `rank` dimensions, plain or gzip. errors: as `gunzipIfCompressed` and `parseIdxBytes`. */
export async function readIdxBytes(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
  rank: number,
): Promise<IdxArray<Uint8Array<ArrayBuffer>>> {
  return parseIdxBytes(await gunzipIfCompressed(bytes, name), name, rank)
}

/**
 * Returns the array in an IDX file, plain or gzip, in its own type: bytes, int16, int32, float32 or float64.
 *
 * `source` is an address, a picked, dropped or downloaded file, or the bytes; `name` is used in errors for bytes and blobs without a name.
 * errors: `data.missing` if it cannot be read; `data.malformed` if it does not follow the format.
 */
export async function readIdx(source: ByteSource, name = 'IDX file'): Promise<IdxArray> {
  checkText('readIdx', 'name', name)
  const file = await readBytes(source, clippedName(name))
  return parseIdx(await gunzipIfCompressed(file.bytes, file.name), file.name)
}
