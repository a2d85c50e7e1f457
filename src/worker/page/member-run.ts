import type { AssignedLink, Assignment, JsonValue } from '../../peer/room/messages.ts'
import { lostRankIn } from '../../peer/room/refusals.ts'
import { machinesOf } from '../../peer/room/topology.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient } from '../../peer/tab/signal.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import { messageOf, PeerError, toError } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'
import type { CheckpointAddress, ComputeApi, Membership, RunEvent, RunResult } from '../api.ts'
import { formLinks, type RingLinks, type RingStats } from './connect.ts'
import type { StartMarks } from './start-marks.ts'

/** What a run ended with on this rank. */
export type RunEnd =
  | { ok: true; rank: number; worldSize: number; result: RunResult; ring: RingStats }
  | { ok: false; rank: number | null; error: Error }

/** What a tab hears of its runs. */
export interface RunListener {
  /** The run continues in another group: ranks were lost, or have come. */
  onRegrouped?: (assignment: Assignment) => void
  /** A link to a neighbour is up, and which way it goes. */
  onLinked?: (peerRank: number, kind: AssignedLink['kind']) => void
  onConfig?: (config: TrainConfig) => void
  /** `atMs`: when it happened, as Unix time. */
  onEvent?: (event: RunEvent, atMs: number) => void
}

/** What a run needs of its tab. */
export interface RunTab {
  readonly client: SignalClient
  readonly compute: ComputeApi
  readonly ports: LocalPorts | null
  readonly marks: StartMarks
  readonly listener: RunListener
  /** Where checkpoints are, if not in this browser's private files. */
  readonly checkpoints: CheckpointAddress | undefined
  /** What the maker, another tab, has started. */
  readonly proposed: TrainConfig | null
  /** errors: `config.invalid`. */
  parse(settings: JsonValue): TrainConfig
  /** What a person gave on this tab for the run. */
  givenFor(config: TrainConfig): Uint8Array | undefined
  /** The run is over on this rank. */
  ended(end: RunEnd): void
}

/** Ranks with their links. */
interface Group {
  readonly assignment: Assignment
  readonly ring: RingLinks
}

/**
 * A tab's part in one run of its room, from the page's side: links form, the worker trains, and an elastic run continues in other groups.
 *
 *     assignment -> links, ready -> start -> train ... done -> all done: ended
 *                                              |
 *                             another assignment -> its links, ready -> start: continue there
 */
export class MemberRun {
  /** The worker trains. */
  isRunning = false
  readonly #tab: RunTab
  #now: Group
  /** In which the run is to continue, while its links form. */
  #next: Group | undefined
  /** Where the worker trains: it may still be in the group before. */
  #trainsIn: Assignment
  /** By which words the room's run was ended, until the worker has come to its end. */
  #abortText: string | undefined
  /** Tells of the run's good end, while the worker leaves it. */
  #endWell: (() => void) | undefined
  #isOver = false

  constructor(tab: RunTab, assignment: Assignment) {
    this.#tab = tab
    this.#trainsIn = assignment
    const ring = this.#formLinks(assignment, this.#prepare(assignment))
    this.#now = { assignment, ring }
    ring.connected.catch((error) => this.fail(error, assignment.epoch))
  }

  get rank(): number {
    return this.#now.assignment.rank
  }

