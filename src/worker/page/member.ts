import type {
  AssignedLink,
  Assignment,
  JsonValue,
  Lobby,
  MemberInfo,
  TransportChoice,
} from '../../peer/room/messages.ts'
import { lostRankIn, removedBy, removerIn, SignalError } from '../../peer/room/refusals.ts'
import type { RoomLink } from '../../peer/room/secret.ts'
import { machinesOf } from '../../peer/room/topology.ts'
import { loadWebRtc } from '../../peer/tab/late-connection.ts'
import { type LocalPorts, openLocalPorts } from '../../peer/tab/local-ports.ts'
import { SignalClient, signalUrl } from '../../peer/tab/signal.ts'
import {
  canBeElastic,
  type TrainConfig,
  type TrainConfigInput,
} from '../../trainer/settings/config.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import type { DeviceType } from '../../util/device.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'
import { givenSwitches } from '../../util/switches.ts'
import type {
  AdapterFacts,
  CheckpointAddress,
  ComputeApi,
  Membership,
  RunEvent,
  RunResult,
} from '../api.ts'
import { type ComputeClient, type StartWorker, startCompute } from './client.ts'
import { formLinks, leaveOnPageHide, type RingLinks, type RingStats } from './connect.ts'
import { SelfMeasures } from './self-measures.ts'
import { StartMarks } from './start-marks.ts'

/** What a run ended with on this rank. */
export type RunEnd =
  | { ok: true; rank: number; worldSize: number; result: RunResult; ring: RingStats }
  | { ok: false; rank: number | null; error: Error }

/** What a rank sent in a run that ended well: as the browser's data channels count, where all links are such; else as the worker counts. */
export const bytesSentIn = ({ result, ring }: Extract<RunEnd, { ok: true }>): number =>
  ring.links.some(({ kind }) => kind !== 'webrtc') ? result.links.bytesSent : ring.total.bytesSent

/** What may change about a tab while it is in a room. */
export type MemberChange = Partial<Pick<MemberInfo, 'name' | 'hidden' | 'measured'>>

export interface RoomMemberOptions {
  /** What this page can train. */
  experiments: Experiments
  startWorker: StartWorker
  link: RoomLink
  name: string
  transport: TransportChoice
  mode: 'create' | 'join' | 'either'
  /** What makes this member the room's maker again after a reload: 32 hexadecimal digits that nobody else knows. */
  token?: string
  /** Equal for the ranks of one tab. */
  tab?: string
  /**
   * Whether this member measures itself for the others to see: its device, round trips. The device is that of the whole tab, so one of its
   * ranks measures it, by `speed`, and the others take what came of it.
   */
  measures?: { speed: (own: ComputeApi) => Promise<number | null> }
  /** Where checkpoints are, if not in this browser's private files. */
  checkpoints?: CheckpointAddress
  onLobby?: (lobby: Lobby, ownId: string | null) => void
  /** What the maker, another tab, would start now; null for settings that this page does not know. */
  onProposed?: (config: TrainConfig | null) => void
  onAssigned?: (assignment: Assignment) => void
  /** The run continues in another group: ranks were lost, or have come. */
  onRegrouped?: (assignment: Assignment) => void
  /** A link to a neighbour is up, and which way it goes. */
  onLinked?: (peerRank: number, kind: AssignedLink['kind']) => void
  onConfig?: (config: TrainConfig) => void
  /** `atMs`: when it happened, as Unix time. */
  onEvent?: (event: RunEvent, atMs: number) => void
  onEnd?: (end: RunEnd) => void
  /** The compute worker has ended: this tab has left the room and can take part no more. */
  onDead?: (error: Error) => void
  /** The maker has removed this tab from the room: it can come back only as a new member. */
  onRemoved?: (error: Error) => void
  /** The connection to the server has ended; a run may go on without it. */
  onServerLost?: (error: Error) => void
  /** The server said no to something, and the connection stays. */
  onRefused?: (error: Error) => void
}

