import { formatBytes } from '../../src/ui/parts/format.ts'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { ArrowHead } from '../../src/ui/ring/arrow-head.tsx'
import { LinkTable } from './counts.tsx'
import { edgesOf } from './demo.ts'
import type { Moment, UnderWay } from './moment.ts'
import type { Story } from './story.ts'

/** Up to this many ranks each link of a ring says what went over it. */
const labelledRanks = 8

/** Many ranks need the place that labels take beside few. */
const radiusOf = (size: number): number => (size > labelledRanks ? 106 : 88)

interface Point {
  readonly x: number
  readonly y: number
}

const angleOf = (rank: number, size: number): number =>
  // Two ranks lie side by side, so that the two directions are two arcs.
  (2 * Math.PI * rank) / size - (size === 2 ? Math.PI : Math.PI / 2)

const at = (angle: number, r: number): Point => ({ x: r * Math.cos(angle), y: r * Math.sin(angle) })

const nodeRadiusOf = (size: number): number => (size > 12 ? 10 : size > labelledRanks ? 12 : 16)

/** A point of the way from a rank to another: along the circle in a ring, else straight, beside what comes the other way. */
function onWay(story: Story, from: number, to: number, share: number): Point {
  const size = story.settings.ranks
  const radius = radiusOf(size)
  const gap = nodeRadiusOf(size) + (size > labelledRanks ? 6 : 8)
  if (story.algorithm === 'ring') {
    const begin = angleOf(from, size) + gap / radius
    const end = angleOf(from, size) + (2 * Math.PI) / size - gap / radius
    return at(begin + (end - begin) * share, radius)
  }
  const a = at(angleOf(from, size), radius)
  const b = at(angleOf(to, size), radius)
  const length = Math.hypot(b.x - a.x, b.y - a.y)
  const along = gap + (length - 2 * gap) * share
  const [dx, dy] = [(b.x - a.x) / length, (b.y - a.y) / length]
  const beside = size > labelledRanks ? 2.5 : 5
  return { x: a.x + dx * along - dy * beside, y: a.y + dy * along + dx * beside }
}

/** The ranks, their links, and the chunks on them. */
export function RingDrawing({ story, moment }: { story: Story; moment: Moment }) {
  const { settings, algorithm } = story
  const size = settings.ranks
  const nodeRadius = nodeRadiusOf(size)
  const isRing = algorithm === 'ring'
  const { underWay, bytes } = moment
  return (
    <Panel
      id="links"
      title={isRing ? 'Ring' : 'Ranks'}
      aside={`${size} ranks, ${settings.algorithm === 'ring' ? (size > 2 ? 'each linked to two' : 'linked to each other') : 'each linked to all'}`}
    >
      <svg
        class="ring ring-live"
        viewBox={story.machines ? '-190 -142 380 284' : '-158 -122 316 244'}
        role="img"
        aria-label={`${size} ranks; ${underWay.length} chunks in flight`}
        data-many={size > labelledRanks}
      >
        <defs>
          <ArrowHead />
        </defs>
        <Machines story={story} nodeRadius={nodeRadius} />
        {isRing
          ? Array.from({ length: size }, (_, rank) => (
              <Arc
                key={rank}
                story={story}
                from={rank}
                text={size <= labelledRanks ? formatBytes(bytes[rank][(rank + 1) % size]) : ''}
              />
            ))
          : edgesOf(settings).map(([a, b]) => <Chord key={`${a} ${b}`} a={a} b={b} size={size} />)}
        {Array.from({ length: size }, (_, rank) => {
          const { x, y } = at(angleOf(rank, size), radiusOf(size))
          return (
            <g key={rank} class="node" style={hueOf(rank)} transform={`translate(${x} ${y})`}>
              <circle r={nodeRadius} />
              <text dy="0.35em" style={{ fontSize: `${nodeRadius * 0.85}px` }}>
                {rank}
              </text>
            </g>
          )
        })}
        {underWay.map((one) => (
          <Tile key={keyOf(one)} story={story} one={one} />
        ))}
      </svg>
      <p class="legend-row quiet">
        <span class="key" data-is="sum">
          <svg viewBox="-8 -8 16 16" aria-hidden="true">
            <rect x="-6" y="-6" width="12" height="12" rx="2" />
          </svg>
          to be added
        </span>
        <span class="key" data-is="copy">
          <svg viewBox="-8 -8 16 16" aria-hidden="true">
            <circle r="6" />
          </svg>
          to be copied
        </span>
        <span class="key" data-is="lost">
          <svg viewBox="-8 -8 16 16" aria-hidden="true">
            <path d="M-5 -5L5 5M5 -5L-5 5" />
          </svg>
          lost, to be resent
        </span>
        <span>The number is the chunk's.</span>
      </p>
      <LinkTable moment={moment} />
    </Panel>
  )
}

