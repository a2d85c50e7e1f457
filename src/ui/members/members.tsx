import type { ComponentChildren } from 'preact'
import type { Asks, LobbyMember } from '../../peer/room/messages.ts'
import { adapterWords } from '../../util/adapter-words.ts'
import { inviteLink } from '../experiment/experiment-link.ts'
import { formatMany } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import type { Acts } from '../state/acts.ts'
import { huesOf } from '../state/hues.ts'
import { everyone, isMaker, isWatching, tabCount } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { Invite } from './invite.tsx'
import { MemberActs } from './member-acts.tsx'
import { type Fact, roundTrips, speedOf, tabMates } from './member-words.ts'

/** A longer list has a separate panel before a run, and scrolls within itself in one. */
const maxInRoom = 6

/** Returns whether the members have a separate panel: there are many, and no run to show. */
export const haveOwnPanel = ({ lobby, run }: Snapshot): boolean =>
  run === null && everyone(lobby).length > maxInRoom

/** Who is in the room, and how others get in. */
export function Members({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { lobby, server } = snapshot
  const members = lobby?.members ?? []
  const isOn = isSealed(snapshot)
  const tabs = lobby ? tabCount(lobby) : 0
  const isLong = everyone(lobby).length > maxInRoom
  return (
    <Panel id="room" title="Room" aside={asideOf(tabs, members.length)}>
      <Invite invite={inviteLink(snapshot)} server={server} isAlone={tabs === 1 && !isOn} />
      {isMaker(snapshot) && <AskList asks={snapshot.asks} acts={acts} />}
      {isLong && <p class="counts">{countsOf(everyone(lobby))}</p>}
      {haveOwnPanel(snapshot) ? null : isLong ? (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, by the keyboard too
        <section class="many-members" tabIndex={0} aria-label="Members, scrollable list">
          <MemberList snapshot={snapshot} acts={acts} />
        </section>
      ) : (
        <MemberList snapshot={snapshot} acts={acts} />
      )}
      <LateWatchAct snapshot={snapshot} acts={acts} />
      {!lobby && <p class="quiet">Members appear here once this tab is in the room.</p>}
      {!haveOwnPanel(snapshot) && <MeasuredNote members={members} />}
    </Panel>
  )
}

/** All members side by side, where they are many. */
export function MembersPanel({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const members = everyone(snapshot.lobby)
  return (
    <Panel id="members" title="Members" aside={countsOf(members)}>
      <div class="many-members side-by-side">
        <MemberList snapshot={snapshot} acts={acts} />
      </div>
      <MeasuredNote members={members} />
    </Panel>
  )
}

/** For who may change it: a guest, or a host that watches. */
export function LateWatchAct(props: { snapshot: Snapshot; acts: Acts }) {
  const { snapshot } = props
  const load = () => import('./watch-act.tsx')
  const isFor = snapshot.lobby !== null && (!isMaker(snapshot) || isWatching(snapshot))
  const { part } = useLoaded('watching', load, isFor)
  return part && <part.WatchAct {...props} />
}

export const MeasuredNote = ({ members }: { members: readonly LobbyMember[] }) =>
  members.some(({ measured }) => measured) && (
    <p class="quiet measured-note">
      GFLOP/s: a 512 × 512 matrix product on the member’s device, measured between runs, once others
      are here. ms: round trip to its neighbours in the ring or to the server.
    </p>
  )

const isSealed = ({ lobby }: Snapshot): boolean =>
  lobby?.state === 'assigned' || lobby?.state === 'running'

export function MemberList({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { lobby, ownId, hasRelay } = snapshot
  const members = everyone(lobby)
  const isOn = isSealed(snapshot)
  const mates = tabMates(members)
  const ways = roundTrips(lobby?.members ?? [], hasRelay)
  const hueOf = huesOf(snapshot)
  // Ranks are given in order of joining when a run starts.
  const places = members.map((member, index) =>
    member.watches ? null : isOn ? member.rank : index,
  )
  return (
    <ul class="members" aria-label="Members">
      {members.map((member, index) => (
        <Member
          key={member.id}
          member={member}
          hue={hueOf(member)}
          place={places[index]}
          isSealed={isOn}
          isYou={member.id === ownId}
          isMaker={member.id === lobby?.maker}
          mate={mates[index]}
          ways={ways[index] ?? []}
          matePlace={mates[index] && places[members.indexOf(mates[index])]}
          ranks={mates.filter((mate) => mate === member).length + 1}
          acts={mates[index] ? null : <MemberActs {...{ member, snapshot, acts }} />}
        />
      ))}
    </ul>
  )
}

/** Who is there at a glance, where the list is long. */
function countsOf(members: readonly LobbyMember[]): string {
  const count = (is: (member: LobbyMember) => boolean, words: string) => {
    const found = members.filter(is).length
    return found > 0 ? [`${found} ${words}`] : []
  }
  return [
    formatMany(members.filter(({ watches }) => !watches).length, 'rank'),
    ...count(({ watches }) => watches === true, 'watching'),
    ...count(({ hidden }) => hidden, 'hidden'),
    ...count(({ adapter }) => adapterWords(adapter).isSoftware, 'on software'),
    ...count(({ attached }) => !attached, 'detached'),
  ].join(', ')
}

function asideOf(tabs: number, members: number): string {
  if (members === 0) return ''
  const inTabs = formatMany(tabs, 'tab')
  return tabs === members ? inTabs : `${inTabs}, ${formatMany(members, 'rank')}`
}

interface MemberProps {
  member: LobbyMember
  /** As in the ring. */
  hue: string
  place: number | null
  isSealed: boolean
  isYou: boolean
  isMaker: boolean
  /** The first member of the same tab, where that is another one, and its rank. */
  mate: LobbyMember | null
  matePlace: number | null
  /** How far it is from others. */
  ways: readonly Fact[]
  /** Of its tab, itself included, where it is that tab's first. */
  ranks: number
  /** What this tab may do with it. */
  acts: ComponentChildren
}

function Member(props: MemberProps) {
  const { member, hue, place, isSealed, isYou, isMaker, mate, matePlace, ways, ranks, acts } = props
  const waits = member.watches ? 'watching' : 'waiting'
  const rank =
    place !== null ? `rank ${place}` : member.watches ? waits : 'waiting for the next run'
  return (
    <li
      class="member"
      data-waiting={place === null}
      data-has-mate={mate !== null}
      style={{ '--hue': hue }}
    >
      <span
        class="rank"
        data-sealed={isSealed}
        title={isSealed || place === null ? rank : `${rank} if the run starts now`}
      >
        <span class="unseen">{place === null ? 'no rank yet' : 'rank '}</span>
        {place ?? <span aria-hidden="true">…</span>}
      </span>
      <span class="who">
        <strong>{mate && place !== null ? `Rank ${place}` : member.name}</strong>
        <span class="badges">
          {isYou && <span class="badge you">you</span>}
          {isMaker && <span class="badge">host</span>}
          {ranks > 1 && <span class="badge">one tab, {ranks} ranks</span>}
          {place === null && <span class="badge">{waits}</span>}
          {member.hidden && !mate && (
            <span class="badge" title="The tab is in the background; it keeps training">
              hidden
            </span>
          )}
          {!member.attached && (
            <span class="badge warn" title="It lost its connection to the server">
              detached
            </span>
          )}
        </span>
        {acts}
        {mate ? (
          <span class="adapter">
            same tab as {matePlace === null ? mate.name : `rank ${matePlace}`}
            <FactWords facts={ways} />
          </span>
        ) : (
          <Device member={member} ways={ways} />
        )}
      </span>
    </li>
  )
}

/** What the member computes on, and how far away it is. */
function Device({ member, ways }: { member: LobbyMember; ways: readonly Fact[] }) {
  const { text, title, why, isSoftware, features } = adapterWords(member.adapter)
  const speed = speedOf(member.measured ?? {})
  return (
    <>
      <span class="adapter">
        <span class="device" title={title}>
          {why ? `${text} (${why})` : text}
        </span>
        {isSoftware && (
          <span class="badge warn" title="No graphics card: the CPU computes">
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
        <FactWords facts={speed ? [speed] : []} />
        <FactWords facts={ways} />
      </span>
    </>
  )
}

/** As one list in a sentence. */
const FactWords = ({ facts }: { facts: readonly Fact[] }) =>
  facts.length > 0 && (
    <span class="facts">
      {facts.map(({ text, title, isTrouble }, index) => (
        <>
          {index > 0 && ', '}
          <span class="fact" title={title} data-trouble={isTrouble}>
            {text}
          </span>
        </>
      ))}
    </span>
  )

/** Who waits for this tab to let them into its room. */
export function AskList({ asks, acts }: { asks: Asks; acts: Acts }) {
  return (
    <ul class="asks" aria-label="Waiting to be let in" aria-live="polite">
      {asks.length > 1 && (
        <li>
          {asks.length} wait.
          <span class="member-buttons">
            <button
              type="button"
              class="go"
              onClick={() => {
                for (const { id } of asks) acts.letIn(id, true)
              }}
            >
              Let all in
            </button>
          </span>
        </li>
      )}
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
