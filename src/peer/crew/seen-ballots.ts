import type { Env } from '../../util/env.ts'
import { ballotStep, callsAhead, lastBallot } from '../room/ballots.ts'

/** The largest ballot that a member has heard of, and how far each of the others has raised it. */
export class SeenBallots {
  newest: number
  readonly #env: Env
  readonly #beganMs: number
  /** By member, by how many calls more than one at a time. */
  readonly #raised = new Map<string, number>()

  constructor(env: Env, newest: number) {
    this.#env = env
    this.#beganMs = env.now()
    this.newest = newest
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
