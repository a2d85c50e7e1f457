import { RandomStream } from '../../src/util/random.ts'
import type { PictureModel } from './meta.ts'

const features: Readonly<Record<PictureModel, number>> = { waves: 64, place: 2 }

/** Numbers that the network gets for a place, by the name of one of meta's models. */
export const featuresOf = (model: string): number => features[model as PictureModel]

/** How quickly the waves change: the standard deviation of their cycles from edge to edge. */
const cycles = 4

/** Cycles to the right and down of each pair of waves, the same for every run. source: Tancik et al., arXiv 2006.10739. */
const frequencies = (() => {
  const random = new RandomStream(0, 2, 'general')
  // A sum of twelve is as good as normal here, and has the same bits everywhere.
  const normal = () => Array.from({ length: 12 }, () => random.unit()).reduce((a, b) => a + b) - 6
  return Array.from({ length: features.waves / 2 }, () => [cycles * normal(), cycles * normal()])
})()

/**
 * Writes what the network gets for the place (x, y), each from -1 to 1, into one row of `features`: sine and cosine of waves over the
 * picture, or the place itself.
 */
export function writePlace(
  model: string,
  x: number,
  y: number,
  features: { [index: number]: number },
  row: number,
): void {
  const at = row * featuresOf(model)
  if (model === 'place') {
    features[at] = x
    features[at + 1] = y
    return
  }
  frequencies.forEach(([right, down], i) => {
    const angle = Math.PI * (right * x + down * y)
    features[at + 2 * i] = Math.sin(angle)
    features[at + 2 * i + 1] = Math.cos(angle)
  })
}

/** Where the middle of pixel `index` of `count` is, from -1 to 1. */
export const middleOf = (index: number, count: number): number => (2 * index + 1) / count - 1
