import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { keyMoves } from '../../src/ui/demo/key-moves.ts'
import { pictureOfLeanings, undecided } from './leaning-colours.ts'
import type { Field, Marks, PointsShown } from './marks.ts'

interface PlaneProps {
  field: Field | null
  marks: Marks
  /** In words, for those who do not see it. */
  label: string
  /** A person puts points on it; x and y from -1 to 1. */
  onPoint?: (x: number, y: number, isFirst: boolean) => void
  onLift?: () => void
  /** Takes the last point away. */
  onUndo?: () => void
}

/** Number of places, each way, between which the keyboard moves the cursor. */
const places = 41
const placeOf = (place: number) => (2 * place) / (places - 1) - 1

/** Pixels along each edge of the canvases; CSS makes them as large as there is room. */
const edge = 560

/** The square from -1 to 1 on two canvases: what the model says, and the points. */
export function Plane({ field, marks, label, onPoint, onLift, onUndo }: PlaneProps) {
  const [cursor, setCursor] = useState({ column: (places - 1) / 2, row: (places - 1) / 2 })
  const newest = useRef(cursor)
  const below = useRef<HTMLCanvasElement>(null)
  const above = useRef<HTMLCanvasElement>(null)
  // Drawn in the frame of the render: an effect after it would cost another frame.
  useLayoutEffect(() => {
    drawField(below.current!.getContext('2d')!, field)
  }, [field])
  useLayoutEffect(() => {
    drawMarks(above.current!.getContext('2d')!, marks, edge / 110)
  }, [marks])
  const put = (event: PointerEvent, isFirst: boolean) => {
    const { left, top, width, height } = above.current!.getBoundingClientRect()
    const x = (2 * (event.clientX - left)) / width - 1
    const y = 1 - (2 * (event.clientY - top)) / height
    if (Math.abs(x) <= 1 && Math.abs(y) <= 1) onPoint?.(x, y, isFirst)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (!onPoint || event.ctrlKey || event.metaKey || event.altKey) return
    const move = keyMoves[event.key]
    const { column, row } = newest.current
    if (move) {
      const within = (place: number) => Math.max(0, Math.min(places - 1, place))
      newest.current = { column: within(column + move[0]), row: within(row + move[1]) }
      setCursor(newest.current)
    } else if (event.key === ' ' || event.key === 'Enter') {
      // Rows go down, and y goes up.
      onPoint(placeOf(column), -placeOf(row), true)
      onLift?.()
    } else if (event.key === 'Backspace' || event.key === 'Delete') onUndo?.()
    else return
    event.preventDefault()
  }
  const x = placeOf(cursor.column).toFixed(2)
  const y = (0 - placeOf(cursor.row)).toFixed(2)
  return (
    // An application while it takes points, else a picture; the handlers come with the role.
    // biome-ignore lint/a11y/noStaticElementInteractions: the role is there
    // biome-ignore lint/a11y/useAriaPropsSupportedByRole: the role is there
    <div
      class="plane"
      data-takes-points={onPoint !== undefined}
      role={onPoint ? 'application' : 'img'}
      tabIndex={onPoint ? 0 : undefined}
      aria-label={label}
      aria-describedby={onPoint && 'plane-keys'}
      onKeyDown={onKeyDown}
    >
      <canvas ref={below} width={edge} height={edge} data-has-field={field !== null} />
      <canvas
        ref={above}
        width={edge}
        height={edge}
        onPointerDown={(event) => {
          if (!onPoint || event.button !== 0) return
          event.preventDefault()
          event.currentTarget.setPointerCapture(event.pointerId)
          put(event, true)
        }}
        onPointerMove={(event) => {
          if (onPoint && event.currentTarget.hasPointerCapture(event.pointerId)) put(event, false)
        }}
        onLostPointerCapture={onLift}
      />
      {onPoint && (
        <>
          <span
            class="cursor"
            aria-hidden="true"
            style={{
              left: `${(100 * cursor.column) / (places - 1)}%`,
              top: `${(100 * cursor.row) / (places - 1)}%`,
            }}
          />
          <span class="unseen" role="status">
            Cursor at x {x}, y {y}
          </span>
        </>
      )}
    </div>
  )
}

