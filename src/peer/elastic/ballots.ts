import type { Env } from '../../util/env.ts'
import { ballotStep, callsAhead, lastBallot } from '../room/ballots.ts'
import { ballotAbove } from './roster.ts'

/** The ballots that a member has heard of and promised, and how far each of the others has raised them. */
export class Ballots {
  /** Of the newest roster that this member knows to be proved. */
  proved: number
  /** This member takes part in no roster below. */
  promised: number
  /** Whose call that was. */
  leader: string | null = null
  /** The largest that this member has heard of. */
  newest: number
  readonly #env: Env
  readonly #beganMs: number
  /** By member, by how many calls more than one at a time. */
  readonly #raised = new Map<string, number>()

  /** `first`: that of the roster with which the run began; 0 for one that joins. */
  constructor(env: Env, first: number) {
    this.#env = env
    this.#beganMs = env.now()
    this.proved = this.promised = this.newest = first
  }

  promise(ballot: number, leader: string): void {
    this.promised = ballot
    this.leader = leader
  }

  /** One for a call of the member `self`; null where there is none left. `isUrgent`: above those that others call with in the same moment. */
  callAs(self: string, isUrgent = false): number | null {
    const ballot = ballotAbove(this.newest + (isUrgent ? ballotStep : 0), self)
    if (ballot === null) return null
    this.newest = ballot
    this.promise(ballot, self)
    return ballot
  }

  /** The largest that a member may name. */
  limitOf(from: string): number {
    const seconds = (this.#env.now() - this.#beganMs) / 1000
    const count = Math.floor(callsAhead + seconds - (this.#raised.get(from) ?? 0))
    return Math.min(lastBallot, (callsTo(this.newest) + count + 1) * ballotStep - 1)
  }

  /** Takes one that a member has named. */
  take(ballot: number, from: string): void {
    const more = callsTo(ballot) - callsTo(this.newest)
    if (more > 1) this.#raised.set(from, (this.#raised.get(from) ?? 0) + more - 1)
    this.newest = Math.max(this.newest, ballot)
  }

  /** Forgets who is none of these. */
  keep(members: readonly string[]): void {
    for (const id of this.#raised.keys()) if (!members.includes(id)) this.#raised.delete(id)
  }
}

const callsTo = (ballot: number): number => Math.floor(ballot / ballotStep)
