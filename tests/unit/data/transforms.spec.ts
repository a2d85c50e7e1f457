import { describe, expect, test } from 'vitest'
import { crop, type PixelImage } from '../../../src/data/image/pixels.ts'
import {
  centerCrop,
  compose,
  normalize,
  randomHorizontalFlip,
  randomResizedCrop,
  resize,
  restoreTransform,
  toTensor,
} from '../../../src/data/image/transforms.ts'
import { drawsOf, type HostTensor } from '../../../src/data/samples.ts'
import golden from '../../golden/images.json'
import { formulaWord } from '../../support/formula-data.ts'

// Pillow's results: tests/golden/images.py writes them.

const draws = (index = 0, epoch = 0, seed = 0) => drawsOf({ seed, epoch, index })

function picture(seed: number, height: number, width: number, channels: number): PixelImage {
  const data = Uint8Array.from(
    { length: height * width * channels },
    (_, i) => formulaWord(seed, i) >>> 24,
  )
  return { height, width, channels, data }
}

describe('as Pillow and torchvision, byte for byte', () => {
  for (const { op, seed, height, width, channels, size, result } of golden.cases) {
    test(`${op} ${height} x ${width} to ${JSON.stringify(size)}`, () => {
      const wanted = size as number | [number, number]
      const transform = op === 'resize' ? resize(wanted) : centerCrop(wanted)
      const got = transform(picture(seed, height, width, channels), draws())
      expect([got.height, got.width]).toEqual([result.height, result.width])
      expect(Buffer.from(got.data).toString('base64')).toBe(result.data)
    })
  }
})

describe('random transforms', () => {
  const image = picture(7, 40, 30, 3)

  test('draw from the sample alone: equal keys give equal images, other samples and epochs others', () => {
    const transform = randomResizedCrop(16)
    const of = (index: number, epoch: number, seed = 0) =>
      Buffer.from(transform(image, draws(index, epoch, seed)).data).toString('base64')
    expect(of(3, 1)).toBe(of(3, 1))
    expect(new Set([of(3, 1), of(4, 1), of(3, 2), of(3, 1, 9)]).size).toBe(4)
  })

  test('randomResizedCrop keeps to its scale and ratio', () => {
    // An image that holds its own coordinates shows which window was cut, if nothing is scaled.
    for (let index = 0; index < 200; index++) {
      const out = randomResizedCrop(8, { scale: [0.25, 0.25], ratio: [1, 1] })(image, draws(index))
      expect([out.height, out.width]).toEqual([8, 8])
    }
    const whole = randomResizedCrop([40, 30], { scale: [1, 1], ratio: [0.75, 0.75] })
    expect(Buffer.from(whole(image, draws()).data)).toEqual(Buffer.from(image.data))
    // No window of that ratio fits: the middle of the largest that does.
    const fallback = randomResizedCrop(10, { scale: [1, 1], ratio: [1, 1] })(image, draws())
    const middle = resize([10, 10])(crop(image, 5, 0, 30, 30), draws())
    expect(Buffer.from(fallback.data)).toEqual(Buffer.from(middle.data))
  })

  test('randomHorizontalFlip turns half of the images, twice is none', () => {
    const flip = randomHorizontalFlip()
    const flipped = Array.from({ length: 400 }, (_, i) => flip(image, draws(i)) !== image)
    const share = flipped.filter(Boolean).length / flipped.length
    expect(share).toBeGreaterThan(0.4)
    expect(share).toBeLessThan(0.6)
    const always = randomHorizontalFlip(1)
    expect(always(image, draws()).data.slice(0, 3)).toEqual(image.data.slice(87, 90))
    expect(always(always(image, draws()), draws()).data).toEqual(image.data)
  })
})

test('toTensor and normalize', () => {
  const image = { height: 1, width: 2, channels: 3, data: Uint8Array.of(0, 51, 255, 102, 204, 153) }
  const tensor = toTensor()(image, draws())
  expect(tensor.shape).toEqual([3, 1, 2])
  expect([...tensor.data]).toEqual([0, 102, 51, 204, 255, 153].map((v) => Math.fround(v / 255)))
  const normal = normalize([0.5, 0, 0], [0.5, 1, 2])(tensor, draws())
  expect([...normal.data]).toEqual(
    [-1, (0.4 - 0.5) / 0.5, 0.2, 0.8, 0.5, 0.3].map((v) => expect.closeTo(v, 6)),
  )
  expect(() => normalize([0, 0], [1, 1])(tensor, draws())).toThrow(/2 channels/)
})

test('a composed transform comes back from its description with the same draws', () => {
  const transform = compose([
    randomResizedCrop(12, { scale: [0.3, 1] }),
    randomHorizontalFlip(),
    toTensor(),
    normalize([0.5, 0.5, 0.5], [0.2, 0.2, 0.2]),
  ])
  const again = restoreTransform(structuredClone(transform.description!)) as typeof transform
  const image = picture(5, 33, 21, 3)
  for (let index = 0; index < 5; index++) {
    const [a, b] = [transform, again].map((one): HostTensor => one(image, draws(index)))
    expect(b).toEqual(a)
  }
  expect(compose([(image: PixelImage) => image]).description).toBeUndefined()
})