/** A small picture of a shape's points. */
export function Thumbnail({ marks }: { marks: Marks }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  useLayoutEffect(() => drawMarks(canvas.current!.getContext('2d')!, marks, 2.4), [marks])
  return <canvas ref={canvas} class="thumbnail" width={96} height={96} />
}

/** Around points that glow: seen on both classes' colours. */
const glow = { light: '#ffffff', line: '#c4006a' }

const markColours = [
  { fill: '#0b3b66', line: '#ffffff', hollow: '#0b3b66' },
  { fill: '#ffab2e', line: '#4a2500', hollow: '#8a3c00' },
] as const

function drawField(context: CanvasRenderingContext2D, field: Field | null): void {
  context.fillStyle = `rgb(${undecided})`
  context.fillRect(0, 0, edge, edge)
  if (!field) return
  const { side, probabilities } = field
  const image = pictureOfLeanings(side, (i) => 2 * probabilities[i] - 1)
  const small = new OffscreenCanvas(side, side)
  small.getContext('2d')!.putImageData(image, 0, 0)
  // The outermost samples lie on the square's edges, in the middle of their pixels.
  context.drawImage(small, 0.5, 0.5, side - 1, side - 1, 0, 0, edge, edge)
  drawLine(context, field)
}

/** Draws where the probability is one half: marching squares, each cell's crossings joined. */
function drawLine(context: CanvasRenderingContext2D, { side, probabilities }: Field): void {
  const step = edge / (side - 1)
  const at = (row: number, column: number) => probabilities[row * side + column] - 0.5
  context.beginPath()
  for (let row = 0; row + 1 < side; row++) {
    for (let column = 0; column + 1 < side; column++) {
      // The line goes through few of the cells.
      const isBelow = at(row, column) < 0
      if (
        at(row, column + 1) < 0 === isBelow &&
        at(row + 1, column + 1) < 0 === isBelow &&
        at(row + 1, column) < 0 === isBelow
      )
        continue
      const corners = [
        [row, column],
        [row, column + 1],
        [row + 1, column + 1],
        [row + 1, column],
      ] as const
      const crossings = corners.flatMap(([r0, c0], i) => {
        const [r1, c1] = corners[(i + 1) % 4]
        const a = at(r0, c0)
        const b = at(r1, c1)
        if (a < 0 === b < 0) return []
        const t = a / (a - b)
        return [[(c0 + t * (c1 - c0)) * step, edge - (r0 + t * (r1 - r0)) * step]]
      })
      for (let i = 0; i + 1 < crossings.length; i += 2) {
        context.moveTo(crossings[i][0], crossings[i][1])
        context.lineTo(crossings[i + 1][0], crossings[i + 1][1])
      }
    }
  }
  context.lineCap = 'round'
  context.strokeStyle = '#15191c'
  context.lineWidth = 3
  context.stroke()
}

/** Draws the points: circles are class 0, squares class 1. */
function drawMarks(
  context: CanvasRenderingContext2D,
  { train, test, own, lit }: Marks,
  radius: number,
): void {
  const { width, height } = context.canvas
  context.clearRect(0, 0, width, height)
  const outline = ({ at, classes }: PointsShown, i: number, times = 1) => {
    const r = times * radius
    const x = ((at[2 * i] + 1) / 2) * width
    const y = ((1 - at[2 * i + 1]) / 2) * height
    context.beginPath()
    if (classes[i] === 0) context.arc(x, y, r, 0, 2 * Math.PI)
    else context.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r)
    return markColours[classes[i] === 0 ? 0 : 1]
  }
  context.lineWidth = radius / 3
  for (let i = 0; lit && i < lit.length; i++) {
    outline(train, lit[i], 1.9)
    context.fillStyle = glow.light
    context.fill()
    context.strokeStyle = glow.line
    context.stroke()
  }
  for (let i = 0; test && i < test.classes.length; i++) {
    context.strokeStyle = outline(test, i).hollow
    context.stroke()
  }
  for (let i = 0; i < train.classes.length; i++) {
    const isOwn = !own || (i >= own.start && i < own.end)
    const { fill, line } = outline(train, i)
    context.globalAlpha = isOwn ? 1 : 0.22
    context.fillStyle = fill
    context.fill()
    context.strokeStyle = line
    context.stroke()
  }
  context.globalAlpha = 1
}
