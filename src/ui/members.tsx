import { useState } from 'preact/hooks'
import type { LobbyMember } from '../peer/messages.ts'
import { adapterWords } from './adapter-words.ts'
import { formatMany } from './format.ts'
import { Panel } from './panel.tsx'
import type { Snapshot } from './state.ts'

/** Who is in the room, and how others get in. */
export function Members({ snapshot }: { snapshot: Snapshot }) {
  const { lobby, ownId, invite } = snapshot
  const members = lobby?.members ?? []
  const isOn = lobby?.state === 'assigned' || lobby?.state === 'running'
  return (
    <Panel id="room" title="Room" aside={lobby ? formatMany(members.length, 'tab') : ''}>
      <Invite invite={invite} />
      <ul class="members" aria-label="Members">
        {members.map((member, index) => (
          <Member
            key={member.id}
            member={member}
            // Ranks are given in order of joining when a run starts.
            place={isOn ? member.rank : index}
            isSealed={isOn}
            isYou={member.id === ownId}
            isMaker={member.id === lobby?.maker}
          />
        ))}
      </ul>
      {!lobby && <p class="quiet">Nobody to show before this tab is in the room.</p>}
    </Panel>
  )
}

interface MemberProps {
  member: LobbyMember
  place: number | null
  isSealed: boolean
  isYou: boolean
  isMaker: boolean
}

function Member({ member, place, isSealed, isYou, isMaker }: MemberProps) {
  const { text, isSoftware, features } = adapterWords(member.adapter)
  const rank = place === null ? 'waiting for the next run' : `rank ${place}`
  return (
    <li class="member" data-waiting={place === null}>
      <span
        class="rank"
        data-sealed={isSealed}
        title={isSealed || place === null ? rank : `${rank} if the run starts now`}
      >
        {place ?? '…'}
      </span>
      <span class="who">
        <strong>{member.name}</strong>
        <span class="badges">
          {isYou && <span class="badge you">you</span>}
          {isMaker && <span class="badge">maker</span>}
          {place === null && <span class="badge">waiting</span>}
          {member.hidden && (
            <span class="badge" title="The tab is in the background; it trains on">
              hidden
            </span>
          )}
          {!member.attached && (
            <span class="badge warn" title="Its connection to the server has ended">
              detached
            </span>
          )}
        </span>
        <span class="adapter">
          {text}
          {isSoftware && (
            <span class="badge warn" title="No graphics card: the processor computes, slowly">
              software
            </span>
          )}
          {features.map((feature) => (
            <span key={feature} class="feature">
              {feature}
            </span>
          ))}
        </span>
      </span>
    </li>
  )
}

function Invite({ invite }: { invite: string }) {
  const [outcome, setOutcome] = useState('')
  const isLocal = /^https?:\/\/(localhost|127\.|\[::1\])/.test(invite)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(invite)
      setOutcome('Copied')
    } catch {
      // No permission: the text is selected, so the keyboard's own copy works.
      const field = document.getElementById('invite') as HTMLInputElement
      field.focus()
      field.select()
      setOutcome('Press Ctrl+C')
    }
    setTimeout(() => setOutcome(''), 2000)
  }
  return (
    <div class="invite">
      <label for="invite">
        {isLocal
          ? 'Open this link in more tabs of this machine'
          : 'Open this link in more tabs, or on other machines'}
      </label>
      <div class="field-row">
        <input
          id="invite"
          class="mono"
          readOnly
          value={invite}
          onFocus={(event) => event.currentTarget.select()}
        />
        <button type="button" onClick={copy} aria-live="polite">
          {outcome || 'Copy link'}
        </button>
      </div>
      <p class="quiet">
        <a href={invite} target="_blank" rel="noopener noreferrer">
          Open another tab here
        </a>
        . The key after # stays in the tabs; whoever has the link can join.
        {isLocal && (
          <>
            {' '}
            For other machines, serve with <code>npm start -- --host</code>.
          </>
        )}
      </p>
    </div>
  )
}
