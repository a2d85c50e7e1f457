import type { SampleSpan, StepSample } from '../../trainer/watch/step-sample.ts'

/**
 * How far the clocks of the ranks are apart, from what each says of the same collectives.
 *
 * A rank can know that all have begun a collective, or have got the last of it, only after each of them has begun it. So by true time
 * every rank's matched call or end comes after every rank's launch: each collective bounds the difference of two clocks from both sides. The
 * bounds of the newest samples are joined; the estimate is their middle, and half of what is between them the most that it is off.
 * source: Cristian's algorithm, with collectives in the place of requests.
 */

export interface ClockDifference {
  /** Their clock minus this tab's. */
  readonly offsetMs: number
  /** The most that `offsetMs` is off; 0 for the same clock, infinite where nothing bounds it. */
  readonly errorMs: number
}

/** Clocks drift by less than a tenth of a millisecond over this many samples. */
const maxSets = 8
/** What a browser rounds away of its clocks, and what differs between the origins of its tabs. units: ms. */
const sameClockMs = 1.5

/**
 * Of each rank's clock from `own`'s. `samples`: newest last, each by rank. `isSameClock`: a rank in the same browser, whose clock is
 * taken for the same unless the samples speak against it.
 */
export function clockDifferences(
  samples: readonly (readonly StepSample[])[],
  own: number,
  isSameClock: (rank: number) => boolean,
): ClockDifference[] {
  const newest = samples.at(-1)
  if (!newest) return []
  return newest.map((_, rank) => {
    if (rank === own) return { offsetMs: 0, errorMs: 0 }
    let low = Number.NEGATIVE_INFINITY
    let high = Number.POSITIVE_INFINITY
    for (const set of samples.slice(-maxSets)) {
      const [ours, theirs] = [set[own], set[rank]]
      if (!ours || !theirs || ours.step !== theirs.step) continue
      const moments = momentsOf(theirs)
      for (const [key, us] of momentsOf(ours)) {
        const them = moments.get(key)
        if (!them) continue
        high = Math.min(high, them.knownMs - us.launchedMs)
        low = Math.max(low, them.launchedMs - us.knownMs)
      }
    }
    if (isSameClock(rank) && low <= sameClockMs && high >= -sameClockMs)
      return { offsetMs: 0, errorMs: 0 }
    if (!(high >= low)) return { offsetMs: 0, errorMs: Number.POSITIVE_INFINITY }
    if (!Number.isFinite(high - low)) return { offsetMs: 0, errorMs: Number.POSITIVE_INFINITY }
    return { offsetMs: (low + high) / 2, errorMs: (high - low) / 2 }
  })
}

/** Of one collective on one rank, by its own clock: launched, and known to be launched everywhere. */
interface Moments {
  readonly launchedMs: number
  readonly knownMs: number
}

function momentsOf({ beganMs, spans }: StepSample): Map<string, Moments> {
  const found = new Map<string, Moments>()
  for (const span of spans) {
    if (span.kind !== 'reduceScatter' && span.kind !== 'allGather') continue
    const wait = spans.find((other) => isWaitBefore(other, span))
    found.set(`${span.kind} ${span.part}`, {
      launchedMs: beganMs + (wait ?? span).fromMs,
      knownMs: beganMs + (wait ?? span).toMs,
    })
  }
  return found
}

/** Times travel in hundredths. */
const isWaitBefore = (wait: SampleSpan, { part, fromMs }: SampleSpan): boolean =>
  wait.kind === 'wait' && wait.part === part && Math.abs(wait.toMs - fromMs) < 0.021
