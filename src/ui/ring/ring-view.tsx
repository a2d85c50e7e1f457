import { clipped } from '../../util/clipped.ts'
import { linkUse, ratesOfLinks } from '../live/links.ts'
import { formatBytes, formatMany } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { huesOf, initialsOf } from '../state/hues.ts'
import { chordsOf, type RingEdge, ringOf } from '../state/rates.ts'
import { isWaitingForNext } from '../state/room-facts.ts'
import type { Run } from '../state/run.ts'
import { advances, goneRanks, unreachedRanks } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { ArrowHead } from './arrow-head.tsx'
import { Edge } from './edge.tsx'
import { arcOf, circleOf, labelledRanks, onChord, place, viewBox } from './place.ts'
import { note, rateWords, words } from './ring-words.ts'

/** The run's ranks, those of a run that trains without this tab, or who would be one if it started now. */
function ringMembers(snapshot: Snapshot): Run['members'] {
  const { run, lobby } = snapshot
  if (isWaitingForNext(snapshot)) {
    const ranked = lobby!.members.filter(({ rank }) => rank !== null)
    return ranked.sort((a, b) => a.rank! - b.rank!)
  }
  return run?.members ?? lobby?.members ?? []
}

/** More lines than those of four ranks have no room for numbers beside them; the table has them all. */
const labelledChords = 2

interface RingViewProps {
  readonly snapshot: Snapshot
  /** For a view of people: each rank with its name and colour, links without figures, no panel around it. */
  readonly isOfPeople?: boolean
}

/** Ranks in the ring's order, and the links that there are: those of the ring as arcs with arrows, the others as lines between. */
export function RingView({ snapshot, isOfPeople = false }: RingViewProps) {
  const { run } = snapshot
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
  const own =
    ownRun && !ownRun.isWatched ? ownRun.rank : members.findIndex(({ id }) => id === snapshot.ownId)
  const gone = new Set(goneRanks(snapshot))
  const unreached = unreachedRanks(snapshot)
  const isCut = (from: number, to: number) =>
    gone.has(from) ||
    gone.has(to) ||
    (from === own && unreached.includes(to)) ||
    (to === own && unreached.includes(from))
  const uses = run && advances(run) ? linkUse(run) : []
  const rates = uses.length > 2 ? ratesOfLinks(run!) : []
  const isMoving = uses.some(({ bytesPerSec }) => Number.isFinite(bytesPerSec))
  // Beyond some ranks there is no room beside the links: what they carry together is shown in the middle.
  const { part: moving } = useLoaded(
    'the links of a run',
    () => import('./moving.ts'),
    // Before it is needed: the server may be gone by then.
    run !== null && size > 1,
  )
  const rateText = isMoving ? rateWords(uses) : ''
  const kinds = new Set([...edges, ...chords].map(({ kind }) => kind))
  const small = circleOf(size)
  const hueOf = huesOf(snapshot)
  const hues = members.map((member) => ({ '--hue': hueOf(member) }))
  const picture =
    size === 0 ? (
      <p class="quiet">No ranks yet.</p>
    ) : (
      <div class="ring-holder" data-of={isOfPeople ? 'people' : 'links'}>
        <svg
          class="ring"
          viewBox={size === 1 ? '-150 -40 300 80' : viewBox}
          role="img"
          aria-label={words(size, own, rateText)}
          data-preview={isPreview}
        >
          <defs>
            <ArrowHead />
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
              use={isOfPeople ? undefined : uses[edge.from]}
              isCut={isCut(edge.from, edge.to)}
              isOwn={edge.from === own}
            />
          ))}
          {!isOfPeople &&
            chords.length <= labelledChords &&
            chords
              .flatMap(({ from, to }) => [[from, to] as const, [to, from] as const])
              .map(([from, to]) => {
                const rate = rates[from]?.[to] ?? Number.NaN
                if (!Number.isFinite(rate)) return null
                const { x, y } = onChord(from, to, size, 0.31)
                return (
                  <text key={`${from} ${to}`} class="chord-rate" x={x} y={y} dy="0.35em">
                    <title>{`rank ${from} to rank ${to}`}</title>
                    {formatBytes(rate)}/s
                  </text>
                )
              })}
          {members.map((member, rank) => {
            const { x, y } = place(rank, size)
            const isGone = gone.has(rank)
            return (
              <g
                key={member.id}
                class="node"
                data-own={rank === own}
                data-gone={isGone}
                style={hues[rank]}
                transform={`translate(${x} ${y})`}
              >
                <title>{`rank ${rank}: ${member.name}${isGone ? ' (gone)' : ''}`}</title>
                <circle r={small} />
                <text dy="0.35em" style={{ fontSize: `${small * 0.85}px` }}>
                  {isGone ? '✕' : isOfPeople ? initialsOf(member.name) : rank}
                </text>
                {isOfPeople && size <= labelledRanks && (
                  <text class="name" x={size > 2 ? x / 4 : 0} y={small} dy="1.15em">
                    {clipped(member.name, maxLetters)}
                  </text>
                )}
              </g>
            )
          })}
          {!isOfPeople && size > labelledRanks && (
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
        {moving &&
          size <= labelledRanks &&
          edges.map(({ from, to }) => {
            const use = uses[from]
            return (
              use?.chunks > 0 &&
              !isCut(from, to) && (
                <div key={from} class="hued" style={hues[from]}>
                  <moving.Chunks {...arcOf(from, size, small)} use={use} />
                </div>
              )
            )
          })}
      </div>
    )
  if (isOfPeople) return picture
  return (
    <Panel
      id="ring"
      title="Links"
      aside={size > 1 ? `${formatMany(size, 'rank')}${extra}` : ''}
      folds={run ? undefined : { words: 'Who will be linked with whom' }}
    >
      {picture}
      <p class="quiet">{note(size, kinds, isMoving, run?.config?.strategy === 'alone')}</p>
      {moving && isMoving && rates.length > 0 && <moving.LinkTable rates={rates} />}
    </Panel>
  )
}

/** Max number of letters of a name beside its rank. */
const maxLetters = 12

interface ChordGroup {
  readonly kind: RingEdge['kind']
  readonly isOwn: boolean
  readonly isCut: boolean
  readonly links: RingEdge[]
}

/** Links of one style are one path: there may be a hundred. This tab's come last, on top. */
function chordGroups(
  chords: readonly RingEdge[],
  own: number,
  isCut: (from: number, to: number) => boolean,
): ChordGroup[] {
  const groups = new Map<string, ChordGroup>()
  for (const link of chords) {
    const { from, to, kind } = link
    const style = { kind, isOwn: from === own || to === own, isCut: isCut(from, to) }
    const key = JSON.stringify(style)
    const group = groups.get(key) ?? { ...style, links: [] }
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
