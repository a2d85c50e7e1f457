import type { ReplicaCheck } from '../../ddp/hashes/replica-check.ts'
import {
  noTimes,
  type RunInputs,
  type RunOutputs,
  runTimesOf,
  type StepProgram,
} from '../../graph/plan/step-program.ts'
import { gradientWeight } from '../../graph/trace/trace.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { type Evaluation, metricOf } from '../evaluate/evaluate.ts'
import type { ShareBatch, ShareBatches } from '../evaluate/share-batches.ts'
import type { Progress } from '../saves/kept-state.ts'
import type { Saves } from '../saves/save-requests.ts'
import { canBeSaved, type TrainConfig, totalStepsOf } from '../settings/config.ts'
import { isBetter } from '../settings/demo-meta.ts'
import type { Task } from '../settings/task.ts'
import { LiveSamples } from '../watch/live-samples.ts'
import type { ModelQueries } from '../watch/model-queries.ts'
import type { RunEvent, StepParts } from '../watch/run-events.ts'
import { StepTimeline } from '../watch/step-timeline.ts'
import { KeepPace } from './keep-pace.ts'
import { LostSteps } from './lost-steps.ts'
import { Pace } from './pace.ts'
import { Pause } from './pause.ts'
import type { PhaseTimeouts } from './phase-timeouts.ts'
import { Regrouping } from './run-groups.ts'
import { randomScalarsFor } from './training-step.ts'

/** With one rank, steps that may be under way on the device while the next batch is made. */
const stepsAhead = 2

/** The state is kept on the host every so many steps, on all ranks the same, so that a lost device costs no more than these. */
const keepEvery = 50

export interface LoopOptions {
  readonly config: TrainConfig
  readonly task: Task
  readonly onEvent: (event: RunEvent) => void
  /** Ends the run with its reason at the next step. */
  readonly signal?: AbortSignal
  /** True if the run continues without ranks that are lost. */
  readonly isElastic?: boolean
  /** For tests. Default: that of `KeepPace`. */
  readonly keepAfterMs?: number
}

/** Inputs of the loop from one loss of a device to the next. */
export interface Attempt {
  readonly group: ProcessGroup
  /** The ranks that train one model: `group`, or with the strategy `alone` this rank. */
  readonly replicas: CollectiveGroup
  readonly patience: PhaseTimeouts
  readonly step: StepProgram
  readonly batches: ShareBatches
  readonly evaluation: Evaluation
  /** Which part of a step this rank has, from 0; 0 where it has whole steps. */
  readonly partAt: number
  /** Shares a step's outputs with every rank. */
  readonly shareOutputs: ((outputs: RunOutputs) => Promise<RunOutputs>) | undefined
  /** Where there are several replicas. */
  readonly check: Pick<ReplicaCheck, 'compare'> | undefined
  /** Of all buffers on the device; null where it is none. */
  readonly deviceBytes: () => number | null
  /** Where it goes on from. */
  readonly first: Progress
  /** True if an attempt before may have ended between that step and what follows it; the same on all ranks. */
  readonly mayLackWhatFollows: boolean
  /** Keeps the state where the run could go on from; between steps. */
  keep(progress: Progress): Promise<void>
  /** Saves a checkpoint, or where `canBeSaved` reads what one would have; between steps, on all ranks. */
  save(progress: Progress, options: SaveOptions): Promise<void>
  /** Names the op by which a step's values on this rank stop being finite, from what the parameters are now; sends nothing. */
  findCause(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>>,
  ): Promise<string | undefined>
}

export interface SaveOptions {
  readonly isBest: boolean
  /** The settings or the course of the run say so, nobody asked for it. */
  readonly isDue: boolean
  /** No step follows soon: where `canBeSaved`, what was read can be saved until one does. */
  readonly isHeld: boolean
}

/** Progress of the loop, and the other figures of its last evaluation and its last step. */
export interface LoopEnd extends Progress {
  readonly heldOutLoss: number
  readonly trainValue: number
}

/**
 * The steps of a run, with all that happens between two of them: evaluation, kept states, checkpoints, comparing replicas, queries, pauses.
 *
 * It lasts over attempts: a step that is done again is reported once.
 */
export class TrainingLoop {
  readonly lost: LostSteps
  readonly timeline = new StepTimeline()
  readonly pause = new Pause()
  /** Spent in pauses. */
  pausedMs = 0
  readonly #options: LoopOptions
  readonly #queries: ModelQueries
  readonly #saves: Saves
  readonly #pace: Pace
  /** True if all ranks are to continue in another group after the next step; it counts on rank 0. */
  isRegroupAsked = false
  /** Of the newest steps, a mean; 0 before the first. */
  stepMs = 0
  isPaused = false
  /** When the step under way began; undefined between steps. */
  #stepBeganMs: number | undefined
  /** Time of the newest step that has ended. */
  #lastStepMs = 0
  /** The last step that was reported. */
  #reportedStep = 0
  #evaluated = 0
  /** After the newest step that has ended; undefined after one whose loss is not finite. */
  progress: Progress | undefined
  /** Steps that are on the device. */
  readonly #underWay: Promise<void>[] = []
  readonly #keepPace: KeepPace

