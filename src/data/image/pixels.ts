/** A decoded image. shape of `data`: [height, width, channels], one byte per channel. */
export interface PixelImage {
  readonly height: number
  readonly width: number
  readonly channels: number
  readonly data: Uint8Array<ArrayBuffer> | Uint8ClampedArray<ArrayBuffer>
}

/** The window of `height` x `width` whose first pixel is (top, left); outside of the image it is 0, as torchvision's `crop`. */
export function crop(
  image: PixelImage,
  top: number,
  left: number,
  height: number,
  width: number,
): PixelImage {
  const { channels } = image
  const data = new Uint8Array(height * width * channels)
  const firstColumn = Math.max(0, left)
  const lastColumn = Math.min(image.width, left + width)
  for (let row = Math.max(0, top); row < Math.min(image.height, top + height); row++) {
    if (lastColumn <= firstColumn) break
    const from = (row * image.width + firstColumn) * channels
    const to = ((row - top) * width + firstColumn - left) * channels
    data.set(image.data.subarray(from, from + (lastColumn - firstColumn) * channels), to)
  }
  return { height, width, channels, data }
}

/** The image with left and right exchanged. */
export function flipHorizontally(image: PixelImage): PixelImage {
  const { height, width, channels } = image
  const data = new Uint8Array(image.data.length)
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const from = (row * width + width - 1 - column) * channels
      const to = (row * width + column) * channels
      for (let c = 0; c < channels; c++) data[to + c] = image.data[from + c]
    }
  }
  return { height, width, channels, data }
}
