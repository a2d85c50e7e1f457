import { linkKind } from '../../peer/room/topology.ts'
import { admits, isElasticOn, isWaitingForNext, ownMember } from './room-facts.ts'
import type { Run } from './run.ts'
import type { Snapshot } from './snapshot.ts'

/** Why this tab has no rank in the run that is on, and whether it gets one. */
export type Wait =
  /** It could not be linked, or failed before it trained: the server links it no more, unless the tab is loaded again. */
  | { readonly is: 'barred'; readonly text: string }
  /** The run admits nobody. */
  | { readonly is: 'closed' }
  /** It asks for other ways to the ranks than they do. */
  | { readonly is: 'apart' }
  /** It was left out, and joins again. */
  | { readonly is: 'again'; readonly text: string }
  | { readonly is: 'soon' }

/** Null for a tab that does not wait. */
export function waitOf(snapshot: Snapshot): Wait | null {
  const { run, lobby, proposed, hasRelay } = snapshot
  const own = ownMember(snapshot)
  if (!lobby || !own || own.watches || !isWaitingForNext(snapshot)) return null
  const ended = run && !run.isPast ? endOf(run) : null
  if (ended?.is === 'barred') return ended
  const ranks = lobby.members.filter(({ rank }) => rank !== null)
  // While its ranks are being linked the room does not say yet.
  const isOpen =
    lobby.state === 'assigned' ? proposed !== null && admits(proposed) : isElasticOn(snapshot)
  if (!isOpen) return { is: 'closed' }
  const kinds = ranks.map((rank) => linkKind(rank, own))
  if (kinds.includes(null) || (!hasRelay && kinds.includes('relay'))) return { is: 'apart' }
  return ended ?? { is: 'soon' }
}

/** Of this tab's part in a run that continues without it; null where that says nothing of how it waits now. */
function endOf({ end, joins }: Run): Extract<Wait, { is: 'barred' | 'again' }> | null {
  if (end?.kind !== 'failed') return null
  const { code, text, leftOut } = end
  if (leftOut) return { is: leftOut, text }
  // A rank that fails ends the run for all; a newcomer its own part alone.
  if (!joins || code === 'peer.aborted' || code === 'signal.lost') return null
  return { is: 'barred', text }
}
