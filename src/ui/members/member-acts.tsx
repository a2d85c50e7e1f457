import type { LobbyMember } from '../../peer/room/messages.ts'
import type { Acts } from '../state/acts.ts'
import { canManage, isElasticOn, isRoomOn, ownMember } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

interface MemberActsProps {
  member: LobbyMember
  snapshot: Snapshot
  acts: Acts
}

/** What the maker can do with the tab of another member; for others, and for its own tab, nothing. */
export function MemberActs({ member, snapshot, acts }: MemberActsProps) {
  const own = ownMember(snapshot)
  const isOwnTab = own !== null && (member.id === own.id || (member.tab ?? own.id) === own.tab)
  if (!canManage(snapshot) || isOwnTab) return null
  const isOn = isRoomOn(snapshot)
  const endsRun = isOn && member.rank !== null && !isElasticOn(snapshot)
  return (
    <details class="member-acts">
      <summary title={`Hand the room over to ${member.name}, or remove it`}>
        <span aria-hidden="true">⋯</span>
        <span class="unseen">More about {member.name}</span>
      </summary>
      <span class="member-buttons">
        <button
          type="button"
          disabled={isOn}
          onClick={() => acts.handOver(member.id)}
          title={
            isOn
              ? 'Not during a run'
              : 'From then on it chooses the settings and starts, pauses and stops'
          }
        >
          Make host
        </button>
        <button
          type="button"
          class="stop"
          onClick={() => acts.remove(member.id)}
          title="It can rejoin with the room’s link"
        >
          {endsRun ? 'Remove and end the run' : 'Remove'}
        </button>
        <button
          type="button"
          class="stop"
          disabled={isOn}
          onClick={() => acts.removeAndLock(member.id)}
          title={
            isOn
              ? 'Not during a run: all tabs move to another room'
              : 'All others move to a room with a new link; the old link leads to the room that they left'
          }
        >
          Remove and lock
        </button>
      </span>
    </details>
  )
}
