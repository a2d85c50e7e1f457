import { RandomStream } from '../util/random.ts'
import type { DataSplits, LabelledImages } from './dataset.ts'

/**
 * The built-in data set: handwritten-looking digits, drawn by the program from a seed, without a download.
 *
 * Each digit has a few stroke templates. An image takes one, moves its control points, bends it by a random
 * affine map, draws it with a pen of random width, softness and pressure, and adds noise to the ink.
 *
 * Only operations that IEEE 754 rounds exactly are used (no sine, exponential or logarithm), so every engine
 * draws the same bytes and ranks on different browsers hold the same data.
 *
 * Parts: templates, curves to polylines, the random hand, the pen, the data set.
 */

const side = 28
const classes = 10

type Point = readonly [x: number, y: number]

/** One stroke: a `curve` goes smoothly through its control points, a `line` is straight between them. */
interface Stroke {
  kind: 'curve' | 'line'
  points: readonly Point[]
}

/**
 * The strokes of each way to write each digit; strokes are divided by `;`, `~` begins a curve and `/` a line.
 *
 * units: control points are percent of the digit's box, x to the right and y down.
 */
const templates: readonly (readonly string[])[] = [
  [
    '~ 50,2 20,20 14,55 30,92 58,96 82,70 82,30 62,5 46,3',
    '~ 62,6 34,10 16,40 20,80 46,98 76,82 86,45 74,12 50,8',
    '~ 40,6 8,40 16,84 50,96 86,74 90,34 66,6 36,10',
  ],
  [
    '/ 50,0 50,100',
    '/ 32,20 54,0 54,100',
    '/ 30,22 52,2 52,97; / 28,98 76,98',
    '~ 56,0 52,35 50,70 46,100',
  ],
  [
    '~ 18,26 34,4 68,4 78,28 58,60 16,96; / 16,96 86,95',
    '~ 16,20 44,2 76,18 68,50 34,86 16,88 20,72 42,80 64,96 88,88',
    '~ 22,14 52,0 74,20 60,54 18,92 50,90 86,98',
  ],
  [
    '~ 20,12 50,1 76,18 66,40 42,47; ~ 42,47 74,55 82,78 58,97 18,90',
    '/ 20,4 76,4 44,42; ~ 44,42 76,50 82,76 56,98 18,88',
    '~ 24,10 58,2 72,22 50,44 36,48 60,50 78,70 60,94 20,94',
  ],
  [
    '/ 26,2 18,58 88,58; / 68,24 66,100',
    '/ 64,98 66,0 12,64 90,64',
    '~ 24,4 20,36 36,52 74,44; ~ 78,4 74,44 70,100',
  ],
  [
    '/ 80,3 28,4 24,42; ~ 24,42 54,36 80,54 78,80 52,98 16,90',
    '~ 30,6 26,28 24,46 56,42 78,64 66,92 34,98 14,86; / 30,6 82,2',
    '~ 84,5 50,4 36,12 28,42 60,50 72,74 50,96 16,94',
  ],
  [
    '~ 68,2 38,22 20,60 30,90 58,98 80,78 66,54 40,56 22,74',
    '~ 50,0 28,34 20,72 40,98 68,94 78,72 56,56 28,68',
    '~ 78,8 54,6 28,34 20,70 42,96 72,88 74,64 48,52 24,62',
  ],
  [
    '/ 14,5 84,5 42,100',
    '~ 14,14 20,6 50,8 84,6; ~ 84,6 60,44 48,72 42,100',
    '/ 16,5 82,5 40,100; / 34,50 80,48',
    '/ 16,20 20,5 82,4; ~ 82,4 68,34 56,64 54,100',
  ],
  [
    '~ 52,48 26,30 32,6 62,2 76,20 52,48 22,72 34,96 66,96 78,74 52,48',
    '~ 76,14 50,0 26,18 44,42 70,64 74,88 48,99 24,84 36,60 66,38 76,16',
    '~ 50,2 28,12 30,36 50,44 70,34 72,12 48,2; ~ 50,46 22,60 24,90 50,99 78,88 76,58 50,46',
  ],
  [
    '~ 76,26 56,4 28,12 24,38 48,52 72,38 78,20; / 77,22 70,100',
    '~ 74,14 46,2 22,24 36,48 62,44 76,16 76,50 66,86 34,97',
    '~ 76,10 40,6 26,30 44,46 70,32 77,8 70,50 56,100',
  ],
]

