import { Crew } from '../../../../src/peer/crew/crew.ts'
import type { FormerLife, Roster } from '../../../../src/peer/crew/roster.ts'
import { ProcessGroup } from '../../../../src/peer/group/group.ts'
import { messageOf, PeerError } from '../../../../src/util/errors.ts'
import type { RankPlace } from '../rank-place.ts'
import type { ElasticWorld } from './elastic-world.ts'

const words = 4

/** How a life ended. */
export type LifeEnd = 'done' | 'left out' | 'failed'

/** A step that ended in a group: from which state, to which. */
export interface Built {
  readonly step: number
  readonly base: number
  readonly made: number
}

/**
 * One life of a tab: the crew and the groups that tabs have, and in the place of training a state of a few whole numbers. A step adds up what
 * the virtual workers draw from the state, on the device of the member that computes them.
 */
export class Life {
  readonly id: string
  readonly place: RankPlace
  readonly crew: Crew
  readonly tab: number
  readonly device: number
  readonly machine: number
  readonly isFounder: boolean
  step = 0
  state = new Int32Array(words)
  group: ProcessGroup | undefined
  end: LifeEnd | undefined
  undecided: readonly string[] | null = null
  /** Since when. */
  undecidedMs = 0
  /** It gives others the state. */
  isDonor = false
  hasTrained = false
  /** Its group is past the state transfer. */
  isTraining = false
  #wishes = false
  readonly #world: ElasticWorld

  constructor(
    world: ElasticWorld,
    place: RankPlace,
    own: { id: string; tab: number; device: number; machine: number },
    founding: Pick<Roster, 'ballot' | 'members'> | null,
    former: FormerLife | null = null,
  ) {
    this.#world = world
    this.place = place
    this.id = own.id
    this.tab = own.tab
    this.device = own.device
    this.machine = own.machine
    this.isFounder = founding !== null
    this.crew = new Crew(
      {
        env: place,
        self: own.id,
        roster: founding,
        former,
        most: 64,
        times: { joinMs: 20_000 },
        firstHalf: (...half) => world.firstHalf(this, ...half),
      },
      {
        stop: (why) =>
          this.group?.abort(new PeerError('peer.lost', `rank ${this.group.rank}: ${why}`)),
        wish: () => {
          this.#wishes = true
        },
        out: (why) => world.out(this, why),
        undecided: (about) => world.undecided(this, about?.missing ?? null),
      },
    )
  }

  get isAlive(): boolean {
    return !this.place.isCrashed && this.end === undefined
  }

  get hash(): number {
    return hashOf(this.state, this.step)
  }

  /** Trains to the last step, from roster to roster. */
  async run(): Promise<void> {
    let roster = this.crew.roster ?? (await this.crew.next())
    for (;;) {
      let isPlanned = false
      try {
        const group = await this.#form(roster)
        this.crew.proved()
        await this.#meet(group)
        isPlanned = await this.#train(group)
        if (!isPlanned) break
      } catch (error) {
        if (this.place.isCrashed) return
        if (!(error instanceof PeerError)) throw error
        this.#world.note(`${this.id}: ${messageOf(error)}`)
        if (this.end !== undefined) return
      }
      roster = await this.crew.next(isPlanned)
    }
    this.#world.ended(this, 'done')
    this.crew.resign('its run is over', true)
    await this.group?.leave()
  }

