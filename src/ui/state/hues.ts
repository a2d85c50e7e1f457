import type { LobbyMember } from '../../peer/room/messages.ts'
import { everyone } from './room-facts.ts'
import type { Snapshot } from './snapshot.ts'

/** Colours of people, of which theme/base.css has as many (`--run-0` and so on). */
const count = 6

type Person = Pick<LobbyMember, 'id' | 'tab'>

/** Names a tab: its ranks are one person's. */
export const personOf = ({ tab, id }: Person): string => tab ?? id

/**
 * The colour of each person in the room and in its run, for `--hue`: by the id, so that most are the same on every tab, and few change when
 * somebody leaves. As long as there are enough colours, each has another. Where two ids give one, tabs that know others may differ.
 */
export function huesOf({ lobby, run }: Pick<Snapshot, 'lobby' | 'run'>): (who: Person) => string {
  const people = new Set([...everyone(lobby), ...(run?.members ?? [])].map(personOf))
  const slots = new Map<string, number>()
  const taken = Array<number>(count).fill(0)
  for (const person of people) {
    const first = Number.parseInt(person.slice(-4), 16) % count || 0
    const fewest = Math.min(...taken)
    let slot = first
    while (taken[slot] > fewest) slot = (slot + 1) % count
    taken[slot]++
    slots.set(person, slot)
  }
  return (who) => `var(--run-${slots.get(personOf(who)) ?? 0})`
}

/** One or two letters for a name: `A` for Ada, `AL` for Ada Lovelace. */
export function initialsOf(name: string): string {
  const words = name.match(/[\p{L}\p{N}]+/gu) ?? ['?']
  const letters = words.length > 1 ? [words[0], words[words.length - 1]] : [words[0]]
  return letters.map((word) => [...word][0].toUpperCase()).join('')
}
