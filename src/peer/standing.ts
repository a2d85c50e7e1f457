import type { Run } from './entries.ts'

/** A run, and since when it stands still. */
export interface Standing {
  readonly run: Run
  readonly deadlineMs: number
  readonly stillSinceMs: number
}

/**
 * Since when runs stand still: since bytes of theirs moved last, or of those that go before them on a link that both use, as a link takes
 * one after the other. What goes behind them or elsewhere does not count. `runs`: all that are under way, in launch order.
 */
export function standingOf(runs: readonly Run[]): Standing[] {
  const all: Standing[] = []
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

/** Whether a link that both use takes bytes of `a` before those of `b`: it was launched before it, here or on the link's other side. */
export function goesBefore(a: Run, b: Run): boolean {
  const isBefore = a.launchNumber < b.launchNumber
  // All collectives of a group share its ring.
  if (isBefore && a.ring && b.ring && a.route.group === b.route.group) return true
  return a.peers.some((peer) => {
    if (!b.peers.includes(peer)) return false
    const [first, second] = [a.entry.startNumbers.get(peer), b.entry.startNumbers.get(peer)]
    return isBefore || (first !== undefined && second !== undefined && first < second)
  })
}
