import { hueName } from '../parts/hue.ts'

/**
 * How the lines of several runs look: by colour and by dashes, so that nobody needs colours to distinguish them.
 *
 * Colours are those of `parts/hue.ts`.
 */
export interface RunLook {
  readonly colour: string
  /** Lengths of dashes and gaps in CSS pixels; empty for a solid line. */
  readonly dash: readonly number[]
}

const dashes: readonly (readonly number[])[] = [
  [],
  [8, 4],
  [2, 3],
  [10, 3, 2, 3],
  [16, 4],
  [6, 2, 2, 2, 2, 2],
]

/** Number of pairs after which 8 colours and 6 dashes, each in turn, begin again. */
const round = 24

/** Each of the first 48 is another pair of colour and dashes; the first six differ in both. */
export const lookOf = (slot: number): RunLook => ({
  colour: hueName(slot),
  dash: dashes[(slot + Math.floor(slot / round)) % dashes.length],
})
