import type { RunNow } from '../../peer/room/client-messages.ts'
import type { LifeKeys } from '../../peer/room/life-keys.ts'
import { lifeOf, memberOf } from '../../peer/room/lives.ts'
import type {
  Abort,
  AssignedLink,
  Assignment,
  MemberInfo,
  Reached,
} from '../../peer/room/messages.ts'
import { abortError, endedWithout, leftOutError } from '../../peer/room/refusals.ts'
import { machineKey, machinesOf } from '../../peer/room/topology.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient } from '../../peer/tab/signal.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import {
  endFactsOf,
  messageOf,
  PeerError,
  type RunError,
  TabringError,
  toError,
} from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { log } from '../../util/log.ts'
import type {
  AdapterFacts,
  CheckpointAddress,
  ComputeApi,
  FormerLife,
  Membership,
  RunEvent,
} from '../api.ts'
import { type FormedLink, formLinks, type RingLinks } from './connect.ts'
import type { MemberRunEvent, RunEnd } from './member-events.ts'
import { MemberLinks } from './member-links.ts'
import type { StartMarks } from './start-marks.ts'

/** What a run needs of its tab. */
export interface RunTab {
  readonly client: SignalClient
  readonly compute: ComputeApi
  readonly ports: LocalPorts | null
  readonly keys: LifeKeys
  readonly marks: StartMarks
  report(event: MemberRunEvent): void
  /** Sends the room what changed about this tab. */
  update(change: Pick<MemberInfo, 'adapter'>): void
  /** Where checkpoints are, if not in this browser's private files. */
  readonly checkpoints: CheckpointAddress | undefined
  /** What the maker, another tab, has started. */
  readonly proposed: TrainConfig | null
  /** Members that this tab has removed as the host. */
  readonly expelled: Pick<Map<string, true>, 'has'>
  /** errors: `config.invalid`. */
  parse(settings: JsonValue): TrainConfig
  /** The life of this tab in the elastic run with that key, where it was left out and comes again. */
  formerIn(key: string): FormerLife | null
  /** What a person gave on this tab for the run. */
  givenFor(config: TrainConfig): Uint8Array | undefined
  /** The run is over on this rank. */
  ended(end: RunEnd): void
}

/** While it is not decided who trains on, the server is asked this often what it knows. units: ms. */
const askMs = 1000
/** That long it waits for links to come to life before it gives up its place, to come in again over new ones. units: ms. */
const yieldMs = 12_000

/** After the run's state has come too slowly the ranks are not stopped again before that. units: ms. */
const slowAgainMs = 60_000

/** From the run's end on the other ranks: a rank that was in their last step has come to its own by then. units: ms. */
const lastMs = 2000

type AssignedMember = Assignment['members'][number]

/** Links that form in a separate epoch. */
interface Linking {
  readonly assignment: Assignment
  readonly ring: RingLinks
  isAdmitted: boolean
}

/**
 * A tab's part in one run of its room, from the page's side: links form, the worker trains, and an elastic run continues with other ranks.
 *
 *     assignment -> links, ready -> start -> train ... done -> all done: ended
 *                                              |
 *                             another assignment -> links to newcomers, ready -> start: they are admitted
 *                             who the ranks are: the worker decides with the others, and reports
 */
