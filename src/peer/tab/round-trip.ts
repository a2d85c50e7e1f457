import type { Env } from '../../util/env.ts'

/** Before each further look at a way that seems long. Together they outlast the connecting of 16 tabs of one machine. units: ms. */
const pausesMs = [50, 100, 200, 400, 800] as const
/** Round trips of a long way that nothing else is in are so near to each other: the longest is this much of the shortest at most. */
const steady = 1.15

/**
 * The round trip of a way between two tabs, separated from what keeps the tabs busy: one that is short enough, or as long each time, is
 * believed at once; any other is measured again after a while, since tabs that make many connections answer late.
 *
 * units: ms.
 */
export async function wayLength(
  /** Several round trips, one after the other. */
  roundTrips: () => Promise<readonly number[]>,
  isShort: (roundTripMs: number) => boolean,
  env: Pick<Env, 'after'>,
): Promise<number> {
  let shortest = Number.POSITIVE_INFINITY
  for (const pauseMs of [0, ...pausesMs]) {
    if (pauseMs > 0) await new Promise<void>((resolve) => env.after(pauseMs, resolve))
    const trips = await roundTrips()
    shortest = Math.min(shortest, ...trips)
    if (isShort(shortest)) break
    if (Math.max(...trips) <= shortest * steady) break
  }
  return shortest
}
