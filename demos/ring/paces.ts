import type { Played } from '../../src/ui/parts/use-player.ts'
import { stopsOf } from './moment.ts'
import type { Step } from './steps.ts'
import type { Story } from './story.ts'

/** How fast the clock goes: `read` leaves time to read what each step does, `fit` shows a run in some seconds; else ms of the run in 1 ms. */
export const paces = [
  ['read', 'slow enough to read'],
  ['fit', 'whole run in 12 s'],
  ['1', 'real time'],
  ['0.1', '10 times slower'],
  ['0.01', '100 times slower'],
  ['0.001', '1,000 times slower'],
] as const
export type Pace = (typeof paces)[number][0]

const fitMs = 12_000

/** The first step of a half is new; those after it repeat it, and many of them share the time of some. */
const firstMs = 5000
const laterMs = 3000
const allLaterMs = 12_000

/** How long a step plays at least, so that its sentence can be read. units: ms. */
const readingMs = ({ number, of }: Step): number =>
  number === 1 ? firstMs : Math.min(laterMs, allLaterMs / (of - 1))

/** A run as it is played back at a pace. */
export function playedAt(story: Story | undefined, pace: Pace): Played {
  const endMs = story?.endMs || 1
  const fit = endMs / fitMs
  const readingRate = (ms: number): number => {
    const at = story?.steps.findIndex((step) => step.endMs > ms) ?? -1
    if (!story || at < 0) return fit
    const beganMs = story.steps[at - 1]?.endMs ?? 0
    const lengthMs = Math.min(endMs, story.steps[at].endMs) - beganMs
    return Math.min(fit, lengthMs / readingMs(story.steps[at]))
  }
  return {
    endMs,
    stops: story ? stopsOf(story) : [0],
    rateAt: pace === 'read' ? readingRate : () => (pace === 'fit' ? fit : Number(pace)),
  }
}
