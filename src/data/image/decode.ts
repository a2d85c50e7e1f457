import { clippedName } from '../../util/clipped.ts'
import { DataError, messageOf } from '../../util/errors.ts'
import { isOf } from '../../util/kind-of.ts'
import { checkArgument, checkText } from '../../util/options.ts'
import { foreignFile } from '../foreign.ts'
import { forgetOrientation } from './orientation.ts'
import type { PixelImage } from './pixels.ts'
import { decodePng, isPng, refusePngBomb } from './png.ts'

/**
 * Decodes an image to RGB like Pillow's `Image.open(file).convert('RGB')`, which torchvision's folders use: transparency is dropped, a
 * camera's rotation (Exif) and colour profiles are not applied.
 *
 * PNG is decoded by fast-png, to the exact values of the file everywhere, Node included. Other formats are decoded by the browser. JPEG may
 * differ by a level or two between browsers. Transparent colours in WebP, GIF, AVIF and interlaced PNG with fewer than 8 bits are those of
 * a canvas: 0 under alpha 0 and rounded under others.
 * errors: `data.malformed`, naming the file, if it cannot be decoded; `data.missing` if its bytes can no longer be read.
 */
export async function decodeImage(blob: Blob, name: string): Promise<PixelImage> {
  checkText('decodeImage', 'name', name)
  const file = clippedName(name)
  checkArgument('decodeImage', 'blob', blob, isOf(blob, Blob, File), 'a Blob or File')
  const bytes = await bytesOf(blob, file)
  if (isPng(bytes)) {
    await refusePngBomb(bytes, file)
    return decodePng(bytes, file)
  }
  forgetOrientation(bytes)
  let bitmap: ImageBitmap
  try {
    bitmap = await createImageBitmap(new Blob([bytes], { type: blob.type }), {
      colorSpaceConversion: 'none',
    })
  } catch (thrown) {
    const foreign = foreignFile(file, 'an image', bytes)
    if (foreign) throw foreign
    throw new DataError(
      'data.malformed',
      `${file}: the browser cannot decode these ${blob.size} bytes as an image (${messageOf(thrown)}). Convert it to PNG or JPEG, or remove it.`,
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

async function bytesOf(blob: Blob, name: string): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await blob.arrayBuffer())
  } catch (thrown) {
    throw new DataError(
      'data.missing',
      `${name}: cannot read the file (${messageOf(thrown)}). Choose the folder again.`,
      { cause: thrown },
    )
  }
}