  constructor(options: LoopOptions, queries: ModelQueries, saves: Saves) {
    this.#options = options
    this.#queries = queries
    this.#saves = saves
    this.lost = new LostSteps(options)
    this.#pace = new Pace(options.config.maxStepsPerSec ?? 0)
    this.#keepPace = new KeepPace(performance.now(), options.keepAfterMs)
  }

  /** How long the step under way, or the one before it, has taken, whichever is longer. units: ms. */
  get newestStepMs(): number {
    const beganMs = this.#stepBeganMs
    const sinceMs = beganMs === undefined ? 0 : performance.now() - beganMs
    return Math.max(this.#lastStepMs, sinceMs)
  }

  /** True if this rank has taken no step yet. */
  get isBeforeFirstStep(): boolean {
    return this.#reportedStep === 0
  }

  /** Waits until no step of an attempt that has failed is on the device. */
  async settle(): Promise<void> {
    await Promise.allSettled(this.#underWay.splice(0))
  }

  /** Takes the steps that are left. errors: `train.nan`, those of the programs and of the group. */
  async run(attempt: Attempt): Promise<LoopEnd> {
    const { gaps } = this.#queries
    await gaps.close()
    this.#lastStepMs = 0
    try {
      return await this.#run(attempt)
    } finally {
      this.#stepBeganMs = undefined
      gaps.open()
    }
  }

  async #run(attempt: Attempt): Promise<LoopEnd> {
    const { config, task, onEvent, signal, isElastic } = this.#options
    const { group, replicas, patience, step, batches, evaluation, check, first } = attempt
    const { rank, size } = group
    const { metric } = task.meta
    const { gaps } = this.#queries
    const { perEpoch } = batches
    const totalSteps = totalStepsOf(config, batches.samples)
    let { samples, loss, value, best } = first
    let heldOutLoss = Number.NaN
    let trainValue = Number.NaN
    let lastEnded = 0
    let isLost = false
    const { timeline, lost } = this
    const { deviceBytes } = attempt
    const firstStep = first.step
    this.#queries.step = firstStep
    this.#keepPace.begin()
    const live = new LiveSamples({
      group,
      program: step,
      timeline,
      onEvent,
      deviceBytes,
      // Alone, a step that is done again is not sampled, as it is not reported; ranks sample by what they have in common.
      firstStep: size === 1 ? Math.max(firstStep, this.#reportedStep) : firstStep,
    })
    /** Does the work between a step and the next: comparing, evaluation, kept states, checkpoints. */
    const follow = async (number: number, request: StepRequests) => {
      const epoch = Math.floor((number - 1) / perEpoch)
      const isLast = number === totalSteps
      const endsEpoch = number % perEpoch === 0
      const isEvery = number % keepEvery === 0
      const { saves, checkpointEvery: every, evaluateEvery } = config
      const isDueNow =
        every !== undefined && (isLast || endsEpoch || (every > 0 && number % every === 0))
      const isCompared = number % config.hashEvery === 0
      const isEvaluated =
        isLast || endsEpoch || (evaluateEvery !== undefined && number % evaluateEvery === 0)
      const isForOthers =
        request.isForKeep || request.isForRegroup || (request.isForPause && isElastic)
      const isKept = (isEvery || isForOthers) && !isLast
      const isHeld = canBeSaved(config) && (request.isForPause || isLast)
      const isSaved = isDueNow || isHeld || request.isForSave
      if (isEvaluated || isKept || isSaved || isCompared) await this.#drain()
      if (isCompared) await check?.compare(replicas, number)
      let isBest = false
      if (isEvaluated) {
        onEvent({ event: 'phase', phase: 'evaluate', rank })
        patience.forSetup()
        const evaluated = await evaluation.run()
        if (replicas === group && isLast) this.lost.checkLast(number, evaluated.loss)
        heldOutLoss = evaluated.loss
        value = evaluated.value
        isBest = isBetter(metric, value, best)
        if (isBest) best = value
        if (number > this.#evaluated) {
          this.#evaluated = number
          const accuracy = metric.name === 'accuracy' ? { accuracy: value } : {}
          const facts = { step: number, epoch, ...evaluated, metric: metric.name, ...accuracy }
          onEvent({ event: 'evaluation', ...facts, rank })
        }
      }
      const progress = { step: number, samples, loss, value, best }
      if (isKept) {
        const beganMs = performance.now()
        await attempt.keep(progress)
        this.#keepPace.kept(beganMs, performance.now())
      }
      if (isSaved) {
        patience.forSetup()
        await attempt.save(progress, {
          isBest,
          isDue: isDueNow || (isHeld && saves === 'auto'),
          isHeld,
        })
      }
      this.#queries.step = number
      if (isEvaluated) this.progress = progress
    }
    const underWay = this.#underWay
    const limit = size === 1 ? stepsAhead : 1
    const mayLack = attempt.mayLackWhatFollows && firstStep > 0
    // Nobody asks for anything.
    if (mayLack) await follow(firstStep, requestsIn(0))
    // A pause outlasts the group in which it began.
    if (firstStep > 0 && firstStep < totalSteps)
      await this.#hold(group, firstStep, async () => {
        if (canBeSaved(config))
          await attempt.save(first, { isBest: false, isDue: false, isHeld: true })
      })
    for (let number = firstStep + 1; number <= totalSteps; number++) {
      await this.#pace.next(signal)
      const isSampled = live.isDue(number)
      // With another under way its times would be shares of the gap between two answers, which may come at once.
      if (isSampled) await this.#drain()
      const began = performance.now()
      const epoch = Math.floor((number - 1) / perEpoch)
      const batch = batches.after(number - 1)
      const { count, inputs, firstRow } = batch
      const scalars = {
        count,
        [gradientWeight]: weightOf(batch, replicas, group),
        ...randomScalarsFor(step, number - 1, firstRow),
      }
      // With `exact` the samples are to blame, and not the rank that has them: a step left out would depend on the number of ranks.
      const leavesOut = replicas === group && config.parallel === 'dp' && !config.exact
      if (lost.mayLose(number)) {
        await this.#drain()
        const findCause = async () => (count > 0 ? attempt.findCause(inputs, scalars) : undefined)
        const found = await lost.find(group, number, leavesOut, findCause)
        if (found) {
          await lost.leaveOut(group, number, found)
          this.progress = { step: number, samples, loss, value, best }
          await follow(number, { ...requestsIn(0), isForKeep: true })
          continue
        }
      }
      timeline.begin(step, number, totalSteps, isSampled)
      this.#stepBeganMs = performance.now()
      // Of the ranks that have parts of a step, the first counts its samples.
      if (attempt.partAt === 0) samples += count
      const samplesSoFar = samples
      const tellStep = (times: StepParts, beganMs: number, stateHash?: string) => {
        if (number <= this.#reportedStep) return
        this.#reportedStep = number
        this.stepMs = patience.stepped(times)
        this.#lastStepMs = times.total
        if (number === firstStep + 1) void evaluation.prepare()
        live.ended(number, times, beganMs)
        onEvent({
          event: 'step',
          step: number,
          totalSteps,
          epoch,
          loss,
          value: trainValue,
          rank,
          samples: count,
          globalSamples: batch.globalCount,
          times,
          bytesSent: group.stats().payloadBytesSent,
          ...(stateHash !== undefined && { stateHash }),
        })
      }
      const ended = (values: RunOutputs) => {
        this.progress = undefined
        loss = values.loss[0]
        if (!Number.isFinite(loss)) {
          // Of steps under way at once the first is the one in question.
          if (!isLost) lost.suspect = number
          isLost = true
          throw lost.errorOf(number, loss, replicas.size > 1)
        }
        trainValue = metricOf(task, loss, values.metric?.[0])
        const { parts, beganMs, endedMs, stateHash } = runTimesOf(values)
        const from = Math.max(began, lastEnded)
        lastEnded = endedMs
        const times = { data: Math.max(0, beganMs - from), ...parts, total: endedMs - from }
        tellStep(times, beganMs, stateHash)
        this.progress = { step: number, samples: samplesSoFar, loss, value, best }
      }
      const watched = lost.isSuspect(number) && leavesOut ? step.prepared.trace.exchange : undefined
      if (watched) watched.sentFinite = true
      const asked = this.#agree(attempt)
      // A separate replica whose rank has no samples in an epoch's last step stays as it is.
      const isIdle = count === 0 && replicas !== group
      if (isIdle) tellStep({ data: 0, ...noTimes, total: 0 }, began)
      else underWay.push(step.run(inputs, scalars).then(attempt.shareOutputs).then(ended))
      // A later step that fails while an earlier one is awaited is not unhandled: it is awaited in its turn.
      underWay.at(-1)?.catch(() => undefined)
      const taken = this.#drain(isSampled ? 0 : limit - 1)
      if (watched) await lost.blame(group, number, watched, taken)
      await taken
      this.#stepBeganMs = undefined
      lost.stepped(group, number)
      await live.share(number)
      const request = await asked()
      const isQueried = gaps.isWaiting && number < totalSteps
      if (isQueried || request.isForPause) await this.#drain()
      await follow(number, request)
      if (request.isForPause && number < totalSteps) await this.#hold(group, number)
      if (isQueried) await gaps.one()
      if (request.isForRegroup && number < totalSteps) throw new Regrouping(`after step ${number}`)
    }
    await live.finish()
    if (firstStep === totalSteps && !mayLack) {
      // A checkpoint of the last step: its own evaluation may be of an earlier one.
      onEvent({ event: 'phase', phase: 'evaluate', rank })
      const evaluated = await evaluation.run()
      heldOutLoss = evaluated.loss
      value = evaluated.value
      if (isBetter(metric, value, best)) best = value
      const progress = { step: totalSteps, samples, loss, value, best }
      // What was saved is saved, but it may be wanted elsewhere, too.
      if (canBeSaved(config)) {
        await attempt.save(progress, { isBest: false, isDue: false, isHeld: true })
      }
    }
    return { loss, step: totalSteps, samples, value, best, heldOutLoss, trainValue }
  }

  /**
   * Tells the other ranks with the step that begins what is asked for here; what it returns gives what any rank asks for, the same on all of
   * them, once the step has ended.
   */
  #agree({ group, replicas, step }: Attempt): () => Promise<StepRequests> {
    const { pause } = this
    const saves = this.#saves
    const requests = (): StepRequests => ({
      isForPause: pause.isAsked,
      isForSave: saves.isWanted && replicas === group,
      isForKeep: group.size > 1 && group.rank === 0 && this.#wantsToKeep,
      isForRegroup: this.isRegroupAsked && group.rank === 0,
    })
    if (group.size === 1) return async () => requests()
    const own = requests()
    const flags = step.flags ?? step.prepared.trace.exchange?.flags
    if (replicas === group && flags) {
      flags.own = wordOf(own)
      return async () => requestsIn(flags.sum)
    }
    // Ranks whose steps carry no such word agree here: queries, pauses and saves come after the same step on all.
    const received = group.allGatherU32(Uint32Array.of(wordOf(own)), { label: 'the requests' })
    received.catch(() => undefined)
    return async () => requestsIn((await received).reduce((sum, word) => sum + word, 0))
  }

