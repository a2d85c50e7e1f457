import { DataError, ShapeError } from '../../util/errors.ts'
import { isRecord, kindOf, quoted } from '../../util/kind-of.ts'
import { checkNumber, checkOptions, isCount, isShare } from '../../util/options.ts'
import type { RandomStream } from '../../util/random.ts'
import { formatShape } from '../../util/shape.ts'
import type { HostTensor, TransformDescription } from '../descriptions.ts'
import { isHostTensor } from '../samples.ts'
import { crop, flipHorizontally, type PixelImage } from './pixels.ts'
import { scaleTo } from './resize.ts'

/**
 * An image transform; does the same as torchvision's transform of the same name.
 *
 * Images stay bytes until `toTensor`. All computations are IEEE operations with the same rounding everywhere, so equal draws give equal
 * samples in every browser. Random transforms draw from the sample's own stream, which they receive.
 */
export interface Transform<In, Out> {
  (input: In, random: RandomStream): Out
  /** The transform as plain data, from which a worker recreates it; absent for your own functions. */
  readonly description?: TransformDescription
}

/** [height, width]; or one length: of a square, or (in `resize`) of the shorter side. */
export type Size = number | readonly [height: number, width: number]
const both = (size: Size): readonly [number, number] =>
  typeof size === 'number' ? [size, size] : size

function describe<In, Out>(
  apply: (input: In, random: RandomStream) => Out,
  description: TransformDescription | undefined,
): Transform<In, Out> {
  return Object.assign((input: In, random: RandomStream) => apply(input, random), { description })
}

/** As `describe`, of images: once it is a tensor, an image has no pixels any more. */
const ofPixels = <Out>(
  apply: (image: PixelImage, random: RandomStream) => Out,
  description: TransformDescription,
): Transform<PixelImage, Out> =>
  describe((image: PixelImage, random) => {
    if (isPixels(image)) return apply(image, random)
    const { kind } = description
    throw new ShapeError(
      'shape.mismatch',
      `${kind}: expected an image of bytes, got ${kindOf(image)}. ${kind === 'toTensor' ? 'Write it once.' : `Put ${kind}() before toTensor() and normalize().`}`,
    )
  }, description)

const isPixels = (image: unknown): image is PixelImage =>
  isRecord(image) && isCount(image['height'] as number) && ArrayBuffer.isView(image['data'])

function requireSize(where: string, size: Size): void {
  const sides = typeof size === 'number' ? [size, size] : size
  const arePairs = Array.isArray(sides) && sides.length === 2
  if (!arePairs || !sides.every((side) => Number.isInteger(side) && side > 0))
    throw new DataError(
      'config.invalid',
      `${where}: expected a size of one or two whole numbers above 0, got ${quoted(size)}. Correct the size.`,
    )
}

/** errors: `config.invalid` unless `range` is two numbers above 0, the lower one first. */
function requireRange(where: string, name: string, range: readonly [number, number]): void {
  const isRange =
    Array.isArray(range) &&
    range.length === 2 &&
    range.every((value) => Number.isFinite(value) && value > 0) &&
    range[0] <= range[1]
  if (!isRange)
    throw new DataError(
      'config.invalid',
      `${where}: ${name} must be two numbers above 0, the lower one first, got ${quoted(range)}. Change ${name}.`,
    )
}

/** Scales an image: one number is the length of the shorter side and keeps the aspect ratio; two are [height, width]. */
export function resize(size: Size): Transform<PixelImage, PixelImage> {
  requireSize('resize', size)
  return ofPixels(
    (image) => {
      if (typeof size !== 'number') return scaleTo(image, ...size)
      const { height, width } = image
      const longer = Math.trunc((size * Math.max(height, width)) / Math.min(height, width))
      return height <= width ? scaleTo(image, size, longer) : scaleTo(image, longer, size)
    },
    { kind: 'resize', size },
  )
}

