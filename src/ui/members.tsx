import type { LobbyMember } from '../peer/messages.ts'
import { adapterWords } from './adapter-words.ts'
import { inviteLink } from './experiment-link.ts'
import { formatMany } from './format.ts'
import { Invite } from './invite.tsx'
import { type Fact, roundTripOf, speedOf, tabMates } from './member-words.ts'
import { Panel } from './panel.tsx'
import { type Snapshot, tabCount } from './state.ts'

/** Who is in the room, and how others get in. */
export function Members({ snapshot }: { snapshot: Snapshot }) {
  const { lobby, ownId, server } = snapshot
  const members = lobby?.members ?? []
  const isOn = lobby?.state === 'assigned' || lobby?.state === 'running'
  const tabs = lobby ? tabCount(lobby) : 0
  const mates = tabMates(members)
  // Ranks are given in order of joining when a run starts.
  const places = members.map((member, index) => (isOn ? member.rank : index))
  return (
    <Panel id="room" title="Room" aside={asideOf(tabs, members.length)}>
      <Invite invite={inviteLink(snapshot)} server={server} isAlone={tabs === 1 && !isOn} />
      <ul class="members" aria-label="Members">
        {members.map((member, index) => (
          <Member
            key={member.id}
            member={member}
            place={places[index]}
            isSealed={isOn}
            isYou={member.id === ownId}
            isMaker={member.id === lobby?.maker}
            mate={mates[index]}
            matePlace={mates[index] && places[members.indexOf(mates[index])]}
            ranks={mates.filter((mate) => mate === member).length + 1}
          />
        ))}
      </ul>
      {!lobby && <p class="quiet">Nobody to show before this tab is in the room.</p>}
      {members.some(({ measured }) => measured) && (
        <p class="quiet measured-note">
          GFLOP/s: one product of 512 × 512 matrices on the member’s device, measured while nothing
          ran. ms: round trip to the server, or in a run to its neighbours.
        </p>
      )}
    </Panel>
  )
}

function asideOf(tabs: number, members: number): string {
  if (members === 0) return ''
  const inTabs = formatMany(tabs, 'tab')
  return tabs === members ? inTabs : `${inTabs}, ${formatMany(members, 'rank')}`
}

interface MemberProps {
  member: LobbyMember
  place: number | null
  isSealed: boolean
  isYou: boolean
  isMaker: boolean
  /** The first member of the same tab, where that is another one, and its rank. */
  mate: LobbyMember | null
  matePlace: number | null
  /** Of its tab, itself included, where it is that tab's first. */
  ranks: number
}

function Member({ member, place, isSealed, isYou, isMaker, mate, matePlace, ranks }: MemberProps) {
  const rank = place === null ? 'waiting for the next run' : `rank ${place}`
  return (
    <li class="member" data-waiting={place === null} data-has-mate={mate !== null}>
      <span
        class="rank"
        data-sealed={isSealed}
        title={isSealed || place === null ? rank : `${rank} if the run starts now`}
      >
        <span class="unseen">{place === null ? 'no rank yet' : 'rank '}</span>
        {place ?? <span aria-hidden="true">…</span>}
      </span>
      <span class="who">
        <strong>{member.name}</strong>
        <span class="badges">
          {isYou && <span class="badge you">you</span>}
          {isMaker && <span class="badge">maker</span>}
          {ranks > 1 && <span class="badge">one tab, {ranks} ranks</span>}
          {place === null && <span class="badge">waiting</span>}
          {member.hidden && !mate && (
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
        {mate ? (
          <span class="adapter">
            in the tab of {matePlace === null ? mate.name : `rank ${matePlace}`}
            <FactWords fact={roundTripOf(member.measured ?? {})} />
          </span>
        ) : (
          <Device member={member} />
        )}
      </span>
    </li>
  )
}

/** What the member computes on, and how far away it is. */
function Device({ member }: { member: LobbyMember }) {
  const { text, isSoftware, features } = adapterWords(member.adapter)
  const { measured = {} } = member
  return (
    <>
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
      <span class="adapter">
        <FactWords fact={speedOf(measured)} />
        <FactWords fact={roundTripOf(measured)} />
      </span>
    </>
  )
}

const FactWords = ({ fact }: { fact: Fact | null }) =>
  fact && (
    <span class="fact" title={fact.title}>
      {fact.text}
    </span>
  )
