import { stateFingerprint } from '../../../../src/ddp/exact/state-fingerprint.ts'
import { joinLinks } from '../../../../src/distributed/link/join-links.ts'
import type { Runtime } from '../../../../src/graph/memory/runtime.ts'
import type { FormerLife, Roster } from '../../../../src/peer/elastic/roster.ts'
import type { ProcessGroup } from '../../../../src/peer/group/group.ts'
import { nonGroupMember } from '../../../../src/peer/group/non-group-member.ts'
import type { Link } from '../../../../src/peer/link/link.ts'
import { memberOf } from '../../../../src/peer/room/lives.ts'
import { Regrouping, RunGroups } from '../../../../src/trainer/loop/run-groups.ts'
import { beginning, type KeptState, KeptStates } from '../../../../src/trainer/saves/kept-states.ts'
import type { RunEvent } from '../../../../src/trainer/watch/run-events.ts'
import { endFactsOf, GpuError, messageOf, PeerError } from '../../../../src/util/errors.ts'
import { orAbort } from '../../../../src/util/or-abort.ts'
import { type GroupPlace, RunMember } from '../../../../src/worker/compute/run-member.ts'
import { cheapSigner } from '../../cheap-signer.ts'
import type { RankPlace } from '../rank-place.ts'
import type { ElasticWorld } from './elastic-world.ts'

const words = 4
/** Steps from one kept state to the next. */
const keepEvery = 10
/** Until a device is there in place of one that was lost. units: ms. */
const reopenMs = 300

/** How a life ended. */
export type LifeEnd = 'done' | 'left out' | 'failed'

/** A step that ended in a group: from which state, to which. */
export interface Built {
  readonly step: number
  readonly base: number
  readonly made: number
}

/** The end of a link to another life; `id`: of that, where it is known beforehand. */
export interface LinkTo {
  readonly id: string | null
  readonly member: string
  readonly link: Link
}

/**
 * One life of a tab: what its page and its worker do in an elastic run with `exact`, with the worker's own parts for membership, the groups,
 * recovery and kept states. In the place of training it has a state of a few whole numbers: a step adds up what the virtual workers draw from
 * the state, on the device of the rank that computes them.
 */
