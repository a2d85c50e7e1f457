import { last } from '../parts/series.ts'
import type { Mark, Run } from './run.ts'

/** Where the run is now. */
export function markOf(run: Run, atMs: number): Mark {
  const { step, samples, pausedMs, testedMs } = run
  const globalSamples = last(run.globalSamples) || 0
  return { atMs: atMs - pausedMs - testedMs, step, samples, globalSamples }
}

/** Marks are at least this far apart, so a second of fast steps does not fill the list. units: ms. */
const markEveryMs = 100
/** Rates are means over about this time. units: ms. */
const rateWindowMs = 3000

/** The marks with one more, without those that rates need no more. */
export function addMark(recent: readonly Mark[], mark: Mark): readonly Mark[] {
  const newest = recent.at(-1)
  const before = recent.at(-2)
  // The newest mark is always the present; it stays as history only when the one before it is old enough.
  const kept =
    newest && before && newest.atMs - before.atMs < markEveryMs ? recent.slice(0, -1) : recent
  const begin = kept.findIndex(({ atMs }) => mark.atMs - atMs <= rateWindowMs)
  // Steps longer than the window still need one mark to differ from.
  return [...kept.slice(begin < 0 ? -1 : begin), mark]
}
