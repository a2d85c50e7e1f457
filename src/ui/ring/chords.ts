import type { RingEdge } from '../state/rates.ts'
import { place } from './place.ts'

export interface ChordGroup {
  readonly kind: RingEdge['kind']
  readonly isOwn: boolean
  readonly isCut: boolean
  readonly links: RingEdge[]
}

/** Links that look the same are one path: there may be a hundred. This tab's come last, on top. */
export function chordGroups(
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
export function chordPath({ from, to }: RingEdge, size: number, small: number): string {
  const a = place(from, size)
  const b = place(to, size)
  const gap = (small + 2) / Math.hypot(b.x - a.x, b.y - a.y)
  const at = (share: number) =>
    `${(a.x + share * (b.x - a.x)).toFixed(1)} ${(a.y + share * (b.y - a.y)).toFixed(1)}`
  return `M${at(gap)}L${at(1 - gap)}`
}
