import type { LobbyMember } from '../../peer/room/messages.ts'
import { hueName } from '../parts/hue.ts'
import { everyone } from './room-facts.ts'
import type { Snapshot } from './snapshot.ts'

type Person = Pick<LobbyMember, 'id' | 'tab'>

/** Names a tab: its ranks are one person's. */
export const personOf = ({ tab, id }: Person): string => tab ?? id

type Ranks = Pick<Snapshot, 'lobby' | 'run'>

/** The colour of each rank in the room and in its run, for `--hue`: as the server numbers them, so that they are the same on every tab. */
export function huesOf(ranks: Ranks): (who: Pick<Person, 'id'>) => string {
  const hues = new Map(membersOf(ranks).map(({ id, hue = 0 }) => [id, hue]))
  return ({ id }) => `var(${hueName(hues.get(id) ?? 0)})`
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
