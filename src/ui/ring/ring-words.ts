import { meshLimit } from '../../peer/room/edges.ts'
import type { LinkUse } from '../live/links.ts'
import { capitalized, formatBytes } from '../parts/format.ts'
import type { RingEdge } from '../state/rates.ts'
import { labelledRanks } from './place.ts'

/** What the drawing of the links says in words. */

export const linkWords = {
  port: 'MessagePort',
  webrtc: 'WebRTC',
  relay: 'through the server',
  either: 'WebRTC, else through the server',
} as const

const noteWords = {
  port: ['MessagePorts in one browser', 'dashed'],
  webrtc: ['WebRTC data channels', 'solid'],
  relay: ['through the server, end-to-end encrypted', 'dotted'],
  either: ['WebRTC, else through the server', 'pale'],
} as const

export const useWords = (use: LinkUse | undefined): string =>
  use && Number.isFinite(use.bytesPerSec)
    ? `, ${formatBytes(use.bytesPerSec)}/s${use.chunks > 0 ? `, at most ${use.chunks} chunks in flight, ${Math.round(100 * use.fill)} % of its window` : ''}`
    : ''

/** From the slowest link to the fastest. */
export function rateWords(uses: readonly LinkUse[]): string {
  const rates = uses.map(({ bytesPerSec }) => bytesPerSec).filter(Number.isFinite)
  const [low, high] = [Math.min(...rates), Math.max(...rates)].map((rate) => formatBytes(rate))
  return low === high ? `${low}/s` : `${low}/s to ${high}/s`
}

export function words(size: number, own: number, rate: string): string {
  const ring =
    size === 1
      ? 'One rank, no links'
      : size <= meshLimit
        ? `${size} ranks, each linked to all others, in ring order`
        : `A ring of ${size} ranks, with further links across it`
  const you = own >= 0 ? `, this tab is rank ${own}` : ''
  return `${ring}${you}${rate ? `, ${rate} on each link of the ring` : ''}`
}

export function note(
  size: number,
  kinds: ReadonlySet<RingEdge['kind']>,
  isMoving: boolean,
  isApart: boolean,
): string {
  if (size === 0) return ''
  if (size === 1) return 'One rank: nothing is sent.'
  const used = (Object.keys(noteWords) as RingEdge['kind'][]).filter((kind) => kinds.has(kind))
  const parts = used.map((kind) => {
    const [what, line] = noteWords[kind]
    return used.length > 1 ? `${line}: ${what}` : what
  })
  const text = parts.join('; ')
  const how = `${capitalized(text)}.`
  const all =
    size <= 3
      ? ''
      : size <= meshLimit
        ? ' All ranks are linked to each other. The arcs are the ring, which large arrays normally take; small ones go directly to all ranks.'
        : ' All data go along the ring. By further links, not drawn, ranks agree who trains on.'
  if (isMoving && isApart)
    return `${how} The exchange is off: ranks send no gradients, only short reports, at the rates shown.`
  if (!isMoving) return `${how}${all}`
  const measured =
    size > labelledRanks
      ? ' In the middle: its slowest and its fastest link. Point at a link for its rate, or see the table.'
      : ' At each link of the ring: bytes/s and the peak number of chunks in flight, counted by the sender about every second. Each dot is a chunk; dots move faster where more bytes go.'
  return `${how}${all}${measured}`
}