export class MemberRun {
  /** The worker trains. */
  isRunning = false
  readonly #tab: RunTab
  /** The first one; the ranks may be others now. */
  readonly #first: Assignment
  readonly #links: RingLinks
  /** Links to newcomers, which form or have formed. */
  readonly #linkings: Linking[] = []
  /** Links to members to which the server has made none. */
  readonly #own: MemberLinks
  /** Who was ever in the run with this tab, by id in the room. */
  readonly #known = new Map<string, { member: AssignedMember; link: AssignedLink | undefined }>()
  #rank: number
  /** As the room knows this tab's, as JSON. */
  #adapter: string
  /** In which the server has linked tabs to this one. */
  #newestEpoch: number
  /** The newest roster that this tab was in. */
  #ballot: number
  /** The server has let this tab's half continue, and the worker has not reported yet whether it has. */
  #mayBeAhead = false
  /** By rank, in the room. */
  #members: readonly string[]
  #settings: JsonValue = null
  /** Since when the worker has waited for others, and for whom, by id; undefined while it does not. */
  #undecided: { readonly sinceMs: number; readonly missing: readonly string[] } | undefined
  /** The others continue without this tab. */
  #isOut = false
  /** For its own values, which would not be other ones in another try. */
  #isPutOut = false
  /** The worker has trained, or trains. */
  #hasBegun = false
  /** A rank that has joined a run and fails before its first step ends its own part alone. */
  #hasTrained = false
  /** The worker has come to the good end of its part. */
  #isDone = false
  /** Then: what the run has come to; undefined where it was not tested. */
  #reached: Reached | undefined
  /** When the server is asked again. */
  #asking: ReturnType<typeof setTimeout> | undefined
  /** By what the room's run was ended, until the worker has come to its end. */
  #aborted: RunError | undefined
  /** Called at the run's good end, while the worker leaves it. */
  #endWell: (() => void) | undefined
  #isOver = false

  constructor(tab: RunTab, assignment: Assignment) {
    const { epoch, rank, members } = assignment
    this.#tab = tab
    this.#first = assignment
    this.#rank = rank
    this.#adapter = JSON.stringify(members[rank].adapter)
    this.#ballot = this.#newestEpoch = epoch
    this.#members = members.map(({ id }) => id)
    this.#know(assignment)
    this.#own = new MemberLinks(tab)
    this.#links = this.#formLinks(assignment, this.#prepare(assignment))
    this.#links.connected.catch((error) => this.fail(this.#unlinked(error), epoch))
  }

  get rank(): number {
    return this.#rank
  }

  /** By which this tab ends the run for all; or its own part alone, while it joins. */
  get abortEpoch(): number {
    const { run, epoch } = this.#first
    return this.#hasTrained ? (run ?? epoch) : epoch
  }

  /** Returns whether the others continue when this tab leaves: the run is elastic. */
  get continuesWithoutThis(): boolean {
    return this.#first.run !== undefined
  }

