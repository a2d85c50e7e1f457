import { memberOf } from '../room/lives.ts'
import { limits } from './limits.ts'

interface Half {
  /** Of a roster. */
  readonly ballot: number
  /** Its members that are not known to be dead. */
  readonly alive: readonly string[]
  /** Those that would continue. */
  readonly lives: readonly string[]
}

/**
 * Which half of an elastic run's roster may continue: the first that asks, as far as this server can know.
 *
 * A half that has asked another server, or this one before it forgot the run, is in a newer roster now. So nobody may continue until each member
 * that may be alive has reported to this server in which roster it is.
 */
export class Halves {
  /** Members that have reported it, by id. */
  readonly #heard = new Set<string>()
  readonly #first = new Map<number, readonly string[]>()
  /** Of the newest roster whose first half is not kept any more. */
  #forgotten = 0

  /** `max`: of how many rosters it knows the first half. */
  constructor(private readonly max: number = limits.halvesPerRun) {}

  heard(member: string): void {
    this.#heard.add(member)
  }

  /** The member is in the run no more. */
  gone(member: string): void {
    this.#heard.delete(member)
  }

  /** Those that asked first; null where they cannot be known. `newest`: of the rosters that this server knows of. */
  first(
    { ballot, alive, lives }: Half,
    newest: { readonly ballot: number; readonly members: readonly string[] },
  ): readonly string[] | null {
    const known = this.#first.get(ballot)
    if (known) return known
    const isOutside = lives.some((life) => !newest.members.includes(memberOf(life)))
    if (ballot <= this.#forgotten || (newest.ballot > ballot && isOutside)) return null
    if (!alive.every((life) => this.#heard.has(memberOf(life)))) return null
    if (this.#first.size === this.max) this.#forget()
    this.#first.set(ballot, lives)
    return lives
  }

  /** The ballot of the newest roster that the member can have entered. `newest`: of those that this server knows of. */
  maxBallotOf(member: string, newest: number): number {
    const isIn = (lives: readonly string[]) => lives.map(memberOf).includes(member)
    const isAhead = [...this.#first].some(([ballot, lives]) => ballot >= newest && isIn(lives))
    return isAhead ? newest + 1 : newest
  }

  #forget(): void {
    this.#forgotten = Math.min(...this.#first.keys())
    this.#first.delete(this.#forgotten)
  }
}
