import type { LinkUse } from '../live/links.ts'
import { formatBytes } from '../parts/format.ts'
import type { RingEdge } from '../state/rates.ts'
import { arcOf, labelledRanks, onCircle, radius } from './place.ts'
import { linkWords, useWords } from './ring-words.ts'

interface EdgeProps {
  edge: RingEdge
  size: number
  nodeRadius: number
  use: LinkUse | undefined
  isCut: boolean
  isOwn: boolean
}

/** An arc of the circle between two ranks, with its arrow, and what it carries: beside it where there is room, else for who points at it. */
export function Edge({
  edge: { from, to, kind },
  size,
  nodeRadius: small,
  use,
  isCut,
  isOwn,
}: EdgeProps) {
  const { begin, end } = arcOf(from, size, small)
  const a = onCircle(begin, radius)
  const b = onCircle(end, radius)
  const label = onCircle((begin + end) / 2, radius + 12)
  // Away from the ranks: above the upper arcs, below the lower ones.
  const lift = label.y > radius / 2 ? '0.6em' : label.y < -radius / 2 ? '-1.1em' : '-0.25em'
  const anchor = Math.abs(label.x) < 12 ? 'middle' : label.x > 0 ? 'start' : 'end'
  return (
    <g class="edge" data-kind={kind} data-cut={isCut} data-own={isOwn}>
      <title>{`rank ${from} to rank ${to}: ${linkWords[kind]}${useWords(use)}`}</title>
      <path
        d={`M${a.x} ${a.y}A${radius} ${radius} 0 0 1 ${b.x} ${b.y}`}
        marker-end={isCut ? undefined : 'url(#head)'}
      />
      {size <= labelledRanks && use && Number.isFinite(use.bytesPerSec) && (
        <text x={label.x} y={label.y} text-anchor={anchor}>
          <tspan x={label.x} dy={lift}>
            {formatBytes(use.bytesPerSec)}/s
          </tspan>
          {use.chunks > 0 && (
            <tspan x={label.x} dy="1.1em">
              peak {use.chunks}
            </tspan>
          )}
        </text>
      )}
    </g>
  )
}