  /** The elastic run, for a server that does not know it; null for none. */
  get now(): RunNow | null {
    const { run, key } = this.#first
    if (run === undefined || key === undefined || !this.isRunning || this.#isOut) return null
    const ids = [...this.#members]
    return {
      key,
      run,
      ballot: this.#ballot,
      ids,
      settings: this.#settings,
      mayBeAhead: this.#mayBeAhead,
    }
  }

  /** The life of this tab in an elastic run that continues without it. */
  get former(): { readonly key: string; readonly life: FormerLife } | undefined {
    const { key } = this.#first
    if (key === undefined) return undefined
    if (this.#isOut) return { key, life: { id: this.#self, entered: this.#ballot } }
    // It has not come in again yet.
    const life = this.#hasBegun ? null : this.#tab.formerIn(key)
    return life ? { key, life } : undefined
  }

  /** Why this tab has no links. One that was a rank of this run had them, and gets others. */
  #unlinked(thrown: unknown): Error {
    const error = toError(thrown)
    const isUnreachable = error instanceof PeerError && error.code === 'peer.unreachable'
    return isUnreachable && this.former ? leftOutError('peer.lost', error.message) : error
  }

  /** Takes an assignment of this run: links to newcomers form, while ranks train on. False for one of another run. */
  follow(assignment: Assignment): boolean {
    const { key, epoch, links } = assignment
    if (key === undefined || !this.isRunning || this.#first.key !== key) return false
    // An epoch that comes again would give a newcomer the life of one that is there.
    if (epoch <= this.#newestEpoch) return true
    this.#newestEpoch = epoch
    log(1, 'room', () => `epoch ${epoch}: links to ${links.length} newcomers`)
    this.#know(assignment)
    this.#linkings.push({ assignment, ring: this.#formLinks(assignment), isAdmitted: false })
    return true
  }

  /** Its members, of whom this tab may have no link to some. */
  #know({ members, links }: Assignment): void {
    for (const [at, member] of members.entries()) {
      const own = links.find(({ peerRank }) => peerRank === at)
      this.#known.set(member.id, { member, link: own ?? this.#known.get(member.id)?.link })
    }
  }

  /** Ends without a word where the assignment is of this run, which has not begun: it begins with other ranks. False for one of another run. */
  giveWay({ key, epoch }: Assignment): boolean {
    if (key === undefined || this.isRunning || this.#first.key !== key) return false
    log(1, 'room', () => `epoch ${epoch}: the run begins with other ranks`)
    this.#isOver = true
    this.#tab.compute.dropLinks(this.#first.epoch).catch(() => undefined)
    this.close()
    return true
  }

  /** All links of that epoch are up on all ranks. */
  start(epoch: number, settings: JsonValue): void {
    const linking = this.#linkings.find((one) => one.assignment.epoch === epoch)
    if (linking) {
      linking.isAdmitted = true
      this.#admit(linking.assignment)
    } else if (this.#first.epoch === epoch) this.#train(settings)
  }

  /** The server has ended an epoch: the run, or the forming of links to newcomers. */
  abort(abort: Abort): void {
    const { epoch, text } = abort
    if (this.#drop(epoch)) return
    const { run = this.#first.epoch } = this.#first
    if (epoch !== run && epoch !== this.#first.epoch) return
    const error = abortError(abort)
    this.#aborted = error
    // The ranks may have been quicker to say that one is lost: only the room knows who removed it.
    if (this.#isOver && error.code === 'peer.removed') this.#tab.report({ type: 'reason', error })
    if (this.isRunning) this.#tab.compute.abort(text).catch(() => undefined)
    else this.fail(error)
  }

  /** The others have come to the end: a tab that was away cannot, and has not heard yet that they are gone. */
  finished(epoch: number): void {
    if (epoch !== this.#first.run || !this.isRunning) return
    this.#asking = setTimeout(() => {
      if (this.isRunning && !this.#isDone)
        this.#tab.compute.abort(endedWithout, true).catch(() => undefined)
    }, lastMs)
  }

  /** The connection to the server has ended: newcomers are linked without this tab. */
  away(): void {
    for (const { assignment, isAdmitted } of [...this.#linkings])
      if (!isAdmitted) this.#drop(assignment.epoch)
  }

  /** Gives up links to newcomers. */
  #drop(epoch: number): boolean {
    const at = this.#linkings.findIndex((one) => one.assignment.epoch === epoch)
    if (at < 0) return false
    const [{ ring }] = this.#linkings.splice(at, 1)
    ring.close()
    this.#tab.compute.dropLinks(epoch).catch(() => undefined)
    return true
  }

  /** A member has left the room, or its connection to the server has ended: only who has left is dead for sure. */
  gone(id: string, hasLeft: boolean, ballot: number): void {
    const { compute } = this.#tab
    if (!this.continuesWithoutThis) return
    const sent = hasLeft ? compute.memberIsDead(id, ballot) : compute.doubt(id)
    sent.catch(() => undefined)
  }

  /** This tab's person, the host, removes a member, which may not obey the room. */
  remove(id: string): void {
    if (this.continuesWithoutThis && this.isRunning)
      this.#tab.compute.remove(id).catch(() => undefined)
  }

  /** The server's answer to the worker's question. */
  firstHalf(key: string, ballot: number, first: readonly string[] | null): void {
    if (key !== this.#first.key) return
    this.#mayBeAhead = first?.includes(this.#self) === true
    this.#tab.compute.firstHalf(ballot, first).catch(() => undefined)
  }

  /**
   * While this rank cannot decide: the server may know more of the run. A later roster that this rank is in reaches it at once, or never does,
   * because the links to its members have ended. Where the first rank in the room is missing here, this tab gives up its place and comes in again.
   */
  #askServer(isLaterKnown = false): void {
    const { client, compute } = this.#tab
    const { lobby, isInside } = client
    clearTimeout(this.#asking)
    const undecided = this.#undecided
    if (!undecided || this.#isOver) return
    const own = lobby?.members.find(({ id }) => id === client.id)
    const isOutside = own?.rank === null && lobby?.members.some(({ rank }) => rank !== null)
    const isLater = (lobby?.ballot ?? 0) > this.#ballot
    const first = this.#members.find((id) => lobby?.members.some((one) => one.id === id))
    const isLong = performance.now() - undecided.sinceMs > yieldMs
    if (isInside && lobby && lobby.state !== 'running')
      compute.abort(endedWithout, true).catch(() => undefined)
    else if (isInside && (isOutside || (isLater && isLaterKnown)))
      compute.leftOut('the others continue').catch(() => undefined)
    else if (isInside && isLong && first && undecided.missing.includes(first))
      compute.leftOut('it has lost its links').catch(() => undefined)
    else this.#asking = setTimeout(() => this.#askServer(isInside && isLater), askMs)
  }

  /** The connection to the server is back, also after the run's end: it may be another process, and may not have heard what this tab said last. */
  back(): void {
    const { client } = this.#tab
    const { run, key, epoch } = this.#first
    if (this.#isDone) client.done(run ?? epoch, this.#reached)
    else if (this.#isOut && !this.#isPutOut && key !== undefined) client.out(key)
    else if (key !== undefined && this.isRunning && !this.#mayBeAhead)
      client.ranks(key, this.#ballot, this.#members)
  }

  /** The room's next run begins, and the worker has not come to the end of this one: it ends here, in the words in which it was ended. */
  endBeforeNext(): void {
    this.#endWell?.()
    if (this.isRunning && !this.#aborted)
      this.#tab.compute.abort('Another run has started.', true).catch(() => undefined)
    this.fail(this.#aborted ?? new PeerError('peer.aborted', 'Another run has started.'))
  }

  /** Ends the run on this rank, once, with the first error. An error of another epoch ends nothing. */
  fail(thrown: unknown, epoch = this.#first.epoch): void {
    if (this.#isOver || this.#first.epoch !== epoch) return
    const error = toError(thrown)
    if (!this.isRunning) this.#tab.compute.dropLinks(epoch).catch(() => undefined)
    log(1, 'room', () => `epoch ${epoch}: ended by ${messageOf(thrown)}`)
    this.close()
    this.#end({ ok: false, rank: this.#rank, error })
  }

  get #rings(): RingLinks[] {
    return [this.#links, ...this.#linkings.map(({ ring }) => ring)]
  }

  /** Closes all links. */
  close(): void {
    for (const one of [...this.#rings, ...this.#own.links]) one.close()
  }

  #end(end: RunEnd): void {
    this.#endWell = undefined
    this.#isOver = true
    this.isRunning = false
    this.#tab.ended(end)
  }

  /** Before it joins a run that is on: its ranks train until this one is ready. errors: those of `ComputeApi.prepare`; the server has them too. */
  async #prepare({ run, epoch, rank }: Assignment): Promise<void> {
    const { proposed, compute, client } = this.#tab
    if (run === undefined || run === epoch || !proposed) return
    try {
      await compute.prepare(proposed, location.href, (phase) => {
        const event = { event: 'phase', phase, rank } as const
        if (!this.#isOver) this.#tab.report({ type: 'event', event, atMs: Date.now() })
      })
    } catch (error) {
      if (!this.#isOver) client.abort(epoch, messageOf(error).slice(0, 300))
      throw error
    }
  }

  #formLinks(assignment: Assignment, prepared?: Promise<void>): RingLinks {
    const { client, compute, ports } = this.#tab
    const { epoch, run, members } = assignment
    return formLinks({
      prepared,
      client,
      assignment,
      ports,
      isElastic: run !== undefined,
      addLink: (of, peerRank, transport, lane) => compute.addLink(of, peerRank, transport, lane),
      onLinked: (peerRank, kind) => {
        log(1, 'room', () => `epoch ${epoch}: linked to rank ${peerRank} by ${kind}`)
        if (!this.#isOver && this.#first === assignment)
          this.#tab.report({ type: 'linked', peerRank, kind })
      },
      onGone: (peerRank) => {
        // Not by the member's id alone: the server may have called another tab so.
        const gone = lifeAt(assignment, peerRank) ?? members[peerRank].id
        if (this.continuesWithoutThis) compute.memberIsDead(gone).catch(() => undefined)
      },
    })
  }

  #admit({ epoch, worldSize, joining = 0, members }: Assignment): void {
    const newcomers = members.flatMap((member, rank) =>
      rank >= worldSize - joining
        ? [{ rank, id: lifeOf(member, epoch), machine: machineKey(member) }]
        : [],
    )
    this.#tab.compute.admit({ epoch, newcomers }).catch(() => undefined)
  }

  /** Who this tab is among the members of the run. */
  get #self(): string {
    const { epoch, rank, members } = this.#first
    return lifeOf(members[rank], epoch)
  }

  get #membership(): Membership {
    const { epoch, run, key, rank, worldSize, members } = this.#first
    const joins = run !== undefined && run !== epoch
    return {
      epoch,
      rank,
      worldSize,
      machines: machinesOf(members),
      self: { id: members[rank].id, name: members[rank].name },
      who: members.map(({ id }) => id).join(),
      joins,
      ...(key !== undefined && {
        elastic: {
          key,
          self: this.#self,
          keys: this.#tab.keys,
          ids: members.map((_, at) => lifeAt(this.#first, at)),
          members: members.map(({ id }) => id),
          machines: members.map(machineKey),
          former: this.#tab.formerIn(key),
        },
      }),
    }
  }

  async #train(settings: JsonValue): Promise<void> {
    const { client, compute, marks } = this.#tab
    const { run, key, epoch } = this.#first
    this.isRunning = true
    this.#hasBegun = true
    this.#settings = settings
    marks.mark('sent')
    try {
      const config = this.#tab.parse(settings)
      this.#tab.report({ type: 'config', config })
      const result = await compute.train(
        this.#membership,
        config,
        location.href,
        (events) => {
          for (const { event, atMs } of events) this.#take(event, atMs)
        },
        this.#tab.checkpoints,
        this.#tab.givenFor(config),
      )
      this.#isOn(result.adapter)
      const links = await this.#stats()
      const ended = this.#othersEnd()
      this.#isDone = !this.#isOver
      const { value, seconds } = result
      if (Number.isFinite(value)) this.#reached = { value, seconds }
      if (this.#isDone) client.done(run ?? epoch, this.#reached)
      await ended
      if (this.#isOver) {
        this.close()
        return
      }
      // Once: the room's next run may begin before the worker has left this one.
      const [rank, worldSize] = [this.#rank, this.#members.length]
      const end = () => {
        this.close()
        log(1, 'room', () => `epoch ${run ?? epoch}: ended well`)
        this.#end({ ok: true, rank, worldSize, result, links })
      }
      this.#endWell = end
      await compute.leave()
      if (this.#endWell === end) end()
    } catch (thrown) {
      if (this.#isOver) return
      const { leftOut } = endFactsOf(thrown)
      this.#isOut = leftOut !== undefined
      this.#isPutOut = leftOut === 'barred'
      if (this.#isOut && key !== undefined) this.#comeAgain(key, thrown)
      else client.abort(this.abortEpoch, messageOf(thrown).slice(0, 300))
      const isOfOthers = thrown instanceof TabringError && thrown.code.startsWith('peer.')
      const knowsMore = isOfOthers && this.#aborted && this.#aborted.code !== 'peer.aborted'
      this.fail(knowsMore ? this.#aborted : thrown)
    }
  }

  /** As a newcomer, at once; where the run's state came too slowly, later; where it was evicted, never. */
  #comeAgain(key: string, thrown: unknown): void {
    const out = () => this.#tab.client.out(key)
    if (this.#isPutOut) return
    if (codeOf(thrown) === 'peer.timeout') setTimeout(out, slowAgainMs)
    else out()
  }

  /** Makes links that the worker lacks in its roster. */
  #link(event: Extract<RunEvent, { event: 'unlinked' }>): void {
    const { ballot, lives, links } = event
    const members = lives.flatMap((life) => this.#known.get(memberOf(life))?.member ?? [])
    if (members.length === lives.length) void this.#own.form(event, members)
    else
      for (const { peerRank } of links)
        this.#tab.compute.notLinked(ballot, peerRank).catch(() => undefined)
  }

  /** Of all links. */
  async #stats(): Promise<readonly FormedLink[]> {
    const rings = await Promise.all(this.#rings.map((ring) => ring.stats()))
    const own = await Promise.all(this.#own.links.map((link) => link.stats()))
    return [...rings.flat(), ...own]
  }

  #take(event: RunEvent, atMs: number): void {
    if (this.#isOver) return
    if (event.event === 'step') this.#hasTrained = true
    if (event.event === 'devices') this.#isOn(event.adapter)
    if (event.event === 'roster') this.#hasRoster(event)
    else if (event.event === 'half') {
      const { ballot, alive, lives } = event
      const { client, compute } = this.#tab
      const { key } = this.#first
      this.#mayBeAhead = false
      if (key !== undefined && client.isInside) client.half(key, ballot, alive, lives)
      else compute.firstHalf(ballot, undefined).catch(() => undefined)
    } else if (event.event === 'undecided') {
      const sinceMs = this.#undecided?.sinceMs ?? performance.now()
      const missing = event.missing?.map(memberOf)
      this.#undecided = missing && { sinceMs, missing }
      this.#askServer()
    } else if (event.event === 'unlinked') this.#link(event)
    else if (event.event === 'signal') this.#own.receive(event)
    this.#tab.marks.take(event, atMs)
    const named =
      event.event === 'broke'
        ? { ...event, name: this.#known.get(memberOf(event.who))?.member.name }
        : event
    this.#tab.report({ type: 'event', event: named, atMs })
  }

  /** The room may have the device as it was before: it computes on fewer threads by now, or is another one. */
  #isOn(adapter: AdapterFacts): void {
    const text = JSON.stringify(adapter)
    if (text === this.#adapter) return
    this.#adapter = text
    this.#tab.update({ adapter: { ...adapter } })
  }

  /** The members have decided who the ranks are. */
  #hasRoster({ ballot, members, rank }: Extract<RunEvent, { event: 'roster' }>): void {
    const { epoch, run, key } = this.#first
    this.#ballot = ballot
    this.#mayBeAhead = false
    this.#members = members.map(memberOf)
    this.#rank = rank
    if (key !== undefined) this.#tab.client.ranks(key, ballot, this.#members)
    // One that called just as it was removed may have gone on, without this tab for a while.
    for (const id of this.#members) if (this.#tab.expelled.has(id)) this.remove(id)
    const known = this.#members.flatMap((id) => this.#known.get(id) ?? [])
    if (known.length < members.length) return
    const links = known.flatMap(({ link }, peerRank) => (link ? [{ ...link, peerRank }] : []))
    const sent = known.map(({ member }) => member)
    const worldSize = members.length
    const assignment = { epoch, run, key, rank, worldSize, members: sent, links }
    this.#tab.report({ type: 'regrouped', assignment })
  }

  /**
   * Resolves when the run's epoch has ended on all ranks, or the server is away or has another run.
   *
   * A connection that closes earlier would count as a loss at a neighbour, and take its channel's statistics along.
   */
  #othersEnd(): Promise<void> {
    const { client } = this.#tab
    const { epoch: first, run: elasticRun, run = first } = this.#first
    return new Promise((resolve) => {
      const finish = () => {
        for (const off of listening) off()
        resolve()
      }
      const finishIfOwn = ({ epoch }: { readonly epoch: number }) => {
        if (epoch === run) finish()
      }
      // A server on which the room has another run says nothing of this one.
      const finishIfUnknown = () => {
        if (elasticRun === undefined) return
        if (client.lobby?.members.find(({ id }) => id === client.id)?.rank === null) finish()
      }
      const listening = [
        client.on('finished', finishIfOwn),
        client.on('abort', finishIfOwn),
        client.on('away', finish),
        client.on('lost', finish),
        client.on('lobby', finishIfUnknown),
      ]
      if (client.isInside) finishIfUnknown()
      else finish()
    })
  }
}

/** Null for a rank of a run that this tab joins: it says itself who it is. */
function lifeAt({ epoch, run, worldSize, joining = 0, members }: Assignment, at: number) {
  const joins = run !== undefined && run !== epoch
  return joins && at < worldSize - joining ? null : lifeOf(members[at], epoch)
}

const codeOf = (thrown: unknown) => (thrown instanceof TabringError ? thrown.code : undefined)
