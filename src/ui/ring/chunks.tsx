import { useEffect, useRef } from 'preact/hooks'
import type { LinkUse } from '../live/links.ts'
import { roundsPerSec } from './pace.ts'
import { onCircle, radius, viewBox } from './place.ts'

interface ChunksProps {
  /** The arc's ends. units: radians. */
  begin: number
  end: number
  use: LinkUse
}

/** From one dot to the next there is at least so much. units: of the viewBox. */
const minGap = 9

/**
 * The chunks of a link as dots on its arc, which move the faster the more it carries: a sheet over the ring that turns by the distance between
 * two dots, again and again.
 *
 * cost: none for the page's thread. The compositor turns a separate layer, where parts of the ring's drawing would be drawn again for each frame.
 */
export function Chunks({ begin, end, use }: ChunksProps) {
  const sheet = useRef<SVGSVGElement>(null)
  const motion = useRef<Animation | undefined>(undefined)
  const room = Math.max(1, Math.floor(((end - begin) * radius) / minGap))
  const dots = Math.min(room, use.chunks)
  const gap = (end - begin) / dots
  const pace = dots * roundsPerSec(use.bytesPerSec)
  useEffect(() => {
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) return
    const turns = [-gap / 2, gap / 2].map((angle) => ({ transform: `rotate(${angle}rad)` }))
    const animation = sheet.current!.animate(turns, { duration: 1000, iterations: Infinity })
    animation.playbackRate = pace
    motion.current = animation
    return () => animation.cancel()
  }, [begin, gap])
  useEffect(() => motion.current?.updatePlaybackRate(pace), [pace])
  return (
    <svg ref={sheet} class="chunks" viewBox={viewBox} aria-hidden="true">
      {Array.from({ length: dots }, (_, i) => {
        const { x, y } = onCircle(begin + (i + 0.5) * gap, radius)
        return <circle key={i} cx={x} cy={y} r={3.2} />
      })}
    </svg>
  )
}
