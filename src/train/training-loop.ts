import type { DataSplits } from '../data/dataset.ts'
import type { Share } from '../data/shares.ts'
import {
  type RunInputs,
  type RunOutputs,
  type StepProgram,
  timesOf,
} from '../graph/step-program.ts'
import { gradientWeight } from '../graph/trace.ts'
import type { ProcessGroup } from '../peer/group.ts'
import { TabringError } from '../util/errors.ts'
import { endIfAnyFound } from './anomalies.ts'
import { type TrainConfig, totalStepsOf } from './config.ts'
import type { Evaluation } from './evaluate.ts'
import type { Progress } from './kept-state.ts'
import type { Patience } from './patience.ts'
import type { RunEvent } from './run.ts'
import { ShareBatches } from './share-batches.ts'
import { StepTimeline } from './step-timeline.ts'
import { randomScalarsFor } from './training-step.ts'
import type { ReplicaCheck } from './verify.ts'

/** With one rank, steps that may be under way on the device while the next batch is made. */
const stepsAhead = 2

/** The state is kept on the host every so many steps, on all ranks the same, so that a lost device costs no more than these. */
const keepEvery = 50

export interface LoopOptions {
  readonly config: TrainConfig
  readonly onEvent: (event: RunEvent) => void
  /** Ends the run with its reason at the next step. */
  readonly signal?: AbortSignal
}

/** What the loop works with from one loss of a device to the next. */
export interface Attempt {
  readonly group: ProcessGroup
  readonly patience: Patience
  readonly step: StepProgram
  readonly data: DataSplits
  readonly share: Share
  readonly evaluation: Evaluation
  readonly check: ReplicaCheck
  /** Where it goes on from. */
  readonly first: Progress
  /** Keeps the state where the run could go on from; between steps. */
  keep(progress: Progress): Promise<void>
  /** Saves a checkpoint; between steps, on all ranks. */
  save(progress: Progress, isBest: boolean): Promise<void>
  /** Names the op by which a step's values on this rank stop being finite, from what the parameters are now; sends nothing. */
  look(inputs: RunInputs, scalars: Readonly<Record<string, number>>): Promise<string | undefined>
}

/**
 * The steps of a run, with all that happens between two of them: evaluation, kept states, checkpoints, comparing replicas.
 *
 * It lasts over attempts: a step that is done again is not told of again, and one whose loss was not finite is looked at.
 */
export class TrainingLoop {
  /** The step whose loss was not finite, until its cause has been looked for; ranks settle it among them. */
  suspect = 0
  readonly timeline = new StepTimeline()
  readonly #options: LoopOptions
  /** The step that was looked at, op by op; 0 for none. */
  #lookedAt = 0
  /** The last step that was told of. */
  #told = 0
  #evaluated = 0
  /** Steps that are on the device. */
  readonly #underWay: Promise<void>[] = []

  constructor(options: LoopOptions) {
    this.#options = options
  }

  /** Whether the step in question has been looked at already. */
  get hasLooked(): boolean {
    return this.#lookedAt === this.suspect
  }

