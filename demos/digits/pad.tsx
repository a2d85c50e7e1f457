import { useEffect, useRef } from 'preact/hooks'

/** A stroke of the pen: x and y by turns, from 0 to 1. */
export type Stroke = readonly number[]

interface PadProps {
  strokes: readonly Stroke[]
  onChange: (strokes: readonly Stroke[]) => void
}

/** Pixels along the pad's edge. */
const edge = 280

/** A square to draw a digit on, with a finger, a pen or the mouse. */
export function Pad({ strokes, onChange }: PadProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  // Pointers move more often than the page is drawn.
  const newest = useRef(strokes)
  newest.current = strokes
  useEffect(() => {
    const context = canvas.current!.getContext('2d')!
    context.clearRect(0, 0, edge, edge)
    draw(context, strokes, { scale: edge, x: 0, y: 0, pen: 20 })
  }, [strokes])
  const put = (event: PointerEvent, isFirst: boolean) => {
    const { left, top, width, height } = canvas.current!.getBoundingClientRect()
    const point = [(event.clientX - left) / width, (event.clientY - top) / height]
    const before = newest.current
    newest.current = isFirst
      ? [...before, point]
      : [...before.slice(0, -1), [...(before.at(-1) ?? []), ...point]]
    onChange(newest.current)
  }
  return (
    <canvas
      ref={canvas}
      class="pad"
      role="img"
      aria-label={strokes.length > 0 ? 'The digit that you drew' : 'Draw a digit here'}
      width={edge}
      height={edge}
      onPointerDown={(event) => {
        if (event.button !== 0) return
        event.preventDefault()
        event.currentTarget.setPointerCapture(event.pointerId)
        put(event, true)
      }}
      onPointerMove={(event) => {
        if (event.currentTarget.hasPointerCapture(event.pointerId)) put(event, false)
      }}
    />
  )
}

/** Edge of the images that models take, and of the box that MNIST's digits are scaled to. */
const side = 28
const box = 20
/** Width of the pen in those images: about that of MNIST's. */
const pen = 2.2

/**
 * Returns the digit as MNIST's are: scaled to a box of 20 x 20 pixels, then moved so that its centre of mass is the image's.
 *
 * shape: [784], from 0 to 1. source: the description on the MNIST page (LeCun, Cortes, Burges).
 */
export function normalized(strokes: readonly Stroke[]): number[] {
  const xs = strokes.flatMap((stroke) => stroke.filter((_, i) => i % 2 === 0))
  const ys = strokes.flatMap((stroke) => stroke.filter((_, i) => i % 2 === 1))
  const [left, right, top, bottom] = [
    Math.min(...xs),
    Math.max(...xs),
    Math.min(...ys),
    Math.max(...ys),
  ]
  // A dot must not become a blot.
  const scale = (box - pen) / Math.max(right - left, bottom - top, 0.1)
  const middle = side / 2
  const place = {
    scale,
    pen,
    x: middle - (scale * (left + right)) / 2,
    y: middle - (scale * (top + bottom)) / 2,
  }
  const first = inkOf(strokes, place)
  let [sum, sumX, sumY] = [0, 0, 0]
  first.forEach((ink, i) => {
    sum += ink
    sumX += ink * ((i % side) + 0.5)
    sumY += ink * (Math.floor(i / side) + 0.5)
  })
  return inkOf(strokes, {
    ...place,
    x: place.x + Math.round(middle - sumX / sum),
    y: place.y + Math.round(middle - sumY / sum),
  })
}

interface Place {
  readonly scale: number
  readonly x: number
  readonly y: number
  readonly pen: number
}

function inkOf(strokes: readonly Stroke[], place: Place): number[] {
  const context = new OffscreenCanvas(side, side).getContext('2d', { willReadFrequently: true })!
  draw(context, strokes, place)
  const { data } = context.getImageData(0, 0, side, side)
  return Array.from({ length: side * side }, (_, i) => data[4 * i + 3] / 255)
}

function draw(
  context: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D,
  strokes: readonly Stroke[],
  { scale, x, y, pen }: Place,
): void {
  context.lineWidth = pen
  context.lineCap = 'round'
  context.lineJoin = 'round'
  context.strokeStyle = '#ffffff'
  for (const stroke of strokes) {
    context.beginPath()
    context.moveTo(x + scale * stroke[0], y + scale * stroke[1])
    // A dot is a line of no length.
    for (let i = 0; i < stroke.length; i += 2)
      context.lineTo(x + scale * stroke[i], y + scale * stroke[i + 1])
    context.stroke()
  }
}
