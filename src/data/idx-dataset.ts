import { DataError } from '../util/errors.ts'
import { isDetached, isOf, isRecord } from '../util/kind-of.ts'
import { checkArgument, checkOptions } from '../util/options.ts'
import { countElements, formatShape } from '../util/shape.ts'
import type { ByteSource } from './byte-source.ts'
import { notDescribed, requireIndex } from './datasets.ts'
import type { DatasetDescription, FileArray, HostTensor } from './descriptions.ts'
import { readIdx } from './idx.ts'
import type { PixelImage } from './image/pixels.ts'
import { requireTransform, restoreTransform, type Transform, toTensor } from './image/transforms.ts'
import { checkElements, type Dataset, type SampleKey, streamAt } from './samples.ts'

/** `x` is the result of the transform, or the numbers of the row; `y` is the label. */
export type IdxSample = { readonly x: HostTensor; readonly y: number }

export interface IdxDatasetOptions {
  /** For images: unsigned bytes, [count, height, width] or [count, height, width, channels]. Default: toTensor(). */
  transform?: Transform<PixelImage, HostTensor>
}

function checkIdxOptions(where: string, options: IdxDatasetOptions): IdxDatasetOptions {
  checkOptions(where, options, { transform: true })
  requireTransform(where, options.transform)
  return options
}

/** Makes one sample's `x` out of row `index`. */
type Row = (index: number, key: SampleKey) => HostTensor

/**
 * Rows of an array with a label each, as `idxDataset`, `readNpy` and `readNpz` read them. Keeps the bytes of the file and converts a row when it is requested.
 *
 * errors: `data.malformed` unless there is one integer label per row and at least one dimension; `config.invalid` for a transform of data
 * that are not images, and for an unknown option.
 */
export class IdxDataset implements Dataset<IdxSample> {
  readonly images: FileArray
  readonly labels: FileArray
  readonly length: number
  readonly #transform: Transform<PixelImage, HostTensor> | undefined
  readonly #row: Row

  constructor(images: FileArray, labels: FileArray, options: IdxDatasetOptions = {}) {
    const { transform } = checkIdxOptions('IdxDataset', options)
    requireLabels(images, labels)
    this.images = images
    this.labels = labels
    this.length = images.shape[0]
    this.#transform = transform
    this.#row = rowOf(images, transform)
  }

  get(index: number, key: SampleKey): IdxSample {
    requireIndex('IdxDataset', index, this.length)
    const isKept = !isDetached(this.images.data) && !isDetached(this.labels.data)
    checkArgument('IdxDataset', 'images', this.images.data, isKept, 'kept, like labels')
    return { x: this.#row(index, key), y: this.labels.data[index] }
  }

  describe(): DatasetDescription {
    const { images, labels } = this
    if (this.#transform && !this.#transform.description)
      throw notDescribed('IdxDataset', 'a custom transform')
    return { kind: 'idx', images, labels, transform: this.#transform?.description }
  }

  /** @internal What `describe` returned, as a dataset again. */
  static restore({ images, labels, transform }: DatasetDescription & { kind: 'idx' }): IdxDataset {
    return new IdxDataset(images, labels, {
      transform: transform && (restoreTransform(transform) as Transform<PixelImage, HostTensor>),
    })
  }
}

function rowOf({ shape, data }: FileArray, transform: IdxDatasetOptions['transform']): Row {
  const rowShape = shape.slice(1)
  const count = countElements(rowShape)
  if (isOf(data, Uint8Array) && (rowShape.length === 2 || rowShape.length === 3)) {
    const [height, width, channels = 1] = rowShape
    const apply = transform ?? toTensor()
    return (index, key) => {
      const pixels = data.subarray(index * count, (index + 1) * count)
      return apply({ height, width, channels, data: pixels }, streamAt('IdxDataset.get', key))
    }
  }
  if (transform)
    throw new DataError(
      'config.invalid',
      `IdxDataset: a transform needs images, unsigned bytes with 3 or 4 dimensions, got ${data.constructor.name} ${formatShape(shape)}. Remove the transform.`,
    )
  return (index) => ({
    shape: rowShape,
    data: Float32Array.from(data.subarray(index * count, (index + 1) * count)),
  })
}

function requireLabels(images: FileArray, labels: FileArray): void {
  const refuse = (expected: string, got: string) =>
    new DataError(
      'data.malformed',
      `IdxDataset: expected ${expected}, got ${got}. Use the two files of one data set.`,
    )
  for (const [name, array] of Object.entries({ images, labels })) {
    const isArray = isRecord(array) && Array.isArray(array.shape) && ArrayBuffer.isView(array.data)
    checkArgument('IdxDataset', name, array, isArray, 'what readIdx() or readNpy() gives')
    checkElements('IdxDataset', array, `${name}.`)
  }
  if (images.shape.length === 0) throw refuse('images with a first dimension', 'a single number')
  const { shape, data } = labels
  if (isOf(data, Float32Array, Float64Array))
    throw refuse('labels that are whole numbers', data.constructor.name)
  if (shape.length !== 1 || shape[0] !== images.shape[0])
    throw refuse(
      `${images.shape[0]} labels for as many images`,
      `a labels file of ${formatShape(shape)}`,
    )
}

/**
 * Returns the data set of an IDX images file and its labels file, such as MNIST's, each plain or gzip.
 *
 * Unsigned bytes with three dimensions are grey images: x f32 [1, height, width] from 0 to 1, like torchvision's MNIST with `ToTensor`.
 * With four, rows of [height, width, channels] become channels first. Other files give their rows unchanged, in f32. y is the label.
 * `images` and `labels` are addresses, picked, dropped or downloaded files, or bytes.
 * errors: `data.missing` if one cannot be read; `data.malformed` if one does not follow the format, or they do not belong together;
 * `config.invalid` for an unknown option.
 */
export async function idxDataset(
  images: ByteSource,
  labels: ByteSource,
  options: IdxDatasetOptions = {},
): Promise<IdxDataset> {
  // Before the files are read, which may take long.
  checkIdxOptions('idxDataset', options)
  const [imagesArray, labelsArray] = await Promise.all([
    readIdx(images, 'images file'),
    readIdx(labels, 'labels file'),
  ])
  return new IdxDataset(imagesArray, labelsArray, options)
}
