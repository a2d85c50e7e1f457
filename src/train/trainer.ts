import { type DataSplits, fillBatch, loadIdxFolder, readUrlFolder } from '../data/dataset.ts'
import { makeDigits } from '../data/digits.ts'
import {
  batchSamples,
  epochOrder,
  planShares,
  type Share,
  shareIndices,
  stepsPerEpoch,
} from '../data/shares.ts'
import type { Bucket } from '../graph/bucket.ts'
import { compile } from '../graph/compile.ts'
import { detectAnomaly } from '../graph/detect-anomaly.ts'
import { prepare } from '../graph/prepare.ts'
import type { AnyRuntime } from '../graph/runtime.ts'
import { type RunInputs, type StepProgram, timesOf } from '../graph/step-program.ts'
import { gradientWeight } from '../graph/trace.ts'
import type { TuneStore } from '../kernels/tune.ts'
import { manualSeed } from '../nn/init.ts'
import { models } from '../nn/models.ts'
import type { StateDict } from '../nn/module.ts'
import { gatherJson } from '../peer/gather-json.ts'
import type { CollectiveSpan, ProcessGroup } from '../peer/group.ts'
import { type LinkMeasurement, measureLinks } from '../peer/measure-links.ts'
import { PeerError, TabringError } from '../util/errors.ts'
import { endIfAnyFound } from './anomalies.ts'
import { type TrainConfig, totalStepsOf } from './config.ts'
import { bucketCapMbFor } from './data-parallel/bucket-size.ts'
import { DistributedDataParallel } from './data-parallel.ts'
import { Evaluation } from './evaluate.ts'
import { beginning, KeptStates, keepState, type Progress, restoreState } from './kept-state.ts'
import { Patience } from './patience.ts'
import { Recovery, type RecoveryOptions } from './recovery.ts'
import type { RunEvent, RunRecord, TrainerResult } from './run.ts'
import {
  type CheckpointPlace,
  differencesOf,
  type ResumedRun,
  type RunParts,
  resumeRun,
  saveRun,
} from './run-checkpoint.ts'
import { settleRecord } from './settle-record.ts'
import { settleVariants } from './settle-variants.ts'
import { StepTimeline } from './step-timeline.ts'
import { tellCollective } from './tell-collective.ts'
import { makeOptimizer, randomScalarsFor, stepTypesOf, trainingStep } from './training-step.ts'
import { ReplicaCheck } from './verify.ts'

/** With one rank, steps that may be under way on the device while the next batch is made. */
const stepsAhead = 2

/** The state is kept on the host every so many steps, on all ranks the same, so that a lost device costs no more than these. */
const keepEvery = 50

export interface TrainerOptions extends RecoveryOptions {
  readonly runtime: AnyRuntime
  readonly group: ProcessGroup
  readonly config: TrainConfig
  /** Where relative data addresses start; the page's own address. */
  readonly baseUrl: string
  readonly onEvent: (event: RunEvent) => void
  /** Ends the run with its reason at the next step. */
  readonly signal?: AbortSignal
  /** Keeps tuned kernel choices between visits. */
  readonly tuneStore?: TuneStore
  /** Where checkpoints go and come from, if `config` asks for some. */
  readonly checkpoints?: CheckpointPlace
}

/**
 * The built-in experiment on one rank: data, model, optimizer, the loop, evaluation.
 *
 * Each global batch is cut into contiguous shares; a rank's program has a fixed number of rows, and a step scalar says how many count.
 * A replica that differs and a lost rank end the run on every rank. After a lost device all ranks go back to the newest state that all of
 * them kept, and on from there, whoever lost it on another one. A loss that is not a number sends them back too, up to the step in
 * question: there each looks at the ops on its own samples before the run ends.
 */
