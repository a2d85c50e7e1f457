import { median, pairRatios, spread } from './statistics.ts'

/** One result: a number of ours beside a peer's, measured in turns. */
export interface Row {
  row: string
  /** Median over the rounds; null when this side failed. */
  ours: number | null
  peer: string
  theirs: number | null
  /** Median of ours / theirs over pairs of one round; null when a side failed. */
  ratio: number | null
  adapter: string
  software: boolean
  unit: string
  /** Which way is better for `ours` and so for `ratio`. */
  better: 'lower' | 'higher'
  /** Smallest and largest ratio of a round. */
  ratioSpread?: [number, number]
  rounds?: number
  /** What `ratio` is to reach; on the software adapter. */
  goal?: number
  isReached?: boolean
  /** Why there is no number. */
  error?: string
  [extra: string]: unknown
}

/** Where the rows were measured. */
export interface Place {
  adapter: string
  software: boolean
  browser: string
  date: string
  /** Processor, cores, and how busy others kept it. */
  machine: string
}

export interface PairOptions {
  row: string
  peer: string
  unit: string
  better: Row['better']
  goal?: number
  extra?: Record<string, unknown>
}

/** A row of pairs: `ours[i]` and `theirs[i]` belong to one round; a slow peer may have been in the first rounds only. */
export function pairRow(
  { row, peer, unit, better, goal, extra }: PairOptions,
  place: Place,
  ours: readonly number[],
  theirs: readonly number[],
): Row {
  const ratios = pairRatios(ours.slice(0, theirs.length), theirs)
  const ratio = median(ratios)
  const isReached =
    goal === undefined ? undefined : better === 'lower' ? ratio <= goal : ratio >= goal
  return {
    row,
    ours: rounded(median(ours)),
    peer,
    theirs: rounded(median(theirs)),
    ratio: rounded(ratio),
    adapter: place.adapter,
    software: place.software,
    unit,
    better,
    ratioSpread: spread(ratios).map(rounded) as [number, number],
    oursSpread: spread(ours).map(rounded),
    theirsSpread: spread(theirs).map(rounded),
    rounds: ratios.length,
    ...(goal === undefined ? {} : { goal, isReached }),
    browser: place.browser,
    ...extra,
  }
}

/** A row that says why it has no ratio. `ours` is given where it was measured all the same. */
export function failedRow(
  { row, peer, unit, better, goal, extra }: PairOptions,
  place: Place,
  error: string,
  ours: readonly number[] = [],
): Row {
  return {
    row,
    ours: ours.length ? rounded(median(ours)) : null,
    peer,
    theirs: null,
    ratio: null,
    adapter: place.adapter,
    software: place.software,
    unit,
    better,
    ...(goal === undefined ? {} : { goal, isReached: false }),
    error,
    browser: place.browser,
    ...extra,
  }
}

/** Four significant digits. */
export const rounded = (value: number): number => Number(value.toPrecision(4))
