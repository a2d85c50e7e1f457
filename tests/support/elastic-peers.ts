import { ElasticMember } from '../../src/peer/elastic/elastic-member.ts'
import type { ElasticMemberOptions, Undecided } from '../../src/peer/elastic/options.ts'
import type { Roster } from '../../src/peer/elastic/roster.ts'
import { type Fault, type MemoryLink, memoryPair } from '../../src/peer/link/memory-link.ts'
import { VirtualEnv } from '../../src/util/virtual-env.ts'
import { cheapSigner } from './cheap-signer.ts'

// Members of a run over memory links on a virtual clock.

export interface Member {
  readonly id: string
  readonly elastic: ElasticMember
  /** Events to its owner: 'stop', 'wish', 'out', 'undecided a b', 'decided'. */
  readonly received: string[]
  /** Whose link it has ended for what they sent, and what that was. */
  readonly broke: string[]
  /** What it could not decide, by event. */
  readonly abouts: Undecided[]
  /** The newest that it has kept. */
  step: number
  /** By id, its end of the link to that member. */
  readonly links: Map<string, MemoryLink>
}

/** Of the test under way. A spec that uses this has `afterEach(clearPlace)`. */
export const place = { world: new VirtualEnv(1), members: new Map<string, Member>() }

// Not a hook here: of the specs that share a worker, and with it this module, only the first would have it.
export function clearPlace(): void {
  for (const { elastic } of place.members.values()) elastic.resign('the test is over')
  place.world = new VirtualEnv(1)
  place.members = new Map()
}

export const founding = (ids: string) => ({ ballot: 1, members: ids.split('') })

export function member(
  id: string,
  roster: ElasticMemberOptions['roster'],
  firstHalf?: NonNullable<ElasticMemberOptions['firstHalf']>,
  former: ElasticMemberOptions['former'] = null,
): Member {
  const received: string[] = []
  const abouts: Undecided[] = []
  const broke: string[] = []
  const elastic = new ElasticMember(
    {
      ...{ env: place.world, self: id, roster, former, max: 64 },
      signer: cheapSigner(id, place.world),
      step: () => made.step,
      ...(firstHalf && { firstHalf }),
    },
    {
      stop: () => received.push('stop'),
      request: () => received.push('wish'),
      out: () => received.push('out'),
      broke: (who, what) => broke.push(`${who} ${what}`),
      undecided: (about) => {
        received.push(about ? `undecided ${about.missing.join(' ')}` : 'decided')
        if (about) abouts.push(about)
      },
    },
  )
  const made: Member = { id, elastic, received, abouts, broke, step: 0, links: new Map() }
  place.members.set(id, made)
  return made
}

/** Links two members. The one without a roster hears from the other who that is. */
export function link(a: Member, b: Member, forward: Fault[] = [], backward: Fault[] = []): void {
  const [there, back] = memoryPair(place.world, { delayMs: () => 1, forward, backward })
  a.links.set(b.id, there)
  b.links.set(a.id, back)
  a.elastic.links.add(there, a.elastic.roster ? b.id : null)
  b.elastic.links.add(back, b.elastic.roster ? a.id : null)
}

/** Members that begin a run, each two of them linked, without those. */
export function elasticMember(
  ids: string,
  firstHalf?: NonNullable<ElasticMemberOptions['firstHalf']>,
  without = '',
): Member[] {
  const here = ids.split('').filter((id) => !without.includes(id))
  const all = here.map((id) => member(id, founding(ids), firstHalf))
  for (const [at, one] of all.entries()) for (const other of all.slice(at + 1)) link(one, other)
  return all
}

export function join(
  id: string,
  to: readonly Member[],
  former: ElasticMemberOptions['former'] = null,
): Member {
  const joiner = member(id, null, undefined, former)
  for (const one of to) link(one, joiner)
  return joiner
}

/** Its process has ended: its links close. */
export function crash(one: Member): void {
  place.members.delete(one.id)
  for (const transport of one.links.values()) transport.close('the process has ended')
}

/** Nothing that it sends arrives from now on, nor anything that is sent to it. */
export function silence(one: Member, all: readonly Member[]): void {
  place.members.delete(one.id)
  for (const other of all)
    if (other !== one) {
      other.links.get(one.id)!.onmessage = () => undefined
      one.links.get(other.id)!.onmessage = () => undefined
    }
}

export const namesOf = async (next: Promise<Roster>) =>
  (await place.world.until(next)).members.join('')
