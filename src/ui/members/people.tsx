import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { inviteLink } from '../experiment/experiment-link.ts'
import { formatMany } from '../parts/format.ts'
import type { Acts } from '../state/acts.ts'
import { huesOf, initialsOf, personOf } from '../state/hues.ts'
import { everyone, isRoomOn, tabCount } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { Invite } from './invite.tsx'
import { LateWatchAct, MeasuredNote, MemberList } from './members.tsx'

/** Who is here as one line, and how others get in; opened, each with what it computes on and what the host can do with it. */
export function People({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { lobby, server } = snapshot
  const [open, setOpen] = useState<'nothing' | 'members' | 'invite'>('nothing')
  const tabs = lobby ? tabCount(lobby) : 0
  const toggle = (part: typeof open, words: ComponentChildren) => (
    <button
      type="button"
      aria-expanded={open === part}
      onClick={() => setOpen(open === part ? 'nothing' : part)}
    >
      {words}
    </button>
  )
  return (
    <section class="people" aria-label="People">
      <div class="people-row">
        <Avatars snapshot={snapshot} />
        {toggle('members', formatMany(tabs, 'tab'))}
        {toggle('invite', 'Invite people')}
        <LateWatchAct snapshot={snapshot} acts={acts} />
      </div>
      {open === 'invite' && (
        <div class="people-part">
          <Invite
            invite={inviteLink(snapshot)}
            server={server}
            isAlone={tabs === 1 && !isRoomOn(snapshot)}
          />
        </div>
      )}
      {open === 'members' && (
        <div class="people-part many-members side-by-side">
          <MemberList snapshot={snapshot} acts={acts} />
          <MeasuredNote members={lobby?.members ?? []} />
        </div>
      )}
    </section>
  )
}

/** By what a person's mark differs, the most important first: they hold the others, or take no part. Of several ranks' the first counts. */
const standings = ['gone', 'silent', 'paused', 'waiting', 'here', 'watching'] as const
type Standing = (typeof standings)[number]

const marks: Readonly<Record<Standing, string>> = {
  gone: '✕',
  silent: '?',
  paused: '‖',
  waiting: '…',
  here: '',
  watching: '◉',
}

const standingWords: Readonly<Record<Standing, string>> = {
  gone: 'gone',
  silent: 'does not answer',
  paused: 'has paused the run',
  waiting: 'waits for a place in the run',
  here: '',
  watching: 'watches',
}

function Avatars({ snapshot }: { snapshot: Snapshot }) {
  const { lobby, ownId } = snapshot
  const hueOf = huesOf(snapshot)
  const own = everyone(lobby).find(({ id }) => id === ownId)
  const maker = everyone(lobby).find(({ id }) => id === lobby?.maker)
  return (
    <ul class="avatars" aria-label="Who is here">
      {peopleOf(snapshot).map(({ member, standing, ranks }) => {
        const person = personOf(member)
        const isHost = maker !== undefined && personOf(maker) === person
        const about = [
          member.name,
          own && personOf(own) === person && 'you',
          isHost && 'host',
          ranks > 1 && `${ranks} ranks`,
          standingWords[standing],
        ]
        const words = about.filter(Boolean).join(', ')
        return (
          <li key={person} data-is={standing} style={{ '--hue': hueOf(member) }} title={words}>
            <span class="avatar" aria-hidden="true">
              {marks[standing] || initialsOf(member.name)}
              {isHost && <span class="leads">★</span>}
            </span>
            <span class="unseen">{words}</span>
          </li>
        )
      })}
    </ul>
  )
}

interface Person {
  /** The first member of its tab. */
  readonly member: Pick<NonNullable<Snapshot['lobby']>['members'][number], 'id' | 'tab' | 'name'>
  readonly standing: Standing
  readonly ranks: number
}

/** Those in the room, then those whom the run that is on has lost. */
export function peopleOf(snapshot: Snapshot): Person[] {
  const { lobby, run } = snapshot
  const isOn = isRoomOn(snapshot)
  const members = everyone(lobby)
  const ownRun = run && !run.end ? run : null
  const idsOf = (ranks: readonly number[] = []) => ranks.map((rank) => ownRun?.members[rank]?.id)
  const silent = idsOf(ownRun?.silent)
  const pausing = idsOf(ownRun?.paused?.by)
  const left = (ownRun?.members ?? []).filter(({ id }) => !members.some((one) => one.id === id))
  const people = new Map<string, Person>()
  const add = (member: Person['member'], own: Standing) => {
    const before = people.get(personOf(member))
    const ranks = (before?.ranks ?? 0) + 1
    const standing = standings.find((one) => one === own || one === before?.standing)!
    people.set(personOf(member), { member, ...before, standing, ranks })
  }
  for (const member of members) {
    const { id, attached, rank, watches } = member
    const standing = !attached
      ? 'gone'
      : watches
        ? 'watching'
        : silent.includes(id)
          ? 'silent'
          : pausing.includes(id)
            ? 'paused'
            : isOn && rank === null
              ? 'waiting'
              : 'here'
    add(member, standing)
  }
  for (const member of left) add(member, 'gone')
  return [...people.values()]
}
