import type { Asks } from '../../peer/room/messages.ts'
import type { Acts } from '../state/acts.ts'

/** Who waits for this tab to let them into its room. */
export function AskList({ asks, acts }: { asks: Asks; acts: Acts }) {
  return (
    <ul class="asks" aria-label="Waiting to be let in" aria-live="polite">
      {asks.map(({ id, name }) => (
        <li key={id}>
          {name} wants to join.
          <span class="member-buttons">
            <button type="button" class="go" onClick={() => acts.letIn(id, true)}>
              Let in
            </button>
            <button type="button" onClick={() => acts.letIn(id, false)}>
              Decline
            </button>
          </span>
        </li>
      ))}
    </ul>
  )
}
