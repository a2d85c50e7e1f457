import { meshLimit } from '../peer/edges.ts'
import { formatBytes, formatMany } from './format.ts'
import { type LinkUse, linkUse } from './live/links.ts'
import { Panel } from './panel.tsx'
import { chordsOf, type RingEdge, ringOf } from './rates.ts'
import {
  goneRanks,
  isRunning,
  isWaitingForNext,
  type Run,
  type Snapshot,
  unreachedRanks,
} from './state.ts'

const radius = 84
const nodeRadius = 17
/** The run's ranks, those of a run that goes on without this tab, or who would be one if it started now. */
function ringMembers(snapshot: Snapshot): Run['members'] {
  const { run, lobby } = snapshot
  if (isWaitingForNext(snapshot)) {
    const ranked = lobby!.members.filter(({ rank }) => rank !== null)
    return ranked.sort((a, b) => a.rank! - b.rank!)
  }
  return run?.members ?? lobby?.members ?? []
}

/** A rank's circle: of more ranks smaller ones, so that the arcs between them are seen as far as there is room. */
function circleOf(size: number): number {
  const half = (Math.PI * radius) / size
  return size > meshLimit ? Math.max(6, half - 2) : Math.min(nodeRadius, 0.6 * half)
}

/** Beyond this many ranks the links carry no text of their own. */
const labelledRanks = 8

interface Point {
  x: number
  y: number
}

/** Ranks in the ring's order, and the links that there are: those of the ring as arcs with arrows, the others as lines between. */
export function RingView({ snapshot }: { snapshot: Snapshot }) {
  const { run } = snapshot
  const isOn = isRunning(snapshot)
  const members = ringMembers(snapshot)
  const isPreview = !run && !isWaitingForNext(snapshot)
  const size = members.length
  const extra = isWaitingForNext(snapshot)
    ? ', without this tab'
    : isPreview
      ? ', not linked yet'
      : ''
  const ownRun = isWaitingForNext(snapshot) ? null : run
  const edges = ringOf(members, snapshot.hasRelay, ownRun ?? undefined)
  const chords = chordsOf(members, snapshot.hasRelay, ownRun ?? undefined)
  const own = ownRun ? ownRun.rank : members.findIndex(({ id }) => id === snapshot.ownId)
  const gone = new Set(goneRanks(snapshot))
  const unreached = unreachedRanks(snapshot)
  const isCut = (from: number, to: number) =>
    gone.has(from) ||
    gone.has(to) ||
    (from === own && unreached.includes(to)) ||
    (to === own && unreached.includes(from))
  const uses = run && isOn && run.phase === 'train' ? linkUse(run) : []
  const isMoving = uses.some(({ bytesPerSec }) => Number.isFinite(bytesPerSec))
  // Beyond some ranks there is no room beside the links: what they carry together is told in the middle.
  const rateText = isMoving ? rateWords(uses) : ''
  const kinds = new Set([...edges, ...chords].map(({ kind }) => kind))
  const small = circleOf(size)

  return (
    <Panel id="ring" title="Links" aside={size > 1 ? `${formatMany(size, 'rank')}${extra}` : ''}>
      {size === 0 ? (
        <p class="quiet">No ranks yet.</p>
      ) : (
        <svg
          class="ring"
          viewBox={size === 1 ? '-150 -40 300 80' : '-150 -118 300 236'}
          role="img"
          aria-label={words(size, own, rateText)}
          data-preview={isPreview}
        >
          <defs>
            <marker
              id="head"
              viewBox="0 0 8 8"
              refX="6"
              refY="4"
              markerWidth="7"
              markerHeight="7"
              orient="auto"
              markerUnits="userSpaceOnUse"
            >
              {/* The attribute is for browsers without context-stroke. */}
              <path fill="#808a90" d="M0.5 0.5L7 4L0.5 7.5z" />
            </marker>
          </defs>
          {chordGroups(chords, own, isCut).map(({ kind, isOwn, isCut, links }) => (
            <path
              key={`${kind} ${isOwn} ${isCut}`}
              class="chords"
              data-kind={kind}
              data-own={isOwn}
              data-cut={isCut}
              data-links={links.length}
              d={links.map((link) => chordPath(link, size, small)).join('')}
            />
          ))}
          {edges.map((edge) => (
            <Edge
              key={edge.from}
              edge={edge}
              size={size}
              nodeRadius={small}
              use={size <= labelledRanks ? uses[edge.from] : undefined}
              isCut={isCut(edge.from, edge.to)}
              isOwn={edge.from === own}
            />
          ))}
          {members.map((member, rank) => {
            const { x, y } = place(rank, size)
            const isGone = gone.has(rank)
            return (
              <g
                key={member.id}
                class="node"
                data-own={rank === own}
                data-gone={isGone}
                transform={`translate(${x} ${y})`}
              >
                <title>{`rank ${rank}: ${member.name}${isGone ? ' (gone)' : ''}`}</title>
                <circle r={small} />
                <text dy="0.35em" style={{ fontSize: `${small * 0.85}px` }}>
                  {isGone ? '✕' : rank}
                </text>
              </g>
            )
          })}
          {size > labelledRanks && (
            <text class="centre">
              {rateText.split(' to ').map((part, i, all) => (
                <tspan
                  key={part}
                  x="0"
                  dy={i === 0 ? `${0.35 - 0.6 * (all.length - 1)}em` : '1.2em'}
                >
                  {i > 0 && 'to '}
                  {part}
                </tspan>
              ))}
            </text>
          )}
        </svg>
      )}
      <p class="quiet">{note(size, kinds, isMoving)}</p>
    </Panel>
  )
}

