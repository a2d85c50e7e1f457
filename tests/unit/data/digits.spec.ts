import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { fillBatch } from '../../../src/data/dataset.ts'
import { builtInDigits, drawDigits } from '../../../src/data/digits.ts'
import { drawnSplits } from '../../support/idx-files.ts'

const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex').slice(0, 16)

test('the default data set has its counts, every class, ink and background', () => {
  const splits = builtInDigits()
  expect([splits.train.count, splits.test.count]).toEqual([8000, 1000])
  const train = drawDigits(0, 0, 8000)
  expect(train.images.length).toBe(8000 * 784)
  const counts = new Array(10).fill(0)
  for (const label of train.labels) counts[label]++
  // 800 expected, five standard deviations of 27 either way.
  for (const count of counts) expect(Math.abs(count - 800)).toBeLessThan(135)
  const share = train.images.reduce((sum, value) => sum + value, 0) / train.images.length / 255
  expect(share).toBeGreaterThan(0.08)
  expect(share).toBeLessThan(0.2)
})

test('images that are drawn when a batch reads them are those that are drawn at once', () => {
  const { test } = builtInDigits()
  const rows = [999, 3, 3]
  const read = (source: typeof test) => {
    const [pixels, labels] = [new Float32Array(3 * 784), new Int32Array(3)]
    fillBatch(source, rows, pixels, labels)
    return [pixels, labels]
  }
  expect(read(test)).toEqual(read(drawDigits(0, 1, 1000)))
  expect(read(test)[0].some((value) => value > 0)).toBe(true)
})

test('the same bytes for the same seed, everywhere and for ever', () => {
  const { images, labels } = drawDigits(0, 0, 64)
  expect([digest(images), digest(labels)]).toMatchInlineSnapshot(`
    [
      "577e917574b556d5",
      "efad0ecc88d54371",
    ]
  `)
})

test('an image depends on seed, stream and index alone', () => {
  const few = drawDigits(7, 0, 5)
  const more = drawDigits(7, 0, 9)
  expect(more.images.subarray(0, 5 * 784)).toEqual(few.images)
  expect(drawDigits(8, 0, 5).images).not.toEqual(few.images)
  expect(drawDigits(7, 1, 5).images).not.toEqual(few.images)
})

test('no image occurs twice', () => {
  const { train, test } = drawnSplits({ seed: 3, train: 1500, test: 500 })
  const seen = new Set<string>()
  for (const { images, count } of [train, test])
    for (let i = 0; i < count; i++) seen.add(digest(images.subarray(i * 784, (i + 1) * 784)))
  expect(seen.size).toBe(2000)
})