  async #form(roster: Roster): Promise<ProcessGroup> {
    this.isTraining = false
    const before = this.group
    const links = this.crew.openLinks()
    before?.destroy()
    const { ballot, members } = roster
    const group = new ProcessGroup({
      rank: members.indexOf(this.id),
      size: members.length,
      epoch: ballot,
      links,
      env: this.place,
      config: { deadlineMs: 12_000, session: { helloMs: 8000 } },
    })
    // Small as they are, sums go round the ring: in steps that faults can strike.
    group.choice = { oneShotMaxBytes: 0, directMaxBytes: 0 }
    this.group = group
    this.#world.entered(this, roster)
    if (this.crew.roster?.ballot !== ballot)
      group.abort(new PeerError('peer.lost', `rank ${group.rank}: a later roster is here`))
    await group.ready()
    return group
  }

  /** All take the newest state that one of them has; of different ones that which more have. */
  async #meet(group: ProcessGroup): Promise<void> {
    const told = await this.#gather(group, [this.step, this.hash >>> 0])
    const newest = Math.max(...told.map(([step]) => step!))
    this.#world.met(this, newest)
    const hashes = told.map(([step, hash]) => (step === newest ? hash! : -1))
    const count = (hash: number) => hashes.filter((one) => one === hash).length
    const best = hashes.reduce((a, b) => (b >= 0 && (a < 0 || count(b) > count(a)) ? b : a), -1)
    const donor = hashes.indexOf(best)
    if (hashes.every((hash) => hash === best)) {
      this.crew.hasState()
      return
    }
    this.isDonor = group.rank === donor
    try {
      this.#world.moment(this, this.isDonor ? 'state transfer' : 'catching up')
      const sent = Int32Array.from([...this.state, this.step])
      await group.broadcast(sent, donor)
      if (!this.isDonor && hashes[group.rank] !== best) {
        this.state = sent.slice(0, words)
        this.step = sent[words]!
        this.#world.took(this)
        this.crew.hasState()
      }
      await group.barrier()
    } finally {
      this.isDonor = false
    }
  }

  /** Resolves with true where all regroup after a step, as somebody wished, and with false after the last step. */
  async #train(group: ProcessGroup): Promise<boolean> {
    const { scenario } = this.#world
    const { virtualWorkers, steps } = scenario
    this.hasTrained = true
    this.isTraining = true
    while (this.step < steps) {
      this.#world.moment(this, 'computing')
      await this.#world.compute(this)
      const base = this.hash
      const sum = new Int32Array(words + virtualWorkers + 1)
      for (let worker = group.rank; worker < virtualWorkers; worker += group.size) {
        for (let i = 0; i < words; i++)
          sum[i] = (sum[i]! + mix(base, 31 * worker + i, this.device)) | 0
        sum[words + worker] = 1
      }
      const wished = this.#wishes
      if (wished) sum[words + virtualWorkers] = 1
      if (mix(base, 7, 0) % 5 === 0) {
        this.#world.moment(this, 'saturated')
        await group.allReduce(sum.slice(), { label: `again ${base}` })
      }
      await group.allReduce(sum, { label: `${base}` })
      this.#world.moment(this, 'updating')
      await this.#world.sleep(this, 1)
      if (group.error) throw group.error
      for (let i = 0; i < words; i++) this.state[i] = (this.state[i]! * 5 + sum[i]!) | 0
      this.step++
      const workers = sum.subarray(words, words + virtualWorkers)
      this.#world.built(this, { step: this.step, base, made: this.hash }, workers)
      this.#world.moment(this, 'after the update')
      if (this.step % 10 === 0) {
        this.#world.moment(this, 'saving')
        await this.#world.sleep(this, 2)
      }
      if (sum[words + virtualWorkers]! > 0 && this.step < steps) {
        if (wished) this.#wishes = false
        return true
      }
    }
    await group.barrier()
    return false
  }

  async #gather(group: ProcessGroup, own: number[]): Promise<number[][]> {
    const all = await group.allGatherU32(Uint32Array.from(own), { label: 'meet' })
    return Array.from({ length: group.size }, (_, rank) => [
      ...all.subarray(rank * own.length, (rank + 1) * own.length),
    ])
  }
}

function mix(...parts: number[]): number {
  let hash = 0x9e3779b9
  for (const part of parts) {
    hash = Math.imul(hash ^ part, 0x85ebca6b)
    hash ^= hash >>> 13
  }
  return hash >>> 1
}

const hashOf = (state: Int32Array, step: number): number => mix(step, ...state)
