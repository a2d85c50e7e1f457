import { InvalidArgumentError } from 'commander'
import { clipped } from '../src/util/clipped.ts'

/** How many ranks an elastic run may have. */
export interface RankRange {
  readonly min: number
  readonly max: number
}

/** Returns the reader of `MIN:MAX` for commander. `limit`: the most ranks of a run. */
export const rankRange =
  (limit: number) =>
  (text: string): RankRange => {
    const [min, max] = text.split(':').map(Number)
    if (/^\d+:\d+$/.test(text) && min >= 1 && min <= max && max <= limit) return { min, max }
    throw new InvalidArgumentError(
      `Expected MIN:MAX, numbers of ranks from 1 to ${limit}, got "${clipped(text)}".`,
    )
  }
