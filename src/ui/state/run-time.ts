import { last } from '../parts/series.ts'
import type { Run } from './run.ts'

/** How long a run has taken: tests count, pauses do not. NaN before its first step. */
export function secondsOf({ end, seconds }: Pick<Run, 'end' | 'seconds'>): number {
  const lastStep = last(seconds)
  if (end?.kind !== 'finished') return lastStep
  // The last test comes after the last step; the page's clock has steps a little later than the worker's.
  return lastStep > end.result.seconds ? lastStep : end.result.seconds
}

/** Samples of all ranks a second, from the beginning to now or to the end. */
export function meanSamplesPerSec(run: Pick<Run, 'end' | 'seconds' | 'globalSamples'>): number {
  return last(run.globalSamples) / secondsOf(run)
}
