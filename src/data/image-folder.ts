import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isRecord } from '../util/kind-of.ts'
import { checkList, checkOptions } from '../util/options.ts'
import { notDescribed, requireIndex } from './datasets.ts'
import type { DatasetDescription, HostTensor } from './descriptions.ts'
import { type FolderFile, type FolderListing, readFile } from './folder.ts'
import { decodeImage } from './image/decode.ts'
import type { PixelImage } from './image/pixels.ts'
import { requireTransform, restoreTransform, type Transform, toTensor } from './image/transforms.ts'
import { type Dataset, type SampleKey, streamAt } from './samples.ts'

/** What browsers decode. */
const imageName = /\.(png|jpe?g|webp|gif|bmp|avif)$/i

/** Says which of `files` are no samples. */
function sayLeftOut(files: readonly FolderFile[], images: readonly FolderFile[]): void {
  const kept = new Set(images)
  const left = files.filter((file) => !kept.has(file))
  if (left.length === 0) return
  const kindOf = ({ path }: FolderFile) => {
    if (!path.includes('/')) return 'in no class folder'
    const name = path.slice(path.lastIndexOf('/') + 1)
    const ending = /.\.([^.]+)$/.exec(name)?.[1].toLowerCase()
    return ending === undefined ? 'without an ending' : `.${ending}`
  }
  const counts = new Map<string, number>()
  for (const file of left) counts.set(kindOf(file), (counts.get(kindOf(file)) ?? 0) + 1)
  const kinds = [...counts].sort(([, a], [, b]) => b - a).map(([kind, count]) => `${count} ${kind}`)
  console.warn(
    `ImageFolder: ${left.length} of ${files.length} files are left out: ${clipped(kinds.join(', '), 200)}. Images have the endings .png, .jpg, .jpeg, .webp, .gif, .bmp and .avif; convert others to PNG.`,
  )
}

/** One image: `x` is the result of the transform, `y` its class, `path` its file. */
export type ImageSample = { readonly x: HostTensor; readonly y: number; readonly path: string }

/**
 * Images in one folder per class, `<class>/<anything>.png`, like torchvision's `ImageFolder`.
 *
 * Classes are the sorted folder names; samples are sorted by path. A line on the console says which files are left out, such as TIFF, which
 * browsers do not decode. Files are read and decoded when a sample is requested. Default transform: `toTensor()`.
 * errors: `data.missing` if there is no class, or a class without an image; `config.invalid` for an unknown option.
 */
export class ImageFolder implements Dataset<ImageSample> {
  /** Name of each class. */
  readonly classes: readonly string[]
  /** Class of each sample. */
  readonly targets: readonly number[]
  readonly #images: readonly FolderFile[]
  readonly #transform: Transform<PixelImage, HostTensor>

  constructor(
    files: readonly FolderFile[] | FolderListing,
    options: { transform?: Transform<PixelImage, HostTensor> } = {},
  ) {
    checkOptions('ImageFolder', options, { transform: true })
    requireTransform('ImageFolder', options.transform)
    const isFile = (file: FolderFile) => isRecord(file) && typeof file.path === 'string'
    checkList('ImageFolder', 'files', files, isFile, 'files, as listServed() and its like give')
    const classOf = ({ path }: FolderFile) => path.slice(0, path.indexOf('/'))
    const inFolders = files.filter(({ path }) => path.includes('/'))
    const { emptyFolders = [] } = files as FolderListing
    const folders = [...inFolders.map(classOf), ...emptyFolders.map((path) => path.split('/')[0])]
    this.classes = [...new Set(folders)].sort()
    const images = inFolders.filter(({ path }) => imageName.test(path))
    sayLeftOut(files, images)
    const empty = this.classes.filter((name) => !images.some((file) => classOf(file) === name))
    if (this.classes.length === 0 || empty.length > 0)
      throw new DataError(
        'data.missing',
        `ImageFolder: expected one folder per class with images in it, got ${empty.length > 0 ? `none in ${clipped(empty.join(', '), 200)}` : `no folder among ${files.length} files`}. Arrange the images as <class>/<name>.png.`,
      )
    const number = new Map(this.classes.map((name, i) => [name, i]))
    // By class first: "a-b/..." sorts before "a/..." as a path, but not as a class.
    this.#images = images
      .map((file) => ({ file, target: number.get(classOf(file))! }))
      .sort((a, b) => a.target - b.target)
      .map(({ file }) => file)
    this.targets = this.#images.map((file) => number.get(classOf(file))!)
    this.#transform = options.transform ?? toTensor()
  }

  get length(): number {
    return this.#images.length
  }

  /** Returns a sample. errors: `data.missing`, `data.malformed`, each naming the file. */
  async get(index: number, key: SampleKey): Promise<ImageSample> {
    requireIndex('ImageFolder', index, this.length)
    const file = this.#images[index]
    const image = await decodeImage(await readFile(file), file.path)
    return {
      x: this.#transform(image, streamAt('ImageFolder.get', key)),
      y: this.targets[index],
      path: file.path,
    }
  }

  describe(): DatasetDescription {
    const { description } = this.#transform
    if (!description) throw notDescribed('ImageFolder', 'a custom transform')
    return { kind: 'imageFolder', files: this.#images, transform: description }
  }

  /** @internal What `describe` returned, as a dataset again. */
  static restore({ files, transform }: DatasetDescription & { kind: 'imageFolder' }): ImageFolder {
    return new ImageFolder(files, {
      transform: transform && (restoreTransform(transform) as Transform<PixelImage, HostTensor>),
    })
  }
}