const linkWords = {
  port: 'MessagePort',
  webrtc: 'WebRTC',
  relay: 'through the signaling server',
  either: 'WebRTC, else through the signaling server',
} as const

const noteWords = {
  port: ['MessagePorts in one browser', 'dashed'],
  webrtc: ['WebRTC data channels', 'solid'],
  relay: ['through the signaling server, sealed end to end', 'dotted'],
  either: ['WebRTC, else through the signaling server', 'pale'],
} as const

function place(rank: number, size: number): Point {
  if (size === 1) return { x: 0, y: 0 }
  const angle = (2 * Math.PI * rank) / size - Math.PI / 2
  // Two ranks lie side by side, so that the two directions are two arcs.
  const turned = size === 2 ? angle - Math.PI / 2 : angle
  return { x: radius * Math.cos(turned), y: radius * Math.sin(turned) }
}

interface ChordGroup {
  readonly kind: RingEdge['kind']
  readonly isOwn: boolean
  readonly isCut: boolean
  readonly links: RingEdge[]
}

/** Links that look alike are one path: there may be a hundred. This tab's come last, on top. */
function chordGroups(
  chords: readonly RingEdge[],
  own: number,
  isCut: (from: number, to: number) => boolean,
): ChordGroup[] {
  const groups = new Map<string, ChordGroup>()
  for (const link of chords) {
    const { from, to, kind } = link
    const looks = { kind, isOwn: from === own || to === own, isCut: isCut(from, to) }
    const key = JSON.stringify(looks)
    const group = groups.get(key) ?? { ...looks, links: [] }
    groups.set(key, group)
    group.links.push(link)
  }
  return [...groups.values()].sort((a, b) => Number(a.isOwn) - Number(b.isOwn))
}

/** A straight line from one rank's circle to another's. */
function chordPath({ from, to }: RingEdge, size: number, small: number): string {
  const a = place(from, size)
  const b = place(to, size)
  const gap = (small + 2) / Math.hypot(b.x - a.x, b.y - a.y)
  const at = (share: number) =>
    `${(a.x + share * (b.x - a.x)).toFixed(1)} ${(a.y + share * (b.y - a.y)).toFixed(1)}`
  return `M${at(gap)}L${at(1 - gap)}`
}

interface EdgeProps {
  edge: RingEdge
  size: number
  nodeRadius: number
  use: LinkUse | undefined
  isCut: boolean
  isOwn: boolean
}

