/** How far this browser's person is in a lesson. */
export interface Progress {
  /** The choice that was predicted; null before. */
  readonly predicted: number | null
  /** Indices of the goals that were reached. */
  readonly reached: readonly number[]
}

const nothing: Progress = { predicted: null, reached: [] }
const keyOf = (lesson: number) => `tabring-lesson-${lesson}`

/** What was kept; nothing where that cannot be read. */
export function readProgress(lesson: number): Progress {
  try {
    const kept = JSON.parse(localStorage.getItem(keyOf(lesson)) ?? 'null')
    if (!Number.isInteger(kept?.predicted) || !Array.isArray(kept.reached)) return nothing
    return { predicted: kept.predicted, reached: kept.reached.filter(Number.isInteger) }
  } catch {
    return nothing
  }
}

/** Keeps it beyond the tab, or for null forgets it. */
export function keepProgress(lesson: number, progress: Progress | null): void {
  try {
    if (progress) localStorage.setItem(keyOf(lesson), JSON.stringify(progress))
    else localStorage.removeItem(keyOf(lesson))
  } catch {
    // A browser that blocks storage keeps it until a reload.
  }
}

export const isDone = ({ reached }: Progress, goals: number): boolean =>
  new Set(reached).size >= goals
