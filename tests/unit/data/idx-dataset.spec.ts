import { expect, test } from 'vitest'
import type { HostTensor } from '../../../src/data/descriptions.ts'
import { idxDataset } from '../../../src/data/idx-dataset.ts'
import {
  compose,
  normalize,
  randomHorizontalFlip,
  toTensor,
} from '../../../src/data/image/transforms.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { restoreDataset } from '../../../src/data/loader/restore.ts'
import { gzip, idxFile } from '../../support/idx-files.ts'

const key = (index: number) => ({ seed: 1, epoch: 0, index })
const images = idxFile([3, 2, 4], (i) => 10 * i)
const labels = idxFile([3], (i) => 7 - i)

test('grey images and labels, from bytes, files and addresses, plain and gzip', async () => {
  const address = `data:application/octet-stream;base64,${Buffer.from(gzip(images)).toString('base64')}`
  for (const source of [images, new File([gzip(images)], 'images'), address, new URL(address)]) {
    const dataset = await idxDataset(source, new Blob([labels]))
    expect(dataset.length).toBe(3)
    const { x, y } = dataset.get(1, key(1))
    expect(y).toBe(6)
    expect(x.shape).toEqual([1, 2, 4])
    // torchvision's ToTensor: bytes / 255 in float32.
    expect(x.data).toEqual(Float32Array.from({ length: 8 }, (_, i) => (80 + 10 * i) / 255))
  }
})

test('batches, also of a copy as a worker makes it, with random transforms', async () => {
  const transform = compose([randomHorizontalFlip(), toTensor(), normalize([0.5], [0.25])])
  const dataset = await idxDataset(images, labels, { transform })
  const copy = restoreDataset(structuredClone(dataset.describe())) as typeof dataset
  const epochOf = async (of: typeof dataset) => {
    const batches: [number[], HostTensor][] = []
    const loader = new DataLoader(of, { batchSize: 2, shuffle: true })
    for await (const { x, y } of loader)
      batches.push([[...(y as HostTensor).data], x as HostTensor])
    return batches
  }
  const batches = await epochOf(dataset)
  expect(batches.map(([, { shape }]) => shape)).toEqual([
    [2, 1, 2, 4],
    [1, 1, 2, 4],
  ])
  expect(batches.flatMap(([y]) => y).sort()).toEqual([5, 6, 7])
  expect(await epochOf(copy)).toEqual(batches)
})

test('colour images have channels first; other numbers come as they are', async () => {
  const colour = await idxDataset(
    idxFile([1, 1, 2, 3], (i) => 51 * i),
    idxFile([1]),
  )
  expect(colour.get(0, key(0)).x).toEqual({
    shape: [3, 1, 2],
    data: Float32Array.of(0, 0.6, 0.2, 0.8, 0.4, 1),
  })
  const rows = await idxDataset(
    idxFile([2, 3], (i) => i, 9),
    idxFile([2], (i) => -i, 9),
  )
  expect(rows.get(1, key(1))).toEqual({
    x: { shape: [3], data: Float32Array.of(3, 4, 5) },
    y: -1,
  })
  expect(() => rows.get(2, key(2))).toThrow(/from 0 to 1, got 2/)
})

test.each([
  [
    'fewer labels',
    images,
    idxFile([2]),
    'expected 3 labels for as many images, got a labels file of [2]',
  ],
  ['labels in rows', images, idxFile([3, 1]), 'got a labels file of [3, 1]'],
  [
    'labels that are floats',
    images,
    Uint8Array.from([0, 0, 13, 1, 0, 0, 0, 0]),
    'expected labels that are whole numbers, got Float32Array',
  ],
  ['a single number', idxFile([], () => 1), labels, 'images with a first dimension'],
  ['a labels file for images', images.slice(0, 9), labels, 'images file: expected an IDX header'],
])('%s are refused', async (_, imagesFile, labelsFile, text) => {
  await expect(idxDataset(imagesFile, labelsFile)).rejects.toMatchObject({
    code: 'data.malformed',
    message: expect.stringContaining(text),
  })
})

test('transforms of rows, and workers with a transform of one’s own, are refused', async () => {
  await expect(
    idxDataset(idxFile([2, 3]), idxFile([2]), { transform: toTensor() }),
  ).rejects.toMatchObject({ code: 'config.invalid' })
  const own = await idxDataset(images, labels, {
    transform: (image) => toTensor()(image, null as never),
  })
  expect(() => own.describe()).toThrow(/a custom transform/)
})