export class Life {
  readonly id: string
  readonly place: RankPlace
  readonly tab: number
  readonly device: number
  readonly machine: number
  readonly isFounder: boolean
  /** The newest that the worker has reported to the page. */
  roster: Pick<Roster, 'ballot' | 'members'> & Partial<Roster>
  /** The server has let this tab's half continue, and the worker has not reported yet whether it has. */
  mayBeAhead = false
  step = 0
  state = new Int32Array(words)
  group: ProcessGroup | undefined
  end: LifeEnd | undefined
  /** Its part is over, and it closes its links. */
  isEnding = false
  undecided: readonly string[] | null = null
  /** Since when. */
  undecidedMs = 0
  /** It gives others the state, until they train or another group begins. */
  isDonor = false
  hasTrained = false
  /** Its group is past the state transfer. */
  isTraining = false
  #isRegroupAsked = false
  readonly #world: ElasticWorld
  readonly #former: FormerLife | null
  readonly #abort = new AbortController()
  readonly #kept = new KeptStates()
  readonly #firstDevice: Runtime
  #groups: RunGroups | undefined
  #loseDevice: () => void = () => undefined
  #view: RunMember | undefined

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
    this.roster = founding ?? { ballot: 0, members: [] }
    this.#former = former
    this.#firstDevice = this.#openDevice()
  }

  get isAlive(): boolean {
    return !this.place.isCrashed && this.end === undefined
  }

  get hash(): number {
    return hashOf(this.state, this.step)
  }

  /** There once `run` has begun. */
  get elastic(): RunMember {
    return this.#view!
  }

  /** Its device is lost, which the next command finds out. */
  loseDevice(): void {
    this.#loseDevice()
  }

  /** A person leaves the run, or it has ended without this tab. */
  leave(why: string): void {
    this.#abort.abort(new PeerError('peer.aborted', why))
  }

  /** A newcomer is linked to this life, in an epoch of the server; below 0: a link that members have made. */
  admit({ id, member, link }: LinkTo, epoch: number): void {
    this.elastic.admit(
      { epoch, newcomers: [{ rank: 0, id: id!, machine: member }] },
      new Map([[0, link]]),
    )
  }

  /** Trains to the last step, from roster to roster, over `links`: of one that begins the run, to all others by rank. */
  async run(links: readonly LinkTo[]): Promise<void> {
    const { ballot, members } = this.roster
    const rank = this.isFounder ? members.indexOf(this.id) : links.length
    const self = { id: this.id, member: memberOf(this.id) }
    const all = this.isFounder
      ? members.map((id) => ({ id, member: memberOf(id) }))
      : [...links, self]
    const rankOf = (link: LinkTo, at: number) => (this.isFounder ? members.indexOf(link.id!) : at)
    const { signal } = this.#abort
    const { stepMs } = this.#world.scenario
    this.#view = new RunMember({
      env: this.place,
      signer: cheapSigner(this.id, this.place),
      place: {
        self: this.id,
        ids: all.map(({ id }) => id),
        members: all.map(({ member }) => member),
        machines: all.map(({ member }) => member),
        former: this.#former,
      },
      membership: {
        rank,
        worldSize: all.length,
        epoch: this.isFounder ? ballot : this.#world.epochOf(this),
        joins: !this.isFounder,
      },
      links: new Map(links.map((one, at) => [rankOf(one, at), one.link])),
      signal,
      join: (place) => this.#join(place),
      report: (event) => this.#reported(event),
      request: () => {
        this.#isRegroupAsked = true
      },
      heldStep: () => this.step,
      pace: () =>
        this.hasTrained
          ? {
              ...{ bytes: 1000, stepMs, newestStepMs: stepMs, restMs: stepMs, heldBy: null },
              ...{ limitMs: () => 2000, isPaused: false },
            }
          : undefined,
    })
    try {
      await orAbort(this.#train(), signal)
      this.isEnding = true
      this.#world.ended(this, 'done')
      this.elastic.end(true)
      await this.group?.leave()
    } catch (thrown) {
      if (this.place.isCrashed || this.end !== undefined) return
      this.#world.note(`${this.id} ends: ${messageOf(thrown)}`)
      this.isEnding = true
      this.group?.destroy()
      this.elastic.end(false)
      this.elastic.closeLinks('the run is over')
      if (endFactsOf(thrown).leftOut) this.#world.out(this)
      else {
        this.#world.ended(this, 'failed')
        if (!signal.aborted && !this.#world.isLiar(this))
          this.#world.violate(`${this.id} failed: ${messageOf(thrown)}`)
      }
    }
  }

  /** Takes an event as the page takes it from the worker, and passes it to the server. */
  #reported(event: RunEvent): void {
    if (event.event === 'roster') {
      this.roster = event
      this.mayBeAhead = false
      this.#world.tellServer(this)
    } else if (event.event === 'half') {
      this.mayBeAhead = false
      this.#world.askForHalf(this, event)
    } else if (event.event === 'undecided') this.#world.undecided(this, event.missing)
    else if (event.event === 'unlinked') this.#world.unlinked(this, event)
    else if (event.event === 'signal') this.#world.signalled(this, event)
  }

  async #join(place: GroupPlace): Promise<ProcessGroup> {
    this.isTraining = this.isDonor = false
    this.group?.destroy()
    this.#world.entered(this, place.epoch)
    const group = await joinLinks({ ...place, env: this.place, timeoutMs: 12_000 })
    // Small as they are, sums go round the ring: in steps in which faults can be injected.
    group.choice = { oneShotMaxBytes: 0, directMaxBytes: 0 }
    this.group = group
    const { newGroup } = group
    // Only for a state that some lack.
    group.newGroup = async (...args) => {
      const ranks = await newGroup.apply(group, args)
      if (ranks === nonGroupMember) return ranks
      const { broadcast } = ranks
      ranks.broadcast = async (data, from, options) => {
        this.isDonor = ranks.rank === from
        this.#world.moment(this, this.isDonor ? 'state transfer' : 'catching up')
        await broadcast.call(ranks, data, from, options)
      }
      return ranks
    }
    return group
  }

  async #train(): Promise<void> {
    const { ballot } = this.roster
    const group = await this.elastic.first()
    this.group = group
    this.#groups = new RunGroups({
      ...{ group, runtime: this.#firstDevice, kept: this.#kept, signal: this.#abort.signal },
      ...{ env: this.place, warn: (text) => this.#world.note(`${this.id}: ${text}`) },
      ...{ isElastic: true, isExact: true, joins: !this.isFounder },
      synchronizesFirst: group.epoch !== ballot,
      reopen: async () => {
        await this.#world.sleep(this, reopenMs)
        return this.#openDevice()
      },
      groups: this.elastic,
      run: {
        hasTrained: () => this.hasTrained,
        brought: () => ({ suspect: 0, hasGiven: false, hasOtherRanks: true }),
        keepNow: async () => this.#keep(),
        goesBack: () => false,
        leaves: () => {
          this.#isRegroupAsked = false
        },
        joined: (group) => {
          this.group = group
        },
      },
    })
    await this.#groups.run(async (settled) => {
      if (settled) this.#resume(settled.step)
      await this.#takeSteps(this.group!)
    })
  }

  #keep(): void {
    const { step } = this
    if (step === 0 || step <= (this.#kept.newest?.progress.step ?? 0)) return
    this.#kept.add(stateOf(step, this.state))
  }

  /** Continues from the newest kept state. */
  #resume(step: number): void {
    const { newest } = this.#kept
    const before = this.hash
    this.step = step
    this.state = newest ? wordsOf(newest) : new Int32Array(words)
    if (this.hash !== before) this.#world.took(this)
  }

  /** Up to the last step. errors: those of the group; `gpu.lost`; `Regrouping` where all regroup after a step, as rank 0 wished. */
  async #takeSteps(group: ProcessGroup): Promise<void> {
    const { scenario } = this.#world
    const { virtualWorkers, steps } = scenario
    // In the place of what ranks settle before they train.
    await group.barrier()
    this.isDonor = false
    this.hasTrained = this.isTraining = true
    while (this.step < steps) {
      this.#world.moment(this, 'computing')
      await this.#world.compute(this)
      await this.#useDevice()
      const base = this.hash
      const sum = new Int32Array(words + virtualWorkers + 1)
      for (let worker = group.rank; worker < virtualWorkers; worker += group.size) {
        for (let i = 0; i < words; i++)
          sum[i] = (sum[i]! + mix(base, 31 * worker + i, this.device)) | 0
        sum[words + worker] = 1
      }
      if (this.#isRegroupAsked && group.rank === 0) sum[words + virtualWorkers] = 1
      if (mix(base, 7, 0) % 5 === 0) {
        this.#world.moment(this, 'saturated')
        await group.allReduce(sum.slice(), { label: this.#label })
      }
      await group.allReduce(sum, { label: this.#label })
      this.#world.moment(this, 'updating')
      await this.#world.sleep(this, 1)
      for (let i = 0; i < words; i++) this.state[i] = (this.state[i]! * 5 + sum[i]!) | 0
      this.step++
      const workers = sum.subarray(words, words + virtualWorkers)
      this.#world.built(this, { step: this.step, base, made: this.hash }, workers)
      this.#world.moment(this, 'after the update')
      if (this.step % keepEvery === 0) {
        this.#world.moment(this, 'saving')
        await this.#world.sleep(this, 2)
        this.#keep()
      }
      if (sum[words + virtualWorkers]! > 0 && this.step < steps) {
        this.#keep()
        throw new Regrouping(`after step ${this.step}`)
      }
    }
    await group.barrier()
  }

  get #label(): string {
    return stateFingerprint(this.hash.toString(16).padStart(16, '0'), '00000000')
  }

  #openDevice(): Runtime {
    const lost = new Promise<string>((resolve) => {
      this.#loseDevice = () => resolve('it was lost')
    })
    const queue = { onSubmittedWorkDone: async () => undefined }
    return { gpu: { lost, queue } } as unknown as Runtime
  }

  /** errors: `gpu.lost`. */
  async #useDevice(): Promise<void> {
    const { gpu } = this.#groups!.runtime as Runtime
    const reason = await Promise.race([gpu.lost, undefined])
    if (reason !== undefined) throw new GpuError('gpu.lost', `device: ${reason}.`)
  }
}

function stateOf(step: number, state: Int32Array): KeptState {
  return {
    progress: { ...beginning, step },
    model: { words: { shape: [words], data: state.slice() } } as unknown as KeptState['model'],
    optimizer: {} as KeptState['optimizer'],
    scaler: undefined,
    log: undefined,
  }
}

const wordsOf = ({ model }: KeptState): Int32Array<ArrayBuffer> =>
  (model.words as unknown as { data: Int32Array<ArrayBuffer> }).data.slice()

function mix(...parts: number[]): number {
  let hash = 0x9e3779b9
  for (const part of parts) {
    hash = Math.imul(hash ^ part, 0x85ebca6b)
    hash ^= hash >>> 13
  }
  return hash >>> 1
}

const hashOf = (state: Int32Array, step: number): number => mix(step, ...state)
