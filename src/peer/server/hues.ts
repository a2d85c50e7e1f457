import { NewestMap } from '../../util/newest-map.ts'
import type { Member } from './linking.ts'

type Person = Pick<Member, 'id' | 'token' | 'isFurther'>

/** How many that left keep theirs. */
const maxAway = 8

/** Numbers of the colours of a room's members: as small as can be, each a member's alone, and the same again for who comes back. */
export class Hues {
  readonly #away = new NewestMap<string, number>(maxAway)

  /** The number of a newcomer's colour beside those who are here. */
  take(who: Person, here: readonly Pick<Member, 'hue'>[]): number {
    const key = keyOf(who)
    const kept = this.#away.get(key)
    this.#away.delete(key)
    if (kept !== undefined) return kept
    const taken = new Set([...here.map(({ hue }) => hue), ...this.#away.values()])
    let hue = 0
    while (taken.has(hue)) hue++
    return hue
  }

  /** Keeps the colour of one that leaves. */
  keep(member: Person & Pick<Member, 'hue'>): void {
    this.#away.set(keyOf(member), member.hue)
  }
}

/** Names a member across a reload: a tab has one token, its further ranks only ids. */
const keyOf = ({ id, token, isFurther }: Person): string =>
  isFurther || token === null ? id : token
