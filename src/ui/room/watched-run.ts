import * as v from 'valibot'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { append, Series } from '../parts/series.ts'
import type { newRun, Run } from '../state/run.ts'
import { changesSchema, left, maxPoints, type Shown } from './watched-schema.ts'

/** From two states of a rank's run to changes, and from changes to the onlooker's run; pure. */

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
  {
    newRun,
    append,
    parseTrainConfig,
  }: RunMaking & { parseTrainConfig(input: unknown): TrainConfig },
): Run | null {
  const { success, output } = v.safeParse(changesSchema, changes)
  if (!success) return null
  const assignment = { epoch: 0, rank: 0, worldSize: 1, members: [], links: [] }
  const before = run ?? { ...newRun(0, { assignment, startedAtMs: 0 }), isWatched: true }
  const next: Record<string, unknown> = { ...before, ...output }
  try {
    if (output.config) next.config = parseTrainConfig(output.config)
  } catch {
    return null
  }
  for (const [key, series] of Object.entries(before)) {
    const points = output[key as keyof typeof output]
    if (!points || !isSeries(series)) continue
    const { xs, ys } = points as Points
    next[key] = xs.reduce((all, x, i) => append(all, x, ys[i]), series)
  }
  return next as unknown as Run
}
