import { formatBytes, formatMs } from '../../src/ui/parts/format.ts'
import { isSameTraining } from './strategies.ts'
import type { StrategyLog } from './strategy-log.ts'

/** Steps that differ by less take about as long: timings are noisy. */
const nearly = 0.05

/** What ranks compute on. */
type Devices = { readonly kind: 'shared' } | { readonly kind: 'cores'; readonly cores: number }

/**
 * A sentence for each strategy that trains as one rank does, on several: how long its steps take beside those of one rank, and by what. All of it
 * comes from times and bytes that were measured, or of simulated devices from `simulatedStep`; empty until both have ended.
 */
export function reasonsOf(logs: readonly StrategyLog[], devices: Devices): string[] {
  const ended = logs.filter(
    ({ strategy, stage, step }) =>
      stage === 'finished' && step > 1 && (strategy.isSimulated || isSameTraining(strategy)),
  )
  const one = ended.find(({ strategy }) => strategy.ranks === 1)
  if (!one) return []
  return ended.filter((log) => log !== one).map((log) => reasonOf(log, one, devices))
}

function reasonOf(log: StrategyLog, one: StrategyLog, devices: Devices): string {
  const { ranks, words } = log.strategy
  const [own, alone] = [log.cost, one.cost]
  const savedMs = alone.computedMs - own.computedMs
  const exchange = `exchanging ${formatBytes(own.bytes)} takes ${formatMs(own.exchangedMs)}`
  const computing = `${formatMs(own.computedMs)} a step, ${formatMs(alone.computedMs)} with 1 rank`
  const times = (ratio: number) => ratio.toFixed(ratio < 9.95 ? 1 : 0)
  const isFaster = own.totalMs < alone.totalMs * (1 - nearly)
  const isSlower = own.totalMs > alone.totalMs * (1 + nearly)
  if (isFaster && savedMs > own.exchangedMs)
    return `${words}: ${times(alone.totalMs / own.totalMs)} times as fast as 1 rank. Each computes less (${computing}), which saves more than the exchange costs: ${exchange}.`
  if (isSlower && savedMs <= nearly * alone.computedMs)
    return `${words}: a step takes ${times(own.totalMs / alone.totalMs)} times as long as with 1 rank. ${log.strategy.isSimulated ? 'A device takes as long for its share' : crowded(ranks, devices)}, so computing hardly gets shorter (${computing}), and ${exchange}.`
  if (isSlower)
    return `${words}: a step takes ${times(own.totalMs / alone.totalMs)} times as long as with 1 rank. Each computes less (${computing}), but that saves only ${formatMs(savedMs)}, and ${exchange}.`
  return `${words}: a step takes ${formatMs(own.totalMs)}, ${formatMs(alone.totalMs)} with 1 rank. Of that, each computes ${computing}, and ${exchange}.`
}

function crowded(ranks: number, devices: Devices): string {
  if (devices.kind === 'shared') return 'The ranks share one device'
  return devices.cores < ranks
    ? `This computer has ${devices.cores} cores for ${ranks} ranks`
    : 'Other work has the cores'
}