  /** True if it is time to keep a state, for ranks that may lose another. With `exact` they keep one when that happens. */
  get #wantsToKeep(): boolean {
    const { isElastic = false, config } = this.#options
    return isElastic && !config.exact && this.#keepPace.isDue(performance.now())
  }

  async #hold(group: ProcessGroup, step: number, began?: () => Promise<void>): Promise<void> {
    const { onEvent, signal } = this.#options
    const { rank } = group
    const { gaps } = this.#queries
    let beganMs: number | undefined
    gaps.open()
    try {
      await this.pause.hold(group, signal, async (by) => {
        beganMs = performance.now()
        this.isPaused = true
        onEvent({ event: 'paused', step, by, rank })
        await began?.()
      })
    } finally {
      this.isPaused = false
      // Also where a lost device ends it.
      if (beganMs !== undefined) {
        const pausedMs = performance.now() - beganMs
        this.pausedMs += pausedMs
        if (!signal?.aborted) onEvent({ event: 'continued', step, pausedMs, rank })
      }
    }
    await gaps.close()
    this.#saves.letGo()
  }

  /** Waits until at most `max` steps are under way. */
  async #drain(max = 0): Promise<void> {
    while (this.#underWay.length > max) await this.#underWay.shift()
  }
}

/** Requests of any of the ranks. */
interface StepRequests {
  readonly isForPause: boolean
  readonly isForSave: boolean
  readonly isForKeep: boolean
  readonly isForRegroup: boolean
}

/**
 * A rank's requests as a word that ranks add up, exact as float32 where it travels with gradients. Up to 127 ranks may ask, each in a digit of
 * its kind.
 */
const digit = 2 ** 7
const kinds = ['isForPause', 'isForSave', 'isForKeep'] as const
/** Rank 0 alone asks for another group. */
const regroupWord = digit ** kinds.length

const wordOf = (requests: StepRequests): number =>
  kinds.reduce(
    (sum, kind, i) => sum + (requests[kind] ? digit ** i : 0),
    requests.isForRegroup ? regroupWord : 0,
  )

function requestsIn(sum: number): StepRequests {
  const [isForPause, isForSave, isForKeep] = kinds.map(
    (_, i) => Math.floor(sum / digit ** i) % digit > 0,
  )
  return { isForPause, isForSave, isForKeep, isForRegroup: sum >= regroupWord }
}

/** Returns the weight of this rank's gradients. */
function weightOf(
  { count, globalCount }: ShareBatch,
  replicas: CollectiveGroup,
  group: ProcessGroup,
): number {
  return replicas === group ? count / globalCount : 1
}
