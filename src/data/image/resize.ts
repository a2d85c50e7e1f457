import type { PixelImage } from './pixels.ts'

/**
 * Bilinear scaling with a filter that widens when it shrinks (anti-aliased), bit for bit as Pillow does it on bytes.
 *
 * A canvas would be faster, but browsers scale differently, and ranks on different browsers must see equal images.
 * source: Pillow 9.4, libImaging/Resample.c: 22-bit fixed-point weights, rows first, rounded to bytes in between.
 */

const precisionBits = 22
const half = 1 << (precisionBits - 1)

interface Weights {
  /** For each output position: first input position, number of weights, start in `values`. */
  readonly first: Int32Array
  readonly count: Int32Array
  readonly start: Int32Array
  /** Fixed-point numbers. */
  readonly values: Int32Array
}

function weightsOf(inputSize: number, outputSize: number): Weights {
  const scale = inputSize / outputSize
  const filterScale = Math.max(1, scale)
  // The triangle filter reaches 1 to each side.
  const support = filterScale
  const first = new Int32Array(outputSize)
  const count = new Int32Array(outputSize)
  const start = new Int32Array(outputSize)
  const values: number[] = []
  for (let to = 0; to < outputSize; to++) {
    const centre = (to + 0.5) * scale
    const low = Math.max(0, Math.trunc(centre - support + 0.5))
    const high = Math.min(inputSize, Math.trunc(centre + support + 0.5))
    const own: number[] = []
    let total = 0
    for (let from = low; from < high; from++) {
      const weight = Math.max(0, 1 - Math.abs((from - centre + 0.5) * (1 / filterScale)))
      own.push(weight)
      total += weight
    }
    first[to] = low
    count[to] = own.length
    start[to] = values.length
    for (const weight of own) {
      values.push(Math.trunc(0.5 + (total === 0 ? weight : weight / total) * 2 ** precisionBits))
    }
  }
  return { first, count, start, values: Int32Array.from(values) }
}

/** Scales one axis: `lines` runs of `inputSize` positions, `step` bytes apart, each of `inner` bytes side by side. */
function scaleAxis(
  from: ArrayLike<number>,
  outer: number,
  inputSize: number,
  inner: number,
  outputSize: number,
): Uint8Array<ArrayBuffer> {
  const { first, count, start, values } = weightsOf(inputSize, outputSize)
  const to = new Uint8Array(outer * outputSize * inner)
  for (let line = 0; line < outer; line++) {
    for (let position = 0; position < outputSize; position++) {
      const base = (line * inputSize + first[position]) * inner
      const target = (line * outputSize + position) * inner
      for (let i = 0; i < inner; i++) {
        let sum = half
        for (let k = 0; k < count[position]; k++)
          sum += from[base + k * inner + i] * values[start[position] + k]
        to[target + i] = Math.min(255, sum >> precisionBits)
      }
    }
  }
  return to
}

/** The image scaled to `height` x `width`, bilinear, anti-aliased. */
export function scaleTo(image: PixelImage, height: number, width: number): PixelImage {
  const { channels } = image
  const wide =
    width === image.width
      ? image.data
      : scaleAxis(image.data, image.height, image.width, channels, width)
  const data =
    height === image.height ? wide : scaleAxis(wide, 1, image.height, width * channels, height)
  return { height, width, channels, data }
}