/** An arc of the circle between two ranks, with its arrow. */
function Edge({ edge: { from, to, kind }, size, nodeRadius: small, use, isCut, isOwn }: EdgeProps) {
  const gap = (small + (size > labelledRanks ? 3 : 5)) / radius
  const angleOf = (rank: number) =>
    (2 * Math.PI * rank) / size - Math.PI / 2 - (size === 2 ? Math.PI / 2 : 0)
  const begin = angleOf(from) + gap
  const end = angleOf(from) + (2 * Math.PI) / size - gap
  const at = (angle: number, r: number): Point => ({
    x: r * Math.cos(angle),
    y: r * Math.sin(angle),
  })
  const a = at(begin, radius)
  const b = at(end, radius)
  const label = at((begin + end) / 2, radius + 12)
  const anchor = Math.abs(label.x) < 12 ? 'middle' : label.x > 0 ? 'start' : 'end'
  return (
    <g class="edge" data-kind={kind} data-cut={isCut} data-own={isOwn}>
      <title>{`rank ${from} to rank ${to}: ${linkWords[kind]}${useWords(use)}`}</title>
      <path
        d={`M${a.x} ${a.y}A${radius} ${radius} 0 0 1 ${b.x} ${b.y}`}
        marker-end={isCut ? undefined : 'url(#head)'}
      />
      {use &&
        !isCut &&
        Array.from({ length: Math.min(mostDots, use.chunks || 0) }, (_, i) => {
          const dots = Math.min(mostDots, use.chunks)
          const dot = at(begin + ((i + 1) / (dots + 1)) * (end - begin), radius)
          return <circle key={i} class="chunk" cx={dot.x} cy={dot.y} r={3.2} />
        })}
      {use && Number.isFinite(use.bytesPerSec) && (
        <text x={label.x} y={label.y} text-anchor={anchor}>
          <tspan x={label.x} dy={label.y > radius / 2 ? '0.6em' : '-0.25em'}>
            {formatBytes(use.bytesPerSec)}/s
          </tspan>
          <tspan x={label.x} dy="1.1em">
            {use.chunks} {use.chunks === 1 ? 'chunk' : 'chunks'}
          </tspan>
        </text>
      )}
    </g>
  )
}

/** Links have room for so many chunks. */
const mostDots = 8

const useWords = (use: LinkUse | undefined): string =>
  use && Number.isFinite(use.bytesPerSec)
    ? `, ${formatBytes(use.bytesPerSec)}/s, at most ${use.chunks} chunks under way, ${Math.round(100 * use.fill)} % of its window`
    : ''

/** From the slowest link to the fastest. */
function rateWords(uses: readonly LinkUse[]): string {
  const rates = uses.map(({ bytesPerSec }) => bytesPerSec).filter(Number.isFinite)
  const [low, high] = [Math.min(...rates), Math.max(...rates)].map((rate) => formatBytes(rate))
  return low === high ? `${low}/s` : `${low}/s to ${high}/s`
}

function words(size: number, own: number, rate: string): string {
  const ring =
    size === 1
      ? 'One rank, no links'
      : size <= meshLimit
        ? `${size} ranks, each linked to all others, in the order of their ring`
        : `A ring of ${size} ranks, each linked to its two neighbours`
  const you = own >= 0 ? `, this tab is rank ${own}` : ''
  return `${ring}${you}${rate ? `, ${rate} on each link of the ring` : ''}`
}

function note(size: number, kinds: ReadonlySet<RingEdge['kind']>, isMoving: boolean): string {
  if (size === 0) return ''
  if (size === 1) return 'One rank alone: nothing is sent.'
  const used = (Object.keys(noteWords) as RingEdge['kind'][]).filter((kind) => kinds.has(kind))
  const parts = used.map((kind) => {
    const [what, line] = noteWords[kind]
    return used.length > 1 ? `${line}: ${what}` : what
  })
  const text = parts.join('; ')
  const how = `${text[0].toUpperCase()}${text.slice(1)}.`
  const all =
    size <= 3
      ? ''
      : size <= meshLimit
        ? ' All ranks are linked to all. The arcs are the ring, which large arrays take as a rule; small ones go straight to all.'
        : ' Each rank is linked to its two neighbours in the ring.'
  const measured = isMoving
    ? ' By each link of the ring, as the rank that sends counts it about every second: bytes/s, and the most chunks under way at once.'
    : ''
  return `${how}${all}${measured}`
}
