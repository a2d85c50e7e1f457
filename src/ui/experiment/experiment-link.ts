import { defaultDraftOf, draftOf } from '../settings/draft.ts'
import type { Draft } from '../settings/list.ts'
import { inviteQuery, queryOf } from '../settings/query.ts'
import { isMaker, settingsOfRoom } from '../state/room-facts.ts'
import { outsideLinks } from '../state/server-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** The settings that this tab shows, as texts: its form's, or for those who have none the run's. */
function shownDraft(snapshot: Snapshot): Draft {
  const { experiments, run, draft } = snapshot
  const config = settingsOfRoom(snapshot)
  if (!config || (isMaker(snapshot) && (!run || run.end))) return draft
  return draftOf(config, defaultDraftOf(experiments))
}

/**
 * The address that lets others in. Of the experiment it says which demo is on show, so that they see that one while they wait; what they
 * train is what the maker starts, whatever link they came by.
 */
export function inviteLink(snapshot: Snapshot): string {
  const { experiments, invite, draft, transport, lesson } = snapshot
  if (invite === '') return ''
  const demo = isMaker(snapshot) ? draft.demo : (settingsOfRoom(snapshot)?.demo ?? draft.demo)
  const link = new URL(invite)
  link.search = inviteQuery(experiments, transport, demo, lesson)
  return link.href
}

/** An address that opens this experiment in a new room, on other machines too where the server is open to them. */
export function experimentLink(snapshot: Snapshot): string {
  const { experiments, invite, server } = snapshot
  const [outside] = invite ? outsideLinks(invite, server) : []
  const { origin, pathname } = new URL(outside ?? (invite || location.href))
  // Checkpoints are this browser's alone, and what was given is this tab's.
  const shown = shownDraft(snapshot)
  const isOwn = shown === snapshot.draft
  const draft = { ...shown, resume: '' }
  const query = queryOf(experiments, draft, isOwn ? snapshot.given : {}, snapshot.lesson)
  return `${origin}${pathname}${query}`
}
