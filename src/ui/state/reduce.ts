import type { Lobby } from '../../peer/room/messages.ts'
import { givenData } from '../../trainer/settings/config.ts'
import type { ShelvedCheckpoint } from '../../worker/api.ts'
import { whyUnsaved } from '../settings/checkpoint-words.ts'
import { defaultDraftOf, draftOf, resetDraft, withSetting } from '../settings/draft.ts'
import { nextSlot, reduceRuns } from './kept-runs.ts'
import { reduceRun } from './reduce-run.ts'
import { canStart, isMaker, isRoomOn } from './room-facts.ts'
import { newRun, type Run } from './run.ts'
import { isLeftOut, lostRanks } from './run-facts.ts'
import type { Action, Snapshot } from './snapshot.ts'

/** The snapshot after `action`. */
export function reduce(snapshot: Snapshot, action: Action): Snapshot {
  const next = withPast(withLost(reduceRest(snapshot, action)))
  const runs = reduceRuns(snapshot, next, action)
  return runs === next.runs ? next : { ...next, runs }
}

/** Keeps the ranks that ended the run with it: in the room they may be back, and others may go. */
function withLost(snapshot: Snapshot): Snapshot {
  const { run } = snapshot
  if (!run?.end || run.lost.length > 0) return snapshot
  const lost = lostRanks(snapshot)
  return lost.length > 0 ? { ...snapshot, run: { ...run, lost } } : snapshot
}

/** What an ended run says of this tab holds until the room's run has ended, too. */
function withPast(snapshot: Snapshot): Snapshot {
  const { run } = snapshot
  if (!run?.end || run.isPast || isRoomOn(snapshot)) return snapshot
  return { ...snapshot, run: { ...run, isPast: true } }
}

function reduceRest(snapshot: Snapshot, action: Action): Snapshot {
  switch (action.type) {
    case 'deviceOpened':
      return {
        ...snapshot,
        stage: 'entering',
        adapter: action.adapter,
        noDevice: action.noDevice ?? null,
      }
    case 'entered':
      // It may have been removed again while the rest of its ranks came in.
      return snapshot.stage === 'outside'
        ? snapshot
        : { ...snapshot, stage: 'inside', hasRelay: action.hasRelay }
    case 'outside':
      // The first trouble is the one shown.
      return snapshot.stage === 'outside'
        ? snapshot
        : { ...snapshot, stage: 'outside', trouble: action.trouble }
    case 'lobby':
      return withLobby(snapshot, action.lobby, action.ownId)
    case 'asking':
      return { ...snapshot, askedHost: action.host }
    case 'asks':
      return { ...snapshot, asks: action.asks }
    case 'proposed':
      return { ...snapshot, proposed: action.config }
    case 'assigned':
      return { ...snapshot, refusal: null, run: nextRun(snapshot, action) }
    case 'watched':
      return { ...snapshot, run: action.run }
    case 'server':
      return { ...snapshot, server: action.facts }
    case 'serverLost':
      return { ...snapshot, serverLost: action.text }
    case 'serverBack':
      return { ...snapshot, serverLost: null }
    case 'refused':
      return { ...snapshot, refusal: action.text }
    case 'setting': {
      const draft = withSetting(snapshot.experiments, snapshot.draft, action.key, action.value)
      return { ...snapshot, draft, refusal: null }
    }
    case 'given':
      return {
        ...snapshot,
        given: { ...snapshot.given, [action.demo]: action.text },
        givenSamples: { ...snapshot.givenSamples, [action.demo]: action.samples },
        damagedInLink: null,
      }
    case 'damagedInLink':
      return { ...snapshot, damagedInLink: action.demo }
    case 'givenBack': {
      const { [action.demo]: _, ...given } = snapshot.given
      return { ...snapshot, given }
    }
    case 'moving':
      return { ...snapshot, isMoving: action.isMoving }
    case 'moved':
      return { ...snapshot, invite: action.invite, refusal: null }
    case 'named':
      return { ...snapshot, name: action.name }
    case 'reset': {
      if (!canStart(snapshot)) return snapshot
      const { experiments, transport, ranks } = snapshot
      const draft = resetDraft(experiments, snapshot.draft, transport, ranks)
      const resets = snapshot.resets + 1
      const none = { given: {}, givenSamples: {}, damagedInLink: null }
      return { ...snapshot, ...none, draft, run: null, refusal: null, checkpointNote: null, resets }
    }
    case 'checkpoints':
      return { ...snapshot, checkpoints: action.files }
    case 'checkpointDeleted':
      return { ...snapshot, run: snapshot.run && withoutSaved(snapshot.run, action.file) }
    case 'checkpointNote':
      return { ...snapshot, checkpointNote: { text: action.text, isError: action.isError } }
    case 'runsLoaded':
    case 'runShown':
    case 'runNamed':
    case 'runDeleted':
      return snapshot
    case 'testLasts': {
      const { run } = snapshot
      // The test may have ended while this was on its way.
      if (!run || run.end || run.testingSinceMs !== action.sinceMs) return snapshot
      return { ...snapshot, run: { ...run, phase: 'evaluate' } }
    }
    case 'event':
      return withEvent(snapshot, action)
    default:
      return { ...snapshot, run: snapshot.run && reduceRun(snapshot.run, action) }
  }
}

/** A tab that was left out still waits for the same reason while it comes again. */
function nextRun(snapshot: Snapshot, action: Extract<Action, { type: 'assigned' }>): Run {
  const { run: before } = snapshot
  const run = newRun(nextSlot(snapshot), action)
  return run.joins && before && isLeftOut(before) ? { ...run, waits: before.waits } : run
}

/** The run when a checkpoint has been deleted, which may be its newest. */
function withoutSaved(run: Run, { place, name }: ShelvedCheckpoint): Run {
  const { config, saved } = run
  const isOfRun = config && place.endsWith(`${config.demo}-${config.model}`)
  return isOfRun && saved?.name === name ? { ...run, saved: null } : run
}

const failedSave = 'Saving this run failed'

/** Takes an event of a run that changes more than the run. */
function withEvent(snapshot: Snapshot, action: Extract<Action, { type: 'event' }>): Snapshot {
  const { event } = action
  const next = { ...snapshot, run: snapshot.run && reduceRun(snapshot.run, action) }
  // The next start is from the beginning again, unless a person chooses otherwise.
  if (event.event === 'resumed') return { ...next, draft: { ...next.draft, resume: '' } }
  if (event.event === 'checkpoint' && next.checkpointNote?.text.startsWith(failedSave))
    return { ...next, checkpointNote: null }
  if (event.event !== 'unsaved') return next
  const text = `${failedSave}, and will be tried again: ${whyUnsaved(event.code, event.text)}`
  return { ...next, checkpointNote: { text, isError: true } }
}

/**
 * The room as it is now. Who becomes its maker takes over what was proposed; what the maker before had been given, and its checkpoints, are
 * not here, so the demo's own data and the beginning take their place.
 */
function withLobby(snapshot: Snapshot, lobby: Lobby, ownId: string | null): Snapshot {
  const next = { ...snapshot, lobby, ownId, askedHost: null }
  if (!isMaker(next) || !snapshot.proposed) return next
  const draft = { ...draftOf(snapshot.proposed, snapshot.draft), resume: '' }
  const data =
    draft.data === givenData ? defaultDraftOf(snapshot.experiments, draft.demo).data : draft.data
  return { ...next, draft: { ...draft, data }, proposed: null }
}
