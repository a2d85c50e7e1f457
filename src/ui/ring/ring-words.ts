import { meshLimit } from '../../peer/room/edges.ts'
import type { LinkUse } from '../live/links.ts'
import { capitalized, formatBytes } from '../parts/format.ts'
import type { RingEdge } from '../state/rates.ts'
import { labelledRanks } from './place.ts'

/** What the drawing of the links says in words. */

export const linkWords = {
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

export const useWords = (use: LinkUse | undefined): string =>
  use && Number.isFinite(use.bytesPerSec)
    ? `, ${formatBytes(use.bytesPerSec)}/s${use.chunks > 0 ? `, at most ${use.chunks} chunks under way, ${Math.round(100 * use.fill)} % of its window` : ''}`
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
        ? `${size} ranks, each linked to all others, in the order of their ring`
        : `A ring of ${size} ranks, each linked to its two neighbours`
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
  if (size === 1) return 'One rank alone: nothing is sent.'
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
        ? ' All ranks are linked to all. The arcs are the ring, which large arrays take as a rule; small ones go straight to all.'
        : ' Each rank is linked to its two neighbours in the ring.'
  if (isMoving && isApart)
    return `${how} The exchange is off: no gradients travel, only short reports of each rank, at the rates shown.`
  if (!isMoving) return `${how}${all}`
  const measured =
    size > labelledRanks
      ? ' In the middle: the slowest and the fastest link of the ring; point at one for its own rate, or see the table.'
      : ' By each link of the ring, as the rank that sends counts it about every second: bytes/s, and the peak of chunks under way at once. There is a dot for each of these, as far as there is room, and dots move faster where more bytes go.'
  return `${how}${all}${measured}`
}
