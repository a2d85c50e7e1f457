import { ElasticMember } from '../../peer/elastic/elastic-member.ts'
import type { StepPace } from '../../peer/elastic/link-test.ts'
import type { ElasticListener } from '../../peer/elastic/options.ts'
import type { Roster } from '../../peer/elastic/roster.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { Link, LinkStats } from '../../peer/link/link.ts'
import { addEarly } from '../../peer/room/early-signals.ts'
import { endsOf, membersPerRoom, ringNeighbours, roomEdges } from '../../peer/room/edges.ts'
import { LifeSigner, type Signer } from '../../peer/room/life-keys.ts'
import { memberOf } from '../../peer/room/lives.ts'
import { leftOutError } from '../../peer/room/refusals.ts'
import { isRankLost } from '../../trainer/loop/run-groups.ts'
import type { RunEvent } from '../../trainer/watch/run-events.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { PeerError, type TabringError } from '../../util/errors.ts'
import { orAbort } from '../../util/or-abort.ts'
import type { Admission, ElasticPlace, FirstHalf, Membership } from '../api.ts'

/** Time for the hello of a member that has promised to be in the next group: it comes at once, or the member counts as lost. units: ms. */
const helloMs = 8000
/** For the links to the ranks beside this one in the ring, before its group forms: those ranks wait for it no longer than `helloMs`. units: ms. */
const linkMs = 6000
/** For the last frames of a group that has ended: less than a session waits for its other end. units: ms. */
const silenceMs = 4000
/** For the server to say which half asked first. units: ms. */
const halfMs = 5000

type MemberSignal = Parameters<NonNullable<ElasticListener['signal']>>[1]

/** What a group of the run is made of. */
export interface GroupPlace {
  readonly rank: number
  readonly worldSize: number
  readonly epoch: number
  readonly links: Map<number, Link>
  readonly machines: readonly number[] | undefined
  readonly helloMs: number | undefined
  /** Rejects when the group cannot be. */
  readonly failed: Promise<never>
  /** Lets `links` fall silent before a group that has not formed closes them: the next group needs them. */
  readonly silence: () => void
}

export interface RunMemberOptions {
  readonly place: Omit<ElasticPlace, 'key' | 'keys'>
  readonly signer: Signer
  readonly membership: Membership
  /** By rank. */
  readonly links: ReadonlyMap<number, Link>
  readonly signal: AbortSignal
  /** Joins a group and takes it for the run's. errors: those of `ProcessGroup.ready`. */
  readonly join: (place: GroupPlace) => Promise<ProcessGroup>
  readonly report: (event: RunEvent) => void
  /** The newest step from which this rank could continue. Default: 0. */
  readonly heldStep?: () => number
  /** All ranks should end the same step and ask for the next group. */
  readonly request: () => void
  /** By which newcomers are let in, and slow members found. Default: all are let in. */
  readonly pace?: () => StepPace | undefined
  /** For tests. */
  readonly env?: Env
}

/** Signs what this rank says in the run. */
export const signerOf = ({ keys, key }: ElasticPlace): Signer => new LifeSigner(keys, key)

/** An elastic run's groups, one after the other, as its members decide them. */
export class RunMember {
  readonly #options: RunMemberOptions
  readonly #env: Env
  readonly #member: ElasticMember
  /** By member of the room. */
  readonly #machines = new Map<string, string>()
  #group: ProcessGroup | undefined
  /** Of that group. */
  #joined: Roster | undefined
  /** Ends the forming of a group. */
  #fail: (error: PeerError) => void = () => undefined
  #rank: number
  /** Which half of the roster with this ballot has asked the server first, once it answers. */
  #asked: { ballot: number; answer: (first: FirstHalf) => void } | undefined
  #cancelSilence: () => void = () => undefined
  /** Called when a link is there, or cannot be. */
  #linksChanged: () => void = () => undefined
  /** By member: what has come for a roster that this rank has not entered yet. */
  #earlySignals: { readonly from: string; readonly signal: MemberSignal }[] = []
  /** Why the others continue without this rank. */
  #out: string | undefined
  /** A member was lost before the first group. */
  #hasStopped = false
  /** The newest in which the server has linked tabs to this one. */
  #epoch: number

