import type { LobbyMember } from '../../peer/room/messages.ts'
import { hueCount, hueName } from '../parts/hue.ts'
import { everyone } from './room-facts.ts'
import type { Snapshot } from './snapshot.ts'

type Person = Pick<LobbyMember, 'id' | 'tab'>

/** Names a tab: its ranks are one person's. */
export const personOf = ({ tab, id }: Person): string => tab ?? id

type Ranks = Pick<Snapshot, 'lobby' | 'run'>

/**
 * The colour of each rank in the room and in its run, for `--hue`: by the id, so that most are the same on every tab, and few change when
 * somebody leaves. As long as there are enough colours, each has another. Where two ids give one, tabs that know others may differ.
 */
export function huesOf(ranks: Ranks): (who: Pick<Person, 'id'>) => string {
  const ids = new Set(membersOf(ranks).map(({ id }) => id))
  const slots = new Map<string, number>()
  const taken = Array<number>(hueCount).fill(0)
  for (const id of ids) {
    const first = Number.parseInt(id.slice(-4), 16) % hueCount || 0
    const fewest = Math.min(...taken)
    let slot = first
    while (taken[slot] > fewest) slot = (slot + 1) % hueCount
    taken[slot]++
    slots.set(id, slot)
  }
  return ({ id }) => `var(${hueName(slots.get(id) ?? 0)})`
}

/** The same by name, for texts: of names that no two have, and that are more than a letter. */
export function huesByName(ranks: Ranks): ReadonlyMap<string, string> {
  const all = membersOf(ranks)
  const isOnly = ({ id, name }: (typeof all)[number]) =>
    name.length > 1 && all.every((other) => other.name !== name || other.id === id)
  const hueOf = huesOf(ranks)
  return new Map(all.filter(isOnly).map((member) => [member.name, hueOf(member)]))
}

const membersOf = ({ lobby, run }: Ranks) => [...everyone(lobby), ...(run?.members ?? [])]

/** One or two letters for a name: `A` for Ada, `AL` for Ada Lovelace. */
export function initialsOf(name: string): string {
  const words = name.match(/[\p{L}\p{N}]+/gu) ?? ['?']
  const letters = words.length > 1 ? [words[0], words[words.length - 1]] : [words[0]]
  return letters.map((word) => [...word][0].toUpperCase()).join('')
}
