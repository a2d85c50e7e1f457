import { describeSetting } from '../settings/draft.ts'
import { settings } from '../settings/list.ts'
import type { KeptRun } from './kept-runs.ts'

/** One setting in which runs differ, and how to say it of each. */
export interface RunColumn {
  readonly key: string
  readonly label: string
  readonly textOf: (run: KeptRun) => string
}

/** The settings that are not the same in all of these runs, in the order of the form; the ranks count as one. */
export function differingColumns(runs: readonly KeptRun[]): readonly RunColumn[] {
  const columns: RunColumn[] = [
    { key: 'ranks', label: 'Ranks', textOf: ({ worldSize }) => String(worldSize) },
    ...settings
      .filter(({ key }) => key !== 'transport')
      .map((setting) => ({
        key: setting.key,
        // How many were done stands in each row.
        label: setting.key === 'steps' ? 'Steps set' : setting.label,
        textOf: ({ config }: KeptRun) => shortWords(describeSetting(setting, config)),
      })),
  ]
  return columns.filter(({ textOf }) => new Set(runs.map(textOf)).size > 1)
}

/** Cells are narrow: `mlp: 784–256–10, ReLU` is told by its first word. */
const shortWords = (text: string) => text.split(/[:,(]/)[0].trim()

// Made once: making one takes longer than all else that a row of the table says.
const timeOfDay = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })
const dayAndMonth = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' })

/** When something was: the time of a day that is today's, else the day too. */
export function timeWords(atMs: number, nowMs: number): string {
  const at = new Date(atMs)
  const time = timeOfDay.format(at)
  if (at.toDateString() === new Date(nowMs).toDateString()) return time
  return `${dayAndMonth.format(at)} ${time}`
}

/** What a run is called: the name that a person gave it, else its time and the settings that tell it from the others. */
export function nameOfRun(run: KeptRun, columns: readonly RunColumn[], nowMs: number): string {
  if (run.name) return run.name
  const differing = columns.slice(0, 3).map(({ label, textOf }) => `${label} ${textOf(run)}`)
  return [timeWords(run.startedAtMs, nowMs), ...differing].join(', ')
}
