import type { PastRoster, Roster } from '../../../../src/peer/elastic/roster.ts'
import type { ElasticWorld } from './elastic-world.ts'
import type { Life } from './life.ts'

/** How often it is looked at. units: ms. */
const everyMs = 500

/**
 * The most that may pass without a step while enough members are connected. A member that fell silent is noticed after 8.5 s, a call that nobody
 * decides is made again after up to 10.5 s by each of three members in turn, and a planned call waits 8 s for answers. units: ms.
 */
const maxMs = 30_000

/** Watches that steps end while enough members are there to continue. */
export class Progress {
  readonly #world: ElasticWorld
  #sinceMs = 0
  #step = 0
  /** The longest without a step. units: ms. */
  longestMs = 0

  constructor(world: ElasticWorld) {
    this.#world = world
    this.#look()
  }

  #look(): void {
    const { env, lives, calmMs } = this.#world
    const now = env.now()
    const step = Math.max(0, ...lives.map((life) => life.step))
    if (step > this.#step || calmMs > this.#sinceMs || !this.#areEnough()) {
      this.#step = Math.max(step, this.#step)
      this.#sinceMs = now
    }
    const lastMs = now - this.#sinceMs
    if (lastMs > maxMs && this.longestMs <= maxMs)
      this.#world.violate(`enough members were connected for ${lastMs} ms, and ended no step`)
    this.longestMs = Math.max(this.longestMs, lastMs)
    env.after(everyMs, () => this.#look())
  }

  /** More than half of the newest roster that anybody entered are connected to each other, and of those before it. */
  #areEnough(): boolean {
    const { lives } = this.#world
    if (lives.some(({ end }) => end === 'done')) return false
    const rosters = lives.flatMap(({ elastic }) => elastic?.roster ?? [])
    const newest = rosters.reduce((a: Roster | null, b) => (a && a.ballot > b.ballot ? a : b), null)
    return newest !== null && [newest, ...newest.before].every((roster) => this.#isMost(roster))
  }

  #isMost({ members }: PastRoster): boolean {
    const here: Life[] = []
    for (const id of members) {
      const life = this.#world.lives.find((one) => one.id === id)
      if (!life?.isAlive || life.place.isPaused) continue
      if (here.every((one) => this.#world.areConnected(one, life))) here.push(life)
    }
    return here.length * 2 > members.length
  }
}
