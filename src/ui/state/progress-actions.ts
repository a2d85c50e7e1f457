import type { Lobby } from '../../peer/room/messages.ts'
import { isRunning } from './run-facts.ts'
import type { Action, Snapshot } from './snapshot.ts'

/** Returns whether an action is progress of a run and nothing else: steps, tests between them, which may be as many, and measurements of members. */
export function isProgressOnly(action: Action, before: Snapshot): boolean {
  if (action.type === 'lobby')
    return (
      isRunning(before) && before.lobby !== null && isSameButMeasures(before.lobby, action.lobby)
    )
  if (action.type !== 'event') return false
  const { event } = action
  if (event.event === 'phase') return event.phase === 'evaluate'
  return event.event === 'step' || event.event === 'evaluation' || event.event === 'samples'
}

const isSameButMeasures = (a: Lobby, b: Lobby): boolean => withoutMeasures(a) === withoutMeasures(b)

const withoutMeasures = (lobby: Lobby): string =>
  JSON.stringify(lobby, (key, value) => (key === 'measured' ? undefined : value))
