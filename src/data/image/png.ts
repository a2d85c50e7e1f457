import { type DecodedPng, decode } from 'fast-png'
import { DataError, messageOf } from '../../util/errors.ts'
import { joined, unpackedParts } from '../unpack.ts'
import type { PixelImage } from './pixels.ts'

/** Where they stand in every file: the header comes first. */
const [widthAt, heightAt, depthAt, colourAt, interlaceAt, headerEnd] = [16, 20, 24, 25, 28, 33]
/** The colour type whose samples are numbers of palette entries. */
const ofPalette = 3
const signature = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]

/** Returns whether it is a PNG file that `decodePng` takes: interlaced ones of fewer than 8 bits a sample are not. */
export const isPng = (bytes: Uint8Array): boolean =>
  signature.every((byte, i) => bytes[i] === byte) && !(bytes[depthAt] < 8 && bytes[interlaceAt] > 0)

/** As many pixels as Pillow decodes at most: more is rather a small file made to fill memory. */
const maxPixels = 2 ** 27

/** Deflate makes no more of a byte. */
const maxUnpacked = 1032
/** Of packed pixels: more are unpacked once before, to see how many there are. */
const fewPackedBytes = 64 * 1024
/** Some programs write a little more than the pixels. */
const spareBytes = 64 * 1024

const refusal = (bytes: Uint8Array, name: string, what: string, cause?: unknown) =>
  new DataError(
    'data.malformed',
    `${name}: the PNG file of ${bytes.length} bytes ${what}. Convert it again, or remove it.`,
    { cause },
  )

/**
 * Refuses a file whose packed pixels are far more than its header says: fast-png unpacks them all, and 1 MB may hold 1 GB.
 *
 * cost: unpacks the pixels of files of more than 64 KiB once. errors: `data.malformed`, naming the file.
 */
export async function refusePngBomb(bytes: Uint8Array<ArrayBuffer>, name: string): Promise<void> {
  checkSize(bytes, name)
  const packed = packedPixels(bytes)
  if (packed.reduce((sum, { length }) => sum + length, 0) <= fewPackedBytes) return
  const wanted = unpackedBytes(bytes)
  let length = 0
  const damaged = (thrown: unknown) =>
    refusal(bytes, name, `does not unpack (${messageOf(thrown)})`, thrown)
  try {
    for await (const part of unpackedParts(packed, 'deflate', damaged)) {
      length += part.length
      if (length > wanted + spareBytes) break
    }
    if (length <= wanted + spareBytes) return
  } catch (thrown) {
    // What follows the pixels is no matter.
    if (length >= wanted) return
    throw thrown
  }
  throw refusal(bytes, name, `holds more than the ${wanted} bytes of its pixels`)
}

/** How many pixels it has, as its header says. errors: `data.malformed` for none, and for too many. */
function checkSize(
  bytes: Uint8Array<ArrayBuffer>,
  name: string,
): { width: number; height: number } {
  if (bytes.length < headerEnd) throw refusal(bytes, name, 'ends within its header')
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const [width, height] = [view.getUint32(widthAt), view.getUint32(heightAt)]
  if (width === 0 || height === 0 || width * height > maxPixels)
    throw refusal(
      bytes,
      name,
      `has ${width} x ${height} pixels (allowed: 1 to ${maxPixels} in total)`,
    )
  return { width, height }
}

interface Chunk {
  readonly name: string
  readonly contents: Uint8Array<ArrayBuffer>
  /** With its length, name and checksum. */
  readonly whole: Uint8Array<ArrayBuffer>
}

/** Up to one that is not all there. */
function chunksOf(bytes: Uint8Array<ArrayBuffer>): Chunk[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const chunks: Chunk[] = []
  for (let at = signature.length; at + 12 <= bytes.length; ) {
    const end = at + 12 + view.getUint32(at)
    if (end > bytes.length) break
    const name = String.fromCharCode(...bytes.subarray(at + 4, at + 8))
    chunks.push({ name, contents: bytes.subarray(at + 8, end - 4), whole: bytes.subarray(at, end) })
    at = end
  }
  return chunks
}

