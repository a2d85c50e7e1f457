import { DataError, messageOf } from '../../util/errors.ts'
import type { PixelImage } from './pixels.ts'
import { readPngChunks } from './png-chunks.ts'
import {
  adam7,
  type Pass,
  samplesAPixel,
  type UnpackedHeader,
  unfilter,
  unpack,
} from './png-rows.ts'

const signature = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]

export const isPng = (bytes: Uint8Array): boolean => signature.every((byte, i) => bytes[i] === byte)

/** As many pixels as Pillow decodes at most: more is rather a small file made to fill memory. */
const maxPixels = 2 ** 27

/**
 * Decodes a PNG file to RGB: the file's own values, as Pillow's `convert('RGB')`.
 *
 * Transparency is dropped without touching colours; palettes are looked up, grey is repeated, 1, 2 and 4 bits are scaled to 8, and of
 * 16 the upper 8 are kept (of 16-bit grey too, which Pillow cuts off at 255). Colour profiles and rotations that the file notes are not applied.
 * errors: `data.malformed`, naming the file.
 * source: PNG specification, third edition, sections 5, 7, 9 and 11.
 */
export async function decodePng(bytes: Uint8Array<ArrayBuffer>, name: string): Promise<PixelImage> {
  const refuse = (what: string, cause?: unknown) =>
    new DataError(
      'data.malformed',
      `${name}: expected an image, got ${bytes.length} bytes of a PNG file ${what}. Convert it anew, or remove it.`,
      { cause },
    )
  const chunks = readPngChunks(bytes, signature.length, refuse)
  const header = readHeader(chunks.header, refuse)
  if (header.colourType === 3 && !chunks.palette)
    throw refuse('with palette colours and no palette')
  const { height, width, depth, colourType } = header
  const bits = depth * samplesAPixel[colourType]
  const passes = (header.isInterlaced ? adam7 : [{ x: 0, y: 0, dx: 1, dy: 1 }])
    .map((pass) => ({ ...pass, ...sizeOf(pass, width, height) }))
    .filter((pass) => pass.width > 0 && pass.height > 0)
    .map((pass) => ({ ...pass, rowBytes: Math.ceil((pass.width * bits) / 8) }))
  const length = passes.reduce((sum, pass) => sum + pass.height * (1 + pass.rowBytes), 0)
  const raw = await inflate(chunks.data, length, refuse)
  const data = new Uint8Array(width * height * 3)
  let from = 0
  for (const pass of passes) {
    const end = from + pass.height * (1 + pass.rowBytes)
    const filtered = raw.subarray(from, end)
    if (!unfilter(filtered, pass.rowBytes, Math.max(1, bits >> 3)))
      throw refuse('with an unknown filter')
    unpack(filtered, pass, header, chunks.palette, data)
    from = end
  }
  return { height, width, channels: 3, data }
}

type Refuse = (what: string, cause?: unknown) => DataError

/** Bits a sample that each colour type may have. */
const depths: Readonly<Record<number, readonly number[]>> = {
  0: [1, 2, 4, 8, 16],
  2: [8, 16],
  3: [1, 2, 4, 8],
  4: [8, 16],
  6: [8, 16],
}

function readHeader(
  chunk: DataView,
  refuse: Refuse,
): UnpackedHeader & { readonly isInterlaced: boolean } {
  if (chunk.byteLength !== 13) throw refuse(`with a header of ${chunk.byteLength} bytes for 13`)
  const [width, height] = [chunk.getUint32(0), chunk.getUint32(4)]
  const [depth, colourType, compression, filter, interlace] = [8, 9, 10, 11, 12].map((at) =>
    chunk.getUint8(at),
  )
  if (!depths[colourType]?.includes(depth))
    throw refuse(`of colour type ${colourType} with ${depth} bits, which there is not`)
  if (compression !== 0 || filter !== 0 || interlace > 1)
    throw refuse(`of compression ${compression}, filter ${filter}, interlace ${interlace}`)
  if (width === 0 || height === 0 || width * height > maxPixels)
    throw refuse(`of ${width} x ${height} pixels (1 to ${maxPixels} are decoded)`)
  return { width, height, depth, colourType, isInterlaced: interlace === 1 }
}

const sizeOf = ({ x, y, dx, dy }: Pass, width: number, height: number) => ({
  width: Math.ceil(Math.max(0, width - x) / dx),
  height: Math.ceil(Math.max(0, height - y) / dy),
})

/** The first `length` bytes of a zlib stream in parts; what may follow them is passed over, as other decoders do. */
async function inflate(
  parts: readonly Uint8Array<ArrayBuffer>[],
  length: number,
  refuse: Refuse,
): Promise<Uint8Array<ArrayBuffer>> {
  const { readable, writable } = new DecompressionStream('deflate')
  const writer = writable.getWriter()
  // What goes wrong here reaches the reader too, which reports it.
  for (const part of parts) writer.write(part).catch(() => undefined)
  writer.close().catch(() => undefined)
  const reader = readable.getReader()
  const all = new Uint8Array(length)
  let at = 0
  while (at < length) {
    const { value, done } = await reader.read().catch((thrown) => {
      throw refuse(`whose pixels do not decompress (${messageOf(thrown)})`, thrown)
    })
    if (done) throw refuse(`with ${at} bytes of pixels for ${length}`)
    all.set(value.subarray(0, length - at), at)
    at += value.length
  }
  await reader.cancel().catch(() => undefined)
  return all
}
