import { DataError, messageOf } from '../../util/errors.ts'
import type { PixelImage } from './pixels.ts'

/**
 * Decodes a picture with the browser's own decoders to RGB; transparency is dropped, a camera's rotation applied.
 *
 * PNG gives the same bytes in every browser; JPEG decoders may differ by a level or two.
 * errors: `data.malformed`, naming the file, when the browser cannot decode it.
 */
export async function decodeImage(blob: Blob, name: string): Promise<PixelImage> {
  let bitmap: ImageBitmap
  try {
    bitmap = await createImageBitmap(blob, {
      colorSpaceConversion: 'none',
      premultiplyAlpha: 'none',
    })
  } catch (thrown) {
    throw new DataError(
      'data.malformed',
      `${name}: expected an image that this browser decodes, got ${blob.size} bytes that it refuses (${messageOf(thrown)}). Convert it to PNG or JPEG, or remove it.`,
      { cause: thrown },
    )
  }
  const { width, height } = bitmap
  try {
    const context = new OffscreenCanvas(width, height).getContext('2d', {
      willReadFrequently: true,
    })!
    context.drawImage(bitmap, 0, 0)
    const rgba = context.getImageData(0, 0, width, height).data
    const data = new Uint8Array(width * height * 3)
    for (let from = 0, to = 0; from < rgba.length; from += 4, to += 3) {
      data[to] = rgba[from]
      data[to + 1] = rgba[from + 1]
      data[to + 2] = rgba[from + 2]
    }
    return { height, width, channels: 3, data }
  } finally {
    bitmap.close()
  }
}
