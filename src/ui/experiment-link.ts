import type { TrainConfig } from '../train/config.ts'
import { type Draft, defaultDraft, queryOf, type SettingKey, settings } from './settings.ts'
import { isMaker, type Snapshot } from './state.ts'

/** The settings that this tab shows, as texts: its form's, or for those who have none the run's. */
function shownDraft(snapshot: Snapshot): Draft {
  const { run, draft } = snapshot
  if (!run?.config || (isMaker(snapshot) && run.end)) return draft
  const texts = settings
    .filter(({ key }) => key !== 'transport')
    .map(({ key }): [SettingKey, string] => {
      const value = run.config![key as keyof TrainConfig]
      return [key, value === undefined ? '' : String(value)]
    })
  return { ...defaultDraft, ...Object.fromEntries(texts) }
}

/** An address that opens this experiment in a room of its own. */
export function experimentLink(snapshot: Snapshot): string {
  const { origin, pathname } = new URL(snapshot.invite || location.href)
  // Checkpoints are this browser's alone.
  const draft = { ...shownDraft(snapshot), resume: '' }
  return `${origin}${pathname}${queryOf(draft)}`
}