export class Trainer {
  readonly #options: TrainerOptions
  #ddp: DistributedDataParallel | undefined
  #program: StepProgram | undefined
  readonly #resources: { destroy(): void }[] = []
  #buckets: readonly Bucket[] = []
  #record: RunRecord | undefined
  /** What the ranks have measured of their links, once they have. */
  #links: LinkMeasurement | undefined
  #patience: Patience
  readonly #timeline = new StepTimeline()
  #runtime: AnyRuntime
  #group: ProcessGroup
  readonly #recovery: Recovery
  readonly #kept = new KeptStates()
  /** The checkpoint that this run goes on from. */
  #resumed: ResumedRun | undefined
  #hasToldResume = false
  /** The last step that was told of; steps that are done again are not told again. */
  #told = 0
  #evaluated = 0
  /** The step whose loss was not finite, until its cause has been looked for. */
  #suspect = 0
  /** The step that was looked at, op by op; 0 for none. */
  #lookedAt = 0
  /** Steps that are on the device. */
  readonly #underWay: Promise<void>[] = []

  constructor(options: TrainerOptions) {
    this.#options = options
    this.#runtime = options.runtime
    this.#group = options.group
    this.#patience = new Patience(options.group)
    const { reopen, regroup } = options
    const regroupHere = async (ended: ProcessGroup) => {
      this.#group = await regroup!(ended)
      this.#patience = new Patience(this.#group)
      return this.#group
    }
    this.#recovery = new Recovery({ reopen, regroup: regroup && regroupHere })
  }

  /** errors: `config.invalid`, `data.*`, `gpu.*`, `peer.*`, `train.*`. A failure here is made known to all ranks. */
  async run(): Promise<TrainerResult> {
    try {
      return await this.#train()
    } catch (thrown) {
      const error =
        thrown instanceof TabringError ? thrown : new TabringError('graph.misuse', String(thrown))
      if (!this.#group.error) {
        this.#group.abort(new PeerError(this.#recovery.finalCode(error.code), error.message))
      }
      throw thrown
    }
  }

  /** The trained parameters with the keys of the plain model. errors: `graph.misuse` before the model is made. */
  async stateDict(): Promise<StateDict> {
    if (!this.#ddp) {
      throw new TabringError('graph.misuse', 'parameters: there are none before training begins.')
    }
    return this.#ddp.module.stateDict()
  }

  /** What decides the run's bits, once it is settled. */
  get record(): RunRecord | undefined {
    return this.#record
  }

  /** The compiled training step, while there is one. */
  get program(): StepProgram | undefined {
    return this.#program
  }

  /** Takes the group's report of a collective; those of the step on record go into its timeline. */
  onSpan(span: CollectiveSpan): void {
    tellCollective(span)
    this.#timeline.onSpan(span)
  }

