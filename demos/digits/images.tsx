import { useEffect, useRef } from 'preact/hooks'

interface TileProps {
  /** Along a row, rows one behind the other. */
  values: ArrayLike<number>
  height: number
  width: number
  /** Red, green and blue of a value. */
  colour: (value: number) => readonly [number, number, number]
  label: string
}

/** One small image, each value a pixel that CSS enlarges. */
export function Tile({ values, height, width, colour, label }: TileProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useEffect(() => {
    const image = new ImageData(width, height)
    for (let i = 0; i < width * height; i++) image.data.set([...colour(values[i]), 255], 4 * i)
    canvas.current!.getContext('2d')!.putImageData(image, 0, 0)
  }, [values, height, width, colour])
  return (
    <canvas ref={canvas} class="tile" role="img" aria-label={label} width={width} height={height} />
  )
}

/** White ink on black, from 0 to `full`. */
export const inkOn =
  (full: number) =>
  (value: number): readonly [number, number, number] => {
    const grey = (255 * value) / full
    return [grey, grey, grey]
  }

/** Dark and blue below zero, light and orange above, between them grey; `most` is the greatest distance from zero. */
export const signed =
  (most: number) =>
  (value: number): readonly [number, number, number] => {
    const share = most > 0 ? Math.min(1, Math.abs(value) / most) : 0
    const [red, green, blue] = value < 0 ? [0, 62, 122] : [255, 214, 120]
    const from = 150
    return [
      from + share * (red - from),
      from + share * (green - from),
      from + share * (blue - from),
    ]
  }
