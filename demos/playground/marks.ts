import { meta } from './meta.ts'
import { drawSplits } from './points.ts'

/** Points as the plane shows them: marks by class, hollow where they are held out, pale where another rank draws from them. */
export interface Marks {
  readonly train: PointsShown
  readonly test: PointsShown | null
  /** Training points that are this rank's own: from `start` up to `end`. */
  readonly own: { readonly start: number; readonly end: number } | null
  /** Training points that glow: this rank's part of a step. */
  readonly lit?: ArrayLike<number> | null
}

export interface PointsShown {
  readonly at: ArrayLike<number>
  readonly classes: ArrayLike<number>
}

/** Probabilities of class 1 over the plane, first row y = -1. */
export interface Field {
  readonly side: number
  readonly probabilities: Float32Array
}

/** Null for points that are no built-in shape. */
export function marksOf(data: string | undefined): Marks | null {
  return data !== undefined && Object.hasOwn(meta.data, data)
    ? { ...drawSplits(data), own: null }
    : null
}

/** What the look `points` has found. */
export function marksOfAnswer(answer: Readonly<Record<string, unknown>>): Marks {
  const { train, trainClasses, test, testClasses, start, end } = answer as unknown as Record<
    'train' | 'test',
    Float32Array
  > &
    Record<'trainClasses' | 'testClasses', Int32Array> &
    Record<'start' | 'end', number>
  return {
    train: { at: train, classes: trainClasses },
    test: { at: test, classes: testClasses },
    own: { start, end },
  }
}
