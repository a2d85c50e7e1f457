import { useEffect, useRef, useState } from 'preact/hooks'
import { keyMoves } from '../../src/ui/demo/key-moves.ts'

/** A stroke of the pen: x and y by turns, from 0 to 1. */
export type Stroke = readonly number[]

interface PadProps {
  strokes: readonly Stroke[]
  /** Shown pale behind the invitation to draw. */
  sample: readonly Stroke[]
  onChange: (strokes: readonly Stroke[]) => void
}

/** Pixels along the pad's edge. */
const edge = 280
/** Number of places, each way, between which the keyboard moves the pen. */
const places = 20

/** The pen of those who draw by the keyboard. */
interface KeyPen {
  /** Places from the left and from the top, from 0. */
  readonly column: number
  readonly row: number
  readonly isDown: boolean
}

/** A square to draw a digit on, with a finger, a pen, the mouse or the keyboard. */
export function Pad({ strokes, sample, onChange }: PadProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const [pen, setPen] = useState<KeyPen>({ column: 10, row: 3, isDown: false })
  // Pointers and held keys are quicker than the page is drawn.
  const newest = useRef(strokes)
  newest.current = strokes
  const newestPen = useRef(pen)
  useEffect(() => {
    const context = canvas.current!.getContext('2d')!
    context.clearRect(0, 0, edge, edge)
    const place = { scale: edge, x: 0, y: 0, pen: 20 }
    context.globalAlpha = 0.35
    draw(context, sample, place)
    context.globalAlpha = 1
    draw(context, strokes, place)
  }, [strokes, sample])
  const put = (point: readonly number[], isFirst: boolean) => {
    const before = newest.current
    newest.current = isFirst
      ? [...before, point]
      : [...before.slice(0, -1), [...(before.at(-1) ?? []), ...point]]
    onChange(newest.current)
  }
  const point = (event: PointerEvent, isFirst: boolean) => {
    const { left, top, width, height } = canvas.current!.getBoundingClientRect()
    put([(event.clientX - left) / width, (event.clientY - top) / height], isFirst)
  }
  const take = (next: KeyPen, isFirst: boolean) => {
    newestPen.current = next
    setPen(next)
    if (next.isDown) put([(next.column + 0.5) / places, (next.row + 0.5) / places], isFirst)
  }
  const lift = () => take({ ...newestPen.current, isDown: false }, false)
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const { current } = newestPen
    const move = keyMoves[event.key]
    if (move) {
      const within = (place: number) => Math.max(0, Math.min(places - 1, place))
      const column = within(current.column + move[0])
      const row = within(current.row + move[1])
      take({ ...current, column, row }, newest.current.length === 0)
    } else if (event.key === ' ') {
      // A held key would lift the pen and set it down by turns.
      if (!event.repeat) take({ ...current, isDown: !current.isDown }, true)
    } else if (event.key === 'Delete' || event.key === 'Backspace') {
      lift()
      newest.current = []
      onChange([])
    } else return
    event.preventDefault()
  }
  const { column, row, isDown } = pen
  return (
    <div class="pad-place">
      {/* biome-ignore-start lint/a11y/noNoninteractiveTabindex: its keys draw */}
      <div
        class="pad-frame"
        role="application"
        tabIndex={0}
        aria-label="Pad to draw a digit on"
        aria-describedby="pad-keys"
        onKeyDown={onKeyDown}
        onBlur={lift}
      >
        <canvas
          ref={canvas}
          class="pad"
          role="img"
          aria-label={
            strokes.length > 0
              ? 'The digit that you drew'
              : sample.length > 0
                ? 'A 3 as a sample: draw another digit over it'
                : 'Nothing is drawn'
          }
          width={edge}
          height={edge}
          onPointerDown={(event) => {
            // A second finger draws nothing: its points would join the first one's stroke.
            if (event.button !== 0 || !event.isPrimary) return
            event.preventDefault()
            event.currentTarget.setPointerCapture(event.pointerId)
            lift()
            point(event, true)
          }}
          onPointerMove={(event) => {
            if (event.currentTarget.hasPointerCapture(event.pointerId)) point(event, false)
          }}
        />
        {strokes.length === 0 && (
          <span class="invitation" aria-hidden="true">
            Draw a digit here
          </span>
        )}
        <span
          class="pen"
          data-down={isDown}
          aria-hidden="true"
          style={{
            left: `${(100 * (column + 0.5)) / places}%`,
            top: `${(100 * (row + 0.5)) / places}%`,
          }}
        />
      </div>
      {/* biome-ignore-end lint/a11y/noNoninteractiveTabindex: its keys draw */}
      <p class="unseen" role="status">
        {isDown ? 'Pen down' : 'Pen up'}, column {column + 1}, row {row + 1} of {places}
      </p>
      <p id="pad-keys" class="quiet pad-keys">
        Keyboard: Space lowers and lifts the pen, arrow keys move it, Delete clears.
      </p>
    </div>
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
