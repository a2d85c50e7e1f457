/** The part of a launched collective that is read here: see Run. */
interface Launched {
  readonly launchedMs: number
  readonly launchNumber: number
  readonly deadlineMs: number
  readonly stillSinceMs: number
  /** Undefined for a message between two. */
  readonly ring: unknown
  readonly peers: readonly number[]
  readonly route: { readonly group: number }
  readonly entry: { readonly startNumbers: ReadonlyMap<number, number> }
}

/** A run, and since when it stands still. */
export interface Standing<Run> {
  readonly run: Run
  readonly deadlineMs: number
  readonly stillSinceMs: number
}

/**
 * Since when runs stand still: since bytes of theirs moved last, or of those that go before them on a link that both use, as a link takes
 * one after the other. What goes behind them or elsewhere does not count. `runs`: all that are under way, in launch order.
 */
export function standingOf<Run extends Launched>(runs: readonly Run[]): Standing<Run>[] {
  const all: Standing<Run>[] = []
  for (const [at, run] of runs.entries()) {
    let { stillSinceMs } = run
    for (const [other, { stillSinceMs: sinceMs }] of all.entries())
      if (sinceMs > stillSinceMs && goesBefore(runs[other]!, run)) stillSinceMs = sinceMs
    for (const later of runs.slice(at + 1))
      if (later.stillSinceMs > stillSinceMs && goesBefore(later, run))
        stillSinceMs = later.stillSinceMs
    all.push({ run, deadlineMs: run.deadlineMs, stillSinceMs })
  }
  return all
}

/**
 * Returns whether a link may take bytes of `a` before those of `b`, so that `b` waits for that.
 *
 * Between two ranks there is one link: it takes first what was launched first, here or on its other side. A collective also waits for
 * links between other ranks, which may have launched `a` first: so whatever was launched before its first deadline counts, and what comes
 * later does not, or a collective that some rank never calls would wait for ever while others are launched.
 */
export function goesBefore(a: Launched, b: Launched): boolean {
  if (b.ring) return a.launchedMs <= b.launchedMs + b.deadlineMs && sharesLink(a, b)
  return a.peers.some((peer) => {
    if (!b.peers.includes(peer)) return false
    const [first, second] = [a.entry.startNumbers.get(peer), b.entry.startNumbers.get(peer)]
    const isFirstThere = first !== undefined && second !== undefined && first < second
    return a.launchNumber < b.launchNumber || isFirstThere
  })
}

/** All collectives of a group share its ring. */
const sharesLink = (a: Launched, b: Launched): boolean =>
  (a.ring !== undefined && b.ring !== undefined && a.route.group === b.route.group) ||
  a.peers.some((peer) => b.peers.includes(peer))