  /** In which the server knows this tab. */
  get newestEpoch(): number {
    return (this.#next ?? this.#now).assignment.epoch
  }

  /** Whether the others continue when this tab leaves: the run is elastic and has begun. */
  get continuesWithoutThis(): boolean {
    const { run, epoch } = this.#now.assignment
    return run !== undefined && (this.isRunning || run !== epoch)
  }

  /** Takes an assignment of this run: its links form, while ranks train on unless one is lost. False for one of another run. */
  follow(assignment: Assignment): boolean {
    const { run } = assignment
    if (run === undefined || !this.isRunning || this.#now.assignment.run !== run) return false
    tell(1, 'room', () => `epoch ${assignment.epoch}: continues with ${assignment.worldSize} ranks`)
    this.#dropNext()
    const ring = this.#formLinks(assignment)
    this.#next = { assignment, ring }
    // The server has been told.
    ring.connected.catch(() => undefined)
    // The worker may be in either group, or on its way.
    const lost =
      lostWords(this.#now.assignment, assignment) ?? lostWords(this.#trainsIn, assignment)
    if (lost !== undefined) this.#endGroup(lost)
    return true
  }

  /** All links of that epoch are up on all ranks. */
  start(epoch: number, settings: JsonValue): void {
    if (this.#next?.assignment.epoch === epoch) this.#continue(this.#next)
    else if (this.#now.assignment.epoch === epoch) this.#train(settings)
  }

  /** The server has ended an epoch. */
  abort(epoch: number, text: string): void {
    const isOwn = [this.#now, this.#next].some((group) => group?.assignment.epoch === epoch)
    if (!isOwn) return
    this.#abortText = text
    if (this.isRunning) this.#tab.compute.abort(text).catch(() => undefined)
    else this.fail(new PeerError('peer.aborted', text))
  }

  /** The room's next run begins, and the worker has not come to the end of this one: it ends here, in the words in which it was ended. */
  endBeforeNext(): void {
    this.#endWell?.()
    this.fail(new PeerError('peer.aborted', this.#abortText ?? 'Another run has started.'))
  }

  /** Ends the run on this rank, once, with the first error. An error of another epoch ends nothing. */
  fail(thrown: unknown, epoch = this.#now.assignment.epoch): void {
    const { assignment, ring } = this.#now
    if (this.#isOver || assignment.epoch !== epoch) return
    const error = toError(thrown)
    if (!this.isRunning) this.#tab.compute.dropLinks(epoch).catch(() => undefined)
    tell(1, 'room', () => `epoch ${epoch}: ended by ${messageOf(thrown)}`)
    ring.close()
    this.#end({ ok: false, rank: assignment.rank, error })
  }

  /** Closes all links. */
  close(): void {
    this.#now.ring.close()
    this.#next?.ring.close()
  }

  #end(end: RunEnd): void {
    this.#endWell = undefined
    this.#isOver = true
    this.isRunning = false
    this.#dropNext()
    this.#tab.ended(end)
  }

  /** Before it joins a run that is on: its ranks train until this one is ready. errors: those of `ComputeApi.prepare`; the server has been told. */
  async #prepare({ run, epoch, rank }: Assignment): Promise<void> {
    const { proposed, compute, client, listener } = this.#tab
    if (run === undefined || run === epoch || !proposed) return
    try {
      await compute.prepare(proposed, location.href, (phase) => {
        if (!this.#isOver) listener.onEvent?.({ event: 'phase', phase, rank }, Date.now())
      })
    } catch (error) {
      if (!this.#isOver) client.abort(epoch, messageOf(error).slice(0, 300))
      throw error
    }
  }

  #formLinks(assignment: Assignment, prepared?: Promise<void>): RingLinks {
    const { client, compute, ports, listener } = this.#tab
    return formLinks({
      prepared,
      client,
      assignment,
      ports,
      addLink: (epoch, peerRank, transport, lane) =>
        compute.addLink(epoch, peerRank, transport, lane),
      onLinked: (peerRank, kind) => {
        tell(1, 'room', () => `epoch ${assignment.epoch}: linked to rank ${peerRank} by ${kind}`)
        if (!this.#isOver && this.#now.assignment === assignment)
          listener.onLinked?.(peerRank, kind)
      },
    })
  }

  /** The group that trains comes to its end: at once where ranks are `lost`, else after one of the next steps. */
  #endGroup(lost?: string): void {
    this.#now.ring.letGo()
    this.#tab.compute.regroupSoon(lost).catch(() => undefined)
  }

  #continue(next: Group): void {
    const { assignment } = next
    if (lostWords(this.#trainsIn, assignment) === undefined) this.#endGroup()
    const before = this.#now.ring
    this.#now = next
    this.#next = undefined
    this.#tab.listener.onRegrouped?.(assignment)
    this.#tab.compute
      .continueAs(membershipOf(assignment))
      .then((isIn) => {
        if (isIn) this.#trainsIn = assignment
      })
      .catch(() => undefined)
      .then(() => before.close())
  }

  async #train(settings: JsonValue): Promise<void> {
    const { client, compute, listener, marks } = this.#tab
    const { assignment } = this.#now
    const { run, epoch } = assignment
    // From now on: the others may be done, or fail, before this rank is.
    const others = this.#othersEnd()
    this.isRunning = true
    marks.mark('sent')
    try {
      const config = this.#tab.parse(settings)
      listener.onConfig?.(config)
      const isElastic = run !== undefined
      const result = await compute.train(
        { ...membershipOf(assignment), isElastic, joins: isElastic && run !== epoch },
        config,
        location.href,
        (events) => {
          for (const { event, atMs } of events) this.#take(event, atMs)
        },
        this.#tab.checkpoints,
        this.#tab.givenFor(config),
      )
      const last = this.#now
      const ring = await last.ring.stats()
      // It may have come to its end in the group before.
      const { rank, worldSize, epoch: endedIn } = this.#trainsIn
      if (!this.#isOver) client.done(endedIn)
      await others.ended
      if (this.#isOver || this.#now !== last) {
        last.ring.close()
        return
      }
      // Once: the room's next run may begin before the worker has left this one.
      const end = () => {
        last.ring.close()
        tell(1, 'room', () => `epoch ${endedIn}: ended well`)
        this.#end({ ok: true, rank, worldSize, result, ring })
      }
      this.#endWell = end
      await compute.leave()
      if (this.#endWell === end) end()
    } catch (thrown) {
      if (this.#isOver) return
      client.abort(this.newestEpoch, messageOf(thrown).slice(0, 300))
      this.fail(thrown)
    } finally {
      others.stop()
    }
  }

  #take(event: RunEvent, atMs: number): void {
    if (this.#isOver) return
    if (event.event === 'lost') this.#tellLost(event.text)
    this.#tab.marks.take(event, atMs)
    this.#tab.listener.onEvent?.(event, atMs)
  }

  /** The worker has noticed a loss, by silence perhaps, which the page's own connections do not see. */
  #tellLost(text: string): void {
    const { epoch, links, members } = this.#trainsIn
    if (epoch !== this.#now.assignment.epoch || links.length === 0) return
    const named = lostRankIn(text)
    const { peerRank } = links.find((link) => link.peerRank === named) ?? links[0]
    const next = this.#next?.assignment
    // The server knows of a rank that the next group is without.
    if (next && !next.members.some(({ id }) => id === members[peerRank].id)) return
    this.#tab.client.linkDown(epoch, peerRank, text.slice(0, 300))
  }

  /**
   * Listens for the end of the run's epoch on all ranks, or for the server's, which then cannot tell any more.
   *
   * A connection that closes earlier would count as a loss at a neighbour, and take its channel's statistics along.
   */
  #othersEnd(): { ended: Promise<void>; stop: () => void } {
    const { client } = this.#tab
    let finish!: () => void
    const ended = new Promise<void>((resolve) => {
      finish = resolve
    })
    const finishIfOwn = ({ epoch }: { readonly epoch: number }) => {
      const own = [this.#now.assignment, this.#trainsIn]
      if (!this.#isOver && own.some((one) => one.epoch === epoch)) finish()
    }
    const listening = [
      client.on('finished', finishIfOwn),
      client.on('abort', finishIfOwn),
      client.on('lost', finish),
    ]
    return {
      ended,
      stop: () => {
        for (const off of listening) off()
      },
    }
  }

  #dropNext(): void {
    if (!this.#next) return
    const { assignment, ring } = this.#next
    this.#next = undefined
    ring.close()
    this.#tab.compute.dropLinks(assignment.epoch).catch(() => undefined)
  }
}

/** The ranks of a group that are not in the one that follows it; undefined where all are. */
function lostWords({ members }: Assignment, next: Assignment): string | undefined {
  const lost = members.flatMap(({ id, name }, rank) =>
    next.members.some((one) => one.id === id) ? [] : [`rank ${rank} (${name})`],
  )
  if (lost.length === 0) return undefined
  return `${lost.join(', ')} ${lost.length === 1 ? 'is' : 'are'} gone.`
}

const membershipOf = ({ epoch, rank, worldSize, members }: Assignment): Membership => ({
  epoch,
  rank,
  worldSize,
  machines: machinesOf(members),
  who: members.map(({ id }) => id).join(),
})