/**
 * A tab in a room, from its page's side: device, signaling, links and runs in one place.
 *
 * `open` the device, `join` the room, `start` if it is the maker; everything else arrives through the callbacks.
 */
export class RoomMember {
  readonly #options: RoomMemberOptions
  readonly #compute: ComputeClient
  #client: SignalClient | undefined
  #ports: LocalPorts | null = null
  #ring: RingLinks | undefined
  #assignment: Assignment | undefined
  /** Where the worker trains: it may still be in the group before `#assignment`. */
  #trainsIn: Assignment | undefined
  /** The group in which the run is to continue, while its links form. */
  #next: { readonly assignment: Assignment; readonly ring: RingLinks } | undefined
  /** By which words the room's run was ended, until the worker has come to its end. */
  #abortText: string | undefined
  /** Tells of the run's good end, while the worker leaves it. */
  #endWell: (() => void) | undefined
  /** In the newest run that this tab took part in. */
  #rank: number | null = null
  #isRunning = false
  #isServerLost = false
  #isClosed = false
  /** As the room knows this tab; set once it is in. */
  #info: MemberInfo | undefined
  /** What was told before that. */
  #changes: MemberChange = {}
  /** What a person gave on this tab, by demo, for runs whose data is `given`. */
  readonly #given = new Map<string, Uint8Array>()
  /** What the maker, another tab, would start now, or has started. */
  #proposed: TrainConfig | null = null
  /** Whether this tab started the current run: of several that have data only its own counts. */
  #hasStarted = false
  #measures: SelfMeasures | undefined
  readonly #marks = new StartMarks()

  constructor(options: RoomMemberOptions) {
    this.#options = options
    this.#compute = startCompute(options.startWorker)
    this.#compute.dead.catch((error) => this.#died(error))
  }

  get compute(): ComputeApi {
    return this.#compute.api
  }

  /** Of the run that is on, or of the last one; null before the first. */
  get rank(): number | null {
    return this.#rank
  }

  /** Whether the room's server relays links; known once it has been joined. */
  get hasRelay(): boolean {
    return this.#client?.hasRelay ?? false
  }

  /** Opens the device in the worker. errors: `gpu.unavailable`, `worker.dead`. */
  open(device: DeviceType = 'webgpu'): Promise<AdapterFacts> {
    return this.#compute.api.open(device, givenSwitches())
  }

