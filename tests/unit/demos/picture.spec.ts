import { expect, test } from 'vitest'
import { outlineOf } from '../../../demos/picture/band.ts'
import { decibelsOf, errorPicture, meanSquaredError } from '../../../demos/picture/closeness.ts'
import { maxPixelsASide } from '../../../demos/picture/meta.ts'
import { readPicture, writePicture } from '../../../demos/picture/pixels.ts'
import { writePlace } from '../../../demos/picture/places.ts'
import { drawScene } from '../../../demos/picture/scene.ts'

const small = {
  width: 20,
  height: 10,
  rgb: Uint8Array.from({ length: 600 }, (_, i) => (7 * i) % 256),
}

test('a picture comes back as it was given, each pixel trained on or held out', () => {
  const { width, height, rgb, train, test: heldOut } = readPicture(writePicture(small))
  expect({ width, height, rgb }).toEqual(small)
  expect(heldOut.count).toBe(20)
  expect([...train.at, ...heldOut.at].sort((a, b) => a - b)).toEqual(
    Array.from({ length: 200 }, (_, i) => i),
  )
  // In the order of the picture: a contiguous part of them is a band.
  expect([...train.at]).toEqual([...train.at].sort((a, b) => a - b))
  // One in each ten of every row and every column.
  for (let row = 0; row < 10; row++) {
    expect([...heldOut.at].filter((at) => Math.floor(at / 20) === row)).toHaveLength(2)
  }
  for (let column = 0; column < 20; column++) {
    expect([...heldOut.at].filter((at) => at % 20 === column)).toHaveLength(1)
  }
})

test.each([
  ['other bytes', new Uint8Array(600), 'its 600 bytes do not begin with TPIC'],
  ['too few bytes for a header', new Uint8Array(3), 'its 3 bytes do not begin with TPIC'],
  ['a pixel too few', writePicture(small).slice(0, -3), 'expected 608 bytes for 20 x 10 pixels'],
  [
    'a narrow picture',
    writePicture({ width: 7, height: 10, rgb: new Uint8Array(210) }),
    'a side of 7 x 10 pixels',
  ],
  [
    'a wide picture',
    writePicture({
      width: maxPixelsASide + 1,
      height: 8,
      rgb: new Uint8Array(24 * (maxPixelsASide + 1)),
    }),
    'a side of 257 x 8 pixels',
  ],
])('%s is refused', (_words, bytes, message) => {
  expect(() => readPicture(bytes)).toThrow(
    expect.objectContaining({
      code: 'data.malformed',
      message: expect.stringContaining(message),
    }),
  )
})

test('the built-in picture has a sun, a sea, a lighthouse and a sail, edges and gradients', () => {
  const { width, height, rgb } = drawScene()
  const at = (x: number, y: number) => [
    ...rgb.subarray(3 * (y * width + x), 3 * (y * width + x) + 3),
  ]
  expect([width, height]).toEqual([96, 96])
  expect(at(59, 35)).toEqual([255, 237, 158]) // the sun
  const [red, , blue] = at(5, 90)
  expect(blue).toBeGreaterThan(red)
  expect(Math.min(...at(40, 60))).toBeGreaterThan(160) // the right sail
  const white = at(82, 28)
  const stripe = at(82, 33)
  expect(white[1] - stripe[1]).toBeGreaterThan(100)
  // Smaller or larger, it is the same picture.
  const half = drawScene(48, 48)
  expect([...half.rgb.subarray(3 * (17 * 48 + 29), 3 * (17 * 48 + 29) + 3)]).toEqual([
    255, 237, 158,
  ])
})

test('the Fourier features of a position are distinct sines and cosines', () => {
  const features = new Float32Array(128)
  writePlace('waves', 0, 0, features, 0)
  writePlace('waves', 0.3, -0.7, features, 1)
  for (let i = 0; i < 32; i++) {
    expect(features[2 * i]).toBeCloseTo(0, 12)
    expect(features[2 * i + 1]).toBe(1)
    expect(Math.hypot(features[64 + 2 * i], features[65 + 2 * i])).toBeCloseTo(1, 6)
  }
  expect(new Set(features.subarray(64)).size).toBe(64)
})

test.each([
  [0, 40, 20, 'M0 0H20V2H0V1H0Z'],
  [5, 47, 20, 'M5 0H20V2H7V3H0V1H5Z'],
  [22, 27, 20, 'M2 1H7V2H2Z'],
])('pixels %i up to %i of rows of %i are outlined', (start, end, width, path) => {
  expect(outlineOf(start, end, width)).toBe(path)
})

test('the error of a picture, in numbers and as a picture', () => {
  const other = { ...small, rgb: small.rgb.map((value, i) => (i === 3 ? value - 10 : value)) }
  expect(meanSquaredError(small, other)).toBeCloseTo((10 / 255) ** 2 / 600, 12)
  expect(decibelsOf(0.01)).toBeCloseTo(20, 12)
  const { rgb } = errorPicture(small, other)
  expect([...rgb.subarray(0, 5)]).toEqual([0, 0, 0, 40, 0])
})
