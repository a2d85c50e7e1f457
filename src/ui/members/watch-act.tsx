import type { Acts } from '../state/acts.ts'
import { isElasticOn, isMaker, isWatching, ownMember } from '../state/room-facts.ts'
import { isRunning } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** Takes no rank, for a guest, or one again; or says why it can take none. */
export function WatchAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { noDevice, serverLost, isMoving } = snapshot
  if (noDevice !== null)
    return <p class="quiet">This tab can compute nothing, so it watches: {noDevice}</p>
  const watches = isWatching(snapshot)
  // A run that is not elastic would end without this tab.
  const isHeld = isRunning(snapshot) && !isElasticOn(snapshot)
  if (!ownMember(snapshot) || (!watches && (isMaker(snapshot) || isHeld))) return null
  return (
    <button
      type="button"
      disabled={serverLost !== null || isMoving}
      onClick={() => acts.watch(!watches)}
      title={watches ? 'This tab gets a rank' : 'This tab gets no rank, and sees what all see'}
    >
      {watches ? 'Take part' : 'Watch only'}
    </button>
  )
}
