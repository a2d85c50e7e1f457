import { DataError, messageOf } from '../util/errors.ts'
import type { NamedBytes } from './byte-source.ts'
import { type IdxArray, readIdxBytes } from './idx.ts'

/** Grey images with one label each, as bytes: a rank keeps the whole data set and picks rows from it. */
export interface LabelledImages {
  /** shape: [count, height, width]; 0 is background, 255 full ink. */
  images: Uint8Array<ArrayBuffer>
  /** shape: [count]; each below `classes`. */
  labels: Uint8Array<ArrayBuffer>
  count: number
  height: number
  width: number
  classes: number
  /** Makes the image and its label where they are made when they are read; absent where all are there. */
  prepare?(index: number): void
}

export interface DataSplits {
  train: LabelledImages
  test: LabelledImages
}

/** Gives a file's bytes by its name in the folder, or undefined when there is no such file. */
export type FolderReader = (name: string) => Promise<Uint8Array<ArrayBuffer> | undefined>

/** What the images must be; the built-in models take 28 x 28 and ten classes. */
export interface ExpectedImages {
  height: number
  width: number
  classes: number
}

export const mnistImages: ExpectedImages = { height: 28, width: 28, classes: 10 }

/** Names before `-images-idx3-ubyte` and `-labels-idx1-ubyte`, in the order in which they are looked for. */
const splitPrefixes = { train: ['train'], test: ['test', 't10k'] } as const

/** The first of `names` that is there, each also looked for with `.gz`. errors: `data.missing`, listing all names. */
async function findFile(read: FolderReader, names: readonly string[]): Promise<NamedBytes> {
  for (const name of names.flatMap((plain) => [plain, `${plain}.gz`])) {
    const bytes = await read(name)
    if (bytes) return { name, bytes }
  }
  throw new DataError(
    'data.missing',
    `data folder: no file ${names.join(' or ')} (plain or .gz). Choose a folder with the four IDX files.`,
  )
}

async function loadSplit(
  read: FolderReader,
  prefixes: readonly string[],
  expected: ExpectedImages,
): Promise<LabelledImages> {
  const imagesFile = await findFile(
    read,
    prefixes.map((prefix) => `${prefix}-images-idx3-ubyte`),
  )
  // The labels belong to the images that were found, so `t10k-` images never get `test-` labels.
  const prefix = imagesFile.name.slice(0, imagesFile.name.indexOf('-images'))
  const labelsFile = await findFile(read, [`${prefix}-labels-idx1-ubyte`])
  const images = await readImages(imagesFile, expected)
  const labels = await readLabels(labelsFile, expected)
  const [count, height, width] = images.shape
  if (count !== labels.shape[0])
    throw new DataError(
      'data.malformed',
      `${labelsFile.name}: expected ${count} labels for the ${count} images of ${imagesFile.name}, got ${labels.shape[0]}. Use the two files of one data set.`,
    )
  return {
    images: images.data,
    labels: labels.data,
    count,
    height,
    width,
    classes: expected.classes,
  }
}

/** Returns the images in an IDX file, plain or gzip. errors: `data.malformed` for another file, and for images that are not as expected. */
export async function readImages(
  { name, bytes }: NamedBytes,
  expected: ExpectedImages,
): Promise<IdxArray<Uint8Array<ArrayBuffer>>> {
  const images = await readIdxBytes(bytes, name, 3)
  const [count, height, width] = images.shape
  if (count === 0)
    throw new DataError(
      'data.malformed',
      `${name}: expected at least one image, got 0. Use another data set.`,
    )
  if (height !== expected.height || width !== expected.width)
    throw new DataError(
      'data.malformed',
      `${name}: expected images of ${expected.height} x ${expected.width}, got ${height} x ${width}. Scale the images to that size.`,
    )
  return images
}

/** As `readImages`, of labels. */
export async function readLabels(
  { name, bytes }: NamedBytes,
  expected: ExpectedImages,
): Promise<IdxArray<Uint8Array<ArrayBuffer>>> {
  const labels = await readIdxBytes(bytes, name, 1)
  requireLabelsBelow(labels.data, expected.classes, name)
  return labels
}

function requireLabelsBelow(labels: Uint8Array, classes: number, name: string): void {
  const at = labels.findIndex((label) => label >= classes)
  if (at >= 0)
    throw new DataError(
      'data.malformed',
      `${name}: expected labels from 0 to ${classes - 1}, got ${labels[at]} at index ${at}. Use a data set with ${classes} classes.`,
    )
}

/**
 * Returns the training and test images of a folder laid out as MNIST is.
 *
 * The files are `train-` and `test-` or `t10k-`, then `images-idx3-ubyte` or `labels-idx1-ubyte`, plain or `.gz`.
 * errors: `data.missing` when one is not there; `data.malformed`, one line that names the file, when one does not
 * follow its format, when a label has no image, or when a label or the image size is not the expected one.
 */
export async function loadIdxFolder(
  read: FolderReader,
  expected: ExpectedImages = mnistImages,
): Promise<DataSplits> {
  const train = await loadSplit(read, splitPrefixes.train, expected)
  const test = await loadSplit(read, splitPrefixes.test, expected)
  return { train, test }
}

/**
 * Returns a reader for the folder at `baseUrl`, for the page and for workers.
 *
 * Status 404 means that there is no such file.
 * errors: the reader rejects with `data.missing` for every other failure, naming the URL and the status.
 */
export function readUrlFolder(baseUrl: string | URL): FolderReader {
  const base = String(baseUrl)
  return async (name) => {
    const url = `${base.endsWith('/') ? base : `${base}/`}${name}`
    const response = await fetch(url).catch((thrown) => {
      // What a browser says of a server that does not answer, or allows no other page to read, is as little as this.
      throw new DataError(
        'data.missing',
        `${url}: this page cannot read from the server (${messageOf(thrown)}). Check the data folder's address; another server must allow this page's origin (CORS).`,
      )
    })
    if (response.status === 404) return undefined
    if (!response.ok)
      throw new DataError(
        'data.missing',
        `${url}: the server answered with status ${response.status}. Check the data folder's address.`,
      )
    return new Uint8Array(await response.arrayBuffer())
  }
}

/**
 * Copies the chosen rows into the batch buffers and fills the rest of the buffers with zeros.
 *
 * shape: `pixels` [rows, height * width], `labels` [rows], `indices` [at most rows].
 * units: `pixels` from 0 to 1 (byte / 255), as PyTorch's `ToTensor` gives them.
 */
export function fillBatch(
  source: LabelledImages,
  indices: ArrayLike<number>,
  pixels: Float32Array,
  labels: Int32Array | Uint32Array,
): void {
  const stride = source.height * source.width
  for (let row = 0; row < indices.length; row++) {
    source.prepare?.(indices[row])
    const from = indices[row] * stride
    const to = row * stride
    for (let i = 0; i < stride; i++) pixels[to + i] = source.images[from + i] / 255
    labels[row] = source.labels[indices[row]]
  }
  pixels.fill(0, indices.length * stride)
  labels.fill(0, indices.length)
}
