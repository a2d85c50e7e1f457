import { recall, remember } from '../parts/tab-memory.ts'

/** The part of a lesson that this browser's person has done. */
export interface Progress {
  /** The choice that was predicted; null before. */
  readonly predicted: number | null
  /** Indices of the goals that were reached. */
  readonly reached: readonly number[]
}

const nothing: Progress = { predicted: null, reached: [] }
const keyOf = (lesson: number) => `tabring-lesson-${lesson}`

/** Returns what was kept; nothing where that cannot be read. */
export function readProgress(lesson: number): Progress {
  try {
    const kept = JSON.parse(recall(keyOf(lesson), 'localStorage'))
    if (!Number.isInteger(kept?.predicted) || !Array.isArray(kept.reached)) return nothing
    return { predicted: kept.predicted, reached: kept.reached.filter(Number.isInteger) }
  } catch {
    return nothing
  }
}

/** Keeps it beyond the tab, with the goals that other tabs reached after the same prediction, and returns both. */
export function keepProgress(lesson: number, { predicted, reached }: Progress): Progress {
  const kept = readProgress(lesson)
  const others = kept.predicted === predicted ? kept.reached : []
  const all = { predicted, reached: [...new Set([...others, ...reached])] }
  remember(keyOf(lesson), JSON.stringify(all), 'localStorage')
  return all
}

export function forgetProgress(lesson: number): Progress {
  remember(keyOf(lesson), '', 'localStorage')
  return nothing
}

export const isDone = ({ reached }: Progress, goals: number): boolean =>
  new Set(reached).size >= goals
