import { useRef, useState } from 'preact/hooks'
import type uPlot from 'uplot'

/** The part of the x axis that is seen. */
export interface Stretch {
  readonly min: number
  readonly max: number
}

/** What of a plot's options makes it zoom. */
export interface ZoomParts {
  readonly cursor: uPlot.Cursor
  readonly xRange: uPlot.Range.Function
  readonly setSelect: (plot: uPlot) => void
}

/** Looking closer at a part of the x axis: by dragging, by keys, by buttons. */
export interface Zoom {
  /** Null: all is seen. */
  readonly stretch: Stretch | null
  /** A narrower or wider view around the middle (`by` below or above 1), moved by a share of its width. */
  zoomBy(by: number, move?: number): void
  showAll(): void
  readonly onKeyDown: (event: KeyboardEvent) => void
  readonly parts: ZoomParts
}

/** Says what a plot's element does, for its title. */
export const zoomHint = 'Drag to zoom in, double-click to show all. Keys: + − ← → and Escape.'

/** `full` gives all that there is to see. */
export function useZoom(full: () => Stretch | null): Zoom {
  const [stretch, setStretch] = useState<Stretch | null>(null)
  const now = useRef(stretch)
  now.current = stretch
  const showAll = () => setStretch(null)
  const zoomBy = (by: number, move = 0) => {
    const all = full()
    if (!all) return
    const from = stretch ?? all
    const width = Math.min(all.max - all.min, (from.max - from.min) * by)
    const middle = (from.min + from.max) / 2 + move * width
    const min = Math.max(all.min, Math.min(all.max - width, middle - width / 2))
    setStretch(width >= all.max - all.min || width <= 0 ? null : { min, max: min + width })
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const acts: Record<string, () => void> = {
      '+': () => zoomBy(0.5),
      '=': () => zoomBy(0.5),
      '-': () => zoomBy(2),
      ArrowLeft: () => zoomBy(1, -0.25),
      ArrowRight: () => zoomBy(1, 0.25),
      Escape: showAll,
      '0': showAll,
    }
    const act = acts[event.key]
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    act()
  }
  const parts: ZoomParts = {
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: {
        dblclick: () => () => {
          setStretch(null)
          return null
        },
      },
    },
    xRange: (_, min, max) => {
      if (now.current) return [now.current.min, now.current.max]
      return max > min ? [min, max] : [0, Math.max(10, max || 0)]
    },
    setSelect: (drawn) => {
      const { left, width } = drawn.select
      if (width < 4) return
      const min = drawn.posToVal(left, 'x')
      const max = drawn.posToVal(left + width, 'x')
      drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
      if (max > min) setStretch({ min, max })
    },
  }
  return { stretch, zoomBy, showAll, onKeyDown, parts }
}

/** For those who do not drag. `of` names the chart where there are several. */
export function ZoomButtons({ zoom, of }: { zoom: Zoom; of?: string }) {
  const name = (words: string) => (of ? `${words}: ${of}` : words)
  return (
    <span class="zoom">
      <button type="button" aria-label={name('Zoom in')} onClick={() => zoom.zoomBy(0.5)}>
        +
      </button>
      <button
        type="button"
        aria-label={name('Zoom out')}
        disabled={!zoom.stretch}
        onClick={() => zoom.zoomBy(2)}
      >
        −
      </button>
      <button
        type="button"
        disabled={!zoom.stretch}
        aria-label={name('Show all')}
        onClick={zoom.showAll}
      >
        All
      </button>
    </span>
  )
}