  /** Frees what the run holds on the device, the trained parameters included. The trainer is of no use afterwards. */
  destroy(): void {
    for (const resource of this.#resources.splice(0)) resource.destroy()
    for (const bucket of this.#buckets) bucket.destroy()
    this.#buckets = []
    this.#ddp = undefined
    this.#program = undefined
  }

  async #train(): Promise<TrainerResult> {
    const { config, onEvent } = this.#options
    const group = this.#group
    if (config.batchSize < group.size) {
      throw new TabringError(
        'config.invalid',
        `batchSize: expected at least one sample for each of the ${group.size} ranks, got ${config.batchSize}. Use a larger batch or fewer ranks.`,
      )
    }
    onEvent({ event: 'phase', phase: 'load', rank: group.rank })
    const data = await this.#loadData()
    if (config.resume) {
      this.#resumed = await resumeRun(group, config, data.train.count, this.#checkpoints)
      this.#kept.firstStep = this.#resumed.progress.step
    }
    for (;;) {
      try {
        return await this.#onDevice(data)
      } catch (error) {
        await this.#recover(error)
      }
    }
  }

  /** Makes the next attempt possible after `error`, or throws it. */
  async #recover(error: unknown): Promise<void> {
    if (this.#options.signal?.aborted) throw error
    const place = { group: this.#group, runtime: this.#runtime }
    const isNan = error instanceof TabringError && error.code === 'train.nan' && !place.group.error
    if (isNan) {
      // Done again up to the step in question, whose ops are then looked at one by one; all ranks are here with the same error.
      if (this.#lookedAt === this.#suspect) throw error
      // A gradient that is not finite shows in the loss of the next step, so the step before is looked at too.
      this.#kept.backTo(this.#suspect - 2)
    } else {
      const next = await this.#recovery.after(error, place, this.#kept, this.#suspect)
      this.#runtime = next.runtime
      this.#suspect = next.suspect
    }
    this.#patience.forSetup()
    // What a step may still give to the device must not meet buffers that are gone.
    await Promise.allSettled(this.#underWay.splice(0))
    this.destroy()
  }

  /** Model, optimizer and programs on the current device, from the kept state on to the end. */
  async #onDevice(data: DataSplits): Promise<TrainerResult> {
    const { config, onEvent, signal } = this.#options
    const group = this.#group
    const runtime = this.#runtime
    const { rank, size } = group
    const phase = (name: Extract<RunEvent, { event: 'phase' }>['phase']) => {
      signal?.throwIfAborted()
      onEvent({ event: 'phase', phase: name, rank })
    }
    const recipe = models[config.model]
    const share = planShares(config.batchSize, size)[rank]

    phase('broadcast')
    const links = await this.#settleLinks(group)
    // Nothing may be awaited before the model is made: ranks of one context share the random state.
    manualSeed(config.seed)
    const ddp = new DistributedDataParallel(recipe.make(), {
      processGroup: group,
      // Buckets of another size would give other bits.
      bucketCapMb: config.bucketCapMb ?? this.#savedRecord?.bucketCapMb ?? bucketCapMbFor(links),
    })
    this.#ddp = ddp
    await ddp.ready

    phase('compile')
    const optimizer = makeOptimizer(ddp, config)
    const stepFunction = trainingStep(ddp, optimizer)
    const types = stepTypesOf(recipe, share.rows)
    runtime.variants = await settleVariants(
      { ...this.#options, group, runtime },
      (rows) => prepare(runtime, stepFunction, stepTypesOf(recipe, rows)),
      this.#record?.measured,
    )
    const step = await compile(stepFunction, types, { runtime })
    this.#program = step
    this.#resources.push(step)
    this.#buckets = optimizer.buckets
    const evaluation = await Evaluation.create({
      runtime,
      model: ddp,
      recipe,
      data: data.test,
      trainingRows: share.rows,
    })
    this.#resources.push(evaluation)
    const check = await ReplicaCheck.create(runtime, optimizer.buckets)
    this.#resources.push(check)
    const own = {
      config,
      worldSize: size,
      shares: planShares(config.batchSize, size).map(({ rows }) => rows),
      bucketCapMb: ddp.bucketCapMb!,
      buckets: optimizer.buckets.map(({ parameters, elements }) => ({
        parameters: parameters.map(({ name }) => name),
        elements,
      })),
      variants: { ...step.prepared.chosen },
      measured: { ...runtime.variants },
      links,
    }
    this.#record = await settleRecord(group, own, adapterOf(runtime))
    const keep = async (progress: Progress) => {
      this.#kept.add(await keepState(ddp, optimizer, progress))
      this.#recovery.kept()
    }
    const { newest } = this.#kept
    if (newest) restoreState(ddp, optimizer, newest)
    else await this.#resume({ model: ddp.module, optimizer }, this.#record)
    await check.compare(group, this.#start.step)

    phase('train')
    const began = performance.now()
    const {
      loss,
      step: steps,
      samples,
      accuracy,
      bestAccuracy,
    } = await this.#loop({
      step,
      data,
      share,
      evaluation,
      check,
      keep,
      save: async (progress, isBest) => {
        const { step } = progress
        const name = await saveRun(
          { model: ddp.module, optimizer },
          {
            group,
            place: this.#checkpoints,
            record: this.#record!,
            progress,
            samples: data.train.count,
            perEpoch: stepsPerEpoch(data.train.count, config.batchSize),
            isBest,
          },
        )
        onEvent({ event: 'checkpoint', step, name, isBest, rank })
      },
      look: async (inputs, scalars) => {
        try {
          const options = { checkInfinite: true }
          await detectAnomaly(runtime, stepFunction, types, inputs, scalars, options)
        } catch (error) {
          if (error instanceof TabringError && error.code === 'train.nan') return error.message
          throw error
        }
        return undefined
      },
    })
    await check.compare(group, steps)
    const seconds = (performance.now() - began) / 1000
    const result: TrainerResult = {
      steps,
      loss,
      testAccuracy: accuracy,
      bestAccuracy,
      paramHash: await check.digest(),
      samples,
      seconds,
      timeline: this.#timeline.entries,
      lostDevices: this.#recovery.lostDevices,
      record: this.#record,
    }
    // Nobody closes its links while another still needs them.
    await group.barrier()
    return result
  }

  /** Where the loop begins: at the newest kept state, at the checkpoint, or at the very beginning. */
  get #start(): Progress {
    return this.#kept.newest?.progress ?? this.#resumed?.progress ?? beginning
  }

  get #checkpoints(): CheckpointPlace {
    const { checkpoints } = this.#options
    if (checkpoints) return checkpoints
    throw new TabringError(
      'config.invalid',
      'checkpoints: expected a place for them, got none. Leave checkpointEvery and resume out.',
    )
  }

  /** Takes the checkpoint over, where there is one; rank 0 tells of it, once. */
  async #resume(parts: RunParts, record: RunRecord): Promise<void> {
    const resumed = this.#resumed
    if (!resumed) return
    await resumed.restore(parts)
    if (this.#group.rank !== 0 || this.#hasToldResume) return
    this.#hasToldResume = true
    const { step, bestAccuracy } = resumed.progress
    const epoch = resumed.epoch
    const differences = differencesOf(resumed.record, record)
    this.#options.onEvent({
      event: 'resumed',
      step,
      epoch,
      bestAccuracy,
      rank: 0,
      stepsLeft: resumed.stepsLeft,
      differences,
    })
  }

  /** What an earlier attempt has measured, on whichever rank it came so far, or the run that this one goes on from; else what the ranks measure now. */
  async #settleLinks(group: ProcessGroup): Promise<LinkMeasurement> {
    const told = await gatherJson(group, this.#links ?? null)
    const known = told.find((one) => one) ?? this.#savedRecord?.links
    if (known) group.choice = known.choice
    this.#links = known ?? (await measureLinks(group))
    return this.#links
  }

  /** Of the run that this one goes on from, as far as it has the same ranks. Files of earlier versions have only a part of it. */
  get #savedRecord(): Partial<RunRecord> | undefined {
    const saved = this.#resumed?.record
    return saved?.worldSize === this.#group.size ? saved : undefined
  }

  async #loop({ step, data, share, evaluation, check, keep, save, look }: Loop): Promise<Progress> {
    const { config, onEvent, signal } = this.#options
    const group = this.#group
    const { rank, size } = group
    const perEpoch = stepsPerEpoch(data.train.count, config.batchSize)
    const totalSteps = totalStepsOf(config, data.train.count)
    const rows = Math.max(1, share.rows)
    const pixels = new Float32Array(rows * data.train.height * data.train.width)
    const labels = new Int32Array(rows)
    const first = this.#start
    let order = epochOrder(config.seed, Math.floor(first.step / perEpoch), data.train.count)
    let { samples, loss, accuracy, bestAccuracy } = first
    let lastEnded = 0

    let isLost = false
    const underWay = this.#underWay
    const limit = size === 1 ? stepsAhead : 1
    for (let index = first.step; index < totalSteps; index++) {
      signal?.throwIfAborted()
      const began = performance.now()
      const epoch = Math.floor(index / perEpoch)
      const inEpoch = index % perEpoch
      if (inEpoch === 0 && index > first.step)
        order = epochOrder(config.seed, epoch, data.train.count)
      const own = shareIndices(order, config.batchSize, inEpoch, share)
      const global = batchSamples(data.train.count, config.batchSize, inEpoch)
      fillBatch(data.train, own, pixels, labels)
      this.#timeline.begin(step, index + 1, totalSteps)
      samples += own.length
      const inputs = { x: pixels, y: labels }
      const scalars = {
        count: own.length,
        [gradientWeight]: own.length / global,
        ...randomScalarsFor(step, index, share.offset),
      }
      if (index + 1 === this.#suspect || index + 2 === this.#suspect) {
        while (underWay.length > 0) await underWay.shift()
        this.#lookedAt = this.#suspect
        const found = own.length > 0 ? await look(inputs, scalars) : undefined
        await endIfAnyFound(group, index + 1, found)
      }
      const outputs = step.run(inputs, scalars)
      underWay.push(
        outputs.then((values) => {
          loss = values.loss[0]
          if (!Number.isFinite(loss)) {
            // Of steps under way at once the first is the one in question.
            if (!isLost) this.#suspect = index + 1
            isLost = true
            throw lossNotFinite(index + 1, loss, this.#lookedAt === index + 1 && size > 1)
          }
          if (index + 1 <= this.#told) return
          this.#told = index + 1
          const { parts, beganMs, endedMs } = timesOf(values)
          const from = Math.max(began, lastEnded)
          lastEnded = endedMs
          const total = endedMs - from
          this.#patience.stepped(total)
          const data = Math.max(0, beganMs - from)
          onEvent({
            event: 'step',
            step: index + 1,
            totalSteps,
            epoch,
            loss,
            rank,
            samples: own.length,
            times: { data, ...parts, total },
            bytesSent: group.stats().payloadBytesSent,
          })
        }),
      )
      // A later step that fails while an earlier one is awaited is not unhandled: it is awaited in its turn.
      underWay[underWay.length - 1].catch(() => undefined)
      while (underWay.length >= limit) await underWay.shift()
      const isLast = index + 1 === totalSteps
      const endsEpoch = inEpoch + 1 === perEpoch
      const isKept = (index + 1) % keepEvery === 0 && !isLast
      const { checkpointEvery: every } = config
      const isSaved =
        every !== undefined && (isLast || endsEpoch || (every > 0 && (index + 1) % every === 0))
      if (isLast || endsEpoch || isKept || isSaved || (index + 1) % config.hashEvery === 0) {
        while (underWay.length > 0) await underWay.shift()
      }
      if ((index + 1) % config.hashEvery === 0) await check.compare(group, index + 1)
      let isBest = false
      if (isLast || endsEpoch) {
        onEvent({ event: 'phase', phase: 'evaluate', rank })
        this.#patience.forSetup()
        accuracy = await evaluation.accuracy(group)
        isBest = accuracy > bestAccuracy
        if (isBest) bestAccuracy = accuracy
        if (index + 1 > this.#evaluated) {
          this.#evaluated = index + 1
          onEvent({ event: 'evaluation', step: index + 1, epoch, accuracy, rank })
        }
      }
      const progress = { step: index + 1, samples, loss, accuracy, bestAccuracy }
      if (isKept) await keep(progress)
      if (isSaved) {
        this.#patience.forSetup()
        await save(progress, isBest)
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

  async #loadData(): Promise<DataSplits> {
    const { config, baseUrl } = this.#options
    if (config.data === 'digits') return makeDigits()
    return loadIdxFolder(readUrlFolder(new URL(config.data, baseUrl)))
  }
}

/** What the loop works with. */
interface Loop {
  readonly step: StepProgram
  readonly data: DataSplits
  readonly share: Share
  readonly evaluation: Evaluation
  readonly check: ReplicaCheck
  /** Keeps the state where the run could go on from; between steps. */
  keep(progress: Progress): Promise<void>
  /** Saves a checkpoint; between steps, on all ranks. */
  save(progress: Progress, isBest: boolean): Promise<void>
  /** Names the op by which a step's values on this rank stop being finite, from what the parameters are now; sends nothing. */
  look(inputs: RunInputs, scalars: Readonly<Record<string, number>>): Promise<string | undefined>
}

const adapterOf = ({ facts: { vendor, architecture } }: AnyRuntime) => `${vendor} ${architecture}`

const lossNotFinite = (step: number, loss: number, isOfAll: boolean) =>
  new TabringError(
    'train.nan',
    `step ${step}: expected a finite loss, got ${loss}. Lower the learning rate, or check the data for values that are not numbers.${isOfAll ? " No rank's own samples lead to it: it comes of joining what the ranks have." : ''}`,
  )
