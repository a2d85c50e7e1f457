import type { SavedState } from '../../data/saved-tree.ts'
import { Module } from '../../nn/module.ts'
import { ownOf } from '../../util/own-of.ts'
import { RingExchange } from './ring-exchange.ts'
import type { OrderOfSums } from './ring-settings.ts'

/** How a wrapped model's ranks sum, as far as it decides bits. */
interface SumConditions extends OrderOfSums {
  readonly bucketCapMb: number
  readonly firstBucketMb: number
}

/** Conditions that a saved run's bits depend on, besides its parts, its adapters and the samples it sees. */
export interface RunConditions {
  readonly worldSize: number
  /** By part: wrapped models. */
  readonly models: Readonly<Record<string, SumConditions>>
}

type Named = Readonly<Record<string, unknown>>

/** By part: how the ranks of a wrapped model meet. */
const exchangesOf = (parts: Named): [name: string, exchange: RingExchange][] =>
  Object.entries(parts).flatMap(([name, part]): [string, RingExchange][] => {
    if (!(part instanceof Module)) return []
    const exchange = part.parameters().find((parameter) => parameter.exchange)?.exchange
    return exchange instanceof RingExchange ? [[name, exchange]] : []
  })

const worldSizeOf = (parts: Named): number =>
  Math.max(1, ...exchangesOf(parts).map(([, exchange]) => exchange.size))

const mb = (bytes: number): number => bytes / 2 ** 20

const conditionsOf = ({ settings }: RingExchange): SumConditions => ({
  bucketCapMb: mb(settings.bucketCapBytes),
  firstBucketMb: mb(settings.firstCap),
  ...settings.orderOfSums,
})

/** Names of a size, a number of bytes and an order, by what they decide. */
const inWords = ({
  bucketCapMb,
  firstBucketMb,
  hierarchicalMaxBytes,
  machines,
}: SumConditions): Record<string, string | number> => ({
  bucketCapMb,
  firstBucketMb,
  sums:
    hierarchicalMaxBytes > 0
      ? `up to ${hierarchicalMaxBytes} bytes inside machines [${machines.join(', ')}] first`
      : 'over all ranks',
})

/** Reads the conditions that the run's bits depend on, to be saved with its parts. Call it when the models' ranks have settled (`ready`). */
export const readConditions = (parts: Named): SavedState & RunConditions => ({
  worldSize: worldSizeOf(parts),
  models: Object.fromEntries(
    exchangesOf(parts).map(([name, exchange]) => [name, { ...conditionsOf(exchange) }]),
  ),
})

/**
 * Makes the models' ranks sum as those of the saved run did, where nothing else was asked for, and returns what still differs.
 *
 * Sizes of buckets and an order of sums that were measured give way to the saved ones, as long as no step has been compiled with them.
 */
export function takeConditions(saved: RunConditions, parts: Named): string[] {
  if (!Object.values(parts).some((part) => part instanceof Module)) return []
  const worldSize = worldSizeOf(parts)
  if (saved.worldSize !== worldSize) return [`ranks ${saved.worldSize}, now ${worldSize}`]
  return exchangesOf(parts).flatMap(([name, exchange]) => {
    const before = ownOf(saved.models, name)
    if (!before || exchange.size === 1) return []
    if (!exchange.compiling.hasBegun) {
      const { settings } = exchange
      if (!settings.isCapGiven) {
        settings.capBytes = before.bucketCapMb * 2 ** 20
        settings.firstCapBytes ??= before.firstBucketMb * 2 ** 20
      }
      if (!settings.isChoiceGiven) settings.sumInOrder(before)
    }
    const now = inWords(conditionsOf(exchange))
    return Object.entries(inWords(before)).flatMap(([what, saved]) =>
      now[what] === saved ? [] : [`${what} of ${name} ${saved}, now ${now[what]}`],
    )
  })
}
