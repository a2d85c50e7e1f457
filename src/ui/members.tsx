import { useState } from 'preact/hooks'
import type { LobbyMember, ServerFacts } from '../peer/messages.ts'
import { adapterWords } from './adapter-words.ts'
import { CopyButton } from './copy-button.tsx'
import { formatMany } from './format.ts'
import { Panel } from './panel.tsx'
import { isLocalPage, outsideLinks } from './server-facts.ts'
import type { Snapshot } from './state.ts'

/** Who is in the room, and how others get in. */
export function Members({ snapshot }: { snapshot: Snapshot }) {
  const { lobby, ownId, invite, server } = snapshot
  const members = lobby?.members ?? []
  const isOn = lobby?.state === 'assigned' || lobby?.state === 'running'
  return (
    <Panel id="room" title="Room" aside={lobby ? formatMany(members.length, 'tab') : ''}>
      <Invite invite={invite} server={server} />
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

function Invite({ invite, server }: { invite: string; server: ServerFacts }) {
  const [chosen, setChosen] = useState(0)
  const links = outsideLinks(invite, server)
  const link = links[chosen] ?? links[0] ?? invite
  const isForAll = links.length > 0
  return (
    <div class="invite">
      <label for="invite">
        {isForAll
          ? 'Open this link in more tabs, or on other machines'
          : 'Open this link in more tabs of this machine'}
      </label>
      <div class="field-row">
        <input
          id="invite"
          class="mono"
          readOnly
          value={link}
          onFocus={(event) => event.currentTarget.select()}
        />
        <CopyButton text={link} label="Copy link" field="invite" />
      </div>
      {links.length > 1 && (
        <p class="quiet">
          This machine has {links.length} addresses; if the link does not open elsewhere, take
          another:{' '}
          <select
            aria-label="Address in the link"
            value={String(chosen)}
            onChange={(event) => setChosen(Number(event.currentTarget.value))}
          >
            {links.map((one, index) => (
              <option key={one} value={String(index)}>
                {new URL(one).hostname}
              </option>
            ))}
          </select>
        </p>
      )}
      <p class="quiet">
        {/* By the address of this page: tabs of one address and browser are linked the quick way. */}
        <a href={invite} target="_blank" rel="noopener noreferrer">
          Open another tab here
        </a>
        . The key after # stays in the tabs; whoever has the link can join.
        {!isForAll && (
          <>
            {' '}
            For other machines, serve with <code>npm start -- --host</code>.
          </>
        )}
        {isForAll && isLocalPage(invite) && (
          <> Each browser warns once about the certificate: choose “Advanced” and proceed.</>
        )}
      </p>
    </div>
  )
}
