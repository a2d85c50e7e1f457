import { bucketCapMbFor } from '../../ddp/data-parallel/bucket-size.ts'
import { isDiverged } from '../../ddp/exact/state-fingerprint.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { TuneStore } from '../../kernels/tune.ts'
import type { StateDict } from '../../nn/module.ts'
import type { CollectiveSpan, ProcessGroup } from '../../peer/group/group.ts'
import type { LinkMeasurement } from '../../peer/group/measure-links.ts'
import { adapterLine } from '../../util/adapter-words.ts'
import { endFactsOf, TabringError } from '../../util/errors.ts'
import { Changes } from '../saves/changes.ts'
import { RunStates } from '../saves/run-states.ts'
import type { SavedFile } from '../saves/save-requests.ts'
import type { QueryAnswer, TaskData, Whose } from '../settings/task.ts'
import { tellCollective } from '../watch/log-collective.ts'
import { ModelQueries } from '../watch/model-queries.ts'
import type { Phase, RankName, RunRecord, TrainerResult } from '../watch/run-events.ts'
import { RunLog } from '../watch/run-log.ts'
import { AskedOthers } from './asked-others.ts'
import { shareGiven } from './given-data.ts'
import { isNan } from './lost-steps.ts'
import { exchangeLimitMs, PhaseTimeouts } from './phase-timeouts.ts'
import type { RankSetup, RankSetupOptions } from './rank-setup.ts'
import { RunBits } from './run-bits.ts'
import { isLoss, RunGroups, type RunGroupsOptions, type Settled } from './run-groups.ts'
import { RunLinks } from './run-links.ts'
import { setUpRank } from './set-up-rank.ts'
import { settleRecord } from './settle-record.ts'
import { type LoopEnd, type LoopOptions, TrainingLoop } from './training-loop.ts'
import type { WarmedUp } from './warm-up.ts'

/** In the log that is saved with a run: hashes, assignments, members of groups, some 100 kB each. */
const maxLogged = 1000

export interface TrainerOptions
  extends Omit<RunGroupsOptions, 'run' | 'kept' | 'isExact' | 'onState'>,
    LoopOptions {
  /** Where relative data addresses start; the page's own address. */
  readonly baseUrl: string
  /** Keeps tuned kernel choices between visits. */
  readonly tuneStore?: TuneStore
  /** Data that a person gave on this rank, if `config.data` is `given`; the other ranks get it from here. */
  readonly given?: Uint8Array
  /** This rank, for the log; default: its number. */
  readonly self?: RankName
  /** Result of `warmUp`. */
  readonly warm?: WarmedUp
  /** Measurement of the same links by the same ranks in an earlier run: where all have the same, this one goes by it, and so to the same bits. */
  readonly linksBefore?: LinkMeasurement
}

/**
 * A task on one rank: data, model, optimizer, the loop, evaluation, queries to the model, pauses.
 *
 * Each global batch is cut into contiguous shares; a rank's program has a fixed number of rows, and a step scalar says how many count.
 * A replica that differs and a lost rank end the run on every rank, unless it is elastic: then the others continue, and with `exact` those
 * that differ do too (run-groups.ts). After a lost device all ranks go back to the newest state that one of them has kept; the rank that lost
 * it opens another device. A loss that is not a number sends them back too, up to the step in
 * question: there each looks at the ops on its own samples. Where at most half of the ranks find something the step is left out, and a rank
 * with three such steps in a row is evicted; otherwise the run ends.
 *
 * With the strategy `alone` each rank trains a separate replica, from the same first parameters: nothing is exchanged, compared or
 * evaluated together. Ranks go step by step all the same. There a loss that is not a number ends the run at once.
 */
export class Trainer {
  readonly #options: TrainerOptions
  #setup: RankSetup | undefined
  /** With `exact`, of an earlier group or `warmUp`: what this rank has compiled. */
  #earlier: RankSetup | undefined
  readonly #links = new RunLinks()
  #timeouts: PhaseTimeouts
  readonly #queries: ModelQueries
  readonly #changes: Changes
  readonly #others: AskedOthers
  readonly #states: RunStates
  readonly #loop: TrainingLoop
  readonly #groups: RunGroups
  /** The newest in which this rank has begun. */
  #entered: ProcessGroup | undefined
  #data: TaskData | undefined
  /** Not those with which the run began. */
  #hasOtherRanks: boolean
  /** Data that a person gave, where the run trains on it. */
  #given: Uint8Array<ArrayBuffer> | null = null
  /** When training began, in the first attempt. */
  #beganMs: number | undefined
  readonly #log = new RunLog(maxLogged)
  readonly #bits: RunBits

