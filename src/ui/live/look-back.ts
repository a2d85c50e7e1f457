import type { Run } from '../state/run.ts'

/** Which of the sampled steps is shown: the newest as they come, or one that is held while a person looks at it. Pure. */

type Sets = Run['sampledSteps']
type Sampled = Pick<Run, 'id' | 'sampledSteps'>

/** The samples as they were when a person began to look; null in its place follows the newest. */
export interface Held {
  readonly runId: string
  readonly sets: Sets
  readonly at: number
}

/** What is shown now. */
export interface Shown {
  readonly sets: Sets
  readonly at: number
  readonly isHeld: boolean
}

const lastOf = (sets: Sets) => Math.max(0, sets.length - 1)

/** What is shown of `run`: a step of another run is held no longer. */
export function shownOf(held: Held | null, { id, sampledSteps }: Sampled): Shown {
  return held?.runId === id
    ? { sets: held.sets, at: held.at, isHeld: true }
    : { sets: sampledSteps, at: lastOf(sampledSteps), isHeld: false }
}

/** Somebody begins to look: what is shown stays. */
export function hold(held: Held | null, { id, sampledSteps: sets }: Sampled): Held | null {
  if (held?.runId === id) return held
  return sets.length > 0 ? { runId: id, sets, at: lastOf(sets) } : null
}

/** Nobody looks any more: an earlier step that was chosen stays, else the newest are followed again. */
export function release(held: Held | null): Held | null {
  return held && held.at < lastOf(held.sets) ? held : null
}

/** One of the shown steps is chosen; the last one stands for the newest that there is by now. */
export function choose(held: Held | null, run: Sampled, at: number): Held | null {
  const now = hold(held, run)
  if (!now || at >= lastOf(now.sets)) return hold(null, run)
  return { ...now, at: Math.max(0, at) }
}

/** How long before the newest of `sets` the shown step was, by rank `own`'s clock. units: s. */
export function secondsBack({ sets, at }: Pick<Shown, 'sets' | 'at'>, own: number): number {
  const newest = sets.at(-1)?.[own]
  const shown = sets[at]?.[own]
  return newest && shown ? (newest.beganMs - shown.beganMs) / 1000 : 0
}
