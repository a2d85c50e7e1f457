import type { Algorithm } from '../../src/peer/algorithms/operations.ts'
import { formatCount, formatMs, formatNumber, formatSeconds } from '../../src/ui/parts/format.ts'
import { formatRanks } from '../../src/util/format-ranks.ts'
import { type Moment, nothingHeld, seenAt } from './moment.ts'
import type { DataMessage } from './recorder.ts'
import type { HeldRun, Story } from './story.ts'

export const algorithmWords: Readonly<Record<Algorithm | 'auto', string>> = {
  auto: 'automatic: by size',
  ring: 'ring',
  direct: 'direct',
  oneShot: 'one shot',
  hierarchical: 'hierarchical: machines first',
}

/** `38.1 ms`, `2.41 s`. */
export const formatTime = (ms: number): string =>
  ms === 0
    ? '0 ms'
    : ms < 0.1
      ? `${formatNumber(1000 * ms)} µs`
      : ms < 1000
        ? formatMs(ms)
        : ms < 10_000
          ? `${formatNumber(ms / 1000)} s`
          : formatSeconds(ms / 1000)

/** `8.4`, `-12.0`: as long as the inputs' one decimal, since that is what they are read by. */
export const formatElement = (value: number): string =>
  Number.isFinite(value) && Math.abs(value) < 10_000 ? value.toFixed(1) : value.toExponential(0)

export const ranksIn = (bits: number, size: number): number[] =>
  Array.from({ length: size }, (_, rank) => rank).filter((rank) => (bits >> rank) & 1)

/** Whose contributions a chunk holds. */
export function heldWords(runs: readonly HeldRun[], size: number): string {
  if (runs.length === 0) return 'empty'
  if (runs.length > 1) return 'partly arrived'
  const ranks = ranksIn(runs[0].ranks, size)
  return ranks.length === size ? `all ${size} ranks` : formatRanks(ranks)
}

function arrivalWords(story: Story, { from, to, chunk, into }: DataMessage, ms: number): string {
  const held = seenAt(story.held[to][chunk], ms) ?? nothingHeld
  const what = story.algorithm === 'oneShot' ? 'its array' : `chunk ${chunk}`
  return `${what} from rank ${from} to rank ${to}, ${into === 'sum' ? 'added' : 'copied'}: it now holds ${heldWords(held, story.settings.ranks)}`
}

/** The text of a moment for a person who does not see the drawing. */
export function momentWords(story: Story, moment: Moment): string {
  const { arrivals, underWay, phase, ms } = moment
  const more = arrivals.length > 3 ? `, and ${arrivals.length - 3} more` : ''
  const arrived = arrivals
    .slice(0, 3)
    .map((message) => arrivalWords(story, message, ms))
    .join('; ')
  const lost = underWay.filter((one) => one.is === 'lost').length
  return [
    `${formatTime(ms)}: ${phase}.`,
    arrived && `Arrived: ${arrived}${more}.`,
    underWay.length > 0 && `${formatCount(underWay.length)} in flight.`,
    lost > 0 && `${lost} lost, to be resent.`,
  ]
    .filter(Boolean)
    .join(' ')
}
