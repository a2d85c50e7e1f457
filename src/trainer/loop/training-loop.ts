import { noTimes, type RunOutputs, runTimesOf } from '../../graph/plan/step-program.ts'
import { gradientWeight } from '../../graph/trace/trace.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { metricOf } from '../evaluate/evaluate.ts'
import { OwnRows } from '../evaluate/own-rows.ts'
import type { ShareBatch } from '../evaluate/share-batches.ts'
import type { Changes } from '../saves/changes.ts'
import { keepEvery, type Progress } from '../saves/kept-states.ts'
import type { RunStates, RunStatesOptions } from '../saves/run-states.ts'
import { canBeSaved, totalStepsOf } from '../settings/config.ts'
import { isBetter } from '../settings/demo-meta.ts'
import { LiveSamples } from '../watch/live-samples.ts'
import type { ModelQueries } from '../watch/model-queries.ts'
import type { StepParts } from '../watch/run-events.ts'
import { StepTimeline } from '../watch/step-timeline.ts'
import { KeepPace } from './keep-pace.ts'
import { LostSteps } from './lost-steps.ts'
import { Pace } from './pace.ts'
import { Pause } from './pause.ts'
import type { PhaseTimeouts } from './phase-timeouts.ts'
import type { RankSetup } from './rank-setup.ts'
import { Regrouping, type RunGroupsOptions } from './run-groups.ts'
import { noRequests, type StepRequests, shareRequests } from './step-requests.ts'
import { randomScalarsFor } from './training-step.ts'

/** With one rank, steps that may be under way on the device while the next batch is made. */
const stepsAhead = 2

export interface LoopOptions
  extends RunStatesOptions,
    Pick<RunGroupsOptions, 'isElastic' | 'signal'> {
  /** For tests. Default: that of `KeepPace`. */
  readonly keepAfterMs?: number
}

/** Inputs of the loop in one group on one device. */
export interface Attempt {
  readonly group: ProcessGroup
  readonly setup: RankSetup
  readonly timeouts: PhaseTimeouts
  /** What each rank begins on. */
  readonly devices: readonly string[]
  /** Where it continues from. */
  readonly first: Progress
  /** True if an attempt before may have ended between that step and what follows it; the same on all ranks. */
  readonly mayLackWhatFollows: boolean
}

/** Progress of the loop, and the other figures of its last evaluation and its last step. */
export interface LoopEnd extends Progress {
  readonly heldOutLoss: number
  readonly trainValue: number
}

/** An attempt under way. */
interface UnderWay extends Attempt {
  readonly totalSteps: number
  readonly live: LiveSamples
  /** True if ranks whose values are not finite may be left out of a step. */
  readonly leavesOut: boolean
  /** When the newest step ended. */
  endedMs: number
  /** True after a loss that is not finite. */
  isLost: boolean
  /** Figures of the newest step that has ended, and of the newest evaluation. */
  readonly now: { -readonly [Key in keyof LoopEnd]: LoopEnd[Key] }
}

/** A step before it is taken. */
interface NextStep {
  readonly number: number
  readonly epoch: number
  readonly batch: ShareBatch
  readonly scalars: Readonly<Record<string, number>>
  readonly beganMs: number
  /** True if `LiveSamples` takes it for its sample. */
  readonly isSampled: boolean
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
  readonly ownRows = new OwnRows()
  /** Spent in pauses. */
  pausedMs = 0
  readonly #options: LoopOptions
  readonly #queries: ModelQueries
  readonly #states: RunStates
  readonly #changes: Changes
  readonly #pace = new Pace()
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

