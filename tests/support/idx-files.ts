import { gzipSync } from 'node:zlib'
import type { DataSplits } from '../../src/data/dataset.ts'
import { drawDigits } from '../../src/data/digits.ts'

/** Builders of IDX files for tests, well-formed and not. */

export type Files = Record<string, Uint8Array<ArrayBuffer>>

/** An IDX file of `type` with `dims`, its elements from `fill` (unsigned bytes). */
export function idxFile(
  dims: number[],
  fill: (index: number) => number = (index) => index % 256,
  type = 8,
): Uint8Array<ArrayBuffer> {
  const count = dims.reduce((product, dim) => product * dim, 1)
  const bytes = new Uint8Array(4 + 4 * dims.length + count)
  const view = new DataView(bytes.buffer)
  bytes[2] = type
  bytes[3] = dims.length
  dims.forEach((dim, i) => {
    view.setUint32(4 + 4 * i, dim)
  })
  for (let i = 0; i < count; i++) bytes[4 + 4 * dims.length + i] = fill(i)
  return bytes
}

export const gzip = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(gzipSync(bytes))

/** A small well-formed data folder: `train` and `test` images of 28 x 28 with labels 0..9 in turn. */
export function smallFolder(train = 12, test = 5): Files {
  return {
    'train-images-idx3-ubyte': idxFile([train, 28, 28]),
    'train-labels-idx1-ubyte': idxFile([train], (i) => i % 10),
    'test-images-idx3-ubyte': idxFile([test, 28, 28]),
    'test-labels-idx1-ubyte': idxFile([test], (i) => (i + 3) % 10),
  }
}

/** The data folder that holds these images. */
export const idxFolder = (splits: DataSplits): Files =>
  Object.fromEntries(
    (['train', 'test'] as const).flatMap((split) => {
      const { images, labels, count, height, width } = splits[split]
      return [
        [`${split}-images-idx3-ubyte`, idxFile([count, height, width], (i) => images[i])],
        [`${split}-labels-idx1-ubyte`, idxFile([count], (i) => labels[i])],
      ]
    }),
  )

/** Drawn digits, all of them at once. */
export const drawnSplits = ({ seed = 0, train = 1, test = 1 }): DataSplits => ({
  train: drawDigits(seed, 0, train),
  test: drawDigits(seed, 1, test),
})