/** Python's `round`: a half goes to the even neighbour. */
const roundHalfEven = (value: number): number => {
  const low = Math.floor(value)
  if (value - low !== 0.5) return Math.round(value)
  return low % 2 === 0 ? low : low + 1
}

/** Crops to the centre; a smaller image gets black borders. */
export function centerCrop(size: Size): Transform<PixelImage, PixelImage> {
  requireSize('centerCrop', size)
  const [height, width] = both(size)
  return ofPixels(
    (image) => {
      // torchvision pads first, left and top getting the smaller half, and then cuts.
      const padTop = height > image.height ? Math.floor((height - image.height) / 2) : 0
      const padLeft = width > image.width ? Math.floor((width - image.width) / 2) : 0
      const paddedHeight = Math.max(height, image.height)
      const paddedWidth = Math.max(width, image.width)
      const top = roundHalfEven((paddedHeight - height) / 2) - padTop
      const left = roundHalfEven((paddedWidth - width) / 2) - padLeft
      return crop(image, top, left, height, width)
    },
    { kind: 'centerCrop', size },
  )
}

/** `low` to `high`, evenly on a logarithmic scale: low * (high / low)^u by square roots alone, which round the same way everywhere. */
function logUniform(random: RandomStream, low: number, high: number): number {
  let bits = random.word() >>> 8
  let root = high / low
  let value = low
  for (let bit = 23; bit >= 0; bit--) {
    root = Math.sqrt(root)
    if (bits >= 2 ** bit) {
      value *= root
      bits -= 2 ** bit
    }
  }
  return value
}

/**
 * Crops a window of random area and aspect ratio and scales it to `size`. After ten tries it uses the centre, like torchvision.
 *
 * errors: `config.invalid` for a size, scale or ratio out of range, and for an unknown option.
 */
export function randomResizedCrop(
  size: Size,
  options: { scale?: readonly [number, number]; ratio?: readonly [number, number] } = {},
): Transform<PixelImage, PixelImage> {
  requireSize('randomResizedCrop', size)
  checkOptions('randomResizedCrop', options, { scale: true, ratio: true })
  const { scale = [0.08, 1], ratio = [3 / 4, 4 / 3] } = options
  requireRange('randomResizedCrop', 'scale', scale)
  requireRange('randomResizedCrop', 'ratio', ratio)
  return ofPixels(
    (image, random) => {
      const window = randomWindow(image, random, scale, ratio)
      return scaleTo(crop(image, ...window), ...both(size))
    },
    { kind: 'randomResizedCrop', size, scale, ratio },
  )
}

function randomWindow(
  { height, width }: PixelImage,
  random: RandomStream,
  scale: readonly [number, number],
  ratio: readonly [number, number],
): [top: number, left: number, height: number, width: number] {
  for (let attempt = 0; attempt < 10; attempt++) {
    const area = height * width * random.between(...scale)
    const aspect = logUniform(random, ...ratio)
    const w = roundHalfEven(Math.sqrt(area * aspect))
    const h = roundHalfEven(Math.sqrt(area / aspect))
    if (w > 0 && w <= width && h > 0 && h <= height) {
      return [random.below(height - h + 1), random.below(width - w + 1), h, w]
    }
  }
  const own = width / height
  const w = own > ratio[1] ? roundHalfEven(height * ratio[1]) : width
  const h = own < ratio[0] ? roundHalfEven(width / ratio[0]) : height
  return [Math.floor((height - h) / 2), Math.floor((width - w) / 2), h, w]
}

/** Mirrors left and right with probability `p`. errors: `config.invalid` unless it is from 0 to 1. */
export function randomHorizontalFlip(p = 0.5): Transform<PixelImage, PixelImage> {
  checkNumber('randomHorizontalFlip', 'p', p, isShare, 'a number from 0 to 1')
  return ofPixels((image, random) => (random.unit() < p ? flipHorizontally(image) : image), {
    kind: 'randomHorizontalFlip',
    p,
  })
}