  /** Enters the room. errors: SignalError with the server's reason, `signal.lost`. */
  async join(adapter: AdapterFacts): Promise<void> {
    const { link, name, transport, mode, token } = this.#options
    if (transport !== 'webrtc' && transport !== 'relay') this.#ports = await openLocalPorts()
    const info: MemberInfo = {
      name,
      adapter: { ...adapter },
      hostTag: this.#ports?.hostTag ?? '',
      hidden: document.hidden,
      transport,
      tab: this.#options.tab,
      ...this.#changes,
    }
    const url = signalUrl(location)
    const client = new SignalClient({ url, link, info, mode, hostToken: token, WebSocket })
    this.#client = client
    client.on('lobby', (lobby) => {
      tell(1, 'room', () => `members ${lobby.members.map((member) => member.name).join(', ')}`)
      if (mayNeedWebRtc(info, lobby.members)) loadWebRtc().catch(() => undefined)
      this.#measures?.roomIs(lobby)
      this.#options.onLobby?.(lobby, client.id)
    })
    client.on('proposed', (settings) => {
      this.#proposed = this.#knownConfig(settings)
      this.#options.onProposed?.(this.#proposed)
    })
    client.on('assign', (assignment) => this.#connect(assignment))
    client.on('reach', (reach) => this.#measures?.receive(reach))
    client.on('start', ({ epoch, settings }) =>
      this.#next?.assignment.epoch === epoch ? this.#continue() : this.#run(epoch, settings),
    )
    client.on('abort', ({ epoch, text }) => this.#abort(epoch, text))
    client.on('refused', (error) => {
      this.#hasStarted = false
      this.#options.onRefused?.(error)
    })
    client.on('lost', (error) => {
      tell(1, 'room', () => `server lost: ${error.message}`)
      this.#isServerLost = true
      if (error instanceof SignalError && error.refusal === 'removed') {
        this.#removed(error)
        return
      }
      if (!this.#assignment) this.#hasStarted = false
      this.#endMeasures()
      if (this.#assignment && !this.#isRunning) this.#fail(error)
      this.#compute.api.cannotRegroup().catch(() => undefined)
      this.#options.onServerLost?.(error)
    })
    leaveOnPageHide(client)
    this.#changes = {}
    await Promise.race([client.open(), this.#compute.dead])
    tell(1, 'room', () => `joined as ${name}`)
    this.#info = info
    if (Object.keys(this.#changes).length > 0) this.update(this.#changes)
    this.#measure(client, info)
  }

  #measure(client: SignalClient, own: MemberInfo): void {
    const { measures } = this.#options
    if (!measures || this.#isClosed || this.#isServerLost) return
    this.#measures = new SelfMeasures({
      client,
      own,
      ports: this.#ports,
      isInRun: this.#assignment !== undefined,
      tell: (measured) => this.update({ measured }),
      refuse: (thrown) => this.#options.onRefused?.(toError(thrown)),
      speed: () => measures.speed(this.compute),
      linkRoundTrips: () => this.compute.roundTrips(),
    })
  }

  #endMeasures(): void {
    this.#measures?.end()
    this.#measures = undefined
  }

  /** Tells the room what changed about this tab, as soon as it is in. */
  update(change: MemberChange): void {
    if (!this.#info) {
      this.#changes = { ...this.#changes, ...change }
      return
    }
    this.#info = { ...this.#info, ...change }
    this.#client?.update(this.#info)
  }

  /** Keeps what a person gave, for the runs of `demo` that this tab starts with the data `given`; the other ranks get it from this one. Null: forgets it. */
  give(demo: string, bytes: Uint8Array | null): void {
    if (bytes) this.#given.set(demo, bytes)
    else this.#given.delete(demo)
  }

  /** Forgets what was given, and the model of the last run; between runs. */
  forget(): void {
    this.#given.clear()
    this.#compute.api.forget().catch(() => undefined)
  }

  /** Makes another member the room's maker, or takes it out of the room; for the maker. A refusal comes through `onRefused`. */
  handOver(id: string): void {
    this.#client?.handOver(id)
  }
  remove(id: string): void {
    this.#client?.remove(id)
  }

  /** Shows the others what this tab would start; for the maker. */
  propose(config: TrainConfigInput): void {
    this.#client?.propose(this.#parse(config) as unknown as JsonValue)
  }

  /**
   * Seals the room as it is and starts training; for the maker. The server answers a refusal through `onRefused`. A start that is under way is
   * the only one.
   */
  start(config: TrainConfigInput): void {
    if (this.#hasStarted || this.#assignment) return
    const parsed = this.#parse(config)
    this.#hasStarted = true
    this.#marks.begin('pressed')
    const settings = parsed as unknown as JsonValue
    this.#requireClient().start(settings, canBeElastic(parsed))
  }

  /** Asks for a pause: all ranks begin it after the same step, told by the event `paused`. For the maker. */
  pause(): void {
    this.#compute.api.pause().catch(() => undefined)
  }

  /** Ends the pause that this tab asked for, on all ranks, told by the event `continued`. */
  goOn(): void {
    this.#compute.api.goOn().catch(() => undefined)
  }

  /** In a pause that this tab asked for: all ranks take one step and pause again, told by `continued` and `paused`. */
  oneStep(): void {
    this.#compute.api.oneStep().catch(() => undefined)
  }

  /** Ends the run on all ranks. */
  stop(reason: string): void {
    if (this.#assignment) this.#client?.abort(this.#newestEpoch, reason)
    this.#compute.api.abort(reason).catch(() => undefined)
  }

  /** Leaves the room and ends the worker. */
  close(): void {
    tell(1, 'room', () => 'left')
    this.#isClosed = true
    this.#endMeasures()
    this.#client?.bye()
    this.#ring?.close()
    this.#next?.ring.close()
    this.#ports?.close()
    this.#compute.terminate()
  }

  /** errors: `config.invalid`. */
  #parse(settings: unknown): TrainConfig {
    return this.#options.experiments.parseTrainConfig(settings)
  }

  #knownConfig(settings: JsonValue): TrainConfig | null {
    try {
      return this.#parse(settings)
    } catch {
      return null
    }
  }

  #requireClient(): SignalClient {
    if (!this.#client)
      throw new PeerError('signal.lost', 'room: not joined yet. Call join() first.')
    return this.#client
  }

  #connect(assignment: Assignment): void {
    const { run } = assignment
    if (run !== undefined && this.#isRunning && this.#assignment?.run === run) {
      this.#follow(assignment)
      return
    }
    this.#endBefore()
    this.#assignment = assignment
    this.#rank = assignment.rank
    this.#isRunning = false
    this.#marks.begin('assigned')
    tell(1, 'room', () => {
      const { epoch, rank, worldSize } = assignment
      return `epoch ${epoch}: rank ${rank} of ${worldSize}`
    })
    this.#measures?.runBegan()
    this.#options.onAssigned?.(assignment)
    const ring = this.#formLinks(assignment, this.#prepare(assignment))
    this.#ring = ring
    ring.connected.catch((error) => this.#fail(error, assignment.epoch))
  }

  /** Before it joins a run that is on: its ranks train until this one is ready. errors: those of `ComputeApi.prepare`; the server has been told. */
  async #prepare({ run, epoch, rank }: Assignment): Promise<void> {
    const config = this.#proposed
    if (run === undefined || run === epoch || !config) return
    try {
      await this.compute.prepare(config, location.href, (phase) => {
        if (this.#assignment?.epoch === epoch)
          this.#options.onEvent?.({ event: 'phase', phase, rank }, Date.now())
      })
    } catch (error) {
      if (this.#assignment?.epoch === epoch)
        this.#client?.abort(epoch, messageOf(error).slice(0, 300))
      throw error
    }
  }

  #formLinks(assignment: Assignment, prepared?: Promise<void>): RingLinks {
    return formLinks({
      prepared,
      client: this.#requireClient(),
      assignment,
      ports: this.#ports,
      addLink: (epoch, peerRank, transport, lane) =>
        this.compute.addLink(epoch, peerRank, transport, lane),
      onLinked: (peerRank, kind) => {
        tell(1, 'room', () => `epoch ${assignment.epoch}: linked to rank ${peerRank} by ${kind}`)
        if (this.#assignment === assignment) this.#options.onLinked?.(peerRank, kind)
      },
    })
  }

  /** The worker has noticed a loss, by silence perhaps, which the page's own connections do not see. */
  #tellLost(text: string): void {
    const { epoch, links, members } = this.#trainsIn!
    if (epoch !== this.#assignment?.epoch || links.length === 0) return
    const named = lostRankIn(text)
    const { peerRank } = links.find((link) => link.peerRank === named) ?? links[0]
    const next = this.#next?.assignment
    // The server knows of a rank that the next group is without.
    if (next && !next.members.some(({ id }) => id === members[peerRank].id)) return
    this.#client?.linkDown(epoch, peerRank, text.slice(0, 300))
  }

  /** The run is to continue in another group: its links form, while the others train on unless a rank is lost. */
  #follow(assignment: Assignment): void {
    tell(1, 'room', () => `epoch ${assignment.epoch}: continues with ${assignment.worldSize} ranks`)
    this.#dropNext()
    const ring = this.#formLinks(assignment)
    this.#next = { assignment, ring }
    // The server has been told.
    ring.connected.catch(() => undefined)
    const lost = lostWords(this.#trainsIn!, assignment)
    if (lost !== undefined) this.#endGroup(lost)
  }

  /** The group that trains comes to its end: at once where ranks are `lost`, else after one of the next steps. */
  #endGroup(lost?: string): void {
    this.#ring?.letGo()
    this.compute.regroupSoon(lost).catch(() => undefined)
  }

  /** All links of the group that follows are up. */
  #continue(): void {
    const { assignment, ring } = this.#next!
    if (lostWords(this.#trainsIn!, assignment) === undefined) this.#endGroup()
    const before = this.#ring
    this.#next = undefined
    this.#assignment = assignment
    this.#ring = ring
    this.#rank = assignment.rank
    this.#options.onRegrouped?.(assignment)
    this.compute
      .continueAs(membershipOf(assignment))
      .then(() => {
        this.#trainsIn = assignment
      })
      .catch(() => undefined)
      .then(() => before?.close())
  }

  /** In which the server knows this tab. */
  get #newestEpoch(): number {
    return (this.#next?.assignment ?? this.#assignment)!.epoch
  }

  /** Whether the others continue the run when this tab leaves: it is elastic and has begun. */
  get #continuesWithoutThis(): boolean {
    const { run, epoch } = this.#assignment!
    return run !== undefined && (this.#isRunning || run !== epoch)
  }

  /** The room's run before is over, and the worker has not come to its end yet: it ends here, in the words in which it was ended. */
  #endBefore(): void {
    const hasStarted = this.#hasStarted
    this.#endWell?.()
    if (this.#assignment)
      this.#fail(new PeerError('peer.aborted', this.#abortText ?? 'Another run has started.'))
    this.#abortText = undefined
    this.#hasStarted = hasStarted
  }

  async #run(epoch: number, settings: JsonValue): Promise<void> {
    const assignment = this.#assignment
    const ring = this.#ring
    if (!assignment || !ring || assignment.epoch !== epoch) return
    const client = this.#requireClient()
    const { run } = assignment
    /** The one in which the run is now: an elastic one continues in others. */
    const current = (): Assignment | undefined => {
      const now = this.#assignment
      return now === assignment || (run !== undefined && now?.run === run) ? now : undefined
    }
    // From now on: the others may be done, or fail, before this rank is.
    const others = this.#othersEnd(client, (of) => of === current()?.epoch)
    this.#isRunning = true
    this.#trainsIn = assignment
    this.#marks.mark('sent')
    try {
      const config = this.#parse(settings)
      this.#options.onConfig?.(config)
      const result = await this.compute.train(
        {
          ...membershipOf(assignment),
          isElastic: run !== undefined,
          joins: run !== undefined && run !== epoch,
        },
        config,
        location.href,
        (events) => {
          for (const { event, atMs } of events) {
            if (!current()) return
            if (event.event === 'lost') this.#tellLost(event.text)
            this.#marks.take(event, atMs)
            this.#options.onEvent?.(event, atMs)
          }
        },
        this.#options.checkpoints,
        this.#hasStarted ? this.#given.get(config.demo) : undefined,
      )
      const last = current()
      const lastRing = this.#ring ?? ring
      const stats = await lastRing.stats()
      if (last) client.done(last.epoch)
      await others.ended
      if (!last || current() !== last) {
        lastRing.close()
        return
      }
      // Once: the room's next run may begin before the worker has left this one.
      const end = () => {
        this.#endWell = undefined
        lastRing.close()
        this.#dropNext()
        this.#assignment = undefined
        this.#isRunning = false
        this.#hasStarted = false
        this.#measures?.runEnded()
        tell(1, 'room', () => `epoch ${last.epoch}: ended well`)
        const { rank, worldSize } = last
        this.#options.onEnd?.({ ok: true, rank, worldSize, result, ring: stats })
      }
      this.#endWell = end
      await this.compute.leave()
      if (this.#endWell === end) end()
    } catch (thrown) {
      if (current()) {
        client.abort(this.#newestEpoch, messageOf(thrown).slice(0, 300))
        this.#fail(thrown)
      }
    } finally {
      others.stop()
    }
  }

  /**
   * Listens for the end of an epoch on all ranks, or for the server's, which then cannot tell any more.
   *
   * A connection that closes earlier would count as a loss at a neighbour, and take its channel's statistics along.
   */
  #othersEnd(
    client: SignalClient,
    isOwn: (epoch: number) => boolean,
  ): { ended: Promise<void>; stop: () => void } {
    let finish!: () => void
    const ended = new Promise<void>((resolve) => {
      finish = resolve
    })
    if (this.#isServerLost) finish()
    const listening = [
      client.on('finished', ({ epoch }) => isOwn(epoch) && finish()),
      client.on('abort', ({ epoch }) => isOwn(epoch) && finish()),
      client.on('lost', finish),
    ]
    return {
      ended,
      stop: () => {
        for (const off of listening) off()
      },
    }
  }

  /**
   * Without its worker a tab is no member: the others would wait for it at the next start.
   *
   * It comes before the calls that the worker's end rejects, and closes the links, so that none of them blames a neighbour.
   */
  #died(error: Error): void {
    if (this.#isClosed) return
    const client = this.#client
    if (this.#assignment && !this.#continuesWithoutThis)
      client?.abort(this.#newestEpoch, messageOf(error).slice(0, 300))
    this.#fail(error)
    this.#endMeasures()
    client?.bye()
    this.#options.onDead?.(error)
  }

  /** Out of the room, and of its run; the worker stays, with what it has trained. */
  #removed(error: SignalError): void {
    const reason = removedBy(removerIn(error.message))
    if (this.#isRunning) this.compute.abort(reason).catch(() => undefined)
    this.#fail(error)
    this.#endMeasures()
    this.#options.onRemoved?.(error)
  }

  #abort(epoch: number, text: string): void {
    if (this.#assignment?.epoch !== epoch && this.#next?.assignment.epoch !== epoch) return
    this.#abortText = text
    if (this.#isRunning) this.compute.abort(text).catch(() => undefined)
    else this.#fail(new PeerError('peer.aborted', text))
  }

  #dropNext(): void {
    if (!this.#next) return
    const { assignment, ring } = this.#next
    this.#next = undefined
    ring.close()
    this.#compute.api.dropLinks(assignment.epoch).catch(() => undefined)
  }

  /** Ends the current assignment, once, with the first error. An error of another epoch ends nothing. */
  #fail(thrown: unknown, epoch = this.#assignment?.epoch): void {
    if (!this.#assignment || this.#assignment.epoch !== epoch) return
    this.#endWell = undefined
    const error = toError(thrown)
    const { rank } = this.#assignment
    if (!this.#isRunning) this.#compute.api.dropLinks(this.#assignment.epoch).catch(() => undefined)
    tell(1, 'room', () => `epoch ${epoch}: ended by ${messageOf(thrown)}`)
    this.#assignment = undefined
    this.#isRunning = false
    this.#hasStarted = false
    this.#ring?.close()
    this.#dropNext()
    this.#measures?.runEnded()
    this.#options.onEnd?.({ ok: false, rank, error })
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

const toError = (thrown: unknown): Error =>
  thrown instanceof Error ? thrown : new Error(String(thrown))

/** Whether a link to one of them may go by WebRTC, whose code is then loaded before the start: ports join the tabs of one browser alone. */
const mayNeedWebRtc = (own: MemberInfo, members: readonly Pick<MemberInfo, 'hostTag'>[]): boolean =>
  members.length > 1 &&
  own.transport !== 'relay' &&
  (own.transport === 'webrtc' || members.some(({ hostTag }) => !hostTag || hostTag !== own.hostTag))