/** units: control points from 0 to 1. */
function parseStyle(text: string): Stroke[] {
  return text.split('; ').map((stroke) => {
    const [sign, ...points] = stroke.split(' ')
    return {
      kind: sign === '~' ? 'curve' : 'line',
      points: points.map((point) => {
        const [x, y] = point.split(',').map(Number)
        return [x / 100, y / 100] as const
      }),
    }
  })
}

const digitStyles = templates.map((styles) => styles.map(parseStyle))

/** Segments by which one span of a curve is drawn. */
const segmentsPerSpan = 4

/** How far hands differ. Lengths are in units of the template box unless they say pixels. */
const hand = {
  pointShift: 0.055,
  /** Half-range of the rotation's half-angle tangent: 0.13 is 15 degrees. */
  halfTurn: 0.13,
  shear: 0.28,
  heightPixels: [15, 21.5],
  widthToHeight: [0.62, 1.0],
  shiftPixels: 1.5,
  penRadiusPixels: [0.65, 1.5],
  /** Width of the soft edge round the pen: the blur. */
  softnessPixels: [0.7, 1.5],
  ink: [190, 255],
  /** Greatest loss of ink at one pixel, as a share. */
  grain: 0.25,
  /** Chance that a background pixel is a speck, and its greatest brightness. */
  speckChance: 0.01,
  speckInk: 110,
} as const

/** One end to the other of straight segments, in template units: x0 y0 x1 y1, four numbers a segment. */
class Polyline {
  readonly values = new Float64Array(4 * 128)
  count = 0
  add(x0: number, y0: number, x1: number, y1: number): void {
    this.values.set([x0, y0, x1, y1], 4 * this.count++)
  }
}

/**
 * Adds the segments of one stroke whose control points are `xs`, `ys`.
 *
 * source: Catmull-Rom splines (Catmull and Rom, 1974), uniform form, end points doubled.
 */
function addStroke(kind: Stroke['kind'], xs: number[], ys: number[], to: Polyline): void {
  for (let i = 0; i + 1 < xs.length; i++) {
    if (kind === 'line') {
      to.add(xs[i], ys[i], xs[i + 1], ys[i + 1])
      continue
    }
    const before = Math.max(0, i - 1)
    const after = Math.min(xs.length - 1, i + 2)
    let x0 = xs[i]
    let y0 = ys[i]
    for (let k = 1; k <= segmentsPerSpan; k++) {
      const t = k / segmentsPerSpan
      const x1 = spline(xs[before], xs[i], xs[i + 1], xs[after], t)
      const y1 = spline(ys[before], ys[i], ys[i + 1], ys[after], t)
      to.add(x0, y0, x1, y1)
      x0 = x1
      y0 = y1
    }
  }
}

function spline(a: number, b: number, c: number, d: number, t: number): number {
  const linear = c - a
  const square = 2 * a - 5 * b + 4 * c - d
  const cube = 3 * (b - c) + d - a
  return b + 0.5 * t * (linear + t * (square + t * cube))
}

/** Maps the template's segments to pixel coordinates by one random rotation, scale, shear and shift, in place. */
function bend(lines: Polyline, random: RandomStream): void {
  const halfTangent = random.between(-hand.halfTurn, hand.halfTurn)
  const norm = 1 + halfTangent * halfTangent
  const cosine = (1 - halfTangent * halfTangent) / norm
  const sine = (2 * halfTangent) / norm
  const shear = random.between(-hand.shear, hand.shear)
  const height = random.between(...hand.heightPixels)
  const width = height * random.between(...hand.widthToHeight)
  const centreX = side / 2 + random.between(-hand.shiftPixels, hand.shiftPixels)
  const centreY = side / 2 + random.between(-hand.shiftPixels, hand.shiftPixels)
  for (let i = 0; i < 4 * lines.count; i += 2) {
    const y = (lines.values[i + 1] - 0.5) * height
    const x = (lines.values[i] - 0.5) * width - shear * y
    lines.values[i] = centreX + cosine * x - sine * y
    lines.values[i + 1] = centreY + sine * x + cosine * y
  }
}

/**
 * Draws the segments into `image`: full ink within the pen's radius, falling smoothly to none over its soft edge.
 *
 * shape: `image` [28 * 28], written where the pen passes; each pixel keeps the most ink that any segment gives it.
 */
