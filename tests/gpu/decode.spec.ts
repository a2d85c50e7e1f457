import { expect, test } from 'vitest'
import type { HostTensor } from '../../src/data/descriptions.ts'
import { decodeImage } from '../../src/data/image/decode.ts'
import { ImageFolder } from '../../src/data/image-folder.ts'
import { DataLoader } from '../../src/data/loader/data-loader.ts'
import golden from '../golden/decode.json'

// Pillow's pixels against what comes out in a browser: tests/golden/decode.py writes files and pixels.

const bytesOf = (base64: string) => Uint8Array.from(atob(base64), (one) => one.charCodeAt(0))
const fileOf = (base64: string) => new Blob([bytesOf(base64)])

test('PNG: the values of Pillow, under transparency too', async () => {
  // These the browser decodes, and their palettes have transparent entries.
  const isOfCanvas = (name: string) => /palette, [124] bits, interlaced/.test(name)
  for (const { name, file, height, width, rgb } of golden.png) {
    const image = await decodeImage(fileOf(file), name)
    expect(image, name).toMatchObject({ height, width })
    if (!isOfCanvas(name)) expect(image.data, name).toEqual(bytesOf(rgb))
  }
})

test('PNG: the same in a worker', async () => {
  const { file, rgb } = golden.png.find(({ name }) => name === 'RGB with alpha, 8 bits')!
  const folder = new ImageFolder([{ path: 'a/0.png', source: fileOf(file) }])
  const loader = new DataLoader(folder, { numWorkers: 1 })
  for await (const { x } of loader) {
    const { shape, data } = x as HostTensor
    const [, , height, width] = shape
    const pixels = bytesOf(rgb)
    const planes = Float32Array.from(data, (_, i) => {
      const [channel, pixel] = [Math.floor(i / (height * width)), i % (height * width)]
      return pixels[pixel * 3 + channel] / 255
    })
    expect(data).toEqual(planes)
  }
  loader.close()
})

test('JPEG: as the pixels lie in the file, however the camera was held', async () => {
  for (const { name, file, height, width, rgb } of golden.jpeg) {
    const image = await decodeImage(fileOf(file), name)
    expect([image.height, image.width], name).toEqual([height, width])
    const wanted = bytesOf(rgb)
    const furthest = Math.max(...image.data.map((value, i) => Math.abs(value - wanted[i])))
    console.log(`${name}: at most ${furthest} levels from Pillow`)
    // The four quarters differ by 140 levels and more.
    expect(furthest, name).toBeLessThanOrEqual(4)
  }
})

test('WebP with transparency: what a canvas keeps of the colours, as the docs say', async () => {
  const context = new OffscreenCanvas(2, 1).getContext('2d')!
  context.putImageData(new ImageData(Uint8ClampedArray.of(90, 8, 7, 255, 200, 100, 50, 0), 2), 0, 0)
  const webp = await context.canvas.convertToBlob({ type: 'image/webp', quality: 1 })
  const { data } = await decodeImage(webp, 'a.webp')
  expect([...data.slice(3)]).toEqual([0, 0, 0])
})
