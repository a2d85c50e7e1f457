import type { Acts } from '../state/acts.ts'
import { isElasticOn, isMaker, isWatching, ownMember } from '../state/room-facts.ts'
import { isRunning } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** For a guest: takes no rank, or one again; or why it can take none. */
export function WatchAct({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { noDevice, serverLost, isMoving } = snapshot
  if (noDevice !== null)
    return <p class="quiet">This tab can compute nothing, so it watches: {noDevice}</p>
  if (!ownMember(snapshot) || isMaker(snapshot)) return null
  const watches = isWatching(snapshot)
  const isHeld = !watches && isRunning(snapshot) && !isElasticOn(snapshot)
  return (
    <button
      type="button"
      disabled={isHeld || serverLost !== null || isMoving}
      onClick={() => acts.watch(!watches)}
      title={
        isHeld
          ? 'Not during this run: it would end without this tab'
          : watches
            ? 'This tab gets a rank'
            : 'This tab gets no rank, and sees what all see'
      }
    >
      {watches ? 'Take part' : 'Watch only'}
    </button>
  )
}