  constructor(options: LoopOptions, queries: ModelQueries, states: RunStates, changes: Changes) {
    this.#options = options
    this.#queries = queries
    this.#states = states
    this.#changes = changes
    this.lost = new LostSteps(options)
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

  /** Takes the steps that are left. errors: `train.nan`, those of the programs and of the group; `Regrouping`. */
  async run(attempt: Attempt): Promise<LoopEnd> {
    const { config } = this.#options
    const { first } = attempt
    const { gaps } = this.#queries
    await gaps.close()
    this.#lastStepMs = 0
    this.#queries.step = first.step
    this.#keepPace.begin()
    const run = this.#begin(attempt)
    const { group, now, totalSteps } = run
    const mayLack = attempt.mayLackWhatFollows && first.step > 0
    try {
      if (mayLack) await this.#follow(run, noRequests)
      // A pause outlasts the group in which it began.
      if (first.step > 0 && first.step < totalSteps) await this.#hold(group, first, true)
      for await (const requests of this.#steps(run)) {
        const isLast = now.step === totalSteps
        const isQueried = gaps.isWaiting && !isLast
        if (isQueried || requests.isForPause) await this.#drain()
        // What is saved then has the settings of the next step.
        if (requests.isForChange) await this.#changes.agree(group, now.step)
        await this.#follow(run, requests)
        if (requests.isForPause && !isLast) await this.#hold(group, progressIn(now))
        if (isQueried) await gaps.one()
        if (requests.isForRegroup && !isLast) throw new Regrouping(`after step ${now.step}`)
      }
      if (first.step === totalSteps && !mayLack) {
        // A checkpoint of the last step: its own evaluation may be of an earlier one.
        await this.#evaluate(run, false)
        // What was saved is saved, but it may be wanted elsewhere, too.
        if (canBeSaved(config)) await this.#states.save(progressIn(now), { isHeld: true })
      }
      return now
    } finally {
      this.#stepBeganMs = undefined
      gaps.open()
    }
  }

  #begin(attempt: Attempt): UnderWay {
    const { config, onEvent } = this.#options
    const { group, setup, first, devices } = attempt
    const { batches, replicas, step: program, runtime } = setup
    const live = new LiveSamples({
      ...{ group, program, onEvent, timeline: this.timeline, devices },
      adapter: () => runtime.facts,
      deviceBytes: () => ('gpu' in runtime ? runtime.gpu.usedBytes : null),
      // Alone, a step that is done again is not sampled, as it is not reported; ranks sample by what they have in common.
      firstStep: group.size === 1 ? Math.max(first.step, this.#reportedStep) : first.step,
    })
    return {
      ...attempt,
      ...{ live, endedMs: 0, isLost: false },
      totalSteps: totalStepsOf(config, batches.samples),
      // With `exact` the samples are to blame, and not the rank that has them: a step left out would depend on the number of ranks.
      leavesOut: replicas === group && config.parallel === 'dp' && !config.exact,
      now: { ...first, heldOutLoss: Number.NaN, trainValue: Number.NaN },
    }
  }

  /** Takes one step after the other; each gives what ranks ask for after it. With one rank the newest may still be on the device. */
  async *#steps(run: UnderWay): AsyncGenerator<StepRequests> {
    const { signal } = this.#options
    const { group, setup, first, now, live, leavesOut, totalSteps } = run
    const { batches, replicas, step } = setup
    const { lost } = this
    for (let number = first.step + 1; number <= totalSteps; number++) {
      await this.#useSettings(setup, number)
      await this.#paced(group, signal)
      const isSampled = live.isDue(number)
      // With another under way its times would be shares of the gap between two answers, which may come at once.
      if (isSampled) await this.#drain()
      const beganMs = performance.now()
      const batch = batches.after(number - 1)
      const { count, inputs, firstRow, own, globalCount } = batch
      this.ownRows.took(number - 1, setup.draws, batch)
      const part = { step: number, own, globalCount }
      const scalars = {
        count,
        [gradientWeight]: replicas === group ? count / globalCount : 1,
        ...randomScalarsFor(step, number - 1, firstRow),
      }
      now.step = number
      if (lost.mayLose(number)) {
        await this.#drain()
        const findCause = async () => (count > 0 ? setup.findNotFinite(inputs, scalars) : undefined)
        const found = await lost.find(group, number, leavesOut, findCause)
        if (found) {
          await lost.leaveOut(group, number, found)
          this.progress = progressIn(now)
          yield { ...noRequests, isForKeep: true }
          continue
        }
      }
      const epoch = Math.floor((number - 1) / batches.perEpoch)
      this.timeline.begin(step, number, totalSteps, isSampled)
      this.#stepBeganMs = performance.now()
      const asked = shareRequests(group, setup, () => this.#requests(run))
      const next = { number, epoch, batch, scalars, beganMs, isSampled }
      await this.#take(run, next)
      this.#stepBeganMs = undefined
      this.#queries.part = part
      lost.stepped(group, number)
      await live.share(number)
      yield await asked()
    }
    await live.finish(totalSteps)
  }

  /** Puts the settings that may change to what they are in a step. */
  async #useSettings({ parts }: RankSetup, step: number): Promise<void> {
    this.#pace.maxStepsPerSec = this.#changes.at('maxStepsPerSec', step)
    const { optimizer } = parts
    // Steps under way have the rate of before.
    if (optimizer.paramGroups[0].lr !== this.#changes.at('lr', step)) await this.#drain()
    this.#changes.useRate(optimizer, step)
  }

  /** Waits until the pace lets the next step begin; what this rank is asked meanwhile costs the run nothing. */
  async #paced({ size }: ProcessGroup, signal: AbortSignal | undefined): Promise<void> {
    const { gaps } = this.#queries
    // One rank alone may have steps on the device.
    const isIdle = size > 1 && this.#pace.isEarly
    if (isIdle) gaps.open()
    try {
      await this.#pace.next(signal)
    } finally {
      if (isIdle) await gaps.close()
    }
  }