  constructor(options: RunMemberOptions) {
    const { place, signer, membership, links, pace, env = systemEnv } = options
    const { self, ids, members, machines, former } = place
    this.#options = options
    this.#env = env
    this.#rank = membership.rank
    this.#epoch = membership.epoch
    for (const [rank, member] of members.entries()) this.#machines.set(member, machines[rank])
    const roster = membership.joins
      ? null
      : { ballot: membership.epoch, members: ids as readonly string[] }
    this.#member = new ElasticMember(
      {
        env,
        self,
        signer,
        former,
        roster,
        step: options.heldStep,
        pace,
        max: membersPerRoom,
        machineOf: (id) => this.#machines.get(memberOf(id)),
        firstHalf: (...half) => this.#askForHalf(...half),
      },
      {
        stop: (why) => this.#stop(why),
        request: () => options.request(),
        waits: (who, why) => options.report({ event: 'waits', who, why, rank: this.#rank }),
        holdsUp: (who, why) => options.report({ event: 'holdsUp', who, why, rank: this.#rank }),
        broke: (who, what) => options.report({ event: 'broke', who, what, rank: this.#rank }),
        signal: (from, signal) => this.#signalled(from, signal),
        out: (why) => {
          this.#out = why
        },
        undecided: (about) => {
          const answer = about ?? { missing: null, hadMore: false, step: null }
          options.report({ event: 'undecided', ...answer, rank: this.#rank })
        },
      },
    )
    for (const [rank, link] of links) this.#member.links.add(link, ids[rank], members[rank])
  }

  /** The newest that this rank is in; null until it is in one. For tests. */
  get roster(): Roster | null {
    return this.#member.roster
  }

  /** The first group: with all ranks that begin the run, or with those that let this one in. errors: those of joining. */
  async first(): Promise<ProcessGroup> {
    const { roster } = this.#member
    if (!roster || this.#hasStopped) return this.#next(!roster)
    try {
      return await this.#join(roster, undefined)
    } catch (error) {
      if (this.#isOver(error)) throw error
      return this.#next(false)
    }
  }

  /** The group after one that has ended, or whose ranks have ended the same step for it. */
  after(ended: ProcessGroup): Promise<ProcessGroup> {
    return this.#next(ended.error === undefined)
  }

  async #next(isPlanned: boolean): Promise<ProcessGroup> {
    const { signal } = this.#options
    for (let planned = isPlanned; ; planned = false) {
      const roster = await orAbort(this.#member.next(planned), signal).catch((error) => {
        throw this.#out === undefined ? error : leftOutError('peer.lost', `${this.#out}.`)
      })
      const { ballot, members } = roster
      this.#rank = members.indexOf(this.#member.options.self)
      this.#options.report({ event: 'roster', ballot, members, rank: this.#rank })
      try {
        return await this.#join(roster, helloMs)
      } catch (error) {
        if (this.#isOver(error)) throw error
      }
    }
  }

  #isOver(error: unknown): boolean {
    return this.#options.signal.aborted || !isRankLost(error)
  }

  async #join(roster: Roster, waitMs: number | undefined): Promise<ProcessGroup> {
    const { ballot, members } = roster
    // Its links are those of the later one, or another one is under way.
    if (this.#member.roster !== roster || !this.#member.isRunning) throw laterRoster()
    const failed = new Promise<never>((_, reject) => {
      this.#fail = reject
    })
    failed.catch(() => undefined)
    this.#silenceSoon()
    await Promise.race([this.#linkRing(roster), failed])
    this.#cancelSilence()
    const beside = ringNeighbours(this.#rank, members.length)
    const links = [...this.#member.links.open(ballot, members)].filter(
      ([rank]) => !roster.isRing || beside.includes(rank),
    )
    const keys = members.map((id) => this.#machines.get(memberOf(id)) ?? id)
    const known = [...new Set(keys)]
    this.#group = await this.#options.join({
      rank: this.#rank,
      worldSize: members.length,
      epoch: ballot,
      links: new Map(links),
      machines: keys.map((key) => known.indexOf(key)),
      helloMs: waitMs,
      failed,
      silence: () => this.#member.links.silence(),
    })
    this.#joined = roster
    // In a ring it says no more than that those beside this rank are there.
    if (!roster.isRing) this.#member.proved()
    return this.#group
  }

  /**
   * Has the page make the links that this rank lacks: those along the ring, for which this waits, and across it. errors: `peer.lost` where one along the
   * ring cannot be made.
   */
  async #linkRing({ ballot, members, isRing }: Roster): Promise<void> {
    this.#earlySignals = this.#earlySignals.filter(
      ({ from, signal }) => signal.ballot >= ballot && members.includes(from),
    )
    if (!isRing) return
    const rank = this.#rank
    const lacks = (peerRank: number) => !this.#member.links.isUp(members[peerRank])
    const ends = endsOf(rank, roomEdges(members.length))
    const links = ends.filter(({ peerRank }) => lacks(peerRank))
    if (links.length === 0) return
    this.#options.report({ event: 'unlinked', ballot, lives: members, links, rank })
    const signals = this.#earlySignals
    this.#earlySignals = []
    for (const { from, signal } of signals) this.#signalled(from, signal)
    const missing = () => ringNeighbours(rank, members.length).filter(lacks)
    const isApart = () => missing().some((peer) => this.#member.presence.apart.has(members[peer]))
    const isLinked = await new Promise<boolean>((resolve) => {
      const cancel = this.#env.after(linkMs, () => end(false))
      const end = (isWell: boolean) => {
        cancel()
        this.#linksChanged = () => undefined
        resolve(isWell)
      }
      this.#linksChanged = () => {
        if (isApart() || this.#member.roster?.ballot !== ballot) end(false)
        else if (missing().length === 0) end(true)
      }
      this.#linksChanged()
    })
    if (isLinked) return
    if (this.#member.roster?.ballot !== ballot) throw laterRoster()
    for (const peer of missing()) this.#member.presence.apart.add(members[peer])
    this.#member.lead()
    throw new PeerError(
      'peer.lost',
      `rank ${rank} has no link to the ranks beside it in the ring, ${missing().join(' and ')}.`,
    )
  }

  #signalled(from: string, signal: MemberSignal): void {
    const { ballot: own = 0, members = [] } = this.#member.roster ?? {}
    const { ballot, attempt, data } = signal
    if (ballot > own) addEarly(this.#earlySignals, { from, signal })
    const rank = members.indexOf(from)
    if (ballot !== own || rank < 0) return
    const about = { ballot, from: rank, attempt, data }
    this.#options.report({ event: 'signal', ...about, rank: this.#rank })
  }

  /** A link that `unlinked` has asked for cannot be made. */
  notLinked(ballot: number, peerRank: number): void {
    const { roster } = this.#member
    if (roster?.ballot !== ballot) return
    this.#member.presence.apart.add(roster.members[peerRank])
    this.#linksChanged()
  }

  /** Sends what WebRTC needs for a link that `unlinked` has asked for. */
  signal(ballot: number, peerRank: number, attempt: number, data: string): void {
    const { roster } = this.#member
    if (roster?.ballot !== ballot) return
    this.#member.links.send([roster.members[peerRank]], { type: 'signal', ballot, attempt, data })
  }

  #stop(why: string): void {
    const error = new PeerError('peer.lost', `rank ${this.#rank}: ${why}.`)
    this.#hasStopped = true
    this.#fail(error)
    this.#group?.abort(error)
    this.#silenceSoon()
  }

  /** Where there is no next group by then, nothing comes over the last one's links, which must not be taken for dead. */
  #silenceSoon(): void {
    this.#cancelSilence()
    this.#cancelSilence = this.#env.after(silenceMs, () => this.#member.links.silence())
  }

  /** Newcomers, or members that were not linked, with the links to them by their ranks. */
  admit({ epoch, newcomers }: Admission, links: ReadonlyMap<number, Link>): void {
    // The server counts up, and members name their own links below 0. An epoch that comes again would name a newcomer as one that is there.
    if (epoch > 0 && epoch <= this.#epoch) {
      for (const link of links.values()) link.close('its epoch is over')
      return
    }
    this.#epoch = Math.max(this.#epoch, epoch)
    const known = [...this.#member.links.known, ...(this.#member.roster?.members ?? [])].map(
      memberOf,
    )
    for (const member of this.#machines.keys())
      if (!known.includes(member)) this.#machines.delete(member)
    for (const { rank, id, machine } of newcomers) {
      const link = links.get(rank)
      this.#machines.set(memberOf(id), machine)
      if (link) this.#member.links.add(link, id)
    }
    this.#linksChanged()
  }

  /** This rank has the run's state: all ranks of its group have sent each other which one they have. */
  hasState(): void {
    this.#member.hasState()
    if (this.#joined === this.#member.roster) this.#member.proved()
  }

  /** Its process has ended; with `ballot`: it has left, as the server says. */
  memberIsDead(who: string, ballot?: number): void {
    const { presence } = this.#member
    for (const id of this.#livesOf(who))
      if (ballot === undefined) presence.isDead(id)
      else presence.hasLeft(id, ballot)
  }

  /** The host, at this tab, has removed it. */
  remove(member: string): void {
    const { links, roster } = this.#member
    for (const id of new Set([...links.known, ...(roster?.members ?? [])]))
      if (memberOf(id) === member) this.#member.remove(id)
  }

  doubt(member: string): void {
    for (const id of this.#livesOf(member)) this.#member.presence.doubt(id)
  }

  /** `who`: a member of the room, or one life. */
  #livesOf(who: string): string[] {
    return this.#member.links.known.filter((id) => id === who || memberOf(id) === who)
  }

  leftOut(why: string): void {
    this.#member.leftOut(why)
  }

  /** Members of the newest roster, by rank: the next one is without them. */
  evict(ranks: readonly number[]): void {
    const { roster } = this.#member
    if (!roster) return
    for (const rank of ranks) this.#member.presence.isDead(roster.members[rank], roster.ballot)
  }

  continueWithout(): void {
    this.#member.continueWithout()
  }

  /** The error of a rank that has failed alone, with that as its reason. Where it was evicted, another try would end in the same way. */
  failedAlone({ code, message }: TabringError, isPutOut: boolean): TabringError {
    return leftOutError(code, message, isPutOut ? 'barred' : 'again')
  }

  /** Ends the run on all ranks, also while they form their next group. */
  abort(why: string): void {
    this.#member.abort(why)
  }

  /** The run is over on this rank. */
  end(isDone: boolean): void {
    this.#member.resign(isDone ? 'its run is over' : 'it has left the run', isDone)
  }

  closeLinks(why: string): void {
    this.#member.links.closeAll(why)
  }

  linkStats(): Promise<LinkStats> {
    return this.#member.links.stats()
  }

  firstHalf(ballot: number, first: FirstHalf): void {
    if (this.#asked?.ballot === ballot) this.#asked.answer(first)
  }

  /** errors: `peer.timeout` where the server does not answer, `peer.lost` where it is away. */
  async #askForHalf(
    ballot: number,
    alive: readonly string[],
    lives: readonly string[],
  ): Promise<readonly string[] | null> {
    const first = await new Promise<FirstHalf>((resolve, reject) => {
      const cancel = this.#env.after(halfMs, () => {
        reject(new PeerError('peer.timeout', `the server did not answer within ${halfMs} ms.`))
      })
      this.#asked = {
        ballot,
        answer: (answer) => {
          cancel()
          resolve(answer)
        },
      }
      this.#options.report({ event: 'half', ballot, alive, lives, rank: this.#rank })
    })
    if (first === undefined) throw new PeerError('peer.lost', 'the server is away.')
    return first
  }
}

const laterRoster = () => new PeerError('peer.lost', 'the group: a later one takes its place.')
