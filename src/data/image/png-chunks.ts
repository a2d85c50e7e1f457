import type { DataError } from '../../util/errors.ts'

/** What of a PNG file makes its pixels. */
export interface PngChunks {
  readonly header: DataView
  /** Three bytes a colour. */
  readonly palette: Uint8Array | undefined
  /** One zlib stream, in parts. */
  readonly data: readonly Uint8Array<ArrayBuffer>[]
}

const crcTable = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1
  return value
})

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 0xff] ^ (crc >>> 8)
  return ~crc >>> 0
}

/**
 * Reads the chunks from byte `at` on, up to the end's: each is its length, a name of four letters, its contents, and the CRC-32 of
 * name and contents.
 *
 * errors: `refuse` for a chunk that is cut off or damaged, and where header or data are missing.
 */
export function readPngChunks(
  bytes: Uint8Array<ArrayBuffer>,
  at: number,
  refuse: (what: string) => DataError,
): PngChunks {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const data: Uint8Array<ArrayBuffer>[] = []
  let header: DataView | undefined
  let palette: Uint8Array | undefined
  while (at < bytes.length) {
    const end = at + 8 < bytes.length ? at + 8 + view.getUint32(at) : bytes.length
    if (end + 4 > bytes.length) throw refuse('that ends within a chunk')
    const name = String.fromCharCode(...bytes.subarray(at + 4, at + 8))
    const contents = bytes.subarray(at + 8, end)
    // Names of chunks that decoders must know begin with a capital; the others do not make pixels.
    if (/^[A-Z]/.test(name) && crc32(bytes.subarray(at + 4, end)) !== view.getUint32(end))
      throw refuse(`whose chunk ${name} at byte ${at} is damaged (its checksum differs)`)
    if (name === 'IHDR') header ??= new DataView(bytes.buffer, contents.byteOffset, contents.length)
    if (name === 'PLTE') palette ??= contents
    if (name === 'IDAT') data.push(contents)
    if (name === 'IEND') break
    at = end + 4
  }
  if (!header || data.length === 0) throw refuse(`without a ${header ? 'data' : 'header'} chunk`)
  return { header, palette, data }
}
