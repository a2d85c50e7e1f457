import type { Place } from './plan.ts'
import type { Prepared } from './prepare.ts'

/** Dispatches [start, end) of forward and backward that go to the device together; the part's bucket is complete behind them. */
export interface BackwardPart {
  readonly start: number
  readonly end: number
}

/** Forward and backward, cut where a bucket is complete. */
export function backwardParts({ updates, computeEnd }: Prepared): BackwardPart[] {
  let start = 0
  return updates.map(({ gradientsEnd }, index) => {
    const end = index === updates.length - 1 ? computeEnd : gradientsEnd
    const part = { start, end }
    start = end
    return part
  })
}

/**
 * By bucket, the last part of backward that must come before its update on the device: nothing behind it touches what the update does.
 *
 * That is the bucket's own part, or a later one that still reads its parameters (a gradient by the layer's input). An update with its own
 * intermediates comes behind all parts: their memory is planned for that order.
 */
export function lastPartsOf(prepared: Prepared): number[] {
  const { updates, plan } = prepared
  const parts = backwardParts(prepared)
  const poolOf = new Map(
    updates.flatMap(({ update: { bucket } }) =>
      bucket.parameters.map((parameter) => [parameter as object, bucket.parameterPool] as const),
    ),
  )
  /** Equal for places that may overlap. */
  const homeOf = (place: Place): object | string => {
    switch (place.kind) {
      case 'pool':
        return place.pool
      case 'stored':
        return poolOf.get(place.tensor) ?? place.tensor
      case 'input':
        return `input ${place.name}`
      case 'output':
        return `output ${place.index}`
      case 'shared':
      case 'scalars':
        return place.kind
    }
  }
  const homesOf = ({ start, end }: BackwardPart) =>
    new Set(
      plan.dispatches
        .slice(start, end)
        .flatMap(({ bindings }) => bindings.map(({ place }) => homeOf(place))),
    )
  const touched = parts.map(homesOf)
  return updates.map((update, index) => {
    const own = homesOf(update)
    const { parameterPool, gradientPool } = update.update.bucket
    own.add(parameterPool).add(gradientPool)
    // No dispatch writes them.
    own.delete('scalars')
    if (own.has('shared')) return parts.length - 1
    const last = touched.findLastIndex((homes) => [...own].some((home) => homes.has(home)))
    return Math.max(index, last)
  })
}
