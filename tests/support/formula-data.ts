/**
 * Numbers that TypeScript and Python compute the same, bit for bit: weights, images and labels for the trajectories of
 * tests/golden/trajectories.json. tests/golden/formula.py holds the same formulas, tests/golden/README.md states them.
 */
export const imageSide = 28
export const pixelsPerImage = imageSide * imageSide
const classes = 10
const cellSide = 7
const cellsAcross = imageSide / cellSide
const cells = cellsAcross * cellsAcross

/** lowbias32 (Chris Wellons) */
function mix(start: number): number {
  let z = start
  z = Math.imul(z ^ (z >>> 16), 0x7feb352d)
  z = Math.imul(z ^ (z >>> 15), 0x846ca68b)
  return (z ^ (z >>> 16)) >>> 0
}

/** Word number `index` of the stream `seed`. */
export const formulaWord = (seed: number, index: number): number => mix(mix(seed) ^ index)

/** float32 numbers in [-bound, bound). */
export function formulaUniform(
  seed: number,
  count: number,
  bound: number,
): Float32Array<ArrayBuffer> {
  const stream = mix(seed)
  const values = new Float32Array(count)
  for (let i = 0; i < count; i++) values[i] = ((mix(stream ^ i) >>> 8) / 2 ** 23 - 1) * bound
  return values
}

export interface SampleSeeds {
  readonly levels: number
  readonly noise: number
  readonly labels: number
}

export interface FormulaSamples {
  /** shape: count 784, in 0..1 */
  readonly images: Float32Array<ArrayBuffer>
  /** shape: count, in 0..9 */
  readonly labels: Int32Array<ArrayBuffer>
}

/** Samples first .. first + count of the endless synthetic data set. */
export function formulaSamples(seeds: SampleSeeds, first: number, count: number): FormulaSamples {
  const images = new Float32Array(count * pixelsPerImage)
  const labels = new Int32Array(count)
  const weights = Int32Array.from(
    { length: classes * cells },
    (_, i) => (formulaWord(seeds.labels, i) >>> 28) - 8,
  )
  const levels = new Int32Array(cells)
  for (let n = 0; n < count; n++) {
    for (let cell = 0; cell < cells; cell++) {
      levels[cell] = ((formulaWord(seeds.levels, (first + n) * cells + cell) >>> 24) * 3) >> 2
    }
    for (let pixel = 0; pixel < pixelsPerImage; pixel++) {
      const row = Math.floor(pixel / imageSide / cellSide)
      const column = Math.floor((pixel % imageSide) / cellSide)
      const noise = formulaWord(seeds.noise, (first + n) * pixelsPerImage + pixel) >>> 26
      images[n * pixelsPerImage + pixel] = (levels[row * cellsAcross + column] + noise) / 255
    }
    let best = Number.NEGATIVE_INFINITY
    for (let label = 0; label < classes; label++) {
      let score = 0
      for (let cell = 0; cell < cells; cell++) {
        score += weights[label * cells + cell] * (levels[cell] - 96)
      }
      if (score > best) {
        best = score
        labels[n] = label
      }
    }
  }
  return { images, labels }
}
