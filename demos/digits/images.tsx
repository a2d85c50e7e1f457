import { useLayoutEffect, useRef } from 'preact/hooks'

interface TileProps {
  /** Along a row, rows one behind the other. */
  values: ArrayLike<number>
  height: number
  width: number
  scale: ColourScale
  label: string
}

/** One small image, each value a pixel that CSS enlarges. */
export function Tile({ values, height, width, scale, label }: TileProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useLayoutEffect(() => {
    const image = new ImageData(width, height)
    paint(new Uint32Array(image.data.buffer), values, scale)
    canvas.current!.getContext('2d')!.putImageData(image, 0, 0)
  }, [values, height, width, scale])
  return (
    <canvas ref={canvas} class="tile" role="img" aria-label={label} width={width} height={height} />
  )
}

/** Pixels of values from `min` to `max`, in equal steps; beyond them, those of the ends. */
export interface ColourScale {
  readonly min: number
  readonly max: number
  readonly pixels: Uint32Array
}

/** White ink on black, from 0 to `full`. */
export const inkOn = (full: number): ColourScale => ({ min: 0, max: full, pixels: greys })

/** Dark and blue below zero, light and orange above, between them grey; `max` is the greatest distance from zero. */
export const signed = (max: number): ColourScale => ({ min: -max, max, pixels: blueToOrange })

/** As many as a screen's levels, to either side. */
const steps = 256

const greys = table(steps, (share) => [255 * share, 255 * share, 255 * share])

const blueToOrange = table(2 * steps + 1, (share) => {
  const from = 150
  const far = Math.abs(2 * share - 1)
  const [red, green, blue] = share < 0.5 ? [0, 62, 122] : [255, 214, 120]
  return [from + far * (red - from), from + far * (green - from), from + far * (blue - from)]
})

/** Colours of shares from 0 to 1. */
function table(
  count: number,
  colour: (share: number) => readonly [red: number, green: number, blue: number],
): Uint32Array {
  const bytes = new Uint8ClampedArray(4 * count)
  for (let i = 0; i < count; i++) bytes.set([...colour(i / (count - 1)), 255], 4 * i)
  return new Uint32Array(bytes.buffer)
}

function paint(
  image: Uint32Array,
  values: ArrayLike<number>,
  { min, max, pixels }: ColourScale,
): void {
  const last = pixels.length - 1
  const perValue = max > min ? last / (max - min) : 0
  // Where all is zero, as the middle.
  const from = max > min ? 0 : last / 2
  for (let i = 0; i < image.length; i++) {
    const at = Math.round(from + (values[i] - min) * perValue)
    image[i] = pixels[Math.max(0, Math.min(last, at))]
  }
}

export const percent = (share: number): string => `${(100 * share).toFixed(1)} %`
