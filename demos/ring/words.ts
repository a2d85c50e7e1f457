import type { Algorithm } from '../../src/peer/algorithms/operations.ts'
import {
  capitalized,
  formatCount,
  formatMs,
  formatNumber,
  formatSeconds,
} from '../../src/ui/parts/format.ts'
import { formatRanks } from '../../src/util/format-ranks.ts'
import { type Moment, nothingHeld, seenAt } from './moment.ts'
import type { DataMessage } from './recorder.ts'
import type { Step } from './steps.ts'
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

/** What the ranks do, by algorithm: while sums grow, and while finished chunks spread. */
const deeds: Readonly<Record<Algorithm, readonly [sum: string, copy?: string]>> = {
  ring: [
    'Sums grow: each rank sends a chunk to the next rank, which adds its own numbers to it',
    'Sums spread: each rank sends a finished chunk to the next rank, which copies it',
  ],
  direct: [
    'Sums grow: each rank adds up one chunk, which all others send it',
    'Sums spread: each rank sends its finished chunk to all others, which copy it',
  ],
  oneShot: ['Each rank sends its whole array to all others, which add it up'],
  hierarchical: [
    'Sums grow: each chunk goes to the rank that adds it up',
    'Sums spread: finished chunks go to ranks that lack them, which copy them',
  ],
}

/** Sends of a step that are named; the others are counted. */
const named = 4

/** Whether messages of a step stay inside machines; empty where ranks are on their own, or some do and some do not. */
function whereWords({ machines }: Story, { messages }: Step): string {
  if (!machines) return ''
  const crossing = messages.filter(({ from, to }) => machines[from] !== machines[to]).length
  if (crossing === 0) return ', inside the machines'
  return crossing === messages.length ? ', between the machines' : ''
}

/** What the ranks do in a step, and who sends which chunk to whom. */
function stepWords(story: Story, step: Step): string {
  const sends = new Map(
    step.messages.map(({ from, to, chunk }) => {
      const what = story.algorithm === 'oneShot' ? 'its array' : `chunk ${chunk}`
      return [`${from} ${to} ${chunk}`, { from, to, what }]
    }),
  )
  const all = [...sends.values()].sort((a, b) => a.from - b.from || a.to - b.to)
  const words = all
    .slice(0, named)
    .map(({ from, to, what }) => `rank ${from} sends ${what} to rank ${to}`)
  if (all.length > named) words.push(`and ${formatCount(all.length - named)} more`)
  const deed = deeds[story.algorithm][step.into === 'sum' ? 0 : 1]
  return `${deed}${whereWords(story, step)}. ${capitalized(words.join(', '))}.`
}

/** What happens at a moment, in a sentence that stays the same throughout a step. */
export function deedWords(story: Story, { step }: Moment): string {
  if (step) return stepWords(story, step)
  if (story.failure) return 'The run failed: the result below has the reason.'
  const { ranks } = story.settings
  return `All chunks have arrived: each rank holds the sum of ${ranks === 2 ? 'both' : `all ${ranks}`} arrays.`
}

/** What arrived last, and what is on its way. */
export function momentWords(story: Story, moment: Moment): string {
  const { arrivals, underWay, ms } = moment
  const more = arrivals.length > 3 ? `, and ${arrivals.length - 3} more` : ''
  const arrived = arrivals
    .slice(0, 3)
    .map((message) => arrivalWords(story, message, ms))
    .join('; ')
  const flying = underWay.length > 0 ? `${formatCount(underWay.length)} in flight.` : ''
  return [arrived && `Arrived: ${arrived}${more}.`, flying, lossWords(moment)]
    .filter(Boolean)
    .join(' ')
}

/** Empty where nothing is lost. */
export function lossWords({ underWay }: Moment): string {
  const lost = underWay.filter((one) => one.is === 'lost').length
  return lost > 0 ? `${formatCount(lost)} lost, to be resent: the next rank waits.` : ''
}
