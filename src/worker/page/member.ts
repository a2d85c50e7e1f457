import { sumStats } from '../../peer/link/link.ts'
import { membersPerRoom } from '../../peer/room/edges.ts'
import { type LifeKeys, newLifeKeys } from '../../peer/room/life-keys.ts'
import type { Assignment, MemberInfo, TransportChoice } from '../../peer/room/messages.ts'
import { SignalError } from '../../peer/room/refusals.ts'
import { type RoomLink, RoomSecret } from '../../peer/room/secret.ts'
import { loadWebRtc } from '../../peer/tab/late-connection.ts'
import { type LocalPorts, openLocalPorts } from '../../peer/tab/local-ports.ts'
import { SignalClient, signalUrl } from '../../peer/tab/signal.ts'
import {
  isElastic,
  type TrainConfig,
  type TrainConfigInput,
} from '../../trainer/settings/config.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import { messageOf, PeerError, toError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { loadPart } from '../../util/load-part.ts'
import { log } from '../../util/log.ts'
import { NewestMap } from '../../util/newest-map.ts'
import { givenSwitches } from '../../util/switches.ts'
import type { AdapterFacts, CheckpointAddress, ComputeApi } from '../api.ts'
import { type ComputeClient, type StartWorker, startCompute } from './client.ts'
import { leaveOnPageHide } from './leave-on-page-hide.ts'
import type { MemberEvent, RunEnd } from './member-events.ts'
import type { MemberRun } from './member-run.ts'
import { SelfMeasures } from './self-measures.ts'
import { StartMarks } from './start-marks.ts'

/** What a rank sent in a run that ended well: as the browser's data channels count, where all links are such; else as the worker counts. */
export const bytesSentIn = ({ result, links }: Extract<RunEnd, { ok: true }>): number =>
  links.some(({ kind }) => kind !== 'webrtc')
    ? result.links.bytesSent
    : sumStats(links.flatMap(({ stats }) => stats ?? [])).bytesSent

/** What a page may change about its tab, in any room. */
export type MemberChange = Partial<
  Pick<MemberInfo, 'name' | 'hidden' | 'adapter' | 'watches' | 'missed'>
>

export interface RoomMemberOptions {
  /** What this page can train. */
  experiments: Experiments
  startWorker: StartWorker
  link: RoomLink
  name: string
  transport: TransportChoice
  mode: 'create' | 'join' | 'either'
  /**
   * What makes this member the room's maker again after a reload, and brings it back without a question, by the room's name: 32 hexadecimal
   * digits that this tab alone knows, the same for all its ranks.
   */
  token?: (room: string) => string
  /** True if another rank of this tab is the one that may be the room's maker. Default false. */
  isFurther?: boolean
  /** For a server that makes rooms only for people who have its key. */
  roomKey?: string
  /** True if a lost connection to the server is tried again. Default false. */
  reconnects?: boolean
  /** Equal for the ranks of one tab. */
  tab?: string
  /**
   * True if this member measures itself for the others to see: its device, round trips. The device is that of the whole tab, so one of its
   * ranks measures it, by `speed`, and the others take what came of it.
   */
  measures?: { speed: (own: ComputeApi) => Promise<number | null> }
  /** Where checkpoints are, if not in this browser's private files. */
  checkpoints?: CheckpointAddress
  /** Takes what happens to this tab, in order. */
  on?: (event: MemberEvent) => void
}

/** What a tab needs to enter a room. */
interface WayIn {
  readonly link: RoomLink
  readonly hostToken: string | undefined
  readonly ports: LocalPorts | null
  readonly keys: LifeKeys
}

/**
 * A tab in a room, from its page's side: device, signaling, links and runs in one place.
 *
 * `open` the device, `join` the room, `start` if it is the maker; everything else arrives as events.
 */