function draw(lines: Polyline, radius: number, softness: number, image: Float64Array): void {
  const reach = radius + softness
  for (let s = 0; s < lines.count; s++) {
    const [x0, y0, x1, y1] = lines.values.subarray(4 * s, 4 * s + 4)
    const dx = x1 - x0
    const dy = y1 - y0
    const lengthSquared = dx * dx + dy * dy
    const top = Math.max(0, Math.floor(Math.min(y0, y1) - reach))
    const bottom = Math.min(side - 1, Math.ceil(Math.max(y0, y1) + reach))
    const left = Math.max(0, Math.floor(Math.min(x0, x1) - reach))
    const right = Math.min(side - 1, Math.ceil(Math.max(x0, x1) + reach))
    for (let row = top; row <= bottom; row++) {
      const py = row + 0.5 - y0
      for (let column = left; column <= right; column++) {
        const px = column + 0.5 - x0
        const along = lengthSquared > 0 ? (px * dx + py * dy) / lengthSquared : 0
        const t = Math.min(1, Math.max(0, along))
        const ex = px - t * dx
        const ey = py - t * dy
        const distanceSquared = ex * ex + ey * ey
        if (distanceSquared >= reach * reach) continue
        const distance = Math.sqrt(distanceSquared)
        const edge = distance <= radius ? 1 : 1 - (distance - radius) / softness
        const ink = edge * edge * (3 - 2 * edge)
        const at = row * side + column
        if (ink > image[at]) image[at] = ink
      }
    }
  }
}

/** Draws one image of `digit` into `pixels` at `offset`. */
function writeDigit(digit: number, random: RandomStream, pixels: Uint8Array, offset: number): void {
  const styles = digitStyles[digit]
  const lines = new Polyline()
  for (const stroke of styles[random.below(styles.length)]) {
    const shifted = (value: number) => value + random.between(-hand.pointShift, hand.pointShift)
    const xs = stroke.points.map(([x]) => shifted(x))
    const ys = stroke.points.map(([, y]) => shifted(y))
    addStroke(stroke.kind, xs, ys, lines)
  }
  bend(lines, random)
  const image = new Float64Array(side * side)
  draw(
    lines,
    random.between(...hand.penRadiusPixels),
    random.between(...hand.softnessPixels),
    image,
  )
  const ink = random.between(...hand.ink)
  for (let i = 0; i < image.length; i++) {
    const noise = random.unit()
    const isSpeck = image[i] === 0 && noise < hand.speckChance
    pixels[offset + i] = isSpeck
      ? (hand.speckInk * noise) / hand.speckChance
      : ink * image[i] * (1 - hand.grain * noise)
  }
}

const imagesPerStream = 2 ** 24

/** Returns `count` digits of the stream (seed, stream), each drawn when it is first read. Image i depends on seed, stream and i alone. */
function digitsWhenRead(seed: number, stream: number, count: number) {
  const images = new Uint8Array(count * side * side)
  const labels = new Uint8Array(count)
  const isDrawn = new Uint8Array(count)
  const prepare = (i: number) => {
    if (isDrawn[i]) return
    isDrawn[i] = 1
    // Each image starts its own stream: the low bits number the images, the high ones the caller's stream.
    const random = new RandomStream(seed, stream * imagesPerStream + i, 'digits')
    labels[i] = random.below(classes)
    writeDigit(labels[i], random, images, i * side * side)
  }
  return { images, labels, count, height: side, width: side, classes, prepare }
}

/**
 * Returns `count` drawn digits of the stream (seed, stream).
 *
 * shape: images [count, 28, 28], ten classes, labels drawn evenly. Image i depends on seed, stream and i alone.
 * cost: about 40 microseconds an image on one 2020s core.
 */
export function drawDigits(seed: number, stream: number, count: number): LabelledImages {
  const digits = digitsWhenRead(seed, stream, count)
  for (let i = 0; i < count; i++) digits.prepare(i)
  return digits
}

/** Returns the built-in data set, whose images are drawn when `fillBatch` reads them. Those of the test share no random number with the others. */
export const builtInDigits = (): DataSplits => ({
  train: digitsWhenRead(0, 0, 8000),
  test: digitsWhenRead(0, 1, 1000),
})
