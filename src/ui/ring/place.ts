import { meshLimit } from '../../peer/room/edges.ts'

/** Where ranks stand in the drawing. units: of its viewBox. */

export const radius = 84
/** Its middle is the ring's. */
export const viewBox = '-150 -118 300 236'
const nodeRadius = 17

/** Max number of ranks whose links have a label each. */
export const labelledRanks = 8

/** A rank's circle: of more ranks smaller ones, so that the arcs between them are seen as far as there is room. */
export function circleOf(size: number): number {
  const half = (Math.PI * radius) / size
  return size > meshLimit ? Math.max(6, half - 2) : Math.min(nodeRadius, 0.6 * half)
}

export interface Point {
  x: number
  y: number
}

export function angleOf(rank: number, size: number): number {
  const angle = (2 * Math.PI * rank) / size - Math.PI / 2
  // Two ranks lie side by side, so that the two directions are two arcs.
  return size === 2 ? angle - Math.PI / 2 : angle
}

export const onCircle = (angle: number, r: number): Point => ({
  x: r * Math.cos(angle),
  y: r * Math.sin(angle),
})

export const place = (rank: number, size: number): Point =>
  size === 1 ? { x: 0, y: 0 } : onCircle(angleOf(rank, size), radius)

/** A point of the straight line between two ranks, `share` of the way from the first. */
export function onChord(from: number, to: number, size: number, share: number): Point {
  const a = place(from, size)
  const b = place(to, size)
  return { x: a.x + share * (b.x - a.x), y: a.y + share * (b.y - a.y) }
}

/** From one rank's circle of radius `small` to that of the next. units: radians. */
export function arcOf(from: number, size: number, small: number): { begin: number; end: number } {
  const gap = (small + (size > labelledRanks ? 3 : 5)) / radius
  return {
    begin: angleOf(from, size) + gap,
    end: angleOf(from, size) + (2 * Math.PI) / size - gap,
  }
}
