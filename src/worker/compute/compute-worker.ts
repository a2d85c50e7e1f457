import * as Comlink from 'comlink'
import { hasPrivateFiles } from '../../data/file-store.ts'
import { privateCheckpointFolders } from '../../data/private-checkpoints.ts'
import { type ChosenDevice, chooseDevice } from '../../graph/memory/choose-device.ts'
import { type AnyRuntime, openRuntime, Runtime } from '../../graph/memory/runtime.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { LinkMeasurement } from '../../peer/group/measure-links.ts'
import { withTransport } from '../../peer/link/channel-transport.ts'
import { type Link, type LinkStats, sumStats } from '../../peer/link/link.ts'
import type { Trainer } from '../../trainer/loop/trainer.ts'
import type { WarmedUp } from '../../trainer/loop/warm-up.ts'
import type {
  CheckpointSettings,
  NotARun,
  ShelvedCheckpoint,
} from '../../trainer/saves/checkpoint-shelf.ts'
import type { CheckpointPlace } from '../../trainer/saves/run-checkpoint.ts'
import type { SavedFile } from '../../trainer/saves/save-requests.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { QueryAnswer, QueryValue, TaskLoaders, Whose } from '../../trainer/settings/task.ts'
import type { Phase, RunEvent } from '../../trainer/watch/run-events.ts'
import type { DeviceChoice } from '../../util/device.ts'
import { DataError, PeerError, TabringError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { orAbort } from '../../util/or-abort.ts'
import { nameSpans, type TraceEvent, traceEvents } from '../../util/spans.ts'
import { type GivenSwitches, switchValue, takeSwitches } from '../../util/switches.ts'
import type {
  AdapterFacts,
  Admission,
  CheckpointAddress,
  ComputeApi,
  Membership,
  RunResult,
  TimedEvent,
  Transport,
} from '../api.ts'
import { keepErrorCodes } from '../error-transfer.ts'
import { EventBatches } from './event-batches.ts'
import type { GroupPlace, RunMember } from './run-member.ts'

const reopenAttempts = 20
const reopenDelayMs = 500
/** After a lost device: a rank whose tab is busy hears of it late. */
const rejoinTimeoutMs = 60_000

/** Frees what a rank has prepared, once it has. */
function freeWhenReady(work: Promise<WarmedUp | undefined> | undefined): void {
  work?.then(
    (warm) => warm?.setup?.destroy(),
    () => undefined,
  )
}

/** What the page tells the member of an elastic run. */
type MemberCall =
  | 'notLinked'
  | 'signal'
  | 'memberIsDead'
  | 'remove'
  | 'doubt'
  | 'firstHalf'
  | 'leftOut'
  | 'continueWithout'

/** Those that say who is gone, also before that member is made. */
const keptCalls: ReadonlySet<MemberCall> = new Set(['memberIsDead', 'remove', 'doubt'])

/** One rank: it owns the GPU device, the links and the collectives. */
class ComputeWorker implements ComputeApi {
  readonly #tasks: TaskLoaders
  #device: ChosenDevice = { type: 'webgpu', why: '' }
  #runtime: Promise<AnyRuntime> | undefined
  /** Links of epochs that have not begun, by epoch and rank. */
  readonly #links = new Map<number, Map<number, Link>>()
  /** What runs need, once there was one. */
  #training: Training | undefined
  #group: ProcessGroup | undefined
  #trainer: Trainer | undefined
  #abort: AbortController | undefined
  /** Of the newest run, where it is elastic. */
  #elastic: RunMember | undefined
  /** What it has heard of its members before it was made. */
  #early: ((elastic: RunMember) => void)[] = []
  /** The newest preparation for a run that is on, and for which settings. */
  #prepared: { readonly of: string; readonly work: Promise<WarmedUp | undefined> } | undefined
  /** The newest run, until its very end. */
  #run: Promise<RunResult> | undefined
  /** What the newest run has measured, and of which ranks' links. */
  #measured: { ways: string; links: LinkMeasurement } | undefined
  /** The measurement that is under way: a run waits for it. */
  #measuring: Promise<unknown> | undefined

  constructor(tasks: TaskLoaders) {
    this.#tasks = tasks
  }

  async open(choice?: DeviceChoice, switches?: GivenSwitches): Promise<AdapterFacts> {
    if (switches) takeSwitches(switches)
    const device = await chooseDevice(choice ?? switchValue('device'))
    if (device.type !== this.#device.type) this.#runtime = undefined
    this.#device = device
    return (await this.#openRuntime()).facts
  }

  async speed(): Promise<number | null> {
    if (this.#abort) return null
    const measure = async () => {
      const { deviceSpeed } = await loadPart(
        'the measurement of the device',
        () => import('../../measure/device-speed.ts'),
      )
      const runtime = await this.#openRuntime()
      return !this.#abort && runtime instanceof Runtime ? deviceSpeed(runtime) : null
    }
    const measuring = measure()
    this.#measuring = measuring.catch(() => undefined)
    return measuring
  }

  async roundTrips(): Promise<number[]> {
    return [...(this.#group?.stats().links.values() ?? [])].map(({ rttMs }) => rttMs)
  }

  async addLink(epoch: number, peerRank: number, transport: Transport, lane = 0): Promise<void> {
    // A run is coming: it loads while its links are made.
    this.#loadTraining().catch(() => undefined)
    const links = this.#links.get(epoch) ?? new Map<number, Link>()
    this.#links.set(epoch, links)
    if (transport.kind === 'relay') {
      const { relayOver } = await loadPart(
        'the relay',
        () => import('../../peer/link/relay-link.ts'),
      )
      // The run has been given up meanwhile.
      if (this.#links.get(epoch) !== links) return
      const own = relayOver(transport.relay)
      links.get(peerRank)?.close('replaced by another attempt')
      links.set(peerRank, own)
      await own.opened
      return
    }
    links.set(peerRank, withTransport(links.get(peerRank), transport, lane))
  }

  async prepare(
    config: TrainConfig,
    baseUrl: string,
    onPhase: (phase: Phase) => void,
  ): Promise<void> {
    if (this.#abort) return
    const of = JSON.stringify(config)
    if (this.#prepared?.of !== of) {
      freeWhenReady(this.#prepared?.work)
      const prepare = async () => {
        const { taskOf, warmUp } = await this.#loadTraining()
        const task = await taskOf(config, this.#tasks)
        const runtime = await this.#openRuntime()
        return warmUp({ config, task, runtime, baseUrl, onPhase })
      }
      this.#prepared = { of, work: prepare() }
    }
    const { work } = this.#prepared
    try {
      await work
    } catch (error) {
      if (this.#prepared?.work === work) this.#prepared = undefined
      throw error
    }
  }

  async train(
    membership: Membership,
    config: TrainConfig,
    baseUrl: string,
    onEvents: (events: readonly TimedEvent[]) => void,
    checkpoints: CheckpointAddress = {},
    given?: Uint8Array,
  ): Promise<RunResult> {
    if (this.#abort) {
      throw new TabringError(
        'graph.misuse',
        'train: a run is already in progress. Abort it, or wait until it ends.',
      )
    }
    const { rank, worldSize, epoch, machines, elastic: place, joins = false } = membership
    const isElastic = place !== undefined
    nameSpans(rank, `rank ${rank}`)
    const batches = new EventBatches(onEvents)
    this.#abort = new AbortController()
    const { signal } = this.#abort
    const links = this.#takeLinks(epoch)
    this.#elastic = undefined
    this.#early = []
    const before = this.#run
    const { who } = membership
    const ways =
      who && [who, ...[...links].map(([peer, { kind }]) => `${peer} ${kind}`).sort()].join()
    const isForThis = this.#prepared?.of === JSON.stringify(config)
    if (!isForThis) freeWhenReady(this.#prepared?.work)
    const prepared = isForThis ? this.#prepared?.work : undefined
    this.#prepared = undefined
    let hasTaken = false
    const run = async (): Promise<RunResult> => {
      // An aborted run may still be compiling; what it holds is freed when it has come to its end.
      await before?.catch(() => undefined)
      await this.#measuring
      this.#trainer?.destroy()
      this.#trainer = undefined
      const training = await this.#loadTraining()
      const task = await training.taskOf(config, this.#tasks)
      let trainer: Trainer | undefined
      const join = async (place: Omit<GroupPlace, 'failed' | 'silence'> & Partial<GroupPlace>) => {
        this.#dropGroup()
        nameSpans(place.rank, `rank ${place.rank}`)
        this.#group = await training.makeDefault(() =>
          training.joinLinks({ ...place, onspan: (span) => trainer?.onSpan(span) }),
        )
        signal.throwIfAborted()
        return this.#group
      }
      const report = (event: RunEvent) => batches.add(event)
      let isRequested = false
      const request = () => {
        isRequested = true
        trainer?.regroupSoon()
      }
      signal.throwIfAborted()
      const elastic =
        place &&
        new training.RunMember({
          ...{ place, membership, links, signal, join, report, request },
          signer: training.signerOf(place),
          heldStep: () => trainer?.heldStep ?? 0,
          pace: () => trainer?.pace,
        })
      this.#elastic = elastic
      for (const hear of this.#early.splice(0)) if (elastic) hear(elastic)
      const groups =
        elastic ??
        new training.Rejoining({
          epoch,
          links,
          follows: training.isLoss,
          join: (current, own) =>
            join({
              rank,
              worldSize,
              epoch: current,
              links: own,
              machines,
              // Others may still be in a step of the group before.
              helloMs: current === epoch ? undefined : rejoinTimeoutMs,
            }),
        })
      const runtime = await this.#openRuntime()
      signal.throwIfAborted()
      const group = await groups.first()
      const warm = await prepared
      signal.throwIfAborted()
      trainer = new training.Trainer({
        runtime,
        reopen: () => this.#reopenRuntime(),
        groups,
        isElastic,
        joins,
        synchronizesFirst: group.epoch !== epoch,
        group,
        config,
        task,
        given,
        self: membership.self,
        warm,
        linksBefore: ways && ways === this.#measured?.ways ? this.#measured.links : undefined,
        baseUrl,
        onEvent: (event) => batches.add(event),
        signal,
        tuneStore: config.tune ? training.openTuneStore() : undefined,
        checkpoints: placeOf(checkpoints, config, baseUrl),
      })
      hasTaken = true
      this.#trainer = trainer
      if (isRequested) trainer.regroupSoon()
      const current = trainer
      const result = await current
        .run()
        .catch((thrown) => {
          const isPutOut = thrown instanceof training.Eviction
          throw elastic && current.leavesAlone ? elastic.failedAlone(thrown, isPutOut) : thrown
        })
        .finally(() => {
          if (ways && current.links) this.#measured = { ways, links: current.links }
        })
      elastic?.end(true)
      const carried = await (elastic?.linkStats() ?? statsOf(links.values()))
      return { ...result, links: carried, adapter: (await this.#openRuntime()).facts }
    }
    try {
      // An abort does not wait for what cannot be broken off, such as a pipeline that compiles.
      this.#run = run().catch((thrown) => {
        if (!hasTaken) freeWhenReady(prepared)
        throw thrown
      })
      return await orAbort(this.#run, signal)
    } catch (thrown) {
      this.#end(links)
      throw thrown
    } finally {
      batches.flush()
      this.#abort = undefined
    }
  }

  async admit(admission: Admission): Promise<void> {
    const links = this.#takeLinks(admission.epoch)
    if (!this.#abort) closeAll(links, 'the run is over')
    else this.#hear((elastic) => elastic.admit(admission, links))
  }

  readonly notLinked = this.#toMember('notLinked')
  readonly signal = this.#toMember('signal')
  readonly memberIsDead = this.#toMember('memberIsDead')
  readonly remove = this.#toMember('remove')
  readonly doubt = this.#toMember('doubt')
  readonly firstHalf = this.#toMember('firstHalf')
  readonly leftOut = this.#toMember('leftOut')
  readonly continueWithout = this.#toMember('continueWithout')

  /** A call of a method of the member of the run that is on. Before it is made only few calls have a meaning, and wait for it. */
  #toMember<Name extends MemberCall>(name: Name): ComputeApi[Name] {
    const call = async (...args: unknown[]) => {
      const hear = (elastic: RunMember) =>
        (elastic[name] as (...args: unknown[]) => void).apply(elastic, args)
      if (this.#elastic || keptCalls.has(name)) this.#hear(hear)
    }
    return call as ComputeApi[Name]
  }

  #hear(hear: (elastic: RunMember) => void): void {
    if (this.#elastic) hear(this.#elastic)
    else if (this.#abort) this.#early.push(hear)
  }

  async leave(): Promise<void> {
    const group = this.#group
    if (!group) return
    await group.leave()
    this.#end(new Map())
  }

  async abort(reason: string, isAlone = false): Promise<void> {
    const error = new PeerError('peer.aborted', reason)
    this.#abort?.abort(error)
    if (isAlone) return
    this.#group?.abort(error)
    this.#elastic?.abort(reason)
  }

  async pause(): Promise<void> {
    if (this.#abort) this.#trainer?.pause()
  }

  async goOn(): Promise<void> {
    this.#trainer?.goOn()
  }

  async oneStep(): Promise<void> {
    if (this.#abort) this.#trainer?.oneStep()
  }

  async change(key: string, value: unknown): Promise<void> {
    if (this.#abort) this.#trainer?.change(key, value)
  }

  async save(): Promise<SavedFile> {
    if (this.#trainer) return this.#trainer.save()
    throw new TabringError(
      'graph.misuse',
      'save: there is no run. Save after one has started training.',
    )
  }

  async query(name: string, input?: unknown, whose?: Whose): Promise<QueryAnswer> {
    if (!this.#trainer) {
      throw new TabringError(
        'graph.misuse',
        'query: there is no model yet. Ask again when training has started.',
      )
    }
    const answer = await this.#trainer.query(name, input, whose)
    return Comlink.transfer(answer, buffersOf(answer))
  }

  async forget(): Promise<void> {
    if (this.#abort) return
    // One that was aborted may still be compiling.
    await this.#run?.catch(() => undefined)
    if (this.#abort) return
    this.#trainer?.destroy()
    this.#trainer = undefined
    freeWhenReady(this.#prepared?.work)
    this.#prepared = undefined
  }

  async exportParameters(): Promise<string> {
    if (!this.#trainer) {
      throw new TabringError(
        'graph.misuse',
        'exportParameters: there has been no run. Train first.',
      )
    }
    const { writeStateDict } = await loadPart(
      'saving of models',
      () => import('../../ddp/checkpoint/model-file.ts'),
    )
    const file = writeStateDict(await this.#trainer.stateDict(), {
      metadata: { format: 'pt', 'tabring.record': JSON.stringify(this.#trainer.record ?? null) },
    })
    return URL.createObjectURL(new Blob([file], { type: 'application/octet-stream' }))
  }

  async traceEvents(): Promise<TraceEvent[]> {
    return traceEvents()
  }

  async checkpoints(): Promise<ShelvedCheckpoint[]> {
    // Most visitors have none.
    if (!hasPrivateFiles() || (await privateCheckpointFolders()).length === 0) return []
    return (await shelf()).listShelf()
  }

  async readCheckpoint(place: string, name: string): Promise<string> {
    const { takeFromShelf } = await shelf()
    return URL.createObjectURL(new Blob([await takeFromShelf(place, name)]))
  }

  async checkpointSettings(place: string, name: string): Promise<CheckpointSettings> {
    return (await shelf()).settingsOnShelf(place, name)
  }

  async addCheckpoint(file: Blob): Promise<CheckpointSettings | NotARun> {
    return (await shelf()).addToShelf(new Uint8Array(await file.arrayBuffer()))
  }

  async removeCheckpoint(place: string, name: string): Promise<void> {
    return (await shelf()).removeFromShelf(place, name)
  }

  async dropLinks(epoch: number): Promise<void> {
    const links = this.#links.get(epoch)
    this.#links.delete(epoch)
    closeAll(links ?? new Map(), 'the run did not start')
  }

  /** The links of an epoch that begins. */
  #takeLinks(epoch: number): Map<number, Link> {
    const links = this.#links.get(epoch) ?? new Map<number, Link>()
    this.#links.delete(epoch)
    return links
  }

  #end(links: Map<number, Link>): void {
    this.#dropGroup()
    closeAll(links, 'the run is over')
    this.#elastic?.end(false)
    this.#elastic?.closeLinks('the run is over')
    this.#elastic = undefined
  }

  /** Without a goodbye's wait: the others have left, or know already. */
  #dropGroup(): void {
    this.#group?.destroy()
    this.#group = undefined
    void this.#training?.destroyProcessGroup()
  }

  /** Opens a device after one was lost; the browser's GPU process may need a moment to come back. */
  async #reopenRuntime(): Promise<AnyRuntime> {
    for (let attempt = 1; ; attempt++) {
      this.#runtime = undefined
      try {
        return await this.#openRuntime()
      } catch (error) {
        if (attempt === reopenAttempts) throw error
        await new Promise((resolve) => setTimeout(resolve, reopenDelayMs))
      }
    }
  }

  async #loadTraining(): Promise<Training> {
    this.#training ??= await loadTraining()
    return this.#training
  }

  #openRuntime(): Promise<AnyRuntime> {
    const { type, why } = this.#device
    this.#runtime ??= openRuntime({ type, index: 0 }, why)
    this.#runtime.catch(() => {
      this.#runtime = undefined
    })
    return this.#runtime
  }
}

function closeAll(links: ReadonlyMap<number, Link>, why: string): void {
  for (const link of links.values()) link.close(why)
}

type Training = typeof import('./training.ts')

const loadTraining = () => loadPart('training', () => import('./training.ts'))

/** Checkpoints in this browser, or where a launcher keeps them. */
const shelf = () => loadPart('checkpoints', () => import('../../trainer/saves/checkpoint-shelf.ts'))

/** The memory of all arrays in an answer, each once. */
function buffersOf(answer: QueryAnswer): ArrayBuffer[] {
  const buffers = new Set<ArrayBuffer>()
  const add = (value: QueryValue) => {
    if (Array.isArray(value)) value.forEach(add)
    else if (ArrayBuffer.isView(value)) buffers.add(value.buffer as ArrayBuffer)
  }
  Object.values(answer).forEach(add)
  return [...buffers]
}

/** Where a run's checkpoints are: where the launcher says, else in this browser, in one folder a demo and model. */
function placeOf(
  { folder, file, keepLast }: CheckpointAddress,
  config: TrainConfig,
  baseUrl: string,
): CheckpointPlace {
  return {
    keepLast,
    // A launcher's folder has one run.
    run: folder === undefined ? crypto.randomUUID() : undefined,
    folder: async () =>
      (await shelf()).folderOf(config, folder === undefined ? undefined : new URL(folder, baseUrl)),
    file:
      file === undefined
        ? undefined
        : async () => {
            const answer = await fetch(new URL(file, baseUrl), { cache: 'no-store' })
            if (answer.ok) return answer.blob()
            throw new DataError(
              'data.missing',
              `resume: could not fetch ${file}, got status ${answer.status}. Start again.`,
            )
          },
  }
}

const statsOf = async (links: Iterable<Link>): Promise<LinkStats> =>
  sumStats(await Promise.all([...links].map((link) => link.stats())))

/** Makes this worker one that `startCompute` can start, and that trains these tasks; for the worker's entry point, once. */
export function serveCompute(tasks: TaskLoaders): void {
  keepErrorCodes()
  Comlink.expose(new ComputeWorker(tasks))
  // The page watches this lock: it is free only when this worker is gone, however it ended.
  navigator.locks.request(self.name, () => {
    self.postMessage({ tabring: 'alive' })
    return new Promise<void>(() => undefined)
  })
}