/** Converts bytes to f32 from 0 to 1. shape: [height, width, channels] -> [channels, height, width] */
export function toTensor(): Transform<PixelImage, HostTensor> {
  return ofPixels(
    ({ height, width, channels, data }) => {
      const plane = height * width
      const values = new Float32Array(plane * channels)
      for (let i = 0; i < plane; i++) {
        for (let c = 0; c < channels; c++) values[c * plane + i] = data[i * channels + c] / 255
      }
      return { shape: [channels, height, width], data: values }
    },
    { kind: 'toTensor' },
  )
}

/**
 * Computes (x - mean) / std per channel; of an image that is still bytes, x is what `toTensor` makes of it.
 *
 * shape: [channels, height, width]. errors: `shape.mismatch` for another number of channels.
 */
export function normalize(
  mean: readonly number[],
  std: readonly number[],
): Transform<HostTensor | PixelImage, HostTensor> {
  if (
    !Array.isArray(mean) ||
    !Array.isArray(std) ||
    mean.length !== std.length ||
    !mean.every(Number.isFinite) ||
    !std.every((value) => Number.isFinite(value) && value > 0)
  )
    throw new DataError(
      'config.invalid',
      `normalize: mean must be a list of finite numbers, and std of as many above 0, got ${quoted(mean)} and ${quoted(std)}. Correct them.`,
    )
  const bytesToTensor = toTensor()
  return describe(
    (input, random) => {
      const { shape, data } = isHostTensor(input) ? input : bytesToTensor(input, random)
      if (shape[0] !== mean.length)
        throw new ShapeError(
          'shape.mismatch',
          `normalize: expected ${mean.length} channels, got ${formatShape(shape)}. Pass a mean and a std for each channel.`,
        )
      const plane = data.length / mean.length
      const values = new Float32Array(data.length)
      for (let i = 0; i < data.length; i++) {
        const c = Math.floor(i / plane)
        values[i] = Math.fround(data[i] - Math.fround(mean[c])) / Math.fround(std[c])
      }
      return { shape, data: values }
    },
    { kind: 'normalize', mean, std },
  )
}

/**
 * Applies transforms one after the other; all draw from the sample's stream. errors: `config.invalid` unless it is an array of transforms.
 */
export function compose<In = PixelImage, Out = HostTensor>(
  transforms: readonly Transform<never, unknown>[],
): Transform<In, Out> {
  if (!Array.isArray(transforms) || !transforms.every((one) => typeof one === 'function'))
    throw new DataError(
      'config.invalid',
      `compose: expected an array of transforms, got ${kindOf(transforms)}. Write compose([toTensor(), ...]).`,
    )
  const of = transforms.map(({ description }) => description)
  return describe(
    (input, random) =>
      transforms.reduce<unknown>((value, next) => next(value as never, random), input) as Out,
    of.every((one) => one !== undefined) ? { kind: 'compose', of } : undefined,
  )
}

/** errors: `config.invalid` unless a transform that is given is a function. */
export function requireTransform(where: string, transform: unknown): void {
  if (transform === undefined || typeof transform === 'function') return
  throw new DataError(
    'config.invalid',
    `${where}: expected a transform, got ${kindOf(transform)}. Write toTensor(), or compose([...]).`,
  )
}

/** The transform that `description` describes. */
export function restoreTransform(description: TransformDescription): Transform<never, unknown> {
  switch (description.kind) {
    case 'resize':
      return resize(description.size)
    case 'centerCrop':
      return centerCrop(description.size)
    case 'randomResizedCrop':
      return randomResizedCrop(description.size, {
        scale: description.scale,
        ratio: description.ratio,
      })
    case 'randomHorizontalFlip':
      return randomHorizontalFlip(description.p)
    case 'toTensor':
      return toTensor()
    case 'normalize':
      return normalize(description.mean, description.std)
    case 'compose':
      return compose(description.of.map(restoreTransform))
  }
}
