import { describe, expect, test } from 'vitest'
import type { HostTensor } from '../../../src/data/descriptions.ts'
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
import { randomStreamOf } from '../../../src/data/samples.ts'
import golden from '../../golden/images.json'
import { formulaWord } from '../../support/formula-data.ts'

// Pillow's results: tests/golden/images.py writes them.

const draws = (index = 0, epoch = 0, seed = 0) => randomStreamOf({ seed, epoch, index })

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

  /** Each pixel holds its own column and row. */
  const side = 250
  const coordinates: PixelImage = {
    height: side,
    width: side,
    channels: 2,
    data: Uint8Array.from({ length: side * side * 2 }, (_, i) =>
      i % 2 === 0 ? (i / 2) % side : Math.floor(i / 2 / side),
    ),
  }
  /**
   * The windows that `count` samples draw, read back from the scaled coordinates: exact to a pixel each way.
   *
   * Scaling keeps a ramp a ramp, but for the outermost pixel, whose filter is cut off; the others are half a level off at most.
   */
  const windowsOf = (count: number, options: Parameters<typeof randomResizedCrop>[1]) => {
    const size = 32
    const transform = randomResizedCrop(size, options)
    return Array.from({ length: count }, (_, index) => {
      const { data } = transform(coordinates, draws(index))
      const along = (channel: number, step: number) => {
        const at = (i: number) => data[(i * step + size + 1 - step) * 2 + channel]
        const length = ((at(size - 2) - at(1)) * size) / (size - 3)
        return { length, start: at(1) - (1.5 * length) / size + 0.5 }
      }
      const x = along(0, 1)
      const y = along(1, size)
      return {
        area: (x.length * y.length) / side ** 2,
        aspect: x.length / y.length,
        left: x.start / (side - x.length),
        top: y.start / (side - y.length),
      }
    })
  }
  /** Five standard deviations of a share among `count` draws. */
  const five = (share: number, count: number) => 5 * Math.sqrt((share * (1 - share)) / count)
  const expectUniform = (name: string, values: number[], low: number, high: number) => {
    for (let quarter = 0; quarter < 4; quarter++) {
      const from = low + (quarter / 4) * (high - low)
      const inside = values.filter(
        (value) =>
          (quarter === 0 || value >= from) && (quarter === 3 || value < from + (high - low) / 4),
      )
      const share = inside.length / values.length
      expect(Math.abs(share - 0.25), `${name}, quarter ${quarter}: ${share}`).toBeLessThan(
        five(0.25, values.length),
      )
    }
  }

  test('randomResizedCrop draws areas, aspect ratios and places evenly from all that it may', () => {
    // Any window of these fits, so none is drawn again.
    const windows = windowsOf(800, { scale: [0.1, 0.4], ratio: [0.5, 2] })
    for (const { area, aspect, left, top } of windows) {
      // The narrowest window is 56 pixels wide, and the reading 1 pixel off each way.
      expect(area).toBeGreaterThan(0.1 * 0.97)
      expect(area).toBeLessThan(0.4 * 1.02)
      expect(aspect).toBeGreaterThan(0.5 * 0.97)
      expect(aspect).toBeLessThan(2 * 1.03)
      for (const place of [left, top]) {
        expect(place).toBeGreaterThan(-0.06)
        expect(place).toBeLessThan(1.06)
      }
    }
    const all = (name: keyof (typeof windows)[0]) => windows.map((window) => window[name])
    expectUniform('area', all('area'), 0.1, 0.4)
    expectUniform('log of aspect', all('aspect').map(Math.log2), -1, 1)
    expectUniform('left', all('left'), 0, 1)
    expectUniform('top', all('top'), 0, 1)
  })

  test('randomResizedCrop defaults to the ranges of torchvision', () => {
    const windows = windowsOf(400, undefined)
    const areas = windows.map(({ area }) => area)
    const aspects = windows.map(({ aspect }) => aspect)
    expect(Math.min(...areas)).toBeGreaterThan(0.08 * 0.96)
    expect(Math.min(...areas)).toBeLessThan(0.12)
    expect(Math.max(...areas)).toBeLessThan(1.01)
    expect(Math.max(...areas)).toBeGreaterThan(0.85)
    expect(Math.min(...aspects)).toBeGreaterThan(0.75 * 0.97)
    expect(Math.min(...aspects)).toBeLessThan(0.8)
    expect(Math.max(...aspects)).toBeLessThan((4 / 3) * 1.03)
    expect(Math.max(...aspects)).toBeGreaterThan(1.26)
  })

  test('randomResizedCrop of a window that is whole, or does not fit', () => {
    const whole = randomResizedCrop([40, 30], { scale: [1, 1], ratio: [0.75, 0.75] })
    expect(Buffer.from(whole(image, draws()).data)).toEqual(Buffer.from(image.data))
    // No window of that ratio fits: the middle of the largest that does.
    const fallback = randomResizedCrop(10, { scale: [1, 1], ratio: [1, 1] })(image, draws())
    const middle = resize([10, 10])(crop(image, 5, 0, 30, 30), draws())
    expect(Buffer.from(fallback.data)).toEqual(Buffer.from(middle.data))
  })

  test('randomHorizontalFlip turns images with its probability, and twice gives the original', () => {
    const strip = crop(coordinates, 0, 0, 3, 16)
    const isTurned = ({ data }: PixelImage) => {
      const columns = Array.from({ length: 3 * 16 }, (_, i) => data[i * 2])
      const turned = columns[0] !== 0
      expect(columns).toEqual(columns.map((_, i) => (turned ? 15 - (i % 16) : i % 16)))
      return turned
    }
    for (const p of [0, 0.1, 0.5, 0.9, 1]) {
      const flip = randomHorizontalFlip(p)
      const count = 800
      const turned = Array.from({ length: count }, (_, i) => isTurned(flip(strip, draws(i))))
      const share = turned.filter(Boolean).length / count
      expect(Math.abs(share - p), `p ${p}: ${share}`).toBeLessThanOrEqual(five(p, count))
    }
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