  /** Runs a step; resolves when it has ended, with one rank when the one before it has. */
  async #take(run: UnderWay, next: NextStep): Promise<void> {
    const { task } = this.#options
    const { group, setup, now } = run
    const { replicas, shared, step } = setup
    const { number, batch, scalars, beganMs } = next
    const { lost } = this
    const underWay = this.#underWay
    // Of the ranks that have parts of a step, the first counts its samples.
    if (!shared.parts?.rank) now.samples += batch.count
    const { samples } = now
    const ended = (values: RunOutputs) => {
      this.progress = undefined
      now.loss = values.loss[0]
      if (!Number.isFinite(now.loss)) {
        // Of steps under way at once the first is the one in question.
        if (!run.isLost) lost.suspect = number
        run.isLost = true
        throw lost.errorOf(number, now.loss, replicas.size > 1)
      }
      now.trainValue = metricOf(task, now.loss, values.metric?.[0])
      const { parts, beganMs: ranMs, endedMs, stateHash } = runTimesOf(values)
      const fromMs = Math.max(beganMs, run.endedMs)
      run.endedMs = endedMs
      const times = { data: Math.max(0, ranMs - fromMs), ...parts, total: endedMs - fromMs }
      this.#report(run, next, times, ranMs, stateHash)
      this.progress = { ...progressIn(now), step: number, samples }
    }
    const watched =
      lost.isSuspect(number) && run.leavesOut ? step.prepared.trace.exchange : undefined
    if (watched) watched.sentFinite = true
    // A separate replica whose rank has no samples in an epoch's last step stays as it is.
    const isIdle = batch.count === 0 && replicas !== group
    if (isIdle) this.#report(run, next, { data: 0, ...noTimes, total: 0 }, beganMs)
    else underWay.push(step.run(batch.inputs, scalars).then(shared.shareOutputs).then(ended))
    // A later step that fails while an earlier one is awaited is not unhandled: it is awaited in its turn.
    underWay.at(-1)?.catch(() => undefined)
    const taken = this.#drain(group.size > 1 || next.isSampled ? 0 : stepsAhead - 1)
    if (watched) await lost.blame(group, number, watched, taken)
    await taken
  }

  /** Tells of a step that has ended, once. */
  #report(
    { group, setup, timeouts, first, now, live, totalSteps }: UnderWay,
    { number, epoch, batch }: NextStep,
    times: StepParts,
    ranMs: number,
    stateHash?: string,
  ): void {
    if (number <= this.#reportedStep) return
    this.#reportedStep = number
    this.stepMs = timeouts.stepped(times)
    this.#lastStepMs = times.total
    if (number === first.step + 1) void setup.evaluation.prepare()
    live.ended(number, times, ranMs)
    this.#options.onEvent({
      event: 'step',
      step: number,
      totalSteps,
      epoch,
      loss: now.loss,
      value: now.trainValue,
      rank: group.rank,
      samples: batch.count,
      globalSamples: batch.globalCount,
      times,
      bytesSent: group.stats().payloadBytesSent,
      ...(stateHash !== undefined && { stateHash }),
    })
  }

  /** Does the work between a step and the next: comparing, evaluation, kept states, checkpoints. */
  async #follow(run: UnderWay, requests: StepRequests): Promise<void> {
    const { config, isElastic } = this.#options
    const { setup, timeouts, now, totalSteps } = run
    const { batches, check, replicas } = setup
    const { step } = now
    const isLast = step === totalSteps
    const endsEpoch = step % batches.perEpoch === 0
    const { saves, checkpointEvery: every, evaluateEvery } = config
    const isDueNow =
      every !== undefined && (isLast || endsEpoch || (every > 0 && step % every === 0))
    const isCompared = step % config.hashEvery === 0
    const isEvaluated =
      isLast || endsEpoch || (evaluateEvery !== undefined && step % evaluateEvery === 0)
    const isForOthers =
      requests.isForKeep || requests.isForRegroup || (requests.isForPause && isElastic)
    const isKept = (step % keepEvery === 0 || isForOthers) && !isLast
    const isHeld = canBeSaved(config) && (requests.isForPause || isLast)
    const isSaved = isDueNow || isHeld || requests.isForSave
    if (isEvaluated || isKept || isSaved || isCompared) await this.#drain()
    if (isCompared) await check?.compare(replicas, step)
    const isBest = isEvaluated && (await this.#evaluate(run, true))
    const progress = progressIn(now)
    if (isKept) {
      const beganMs = performance.now()
      await this.#states.keep(progress)
      this.#keepPace.kept(beganMs, performance.now())
    }
    if (isSaved) {
      timeouts.forSetup()
      const isDue = isDueNow || (isHeld && saves === 'auto')
      await this.#states.save(progress, { isBest, isDue, isHeld })
    }
    this.#queries.step = step
    if (isEvaluated) this.progress = progress
  }

  /** Returns true if it is the best. `isOfStep`: it follows a step, and is reported once. errors: those of `LostSteps.checkLast`. */
  async #evaluate(run: UnderWay, isOfStep: boolean): Promise<boolean> {
    const { task, onEvent } = this.#options
    const { group, setup, timeouts, now, totalSteps } = run
    const { batches, evaluation, replicas } = setup
    const { metric } = task.meta
    const { rank } = group
    const { step } = now
    onEvent({ event: 'phase', phase: 'evaluate', rank })
    timeouts.forSetup()
    const evaluated = await evaluation.run()
    const { loss, value } = evaluated
    if (isOfStep && replicas === group && step === totalSteps) this.lost.checkLast(step, loss)
    now.heldOutLoss = loss
    now.value = value
    const isBest = isBetter(metric, value, now.best)
    if (isBest) now.best = value
    if (!isOfStep || step <= this.#evaluated) return isBest
    this.#evaluated = step
    const epoch = Math.floor((step - 1) / batches.perEpoch)
    const accuracy = metric.name === 'accuracy' ? { accuracy: value } : {}
    const facts = { step, epoch, ...evaluated, metric: metric.name, ...accuracy }
    onEvent({ event: 'evaluation', ...facts, rank })
    return isBest
  }

  /** What is asked for on this rank. */
  #requests({ group, setup }: Attempt): StepRequests {
    const isFirst = group.rank === 0
    return {
      isForPause: this.pause.isAsked,
      isForChange: this.#changes.isAsked,
      isForSave: this.#states.saves.isWanted && setup.replicas === group,
      isForKeep: group.size > 1 && isFirst && this.#wantsToKeep,
      isForRegroup: this.isRegroupAsked && isFirst,
    }
  }

  /** True if it is time to keep a state, for ranks that may lose another. With `exact` they keep one when that happens. */
  get #wantsToKeep(): boolean {
    const { isElastic = false, config } = this.#options
    return isElastic && !config.exact && this.#keepPace.isDue(performance.now())
  }

  /** Pauses where a rank asks for it. `isUnread`: what a save needs has not been read behind this step. */
  async #hold(group: ProcessGroup, progress: Progress, isUnread = false): Promise<void> {
    const { config, onEvent, signal } = this.#options
    const { step } = progress
    const { rank } = group
    const { gaps } = this.#queries
    let beganMs: number | undefined
    gaps.open()
    try {
      const read = async () => {
        if (canBeSaved(config)) await this.#states.save(progress, { isHeld: true })
      }
      const changes = {
        isAsked: () => this.#changes.isAsked,
        agree: async () => {
          await this.#changes.agree(group, step)
          await read()
        },
      }
      const onBegan = async (by: readonly number[]) => {
        beganMs = performance.now()
        this.isPaused = true
        onEvent({ event: 'paused', step, by, rank })
        if (isUnread) await read()
      }
      await this.pause.hold(group, signal, onBegan, changes)
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
    this.#states.saves.letGo()
  }

  /** Waits until at most `max` steps are under way. */
  async #drain(max = 0): Promise<void> {
    while (this.#underWay.length > max) await this.#underWay.shift()
  }
}

const progressIn = ({ step, samples, loss, value, best }: Progress): Progress => ({
  step,
  samples,
  loss,
  value,
  best,
})
