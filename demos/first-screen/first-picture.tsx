import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useInView } from '../../src/ui/demo/use-in-view.ts'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Named } from '../../src/ui/parts/named.tsx'
import { ArrowHead } from '../../src/ui/ring/arrow-head.tsx'
import { Chunks } from '../../src/ui/ring/chunks.tsx'
import { Edge } from '../../src/ui/ring/edge.tsx'
import { arcOf, place, viewBox } from '../../src/ui/ring/place.ts'
import { marksOf } from '../playground/marks.ts'
import { Plane, Thumbnail } from '../playground/plane.tsx'
import { FirstRun, type FirstRunView, notBegun, type Seat } from './first-run.ts'
import '../playground/view.css'
import './first-picture.css'

/** Radius of a rank's circle. units: of the viewBox. */
const seatRadius = 17

/** The first screen's picture: three ranks of this tab train the playground, with the ring around the plane. It rests where nobody sees it. */
export function FirstPicture() {
  const [place, isInView] = useInView<HTMLDivElement>()
  const isHidden = useHidden()
  const [isStopped, setStopped] = useState(
    () => matchMedia('(prefers-reduced-motion: reduce)').matches,
  )
  const run = useRef<FirstRun | null>(null)
  const [view, setView] = useState<FirstRunView | null>(null)
  const isPaused = isStopped || isHidden || !isInView
  useEffect(() => {
    if (isPaused && !run.current) return
    run.current ??= new FirstRun(location.href, () => setView(run.current!.view))
    run.current.pause(isPaused)
  }, [isPaused])
  useEffect(() => () => run.current?.close(), [])
  const shown = view ?? notBegun
  return (
    <div ref={place}>
      <Ring view={shown} />
      <p class="first-words">
        <Named text={shown.words} hues={huesOf(shown)} />
      </p>
      <p class="first-progress">
        {!shown.hasFailed && (
          <button type="button" onClick={() => setStopped(!isStopped)}>
            {isStopped ? 'Play' : 'Pause'}
          </button>
        )}
        <span class="mono">
          {shown.totalSteps > 0 && `step ${shown.step} of ${shown.totalSteps}`}
        </span>
      </p>
    </div>
  )
}

function useHidden(): boolean {
  const [isHidden, setHidden] = useState(document.hidden)
  useEffect(() => {
    const update = () => setHidden(document.hidden)
    document.addEventListener('visibilitychange', update)
    return () => document.removeEventListener('visibilitychange', update)
  }, [])
  return isHidden
}

function Ring({ view }: { view: FirstRunView }) {
  const { seats, uses, field, shape } = view
  const size = seats.length
  const marks = useMemo(() => marksOf(shape)!, [shape])
  return (
    <div class="first-ring">
      <svg class="ring" viewBox={viewBox} aria-hidden="true">
        <defs>
          <ArrowHead />
        </defs>
        {seats.map((seat, from) => {
          const to = (from + 1) % size
          const isCut = seat.isGone || seats[to].isGone
          return (
            <Edge
              key={seat.name}
              edge={{ from, to, kind: 'port' }}
              size={size}
              nodeRadius={seatRadius}
              use={undefined}
              isCut={isCut}
              isOwn={false}
            />
          )
        })}
      </svg>
      {seats.map(({ name, isGone }, from) => {
        const use = uses[from]
        const isCut = isGone || seats[(from + 1) % size].isGone
        return use?.chunks > 0 && !isCut && !view.isPaused ? (
          <div key={name} class="hued" style={hueOfSeat(name)}>
            <Chunks {...arcOf(from, size, seatRadius)} use={use} />
          </div>
        ) : null
      })}
      <div class="first-plane">
        <Plane field={field} marks={marks} label={labelOf(view)} />
      </div>
      {seats.map((seat, rank) => (
        <SeatView key={seat.name} seat={seat} rank={rank} size={size} />
      ))}
    </div>
  )
}

function SeatView({ seat, rank, size }: { seat: Seat; rank: number; size: number }) {
  const { name, marks, isGone } = seat
  const { x, y } = place(rank, size)
  const [left, top, width, height] = viewBox.split(' ').map(Number)
  const style = {
    left: `${(100 * (x - left)) / width}%`,
    top: `${(100 * (y - top)) / height}%`,
    ...hueOfSeat(name),
  }
  return (
    <div class="first-seat" data-gone={isGone} style={style} aria-hidden="true">
      {marks && !isGone && <Thumbnail marks={marks} />}
      <b>{isGone ? '✕' : name}</b>
    </div>
  )
}

/** `A` has the first colour. */
const hueOfSeat = (name: string) => hueOf(name.charCodeAt(0) - 65)

const huesOf = ({ seats }: FirstRunView) =>
  new Map(seats.map(({ name }) => [name, hueOfSeat(name)['--hue']]))

function labelOf({ seats, step, totalSteps }: FirstRunView): string {
  const names = seats.filter(({ isGone }) => !isGone).map(({ name }) => name)
  return `Ranks ${names.join(', ')} on a ring around the plane of points that they learn: step ${step} of ${totalSteps}.`
}
