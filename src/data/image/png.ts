import { type DecodedPng, decode } from 'fast-png'
import { DataError, messageOf } from '../../util/errors.ts'
import type { PixelImage } from './pixels.ts'

/** Where they stand in every file: the header comes first. */
const [widthAt, heightAt, depthAt, colourAt, interlaceAt, headerEnd] = [16, 20, 24, 25, 28, 33]
/** The colour type whose samples are numbers of palette entries. */
const ofPalette = 3
const signature = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]

/** Whether it is a PNG file that `decodePng` takes: interlaced ones of fewer than 8 bits a sample are not. */
export const isPng = (bytes: Uint8Array): boolean =>
  signature.every((byte, i) => bytes[i] === byte) && !(bytes[depthAt] < 8 && bytes[interlaceAt] > 0)

/** As many pixels as Pillow decodes at most: more is rather a small file made to fill memory. */
const maxPixels = 2 ** 27

/**
 * Decodes a PNG file to RGB: the file's own values, as Pillow's `convert('RGB')`.
 *
 * Transparency is dropped without touching colours; palettes are looked up, grey is repeated, 1, 2 and 4 bits are scaled to 8, and of
 * 16 the upper 8 are kept (of 16-bit grey too, which Pillow cuts off at 255). Colour profiles and rotations that the file notes are not applied.
 * errors: `data.malformed`, naming the file.
 */
export function decodePng(bytes: Uint8Array<ArrayBuffer>, name: string): PixelImage {
  const refuse = (what: string, cause?: unknown) =>
    new DataError(
      'data.malformed',
      `${name}: the PNG file of ${bytes.length} bytes ${what}. Convert it again, or remove it.`,
      { cause },
    )
  if (bytes.length < headerEnd) throw refuse('ends within its header')
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const [width, height] = [view.getUint32(widthAt), view.getUint32(heightAt)]
  if (width === 0 || height === 0 || width * height > maxPixels)
    throw refuse(`has ${width} x ${height} pixels (allowed: 1 to ${maxPixels} in total)`)
  try {
    const image = decode(bytes, { checkCrc: true })
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
