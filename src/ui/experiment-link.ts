import type { TrainConfig } from '../train/config.ts'
import {
  type Draft,
  defaultDraft,
  inviteQuery,
  isOfTab,
  queryOf,
  type SettingKey,
  settings,
} from './settings.ts'
import { isMaker, type Snapshot } from './state.ts'

/** The settings that this tab shows, as texts: its form's, or for those who have none the run's. */
function shownDraft(snapshot: Snapshot): Draft {
  const { run, draft } = snapshot
  if (!run?.config || (isMaker(snapshot) && run.end)) return draft
  const texts = settings
    .filter(({ key }) => !isOfTab(key))
    .map(({ key }): [SettingKey, string] => {
      const value = run.config![key as keyof TrainConfig]
      return [key, value === undefined ? '' : String(value)]
    })
  return { ...defaultDraft, ...Object.fromEntries(texts) }
}

/**
 * The address that lets others in. Of the experiment it says which demo is on show, so that they see that one while they wait; what they
 * train is what the maker starts, whatever link they came by.
 */
export function inviteLink(snapshot: Snapshot): string {
  const { invite, draft, run, transport } = snapshot
  if (invite === '') return ''
  const demo = isMaker(snapshot) ? draft.demo : (run?.config?.demo ?? draft.demo)
  const link = new URL(invite)
  link.search = inviteQuery(transport, demo)
  return link.href
}

/** An address that opens this experiment in a room of its own. */
export function experimentLink(snapshot: Snapshot): string {
  const { origin, pathname } = new URL(snapshot.invite || location.href)
  // Checkpoints are this browser's alone.
  const draft = { ...shownDraft(snapshot), resume: '' }
  return `${origin}${pathname}${queryOf(draft)}`
}