export class RoomMember {
  readonly #options: RoomMemberOptions
  readonly #compute: ComputeClient
  #client: SignalClient | undefined
  #adapter: AdapterFacts | undefined
  #ports: LocalPorts | null = null
  /** There once this tab enters a room. */
  #keys: LifeKeys | undefined
  #run: MemberRun | undefined
  /** The newest that has ended: the server may not have heard that. */
  #past: MemberRun | undefined
  /** Loaded for the first run. */
  #Run: typeof MemberRun | undefined
  /** In the newest run that this tab took part in. */
  #rank: number | null = null
  #isServerLost = false
  /** Out of rooms for good: it has left, its worker has died, or it was removed. */
  #isClosed = false
  /** As the room knows this tab; set once it is in. */
  #info: MemberInfo | undefined
  /** All so far: each room that this tab enters hears them. */
  #changes: MemberChange = {}
  /** What a person gave on this tab, by demo, for runs whose data is `given`. */
  readonly #given = new Map<string, Uint8Array>()
  /** What the maker, another tab, would start now, or has started. */
  #proposed: TrainConfig | null = null
  /** True if this tab started the current run: of several that have data only its own counts. */
  #hasStarted = false
  #measures: SelfMeasures | undefined
  /** This tab's life in the elastic run that it was left out of. */
  #former: MemberRun['former']
  /** Between two rooms. */
  #isMoving = false
  /** On its way to the room that the host has moved to, or waiting to try again. */
  #isFollowing = false
  readonly #marks = new StartMarks()
  /** Members that this tab has removed as the host. */
  readonly #expelled = new NewestMap<string, true>(membersPerRoom)

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
    return this.#run?.rank ?? this.#rank
  }

  /** Returns whether the room's server relays links; known once it has been joined. */
  get hasRelay(): boolean {
    return this.#client?.hasRelay ?? false
  }

  /** Opens the device in the worker. errors: `gpu.unavailable`, `worker.dead`. */
  open(): Promise<AdapterFacts> {
    return this.#compute.api.open(undefined, givenSwitches())
  }

  /** Enters the room; may be called again where that failed. errors: SignalError with the server's reason, `signal.lost`. */
  async join(adapter: AdapterFacts): Promise<void> {
    this.#adapter = adapter
    const way = await this.#wayTo(this.#options.link)
    await this.#enter(way, adapter, this.#options.mode).catch((thrown) => {
      way.ports?.close()
      throw thrown
    })
  }

  /** Changes nothing in the room where this tab is. errors: `signal.lost` where it has left meanwhile. */
  async #wayTo(link: RoomLink): Promise<WayIn> {
    const { transport, token } = this.#options
    const hostToken = token?.((await RoomSecret.derive(link)).room)
    const hasPorts = transport !== 'webrtc' && transport !== 'relay'
    const ports = hasPorts ? await openLocalPorts() : null
    this.#keys ??= await newLifeKeys()
    if (!this.#isClosed) return { link, hostToken, ports, keys: this.#keys }
    ports?.close()
    throw hasLeft()
  }

  /** This tab is the new client's from the call on. */
  async #enter(
    { link, hostToken, ports, keys }: WayIn,
    adapter: AdapterFacts,
    mode: RoomMemberOptions['mode'],
  ): Promise<void> {
    const { name, transport, roomKey, reconnects, isFurther } = this.#options
    this.#ports = ports
    const changes = this.#changes
    const info: MemberInfo = {
      name,
      adapter: { ...adapter },
      hostTag: ports?.hostTag ?? '',
      hidden: document.hidden,
      transport,
      tab: this.#options.tab,
      keyHash: keys.hash,
      ...changes,
    }
    const client = new SignalClient({
      url: signalUrl(location),
      link,
      info,
      mode,
      hostToken,
      isFurther,
      roomKey,
      reconnects,
      runNow: () => this.#run?.now ?? null,
      loadRuns: () => this.#loadRuns(),
      WebSocket,
    })
    this.#client = client
    /** Until this tab is in another room. */
    const on: SignalClient['on'] = (event, listener) =>
      client.on(event, (value) => {
        if (this.#client === client) listener(value)
      })
    on('lobby', (lobby) => {
      log(1, 'room', () => `members ${lobby.members.map((member) => member.name).join(', ')}`)
      if (mayNeedWebRtc(info, lobby.members)) loadWebRtc().catch(() => undefined)
      this.#measures?.roomIs(lobby)
      this.#report({ type: 'lobby', lobby, ownId: client.id })
    })
    on('asking', ({ host }) => this.#report({ type: 'asking', host }))
    on('asks', (asks) => this.#report({ type: 'asks', asks }))
    on('proposed', (settings) => {
      this.#proposed = this.#knownConfig(settings)
      this.#report({ type: 'proposed', config: this.#proposed })
    })
    on('assign', (assignment) => this.#assigned(assignment))
    on('gone', ({ id, hasLeft, ballot }) => this.#run?.gone(id, hasLeft, ballot))
    on('half', ({ key, ballot, first }) => this.#run?.firstHalf(key, ballot, first))
    on('reach', (reach) => {
      const { from, data } = reach
      const message = Object(data)
      if ('watch' in message) this.#report({ type: 'watchMessage', from, message: message.watch })
      else this.#measures?.receive(reach)
    })
    on('start', ({ epoch, settings }) => this.#run?.start(epoch, settings))
    on('abort', (abort) => (this.#run ?? this.#past)?.abort(abort))
    on('finished', ({ epoch }) => this.#run?.finished(epoch))
    on('refused', (error) => {
      this.#hasStarted = false
      this.#refused(error)
    })
    on('moved', ({ data }) => {
      const key = keyIn(data)
      if (key !== null && !this.#isFollowing) this.#report({ type: 'moved', link: { key } })
    })
    on('away', (error) => this.#serverLost(error))
    on('lost', (error) => this.#lost(error))
    on('back', () => {
      log(1, 'room', () => 'back in the room')
      const run = this.#run ?? this.#past
      run?.back()
      this.#inside(client, this.#info ?? info)
    })
    leaveOnPageHide(client, this.#compute)
    await Promise.race([client.open(), this.#compute.dead])
    log(1, 'room', () => `joined as ${name}`)
    this.#info = info
    if (this.#changes !== changes) this.#tellRoom(this.#changes)
    this.#inside(client, info)
  }

  /** Also where the server was lost before, in this room or the one before it. */
  #inside(client: SignalClient, own: MemberInfo): void {
    const wasLost = this.#isServerLost
    this.#isServerLost = false
    this.#measure(client, own)
    if (wasLost) this.#report({ type: 'serverBack' })
  }

  /**
   * Moves to another room, between runs, with what was trained and the same name. `announce`: what this tab does in the old room once it is in
   * the new one.
   *
   * errors: those of `join` and of `announce`, or that a run begins in the old room; this tab is then in the old room, as before.
   */
  async move(
    link: RoomLink,
    mode: RoomMemberOptions['mode'],
    announce: (before: SignalClient) => Promise<void> = async () => undefined,
  ): Promise<void> {
    /** One that has not ended yet does not hold this tab. */
    const runBefore = this.#run
    this.#isMoving = true
    try {
      const way = await this.#wayTo(link)
      const isStarting = this.#run ? this.#run !== runBefore : this.#hasStarted
      if (isStarting) {
        way.ports?.close()
        throw runBegins()
      }
      await this.#moveBy(way, mode, announce)
    } finally {
      this.#isMoving = false
    }
  }

  /** From the call on this tab is the new client's, and the old one's events are kept for the case that it comes back. */
  async #moveBy(
    way: WayIn,
    mode: RoomMemberOptions['mode'],
    announce: (before: SignalClient) => Promise<void>,
  ): Promise<void> {
    const before = this.#requireClient()
    const [info, ports] = [this.#info, this.#ports]
    let assigned: Assignment | undefined
    let lost: Error | undefined
    const unlisten = [
      // It has a part in that run, and the others wait for it.
      before.on('assign', (assignment) => {
        assigned = assignment
        this.#client?.bye()
      }),
      before.on('lost', (error) => {
        lost = error
      }),
    ]
    this.#endMeasures()
    this.#info = undefined
    this.#report({ type: 'asks', asks: [] })
    try {
      await this.#enter(way, this.#adapter!, mode)
      if (assigned) throw runBegins()
      await announce(before)
      if (assigned) throw runBegins()
    } catch (thrown) {
      this.#endMeasures()
      this.#client?.bye()
      way.ports?.close()
      this.#client = before
      this.#ports = ports
      this.#info = info
      if (this.#isClosed) {
        before.bye()
        throw thrown
      }
      this.#tellRoom(this.#changes)
      const { lobby, id: ownId } = before
      if (lobby) this.#report({ type: 'lobby', lobby, ownId })
      this.#report({ type: 'asks', asks: before.asks })
      if (lost) this.#lost(lost)
      else if (!before.isInside) this.#serverLost(toError(thrown))
      else if (info) this.#inside(before, info)
      if (assigned) this.#assigned(assigned)
      throw thrown
    } finally {
      for (const stop of unlisten) stop()
    }
    this.#past = undefined
    this.#former = undefined
    before.bye()
    ports?.close()
  }

  /** Removes members, and moves all others to the room `link`, whose host this tab is; for the host, between runs. errors: those of `move`. */
  moveWithout(ids: readonly string[], link: RoomLink): Promise<void> {
    return this.move(link, 'create', (before) => before.removeAndTell(ids, { key: link.key }))
  }

  /**
   * Moves to the room that the host has moved to. Where too many others wait there to be let in, it waits in the old room and tries again.
   *
   * errors: those of `move`.
   */
  async follow(link: RoomLink): Promise<void> {
    this.#isFollowing = true
    try {
      for (let triesLeft = followTries; ; triesLeft--) {
        try {
          return await this.move(link, 'join')
        } catch (thrown) {
          const isFull = thrown instanceof SignalError && thrown.refusal === 'too-many'
          if (!isFull || triesLeft === 0) throw thrown
          this.#refused(othersWait())
          await new Promise((resolve) => setTimeout(resolve, followAgainMs))
          if (this.#run || this.#isClosed) throw thrown
        }
      }
    } finally {
      this.#isFollowing = false
    }
  }

  #report(event: MemberEvent): void {
    this.#options.on?.(event)
  }

  #refused(error: Error): void {
    this.#report({ type: 'refused', error })
  }

  async #loadRuns(): Promise<void> {
    this.#Run ??= (await loadPart('Training in a room', () => import('./member-run.ts'))).MemberRun
  }

  #lost(error: Error): void {
    if (error instanceof SignalError && isPutOut(error)) this.#removed(error)
    else this.#serverLost(error)
  }

  #serverLost(error: Error): void {
    log(1, 'room', () => `server lost: ${error.message}`)
    this.#isServerLost = true
    if (!this.#run) this.#hasStarted = false
    this.#endMeasures()
    if (this.#run?.isRunning) this.#run.away()
    else this.#run?.fail(error)
    this.#report({ type: 'serverLost', error })
  }

  #measure(client: SignalClient, own: MemberInfo): void {
    const { measures } = this.#options
    if (!measures || this.#isClosed || this.#isServerLost) return
    this.#measures = new SelfMeasures({
      client,
      own,
      ports: this.#ports,
      isInRun: this.#run !== undefined,
      report: (measured) => this.#tellRoom({ measured }),
      refuse: (thrown) => this.#refused(toError(thrown)),
      speed: () => measures.speed(this.compute),
      linkRoundTrips: () => this.compute.roundTrips(),
    })
  }

  #endMeasures(): void {
    this.#measures?.end()
    this.#measures = undefined
  }

  /** Sends the room, and those after it, what changed about this tab, as soon as it is in. */
  update(change: MemberChange): void {
    this.#changes = { ...this.#changes, ...change }
    this.#tellRoom(change)
  }

  /** Takes no rank from now on, and leaves an elastic run; false: takes one again, in the next run or in an elastic one that is on. */
  watch(watches: boolean): void {
    this.update({ watches })
    if (watches && this.#run?.continuesWithoutThis)
      this.compute.leftOut('it only watches').catch(() => undefined)
  }

  /** Sends an onlooker's message to a rank, or a rank's to all onlookers that ask it (null). */
  sendWatch(to: string | null, message: JsonValue): void {
    this.#client?.reach(to, { watch: message })
  }

  /** Does nothing before this tab is in. */
  #tellRoom(change: Partial<MemberInfo>): void {
    if (!this.#info) return
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

  /** Answers one of the event `asks`; for the maker. */
  letIn(id: string, isLetIn: boolean): void {
    this.#client?.letIn(id, isLetIn)
  }

  /** Makes another member the room's maker, or takes it out of the room; for the maker. A refusal comes as the event `refused`. */
  handOver(id: string): void {
    this.#client?.handOver(id)
  }
  remove(id: string): void {
    this.#client?.remove(id)
    if (!this.#client?.isMaker) return
    this.#expelled.set(id, true)
    this.#run?.remove(id)
  }

  /** Shows the others what this tab would start; for the maker. */
  propose(config: TrainConfigInput): void {
    this.#client?.propose(this.#parse(config) as unknown as JsonValue)
  }

  /**
   * Seals the room as it is and starts training; for the maker. A refusal comes as the event `refused`: the server's, or that this tab is not in its
   * room now. A start that is under way is the only one.
   */
  start(config: TrainConfigInput): void {
    if (this.#hasStarted || this.#run) return
    const parsed = this.#parse(config)
    const client = this.#requireClient()
    if (this.#isMoving || !client.isInside) {
      this.#refused(notInRoom())
      return
    }
    this.#hasStarted = true
    this.#marks.begin('pressed')
    const settings = parsed as unknown as JsonValue
    client.start(settings, isElastic(parsed))
  }

  /** Asks for a pause: all ranks begin it after the same step, which the event `paused` reports. For the maker. */
  pause(): void {
    this.#compute.api.pause().catch(() => undefined)
  }

  /** Ends the pause on all ranks, which the event `continued` reports. */
  goOn(): void {
    this.#compute.api.goOn().catch(() => undefined)
  }

  /** In a pause: all ranks take one step and pause again, which `continued` and `paused` report. */
  oneStep(): void {
    this.#compute.api.oneStep().catch(() => undefined)
  }

  /** Asks for another value of a setting, which the event `changed` reports. errors: `Trainer.change`'s. */
  change(key: string, value: unknown): Promise<void> {
    return this.#compute.api.change(key, value)
  }

  /** A person's decision: an elastic run continues without the members that are missing. */
  continueWithout(): void {
    this.#compute.api.continueWithout().catch(() => undefined)
  }

  /** Ends the run on all ranks. */
  stop(reason: string): void {
    if (this.#run) this.#client?.abort(this.#run.abortEpoch, reason)
    this.#compute.api.abort(reason).catch(() => undefined)
  }

  /** Leaves the room and ends the worker. */
  close(): void {
    log(1, 'room', () => 'left')
    this.#isClosed = true
    this.#endMeasures()
    this.#client?.bye()
    this.#run?.close()
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

  #assigned(assignment: Assignment): void {
    if (this.#run?.follow(assignment)) return
    const hasStarted = this.#hasStarted
    if (!this.#run?.giveWay(assignment)) this.#run?.endBeforeNext()
    this.#hasStarted = hasStarted
    this.#rank = assignment.rank
    this.#marks.begin('assigned')
    log(1, 'room', () => {
      const { epoch, rank, worldSize } = assignment
      return `epoch ${epoch}: rank ${rank} of ${worldSize}`
    })
    this.#measures?.runBegan()
    this.#report({ type: 'assigned', assignment })
    this.#past = undefined
    this.#run = new this.#Run!(
      {
        client: this.#requireClient(),
        compute: this.compute,
        ports: this.#ports,
        keys: this.#keys!,
        marks: this.#marks,
        report: (event) => this.#report(event),
        update: (change) => this.update(change),
        checkpoints: this.#options.checkpoints,
        proposed: this.#proposed,
        expelled: this.#expelled,
        parse: (settings) => this.#parse(settings),
        formerIn: (key) => (this.#former?.key === key ? this.#former.life : null),
        givenFor: ({ demo }) => (this.#hasStarted ? this.#given.get(demo) : undefined),
        ended: (end) => this.#ended(end),
      },
      assignment,
    )
  }

  #ended(end: RunEnd): void {
    this.#rank = this.#run?.rank ?? this.#rank
    this.#former = this.#run?.former
    this.#past = this.#run
    this.#run = undefined
    this.#hasStarted = false
    this.#measures?.runEnded()
    this.#report({ type: 'ended', end })
  }

  /**
   * Without its worker a tab is no member: the others would wait for it at the next start.
   *
   * It comes before the calls that the worker's end rejects, and closes the links, so that none of them blames a neighbour.
   */
  #died(error: Error): void {
    if (this.#isClosed) return
    this.#isClosed = true
    const client = this.#client
    const run = this.#run
    if (run && !run.continuesWithoutThis)
      client?.abort(run.abortEpoch, messageOf(error).slice(0, 300))
    run?.fail(error)
    this.#endMeasures()
    client?.bye()
    this.#report({ type: 'dead', error })
  }

  /** Out of the room, and of its run; the worker stays, with what it has trained. */
  #removed(error: SignalError): void {
    this.#isServerLost = true
    this.#isClosed = true
    const run = this.#run
    // To the others its links end: the server says why.
    if (run?.isRunning) this.compute.abort(error.message, true).catch(() => undefined)
    run?.fail(error)
    this.#endMeasures()
    this.#report({ type: 'removed', error })
  }
}

/** For about as long as the host has to let someone in. */
const followTries = 120
const followAgainMs = 5_000

const othersWait = () =>
  new PeerError(
    'signal.refused',
    'The room has moved to a new link, and many others wait there to be let in. This tab keeps trying.',
  )

const notInRoom = () =>
  new PeerError(
    'signal.refused',
    'room: nothing was started: this tab is moving to another room, or has lost the server. Start once it is in a room.',
  )

const runBegins = () =>
  new PeerError(
    'signal.refused',
    'room: a run begins in the old room, and this tab takes part. Move once the run has ended.',
  )

const hasLeft = () =>
  new PeerError(
    'signal.lost',
    'room: this tab left before it had entered the room. Open the link again.',
  )

const keyIn = (data: unknown): string | null => {
  const { key } = Object(data)
  return typeof key === 'string' && /^[\w-]{43}$/.test(key) ? key : null
}

/** Returns whether the tab is out of its room for good. */
const isPutOut = ({ refusal }: SignalError) => refusal === 'removed' || refusal === 'idle'

/** Returns whether a link to one of them may go by WebRTC, whose code is then loaded before the start: ports join the tabs of one browser alone. */
const mayNeedWebRtc = (own: MemberInfo, members: readonly Pick<MemberInfo, 'hostTag'>[]): boolean =>
  members.length > 1 &&
  own.transport !== 'relay' &&
  (own.transport === 'webrtc' || members.some(({ hostTag }) => !hostTag || hostTag !== own.hostTag))
