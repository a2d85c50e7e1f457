import { formatMany } from '../../src/ui/parts/format.ts'
import { meta } from './meta.ts'
import { isSameTraining } from './strategies.ts'
import type { StrategyLog } from './strategy-log.ts'

/** What a comparison must show, and whether it does; undefined while its strategies train. */
export interface Verdict {
  readonly words: string
  readonly is: boolean | undefined
}

/**
 * The largest difference of two strategies' losses, step by step, relative to those of `reference`; over the steps that both have. NaN
 * for none, and where a loss is no number.
 */
export function differenceOf(losses: readonly number[], reference: readonly number[]): number {
  const count = Math.min(losses.length, reference.length)
  let largest = count > 0 ? 0 : Number.NaN
  for (let i = 0; i < count; i++)
    largest = Math.max(largest, Math.abs(losses[i] - reference[i]) / Math.abs(reference[i]))
  return largest
}

const { sameWithin, withinSteps, apartBy } = meta.expected

/** What must be seen of these strategies, each with its numbers as soon as it has ended. */
export function verdictsOf(logs: readonly StrategyLog[]): Verdict[] {
  const same = logs.filter(({ strategy }) => isSameTraining(strategy))
  const [reference, ...others] = same
  const found: Verdict[] = []
  const differing = (log: StrategyLog, steps: number): number | undefined =>
    log.end && reference?.end
      ? differenceOf(log.losses.values.slice(0, steps), reference.losses.values)
      : undefined
  for (const log of others) {
    const difference = differing(log, withinSteps)
    const steps = Math.min(withinSteps, log.config.steps!)
    const whole = log.config.steps! > withinSteps ? differing(log, log.config.steps!) : undefined
    const later = whole === undefined ? '' : `; over all steps ${inPercent(whole)}`
    found.push({
      words: `${log.strategy.words}: same losses as ${reference.strategy.words}, step by step${differenceText(difference)} over ${formatMany(steps, 'step')}; expected at most ${inPercent(sameWithin)}${later}`,
      is: difference === undefined ? undefined : difference <= sameWithin,
    })
  }
  for (const log of logs.filter(({ strategy }) => strategy.isAlone && reference)) {
    const difference = differing(log, log.config.steps!)
    found.push({
      words: `${log.strategy.words}: losses differ from those of ${reference.strategy.words}${differenceText(difference)}; expected more than ${inPercent(apartBy)}`,
      is: difference === undefined ? undefined : difference > apartBy,
    })
  }
  for (const { strategy, end } of logs) {
    if (strategy.ranks === 1 || strategy.isSimulated) continue
    const count = end && new Set(end.paramHashes).size
    const { isAlone } = strategy
    found.push({
      words: `${strategy.words}: ${isAlone ? 'each rank ends with its own parameters' : 'all ranks end with bit-identical parameters'}`,
      is: count === null ? undefined : isAlone ? count > 1 : count === 1,
    })
  }
  return found
}

const differenceText = (difference: number | undefined): string =>
  difference === undefined ? '' : `, off by at most ${inPercent(difference)}`

/** `0.00012 %`: differences are of all sizes. */
export const inPercent = (share: number): string =>
  Number.isFinite(share) ? `${plain.format(100 * share)} %` : '–'

const plain = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 })
