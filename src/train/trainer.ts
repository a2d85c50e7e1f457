import { type DataSplits, loadIdxFolder, readUrlFolder } from '../data/dataset.ts'
import { makeDigits } from '../data/digits.ts'
import { planShares, stepsPerEpoch } from '../data/shares.ts'
import type { Bucket } from '../graph/bucket.ts'
import { compile } from '../graph/compile.ts'
import { detectAnomaly } from '../graph/detect-anomaly.ts'
import { prepare } from '../graph/prepare.ts'
import type { AnyRuntime } from '../graph/runtime.ts'
import type { StepProgram } from '../graph/step-program.ts'
import type { TuneStore } from '../kernels/tune.ts'
import { manualSeed } from '../nn/init.ts'
import { models } from '../nn/models.ts'
import type { StateDict } from '../nn/module.ts'
import { gatherJson } from '../peer/gather-json.ts'
import type { CollectiveSpan, ProcessGroup } from '../peer/group.ts'
import { type LinkMeasurement, measureLinks } from '../peer/measure-links.ts'
import { PeerError, TabringError } from '../util/errors.ts'
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
import { tellCollective } from './tell-collective.ts'
import { type LoopOptions, TrainingLoop } from './training-loop.ts'
import { makeOptimizer, stepTypesOf, trainingStep } from './training-step.ts'
import { ReplicaCheck } from './verify.ts'

export interface TrainerOptions extends RecoveryOptions, LoopOptions {
  readonly runtime: AnyRuntime
  readonly group: ProcessGroup
  /** Where relative data addresses start; the page's own address. */
  readonly baseUrl: string
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
  readonly #loop: TrainingLoop
  #runtime: AnyRuntime
  #group: ProcessGroup
  readonly #recovery: Recovery
  readonly #kept = new KeptStates()
  /** The checkpoint that this run goes on from. */
  #resumed: ResumedRun | undefined
  #hasToldResume = false

  constructor(options: TrainerOptions) {
    this.#options = options
    this.#runtime = options.runtime
    this.#group = options.group
    this.#patience = new Patience(options.group)
    this.#loop = new TrainingLoop(options)
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
    this.#loop.timeline.onSpan(span)
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
      if (this.#loop.hasLooked) throw error
      // A gradient that is not finite shows in the loss of the next step, so the step before is looked at too.
      this.#kept.backTo(this.#loop.suspect - 2)
    } else {
      const next = await this.#recovery.after(error, place, this.#kept, this.#loop.suspect)
      this.#runtime = next.runtime
      this.#loop.suspect = next.suspect
    }
    this.#patience.forSetup()
    // What a step may still give to the device must not meet buffers that are gone.
    await this.#loop.settle()
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
    } = await this.#loop.run({
      group,
      patience: this.#patience,
      step,
      data,
      share,
      evaluation,
      check,
      first: this.#start,
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
      timeline: this.#loop.timeline.entries,
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

  async #loadData(): Promise<DataSplits> {
    const { config, baseUrl } = this.#options
    if (config.data === 'digits') return makeDigits()
    return loadIdxFolder(readUrlFolder(new URL(config.data, baseUrl)))
  }
}

const adapterOf = ({ facts: { vendor, architecture } }: AnyRuntime) => `${vendor} ${architecture}`