const keyOf = ({ message: { from, to, range, sentMs } }: UnderWay) =>
  `${from} ${to} ${range.start} ${sentMs}`

function Tile({ story, one: { message, is, share } }: { story: Story; one: UnderWay }) {
  const { from, to, chunk, into } = message
  const { x, y } = onWay(story, from, to, share)
  const half = story.settings.ranks > labelledRanks ? 5.5 : 8
  return (
    <g
      class="tile"
      data-into={into}
      data-is={is}
      style={hueOf(from)}
      transform={`translate(${x} ${y})`}
    >
      {into === 'sum' ? (
        <rect class="tile-square" x={-half} y={-half} width={2 * half} height={2 * half} rx="2.5" />
      ) : (
        <circle class="tile-round" r={half + 0.5} />
      )}
      {is === 'lost' ? (
        <path
          class="cross"
          d={`M${-half} ${-half}L${half} ${half}M${half} ${-half}L${-half} ${half}`}
        />
      ) : (
        <text class="tile-name" dy="0.35em" style={{ fontSize: `${half * 1.25}px` }}>
          {story.algorithm === 'oneShot' ? '' : chunk}
        </text>
      )}
    </g>
  )
}

function Arc({ story, from, text }: { story: Story; from: number; text: string }) {
  const size = story.settings.ranks
  const to = (from + 1) % size
  const radius = radiusOf(size)
  const a = onWay(story, from, to, 0)
  const b = onWay(story, from, to, 1)
  const label = at(angleOf(from, size) + Math.PI / size, radius + 14)
  const anchor = Math.abs(label.x) < 12 ? 'middle' : label.x > 0 ? 'start' : 'end'
  return (
    <g class="edge">
      <path d={`M${a.x} ${a.y}A${radius} ${radius} 0 0 1 ${b.x} ${b.y}`} marker-end="url(#head)" />
      {text && (
        <text x={label.x} y={label.y} dy="0.35em" text-anchor={anchor}>
          {text}
        </text>
      )}
    </g>
  )
}

function Chord({ a, b, size }: { a: number; b: number; size: number }) {
  const radius = radiusOf(size)
  const p = at(angleOf(a, size), radius)
  const q = at(angleOf(b, size), radius)
  return <line class="chord" x1={p.x} y1={p.y} x2={q.x} y2={q.y} />
}

/** A band behind the ranks of each machine. */
function Machines({
  story: { machines, settings },
  nodeRadius,
}: {
  story: Story
  nodeRadius: number
}) {
  if (!machines) return null
  const size = settings.ranks
  const radius = radiusOf(size)
  return (
    <>
      {[...new Set(machines)].map((machine) => {
        const first = machines.indexOf(machine)
        const last = machines.lastIndexOf(machine)
        const a = at(angleOf(first, size) - 0.01, radius)
        const b = at(angleOf(last, size) + 0.01, radius)
        const isWide = (last - first) / size > 0.5
        const label = at(angleOf((first + last) / 2, size), radius + nodeRadius + 13)
        const anchor = Math.abs(label.x) < 30 ? 'middle' : label.x > 0 ? 'start' : 'end'
        return (
          <g key={machine}>
            <path
              class="machine-band"
              d={`M${a.x} ${a.y}A${radius} ${radius} 0 ${isWide ? 1 : 0} 1 ${b.x} ${b.y}`}
              style={{ strokeWidth: `${2 * nodeRadius + 12}px` }}
            />
            <text class="machine-name" x={label.x} y={label.y} dy="0.35em" text-anchor={anchor}>
              machine {machine}
            </text>
          </g>
        )
      })}
    </>
  )
}
