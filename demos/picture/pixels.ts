import { DataError } from '../../src/util/errors.ts'
import { maxPixelsASide } from './meta.ts'

/** A picture, rows from the top. */
export interface Picture {
  readonly width: number
  readonly height: number
  /** shape: [height, width, 3] */
  readonly rgb: Uint8Array<ArrayBuffer>
}

/** A picture, and which of its pixels are for training and which are held out. Both in the order of the picture, row by row. */
export interface Pixels extends Picture {
  readonly train: PixelList
  readonly test: PixelList
}

interface PixelList {
  readonly count: number
  /** Places in the picture: row * width + column. */
  readonly at: Uint32Array<ArrayBuffer>
}

export const fewestPixelsASide = 8
/** One in this many pixels is held out: one in each run along a row, and along a column. */
const heldOut = 10
/** What a given picture begins with. */
const mark = 'TPIC'
const headerBytes = 8

/** Returns a picture as a person gives it to a run: the four letters TPIC, width and height as uint16 (little endian), the RGB bytes. */
export function writePicture({ width, height, rgb }: Picture): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(headerBytes + rgb.length)
  bytes.set([...mark].map((letter) => letter.charCodeAt(0)))
  const header = new DataView(bytes.buffer)
  header.setUint16(4, width, true)
  header.setUint16(6, height, true)
  bytes.set(rgb, headerBytes)
  return bytes
}

/** Returns the picture that a person gave. errors: `data.malformed`. */
export function readPicture(bytes: Uint8Array<ArrayBuffer>): Pixels {
  if (
    bytes.length < headerBytes ||
    String.fromCharCode(...bytes.subarray(0, mark.length)) !== mark
  ) {
    throw malformed(`its ${bytes.length} bytes do not begin with ${mark}`)
  }
  const header = new DataView(bytes.buffer, bytes.byteOffset)
  const width = header.getUint16(4, true)
  const height = header.getUint16(6, true)
  for (const side of [width, height]) {
    if (side < fewestPixelsASide || side > maxPixelsASide) {
      throw malformed(
        `a side of ${width} x ${height} pixels is not from ${fewestPixelsASide} to ${maxPixelsASide}`,
      )
    }
  }
  const expected = headerBytes + 3 * width * height
  if (bytes.length !== expected) {
    throw malformed(
      `expected ${expected} bytes for ${width} x ${height} pixels, got ${bytes.length}`,
    )
  }
  return packPixels(width, height, bytes.slice(headerBytes))
}

/** Returns a picture with its pixels for training and its held-out ones. */
export function packPixels(width: number, height: number, rgb: Uint8Array<ArrayBuffer>): Pixels {
  const isHeldOut = (pixel: number) =>
    ((pixel % width) + 3 * Math.floor(pixel / width)) % heldOut === 0
  const all = Uint32Array.from({ length: width * height }, (_, pixel) => pixel)
  const train = all.filter((pixel) => !isHeldOut(pixel))
  const test = all.filter(isHeldOut)
  return {
    width,
    height,
    rgb,
    train: { count: train.length, at: train },
    test: { count: test.length, at: test },
  }
}

/** How many pixels of a picture are for training. */
export const trainingPixels = ({ width, height, rgb }: Picture): number =>
  packPixels(width, height, rgb).train.count

const malformed = (problem: string) =>
  new DataError('data.malformed', `picture: ${problem}. Choose it again.`)
