import type { append, Series } from '../parts/series.ts'
import type { newRun, Run } from '../state/run.ts'

/** What an onlooker gets of a run: pure, from two states of a rank's run to that of the onlooker's. */

/** Points of each curve in one message: of the whole run, and of what has come since the message before. */
const maxPoints = { whole: 400, since: 8 } as const

/** What is of the rank's tab alone, or more than a picture needs. */
const left = [
  'logged',
  'sampledSteps',
  'download',
  'saving',
  'saved',
  'slot',
  'isWatched',
] as const satisfies readonly (keyof Run)[]
type Shown = Omit<Run, (typeof left)[number]>

interface Points {
  readonly xs: readonly number[]
  readonly ys: readonly number[]
}

/** Fields that have changed; of a curve the points that have come. */
export type RunChanges = {
  readonly [Key in keyof Shown]?: Shown[Key] extends Series ? Points : Shown[Key]
}

const isSeries = (value: unknown): value is Series =>
  typeof value === 'object' && value !== null && 'xs' in value && 'ys' in value

/** `before`: null for an onlooker that has nothing of it. */
export function changesOf(before: Run | null, run: Run): RunChanges {
  const changed = Object.entries(run).flatMap(([key, value]): [string, unknown][] => {
    if ((left as readonly string[]).includes(key)) return []
    const old = before?.[key as keyof Run]
    if (value === old) return []
    if (isSeries(value)) return [[key, pointsSince(isSeries(old) ? old.length : 0, value)]]
    // Rates are differences of the first and the last one.
    if (key === 'recent')
      return [[key, [...run.recent.slice(0, 1), ...run.recent.slice(1).slice(-1)]]]
    return [[key, value]]
  })
  return Object.fromEntries(changed)
}

function pointsSince(from: number, { xs, ys, length }: Series): Points {
  const count = length - from
  const every = Math.ceil(count / (from === 0 ? maxPoints.whole : maxPoints.since))
  const at: number[] = []
  for (let i = length - 1; i >= from; i -= every) at.unshift(i)
  // A curve has its beginning.
  if (from === 0 && at[0] > 0) at.unshift(0)
  return { xs: at.map((i) => xs[i]), ys: at.map((i) => Number(ys[i].toPrecision(7))) }
}

/** Makes runs and their curves. */
export interface RunMaking {
  readonly newRun: typeof newRun
  readonly append: typeof append
}

/** The onlooker's run with `changes`; null for changes that no page of this version sends. */
export function withChanges(
  run: Run | null,
  changes: unknown,
  { newRun, append }: RunMaking,
): Run | null {
  const assignment = { epoch: 0, rank: 0, worldSize: 1, members: [], links: [] }
  const nothing = newRun(0, { assignment, startedAtMs: 0 })
  const next: Record<string, unknown> = { ...(run ?? { ...nothing, isWatched: true }) }
  for (const [key, value] of Object.entries(Object(changes))) {
    if (!Object.hasOwn(nothing, key) || (left as readonly string[]).includes(key)) return null
    const known = nothing[key as keyof Run]
    if (isSeries(known)) {
      const { xs, ys } = Object(value) as Points
      if (!Array.isArray(xs) || !Array.isArray(ys) || xs.length !== ys.length) return null
      let series = next[key] as Series
      for (const [i, x] of xs.entries()) series = append(series, Number(x), Number(ys[i]))
      next[key] = series
    } else if (known !== null && (typeof value !== typeof known || value === null)) return null
    else next[key] = value
  }
  return next as unknown as Run
}