  /** Waits until no step of an attempt that has failed is on the device. */
  async settle(): Promise<void> {
    await Promise.allSettled(this.#underWay.splice(0))
  }

  /** Takes the steps that are left. errors: `train.nan`, those of the programs and of the group. */
  async run(attempt: Attempt): Promise<Progress> {
    const { config, onEvent, signal } = this.#options
    const { group, patience, step, data, share, evaluation, check, first } = attempt
    const { rank, size } = group
    const batches = new ShareBatches(data.train, config, share)
    const { perEpoch } = batches
    const totalSteps = totalStepsOf(config, data.train.count)
    let { samples, loss, accuracy, bestAccuracy } = first
    let lastEnded = 0
    let isLost = false
    const underWay = this.#underWay
    const limit = size === 1 ? stepsAhead : 1
    for (let number = first.step + 1; number <= totalSteps; number++) {
      signal?.throwIfAborted()
      const began = performance.now()
      const epoch = Math.floor((number - 1) / perEpoch)
      const { count, globalCount, inputs } = batches.after(number - 1)
      this.timeline.begin(step, number, totalSteps)
      samples += count
      const scalars = {
        count,
        [gradientWeight]: count / globalCount,
        ...randomScalarsFor(step, number - 1, share.offset),
      }
      if (number === this.suspect || number + 1 === this.suspect) {
        await this.#drain()
        this.#lookedAt = this.suspect
        const found = count > 0 ? await attempt.look(inputs, scalars) : undefined
        await endIfAnyFound(group, number, found)
      }
      const ended = (values: RunOutputs) => {
        loss = values.loss[0]
        if (!Number.isFinite(loss)) {
          // Of steps under way at once the first is the one in question.
          if (!isLost) this.suspect = number
          isLost = true
          throw lossNotFinite(number, loss, this.#lookedAt === number && size > 1)
        }
        if (number <= this.#told) return
        this.#told = number
        const { parts, beganMs, endedMs } = timesOf(values)
        const from = Math.max(began, lastEnded)
        lastEnded = endedMs
        const total = endedMs - from
        patience.stepped(total)
        onEvent({
          event: 'step',
          step: number,
          totalSteps,
          epoch,
          loss,
          rank,
          samples: count,
          times: { data: Math.max(0, beganMs - from), ...parts, total },
          bytesSent: group.stats().payloadBytesSent,
        })
      }
      underWay.push(step.run(inputs, scalars).then(ended))
      // A later step that fails while an earlier one is awaited is not unhandled: it is awaited in its turn.
      underWay[underWay.length - 1].catch(() => undefined)
      while (underWay.length >= limit) await underWay.shift()
      const isLast = number === totalSteps
      const endsEpoch = number % perEpoch === 0
      const isKept = number % keepEvery === 0 && !isLast
      const { checkpointEvery: every } = config
      const isSaved =
        every !== undefined && (isLast || endsEpoch || (every > 0 && number % every === 0))
      const isCompared = number % config.hashEvery === 0
      if (isLast || endsEpoch || isKept || isSaved || isCompared) await this.#drain()
      if (isCompared) await check.compare(group, number)
      let isBest = false
      if (isLast || endsEpoch) {
        onEvent({ event: 'phase', phase: 'evaluate', rank })
        patience.forSetup()
        accuracy = await evaluation.accuracy(group)
        isBest = accuracy > bestAccuracy
        if (isBest) bestAccuracy = accuracy
        if (number > this.#evaluated) {
          this.#evaluated = number
          onEvent({ event: 'evaluation', step: number, epoch, accuracy, rank })
        }
      }
      const progress = { step: number, samples, loss, accuracy, bestAccuracy }
      if (isKept) await attempt.keep(progress)
      if (isSaved) {
        patience.forSetup()
        await attempt.save(progress, isBest)
      }
    }
    if (first.step === totalSteps) {
      // A checkpoint of the last step: its own evaluation may be of an earlier one.
      onEvent({ event: 'phase', phase: 'evaluate', rank })
      accuracy = await evaluation.accuracy(group)
      bestAccuracy = Math.max(accuracy, bestAccuracy)
    }
    return { loss, step: totalSteps, samples, accuracy, bestAccuracy }
  }

  /** Waits for all steps under way. */
  async #drain(): Promise<void> {
    while (this.#underWay.length > 0) await this.#underWay.shift()
  }
}

const lossNotFinite = (step: number, loss: number, isOfAll: boolean) =>
  new TabringError(
    'train.nan',
    `step ${step}: expected a finite loss, got ${loss}. Lower the learning rate, or check the data for values that are not numbers.${isOfAll ? " No rank's own samples lead to it: it comes of joining what the ranks have." : ''}`,
  )