  constructor(given: TrainerOptions) {
    const onEvent: TrainerOptions['onEvent'] = (event) => {
      this.#log.add(event)
      if (event.event === 'leftOut') this.#loop.lost.leavesOut(event.notFinite)
      given.onEvent(event)
    }
    const options = { ...given, onEvent }
    this.#options = options
    this.#hasOtherRanks = options.joins ?? false
    this.#timeouts = new PhaseTimeouts(options.group)
    this.#earlier = options.warm?.setup
    this.#bits = new RunBits(this.#log, onEvent, options.self, options.warm?.proved)
    this.#queries = new ModelQueries(options.task)
    this.#changes = new Changes(options.config, options.task.meta, (change, by) =>
      onEvent({ event: 'changed', ...change, by, rank: this.#groups.group.rank }),
    )
    this.#states = new RunStates(options, this.#log, this.#changes)
    this.#loop = new TrainingLoop(options, this.#queries, this.#states, this.#changes)
    const asked = { run: this.#queries, ownRows: this.#loop.ownRows, changes: this.#changes }
    this.#others = new AskedOthers({ ...options, ...asked })
    this.#groups = new RunGroups({
      ...options,
      isExact: options.config.exact,
      onState: (doneBytes, totalBytes) =>
        options.onEvent({ event: 'state', doneBytes, totalBytes, rank: this.#groups.group.rank }),
      kept: this.#states.kept,
      run: {
        hasTrained: () => !this.#loop.isBeforeFirstStep,
        brought: () => ({
          suspect: this.#loop.lost.suspect,
          stepMs: this.#loop.stepMs,
          hasGiven: this.#given !== null,
          hasOtherRanks: this.#hasOtherRanks,
          agreed: this.#changes.brought,
        }),
        keepNow: () => this.#keepNow(),
        goesBack: (error) => this.#goesBack(error),
        leaves: (ended) => this.#leaves(ended),
        joined: (group, ended) => this.#joined(group, ended),
      },
    })
    this.#tellSilence(options.group)
  }

  /** errors: `config.invalid`, `data.*`, `gpu.*`, `peer.*`, `train.*`. A failure here is made known to all ranks. */
  async run(): Promise<TrainerResult> {
    try {
      const { onEvent, group } = this.#options
      onEvent({ event: 'phase', phase: 'load', rank: group.rank })
      const result = await this.#groups.run((settled) => this.#train(settled))
      this.#states.saves.end()
      return result
    } catch (thrown) {
      this.#states.saves.end(thrown)
      throw thrown
    }
  }

  /** True if `run` has failed by what this rank alone has, such as its device: the run continues without it. */
  get leavesAlone(): boolean {
    return this.#groups.leavesAlone
  }

  /** The trained parameters with the keys of the plain model. errors: `graph.misuse` before the model is made. */
  async stateDict(): Promise<StateDict> {
    if (!this.#setup) {
      throw new TabringError(
        'graph.misuse',
        'stateDict: the model does not exist until training starts. Call it after the first step.',
      )
    }
    return this.#setup.shared.stateDict()
  }

  /** The step from which the run would continue with what this rank has: an exact one keeps its newest when a rank is lost. */
  get heldStep(): number {
    const kept = this.#states.start.step
    return this.#options.config.exact ? Math.max(kept, this.#loop.progress?.step ?? 0) : kept
  }

  /** Record of what decides the run's bits, once it is settled. */
  get record(): RunRecord | undefined {
    return this.#states.record
  }

  /** Time of a step now, and bytes that a link must carry for it; undefined before the first step. units: ms, bytes. */
  get pace() {
    const { stepMs, newestStepMs, isPaused } = this.#loop
    const { restMs } = this.#timeouts
    if (!this.#setup || stepMs === 0) return undefined
    const parameters = this.#setup.parts.model.parameters()
    const elements = parameters.reduce((sum, { count }) => sum + count, 0)
    // To each link of a ring go nearly twice the gradients, of 4 bytes.
    const { heldBy } = this.#groups.group
    const bytes = 8 * elements
    return { bytes, stepMs, newestStepMs, restMs, heldBy, limitMs: exchangeLimitMs, isPaused }
  }

  /** The compiled training step, while there is one. */
  get program(): StepProgram | undefined {
    return this.#setup?.step
  }

  /** Asks for a pause: all ranks begin it after the same step, and emit `paused`. It ends when one of them calls `goOn`. */
  pause(): void {
    this.#loop.pause.ask()
  }

  /** Ends the pause on all ranks, or takes back what `pause` asked for. */
  goOn(): void {
    this.#loop.pause.goOn()
  }

  /** In a pause: all ranks take one step and pause again, which `continued` and `paused` report. */
  oneStep(): void {
    this.#loop.pause.passStep()
  }

  /** Asks for another value of a setting: from one of the next steps on all ranks have it, and emit `changed`. errors: `Changes.ask`'s. */
  change(key: string, value: unknown): void {
    this.#changes.ask(key, value)
  }

  /** In an elastic run: after one of the next steps all ranks keep their state and continue in the next group. */
  regroupSoon(): void {
    this.#loop.isRegroupAsked = true
  }

  /**
   * Saves a checkpoint in this rank's place for them, which stays until a person removes it: after one of the next steps, on all ranks the
   * same, or as the run stands in a pause and after its last step. Where `canBeSaved`.
   *
   * errors: `config.invalid` for a run without it, `graph.misuse` and those of the run where it ends first, `file.unwritable`, the folder's.
   */
  async save(): Promise<SavedFile> {
    return this.#states.ask()
  }

  /**
   * Returns what the task's look `name` gives for `input`: between two steps while it trains, at once in a pause and after the run's end. Of a model
   * that learns from the `others` alone it has the `step` of that (`OthersModel`). errors: those of `ModelQueries.ask`; `config.invalid`, where not `canLeaveOut`.
   */
  async query(name: string, input: unknown, whose: Whose = 'all'): Promise<QueryAnswer> {
    if (whose === 'all') return this.#queries.ask(name, input)
    return this.#others.ask(name, input)
  }

  /** Takes the group's report of a collective; those of the step on record go into its timeline. */
  onSpan(span: CollectiveSpan): void {
    tellCollective(span)
    this.#loop.timeline.onSpan(span)
  }

  /** Frees what the run holds on the device, the trained parameters included. The trainer is of no use afterwards. */
  destroy(): void {
    this.#others.drop()
    this.#queries.destroy()
    this.#states.saves.letGo()
    for (const one of [this.#setup, this.#earlier]) one?.destroy()
    this.#setup = this.#earlier = undefined
  }

  /** In the next group or again in the same one: from the newest state of any rank to the end. */
  async #train(settled: Settled | undefined): Promise<TrainerResult> {
    if (settled) this.#take(settled)
    await this.#clear()
    const { config, task, baseUrl, warm, joins } = this.#options
    const { group } = this.#groups
    const { size } = group
    if (!this.#entered && config.batchSize < size && !joins && !config.exact) {
      throw new TabringError(
        'config.invalid',
        `batchSize: expected at least one sample for each of the ${size} ranks, got ${config.batchSize}. Use a larger batch or fewer ranks.`,
      )
    }
    this.#entered = group
    await this.#shareGiven(settled)
    this.#data ??= warm?.data ?? (await task.load({ config, given: this.#given, baseUrl }))
    await this.#states.resume(group, this.#data.train.count)
    return this.#onDevice(this.#data)
  }

  /** Frees what the attempt before has left. */
  async #clear(): Promise<void> {
    this.#timeouts.forSetup()
    // What a step may still give to the device must not meet buffers that are gone.
    await this.#loop.settle()
    this.#queries.destroy()
    this.#states.saves.letGo()
    if (this.#setup?.enter) this.#earlier = this.#setup
    else this.#setup?.destroy()
    this.#setup = undefined
  }

  /** Takes what all ranks of the group have settled. */
  #take({ suspect, step, differed, hasOtherRanks, agreed }: Settled): void {
    const { isElastic, onEvent } = this.#options
    const { group } = this.#groups
    const { rank, size: worldSize } = group
    this.#hasOtherRanks = hasOtherRanks
    if (agreed) this.#changes.take(agreed)
    this.#loop.lost.suspect = suspect
    const isFirst = this.#entered === undefined
    if (isFirst || (isElastic && group !== this.#entered))
      onEvent({ event: 'regrouped', step, worldSize, rank })
    if (differed && (isFirst || isElastic)) onEvent({ event: 'unlike', step, ...differed, rank })
  }

  /** Brings what a person gave to the ranks that lack it. errors: those of `shareGiven`. */
  async #shareGiven(settled: Settled | undefined): Promise<void> {
    const { config, task, onEvent, given } = this.#options
    const { group } = this.#groups
    const { rank } = group
    const { giver, limitMs } = settled ?? {}
    if (giver === undefined && this.#given !== null) return
    const own = giver === undefined ? given : giver === rank ? this.#given! : undefined
    const onProgress = (doneBytes: number, totalBytes: number) =>
      onEvent({ event: 'given', doneBytes, totalBytes, rank })
    this.#given = await shareGiven(group, config, task.meta, own, limitMs, onProgress)
  }

  /** Tells which neighbours fall silent in a group. */
  #tellSilence(group: ProcessGroup): void {
    group.onsuspect = (who, isSilent) =>
      this.#options.onEvent({ event: 'silent', who, isSilent, rank: group.rank })
  }

  /** Tells of a lost rank; what is asked for from now on is for the step after. */
  #leaves({ error, rank }: ProcessGroup): void {
    this.#loop.isRegroupAsked = false
    if (!this.#options.isElastic || !error || isLoss(error) || isDiverged(error)) return
    const who = endFactsOf(error).ranks?.[0] ?? null
    this.#options.onEvent({ event: 'lost', text: error.message, who, rank })
  }

  #joined(group: ProcessGroup, ended: ProcessGroup): void {
    const { isElastic, config } = this.#options
    const { restMs } = this.#timeouts
    this.#timeouts = new PhaseTimeouts(group, { group: ended, restMs })
    this.#tellSilence(group)
    if (!isElastic || isLoss(ended.error)) return
    // Measured between other ranks, like those of the run that this one resumes.
    if (!config.exact) this.#links.forget()
    this.#hasOtherRanks = true
  }

  /** An exact rank continues with what it has compiled, unless it has to begin again or has another device. */
  async #setUp(options: RankSetupOptions): Promise<RankSetup> {
    const earlier = this.#earlier
    this.#earlier = undefined
    if (earlier?.enter && earlier.runtime === options.runtime && this.#states.kept.newest)
      return earlier.enter(options)
    earlier?.destroy()
    return setUpRank(options)
  }

  /** After a loss that is not a number the steps are done again up to the one in question, whose ops are then looked at one by one. */
  #goesBack(error: unknown): boolean {
    if (!isNan(error)) return false
    const { goesBackTo } = this.#loop.lost
    if (goesBackTo === undefined || this.#options.config.strategy === 'alone') throw error
    this.#states.kept.backTo(goesBackTo)
    return true
  }

  /**
   * Exact: keeps the state after the newest step that ended here. Another rank's differs by one step at most, and the newest counts for all.
   */
  async #keepNow(): Promise<void> {
    const { config } = this.#options
    if (config.exact) await this.#loop.settle()
    const { progress } = this.#loop
    this.#loop.progress = undefined
    const { newest } = this.#states.kept
    if (!config.exact || !this.#setup || !progress) return
    if (newest && progress.step <= newest.progress.step) return
    try {
      await this.#states.keep(progress)
    } catch {
      // The device had a part of it alone, and is lost: the run continues from an earlier state.
    }
  }

  /** Model, optimizer and programs on the current device, from the kept state on to the end. */
  async #onDevice(data: TaskData): Promise<TrainerResult> {
    const { config, onEvent, signal, linksBefore } = this.#options
    const { group, runtime } = this.#groups
    const states = this.#states
    const { rank, size: worldSize } = group
    const onPhase = (phase: Phase) => {
      signal?.throwIfAborted()
      onEvent({ event: 'phase', phase, rank })
    }
    const hasOtherRanks = this.#hasOtherRanks
    const saved = hasOtherRanks ? undefined : states.savedRecord(worldSize)
    const links = await this.#links.settle(group, {
      saved: saved?.links,
      before: hasOtherRanks ? undefined : linksBefore,
      isQuick: config.exact && hasOtherRanks,
    })
    const bucketCapMb = saved?.bucketCapMb ?? bucketCapMbFor(links)
    const prepared = states.prepare()
    prepared.catch(() => undefined)
    const place = { data, runtime, group, bucketCapMb, onPhase }
    const { measured: variants } = states.record ?? {}
    const stepsDone = states.start.step
    const setup = await this.#setUp({ ...this.#options, ...place, variants, stepsDone })
    this.#setup = setup
    await prepared
    const { shared, replicas, draws, check } = setup
    const hasKept = states.kept.newest !== undefined
    const devices = await this.#settle(setup, links, bucketCapMb)
    const { start: first } = states
    this.#loop.progress = first
    // Of an exact run's kept states the ranks have compared the hashes when they synchronized.
    if (!config.exact || !hasKept) await check?.compare(replicas, first.step)
    this.#others.drop(runtime)
    const modelFacts = { config, data, rank, worldSize, slice: draws.slice, runtime }
    this.#queries.begin({ ...modelFacts, model: shared.module, isWhole: shared.isWhole })
    onPhase('train')
    states.startClock()
    this.#beganMs ??= performance.now()
    const end = await this.#loop.run({
      ...{ group, setup, first, devices, timeouts: this.#timeouts },
      // An exact run continues from the newest step that ended, and not only where it has kept its state.
      mayLackWhatFollows: config.exact && hasKept,
    })
    await check?.compare(replicas, end.step)
    const result = await this.#resultOf(end, setup)
    if (!shared.isWhole) {
      // Gathered for the hash: from now on this rank can answer queries.
      const whole = this.#options.task.model(config, data)
      whole.loadStateDict(await shared.stateDict())
      this.#queries.begin({ ...modelFacts, model: whole, isWhole: true })
    }
    // Nobody closes its links while another still needs them.
    await group.barrier()
    return result
  }

  /** Settles with the ranks what they train with, and puts the state of the run where it begins into the parts of a setup. Returns what each rank computes on. */
  async #settle(
    setup: RankSetup,
    links: LinkMeasurement,
    measuredCapMb: number,
  ): Promise<readonly string[]> {
    const { config, onEvent } = this.#options
    const { group, runtime } = this.#groups
    const { parts, replicas } = setup
    const { rank, size: worldSize } = group
    const states = this.#states
    const own = {
      config,
      worldSize,
      shares: setup.rowsOf,
      bucketCapMb: config.bucketCapMb ?? measuredCapMb,
      buckets: setup.buckets.map(({ parameters, elements }) => ({
        parameters: parameters.map(({ name }) => name),
        elements,
      })),
      variants: { ...setup.step.prepared.chosen },
      measured: { ...runtime.variants },
      links,
    }
    const bits = await this.#bits.own(setup, states.kept.newest?.log, rank)
    const on = { adapter: adapterOf(runtime), device: adapterLine(runtime.facts) }
    const { record, devices, bits: received } = await settleRecord(group, own, on, bits)
    this.#bits.take(received, record.adapters, devices)
    onEvent({ event: 'devices', devices, adapter: { ...runtime.facts }, rank })
    const { samples, perEpoch } = setup.batches
    const run = { group, parts, record, samples, perEpoch }
    await states.restore(run, (log) => this.#bits.differenceFrom(log))
    // One rank may have given them to those that join.
    await parts.limits?.agree(replicas)
    const took = received.map((one) => one.took)
    const assigned = setup.assignment?.(took, this.#bits.areChecked) ?? []
    this.#bits.report(states.start.step, assigned, rank)
    await states.keepResumed()
    return devices
  }

  async #resultOf(end: LoopEnd, { shared }: RankSetup): Promise<TrainerResult> {
    const { metric } = this.#options.task.meta
    const { step: steps, value, best, ...figures } = end
    // Of all attempts, as the pauses are.
    const seconds = (performance.now() - this.#beganMs! - this.#loop.pausedMs) / 1000
    const isAccuracy = metric.name === 'accuracy'
    return {
      ...figures,
      steps,
      metric,
      value,
      best,
      testAccuracy: isAccuracy ? value : Number.NaN,
      bestAccuracy: isAccuracy ? best : Number.NaN,
      paramHash: await shared.digest(this.#groups.runtime),
      seconds,
      timeline: this.#loop.timeline.entries,
      lostDevices: this.#groups.lostDevices,
      record: this.#states.record!,
    }
  }

  /** Measurement of the ranks' links, in this run or the one before; undefined until then, and where it goes by a checkpoint's. */
  get links(): LinkMeasurement | undefined {
    return this.#links.newest
  }
}

const adapterOf = ({ facts: { vendor, architecture } }: AnyRuntime) => `${vendor} ${architecture}`
