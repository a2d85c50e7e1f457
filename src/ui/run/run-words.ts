import type { Experiments } from '../../trainer/settings/experiments.ts'
import { timeWords } from '../parts/time-words.ts'
import { describeSetting } from '../settings/draft.ts'
import { settings } from '../settings/list.ts'
import type { KeptRun } from '../state/kept-runs.ts'

/** One setting in which runs differ, and how to say it of each. */
export interface RunColumn {
  readonly key: string
  readonly label: string
  readonly textOf: (run: KeptRun) => string
}

/** The settings that are not the same in all of these runs, in the order of the form; the ranks count as one. */
export function differingColumns(
  experiments: Experiments,
  runs: readonly KeptRun[],
): readonly RunColumn[] {
  const columns: RunColumn[] = [
    { key: 'ranks', label: 'Ranks', textOf: ({ worldSize }) => String(worldSize) },
    ...settings
      .filter(({ key }) => key !== 'transport')
      .map((setting) => ({
        key: setting.key,
        // How many were done stands in each row.
        label: setting.key === 'steps' ? 'Steps set' : setting.label,
        textOf: ({ config }: KeptRun) => shortWords(describeSetting(experiments, setting, config)),
      })),
  ]
  return columns.filter(({ textOf }) => new Set(runs.map(textOf)).size > 1)
}

/** Cells are narrow: `mlp: 784–256–10, ReLU` is known by its first word. */
const shortWords = (text: string) => text.split(/[:,(]/)[0].trim()

/** What a run is called: the name that a person gave it, else its time and the settings in which it differs from the others. */
export function nameOfRun(run: KeptRun, columns: readonly RunColumn[], nowMs: number): string {
  if (run.name) return run.name
  const differing = columns.slice(0, 3).map(({ label, textOf }) => `${label} ${textOf(run)}`)
  return [timeWords(run.startedAtMs, nowMs), ...differing].join(', ')
}
