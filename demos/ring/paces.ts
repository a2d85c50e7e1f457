import type { Played } from '../../src/ui/parts/use-player.ts'
import { stopsOf } from './moment.ts'
import type { Story } from './story.ts'

/** How fast the clock goes: `fit` shows a run in some seconds; else ms of the run in 1 ms. */
export const paces = [
  ['fit', 'whole run in 12 s'],
  ['1', 'real time'],
  ['0.1', '10 times slower'],
  ['0.01', '100 times slower'],
  ['0.001', '1,000 times slower'],
] as const
export type Pace = (typeof paces)[number][0]

const fitMs = 12_000

/** A run as it is played back at a pace. */
export function playedAt(story: Story | undefined, pace: Pace): Played {
  const endMs = story?.endMs || 1
  return {
    endMs,
    stops: story ? stopsOf(story) : [0],
    rate: pace === 'fit' ? endMs / fitMs : Number(pace),
  }
}