const packedPixels = (bytes: Uint8Array<ArrayBuffer>) =>
  chunksOf(bytes).flatMap(({ name, contents }) => (name === 'IDAT' ? [contents] : []))

/** Samples of a pixel, by colour type. */
const samplesOf: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }
/** Of the seven passes of an interlaced file: first column and row, and how far apart they are. */
const passes = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const

/** Of the pixels, each row with its filter. units: bytes. */
function unpackedBytes(bytes: Uint8Array<ArrayBuffer>): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const [width, height] = [view.getUint32(widthAt), view.getUint32(heightAt)]
  const bits = (samplesOf[bytes[colourAt]] ?? 1) * bytes[depthAt]
  const sizeOf = (columns: number, rows: number) =>
    columns > 0 ? rows * (1 + Math.ceil((columns * bits) / 8)) : 0
  if (bytes[interlaceAt] === 0) return sizeOf(width, height)
  return passes.reduce((sum, [column, row, across, down]) => {
    const columns = Math.ceil((width - column) / across)
    return sum + sizeOf(columns, Math.max(0, Math.ceil((height - row) / down)))
  }, 0)
}

/** The file with the chunks that its pixels come from: fast-png would unpack a colour profile, and use a palette that is a suggestion. */
function withoutExtras(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const needed = ['IHDR', 'IDAT', 'IEND', ...(bytes[colourAt] === ofPalette ? ['PLTE'] : [])]
  const kept = chunksOf(bytes).filter(({ name }) => needed.includes(name))
  return joined([bytes.subarray(0, signature.length), ...kept.map(({ whole }) => whole)])
}

/**
 * Decodes a PNG file to RGB: the file's own values, as Pillow's `convert('RGB')`.
 *
 * Transparency is dropped without touching colours; palettes are looked up, grey is repeated, 1, 2 and 4 bits are scaled to 8, and of
 * 16 the upper 8 are kept (of 16-bit grey too, which Pillow cuts off at 255). Colour profiles and rotations that the file notes are not applied.
 * errors: `data.malformed`, naming the file.
 */
export function decodePng(bytes: Uint8Array<ArrayBuffer>, name: string): PixelImage {
  const refuse = (what: string, cause?: unknown) => refusal(bytes, name, what, cause)
  const { width, height } = checkSize(bytes, name)
  const packed = packedPixels(bytes).reduce((sum, { length }) => sum + length, 0)
  if (packed * maxUnpacked < unpackedBytes(bytes))
    throw refuse(`does not decode (too little data for ${width} x ${height} pixels)`)
  try {
    const image = decode(withoutExtras(bytes), { checkCrc: true })
    if (bytes[colourAt] === ofPalette && !image.palette) throw new Error('no palette')
    return { height, width, channels: 3, data: toRgb(image) }
  } catch (thrown) {
    throw refuse(`does not decode (${messageOf(thrown)})`, thrown)
  }
}

function toRgb(image: DecodedPng): Uint8Array<ArrayBuffer> {
  const { width, height, channels, depth, palette } = image
  const rgb = new Uint8Array(width * height * 3)
  const isColour = channels >= 3
  const values = depth < 8 ? unpacked(image) : image.data
  const shift = depth === 16 ? 8 : 0
  const scale = palette ? 1 : depth < 8 ? 255 / (2 ** depth - 1) : 1
  for (let from = 0, to = 0; to < rgb.length; from += channels, to += 3) {
    // An entry that the palette does not have is black.
    const entry = palette && (palette[values[from]] ?? [0, 0, 0])
    for (let c = 0; c < 3; c++)
      rgb[to + c] = entry ? entry[c] : (values[from + (isColour ? c : 0)] >> shift) * scale
  }
  return rgb
}

/** Samples of fewer than 8 bits, each row of which begins with a whole byte; the leftmost is in the uppermost bits. */
function unpacked({ width, height, depth, data }: DecodedPng): Uint8Array {
  const rowBytes = Math.ceil((width * depth) / 8)
  const highest = 2 ** depth - 1
  return Uint8Array.from({ length: width * height }, (_, i) => {
    const bit = (i % width) * depth
    const byte = data[Math.floor(i / width) * rowBytes + (bit >> 3)]
    return (byte >> (8 - depth - (bit & 7))) & highest
  })
}
