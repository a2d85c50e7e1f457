import { fewestPixelsASide, type Picture } from './pixels.ts'

/**
 * Returns the picture in a file, scaled down so that no side is longer than `longest` pixels; what is transparent becomes white.
 *
 * errors: one line for the person who chose the file.
 */
export async function decodePicture(file: File, longest: number): Promise<Picture> {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(
      `${file.name}: this browser cannot read it as a picture (${file.type || 'unknown type'}). Choose a PNG, JPEG or WebP file.`,
    )
  })
  const scale = Math.min(1, longest / Math.max(bitmap.width, bitmap.height))
  const width = Math.round(scale * bitmap.width)
  const height = Math.round(scale * bitmap.height)
  if (Math.min(width, height) < fewestPixelsASide) {
    bitmap.close()
    throw new Error(
      `${file.name}: a side of ${width} x ${height} pixels is below ${fewestPixelsASide}. Choose a larger or less narrow picture.`,
    )
  }
  const context = new OffscreenCanvas(width, height).getContext('2d')!
  context.fillStyle = '#ffffff'
  context.fillRect(0, 0, width, height)
  context.imageSmoothingQuality = 'high'
  context.drawImage(bitmap, 0, 0, width, height)
  bitmap.close()
  const { data } = context.getImageData(0, 0, width, height)
  return { width, height, rgb: new Uint8Array(data.filter((_, i) => i % 4 < 3)) }
}
