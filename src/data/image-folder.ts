import { DataError } from '../util/errors.ts'
import { isRecord } from '../util/kind-of.ts'
import { checkList, checkOptions } from '../util/options.ts'
import { notDescribed, requireIndex } from './datasets.ts'
import type { DatasetDescription, HostTensor } from './descriptions.ts'
import { type FolderFile, readFile } from './folder.ts'
import { decodeImage } from './image/decode.ts'
import type { PixelImage } from './image/pixels.ts'
import { requireTransform, restoreTransform, type Transform, toTensor } from './image/transforms.ts'
import { type Dataset, randomStreamOf, type SampleKey } from './samples.ts'

/** What browsers decode. */
const imageName = /\.(png|jpe?g|webp|gif|bmp|avif)$/i

/** One image: `x` is the result of the transform, `y` its class, `path` its file. */
export type ImageSample = { readonly x: HostTensor; readonly y: number; readonly path: string }

/**
 * Images in one folder per class, `<class>/<anything>.png`, like torchvision's `ImageFolder`.
 *
 * Classes are the sorted folder names; samples are sorted by path; files that are not images are skipped. Files are read and decoded when a
 * sample is requested. Default transform: `toTensor()`.
 * errors: `data.missing` if there is no class, or a class without an image; `config.invalid` for an unknown option.
 */
export class ImageFolder implements Dataset<ImageSample> {
  /** Name of each class. */
  readonly classes: readonly string[]
  /** Class of each sample. */
  readonly targets: readonly number[]
  readonly #files: readonly FolderFile[]
  readonly #images: readonly FolderFile[]
  readonly #transform: Transform<PixelImage, HostTensor>

  constructor(
    files: readonly FolderFile[],
    options: { transform?: Transform<PixelImage, HostTensor> } = {},
  ) {
    checkOptions('ImageFolder', options, { transform: true })
    requireTransform('ImageFolder', options.transform)
    const isFile = (file: FolderFile) => isRecord(file) && typeof file.path === 'string'
    checkList('ImageFolder', 'files', files, isFile, 'files, as listServed() and its like give')
    const classOf = ({ path }: FolderFile) => path.slice(0, path.indexOf('/'))
    const inFolders = files.filter(({ path }) => path.includes('/'))
    this.classes = [...new Set(inFolders.map(classOf))].sort()
    const images = inFolders.filter(({ path }) => imageName.test(path))
    const empty = this.classes.filter((name) => !images.some((file) => classOf(file) === name))
    if (this.classes.length === 0 || empty.length > 0)
      throw new DataError(
        'data.missing',
        `ImageFolder: expected one folder per class with images in it, got ${empty.length > 0 ? `none in ${empty.join(', ')}` : `no folder among ${files.length} files`}. Arrange the images as <class>/<name>.png.`,
      )
    const number = new Map(this.classes.map((name, i) => [name, i]))
    this.#files = files
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
      x: this.#transform(image, randomStreamOf(key)),
      y: this.targets[index],
      path: file.path,
    }
  }

  describe(): DatasetDescription {
    const { description } = this.#transform
    if (!description) throw notDescribed('ImageFolder', 'a custom transform')
    return { kind: 'imageFolder', files: this.#files, transform: description }
  }

  static restore({ files, transform }: DatasetDescription & { kind: 'imageFolder' }): ImageFolder {
    return new ImageFolder(files, {
      transform: transform && (restoreTransform(transform) as Transform<PixelImage, HostTensor>),
    })
  }
}
