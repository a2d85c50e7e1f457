import { firstBucketBytesFor } from '../../ddp/data-parallel/bucket-size.ts'
import { DistributedDataParallel } from '../../ddp/data-parallel/data-parallel.ts'
import { ReplicaCheck } from '../../ddp/hashes/replica-check.ts'
import { compile } from '../../graph/compile/compile.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { prepare } from '../../graph/plan/prepare.ts'
import type { RunInputs, StepProgram } from '../../graph/plan/step-program.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import type { VariantTable } from '../../kernels/choose.ts'
import type { TuneStore } from '../../kernels/tune.ts'
import { manualSeed } from '../../nn/init.ts'
import type { GradScaler } from '../../optim/grad-scaler.ts'
import { Optimizer } from '../../optim/optimizer.ts'
import { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'
import { Evaluation } from '../evaluate/evaluate.ts'
import { type Draws, planDraws, ShareBatches } from '../evaluate/share-batches.ts'
import type { ExactRun } from '../exact/exact-run.ts'
import type { RunParts } from '../saves/kept-state.ts'
import { pipelinesOf, type TrainConfig } from '../settings/config.ts'
import type { Task, TaskData } from '../settings/task.ts'
import type { BitProof, Phase, RunEvent } from '../watch/run-events.ts'
import { settleVariants } from './settle-variants.ts'
import { replicated, type SharedModel } from './shared-model.ts'
import { forwardOf, makeOptimizer, randomScalarsFor, trainingStep } from './training-step.ts'

export interface RankSetupOptions {
  readonly config: TrainConfig
  readonly task: Task
  readonly data: TaskData
  readonly runtime: AnyRuntime
  readonly group: ProcessGroup
  /** Of buckets, where the settings leave it open. */
  readonly bucketCapMb: number
  readonly tuneStore?: TuneStore
  /** The kernels of an earlier attempt of the run, which are not measured again. */
  readonly variants?: VariantTable
  /** Of the run. */
  readonly stepsDone: number
  readonly onEvent: (event: RunEvent) => void
  readonly onPhase: (phase: Phase) => void
}

/** What a rank trains with on one device, in one group: its part of the model, the optimizer, the compiled programs. */
export interface RankSetup {
  readonly shared: SharedModel
  /** The ranks that train one model: the group, or with the strategy `alone` this rank. */
  readonly replicas: ProcessGroup
  readonly draws: Draws
  readonly batches: ShareBatches
  /** Rows of each rank's program. */
  readonly rowsOf: readonly number[]
  readonly buckets: readonly Bucket[]
  /** What a step changes. */
  readonly parts: RunParts
  readonly step: StepProgram
  readonly evaluation: Evaluation
  /** Where there are several replicas. */
  readonly check: Pick<ReplicaCheck, 'compare'> | undefined
  /** With `exact`: samples of a full batch that each rank begins with. */
  readonly dealt: readonly number[] | undefined
  /** With `exact`, before anything is restored: computes the first virtual worker of the run's first step (`ExactStep.prove`). */
  readonly prove: (() => Promise<BitProof>) | undefined
  /** Names the op by which a step's values on this rank stop being finite, from what the parameters are now; sends nothing. */
  findNotFinite(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>>,
  ): Promise<string | undefined>
  /** Frees what it has on the device. */
  destroy(): void
}

/** All ranks of the group call it. errors: `config.invalid`, `gpu.*`, those of the group. */
export async function setUpRank(options: RankSetupOptions): Promise<RankSetup> {
  const { config, task, data, runtime, group, onEvent, onPhase } = options
  const { rank } = group
  const isAlone = config.strategy === 'alone'
  const replicas = isAlone && group.size > 1 ? aloneIn(group) : group

  onPhase('broadcast')
  const shared = await shareModel(options, replicas)
  if (shared.held) onEvent({ event: 'divided', held: shared.held, rank })
  const { dataRanks, parts: partRanks } = shared
  // With the strategy `alone` each has a share of the batch, too.
  const at = isAlone ? group : dataRanks
  const exact = await exactOf(options, shared)
  const even = planDraws(config, data.train.count, at.rank, at.size)
  const rowsOf = even.shares.map(({ rows }) => exact?.rows ?? shared.rowsFor?.(rows) ?? rows)
  const ownRows = rowsOf[at.rank]
  const typesOf = (rows: number) => task.types(config, data, rows)
  const types = typesOf(ownRows)

  onPhase('compile')
  const optimizer = exact?.optimizer ?? makeOptimizer(task, shared, config)
  const isHalf = config.precision === 'float16'
  const scaler = isHalf && !exact ? await newScaler() : undefined
  const clip = exact ? undefined : await clipTo(config.clipNorm)
  const stepFunction =
    optimizer instanceof Optimizer
      ? trainingStep(task, shared, optimizer, scaler, clip)
      : forwardOf(task, shared, isHalf)
  runtime.variants = await settleVariants(
    options,
    rowsOf,
    (rows) => prepare(runtime, stepFunction, typesOf(rows)),
    options.variants,
  )
  const made: { destroy(): void }[] = []
  const destroy = () => {
    for (const one of [...made.splice(0), ...optimizer.buckets]) one.destroy()
  }
  try {
    const step = await (exact?.compile(runtime, stepFunction, types, options.stepsDone) ??
      compile(stepFunction, types, { runtime, ...(partRanks && { group: partRanks }) }))
    made.push(step)
    const evaluation = new Evaluation({
      runtime,
      model: shared.model,
      task,
      config,
      data,
      ranks: isAlone ? replicas : dataRanks,
      ...(partRanks && { parts: partRanks }),
      trainingRows: ownRows,
      ...(!shared.isWhole && !partRanks && { rowsOf }),
    })
    made.push(evaluation)
    let check = replicas.size > 1 ? exact?.check : undefined
    if (!exact && replicas.size > 1 && shared.isWhole) {
      const replicaCheck = await ReplicaCheck.create(runtime, optimizer.buckets)
      made.push(replicaCheck)
      check = replicaCheck
    }
    const draws = exact?.draws ?? even
    return {
      shared,
      replicas,
      draws,
      batches: new ShareBatches(task, data, draws, exact ? typesOf : () => types),
      rowsOf,
      buckets: optimizer.buckets,
      parts: { model: shared.module, optimizer, scaler: exact?.lossScale ?? scaler },
      step,
      evaluation,
      check,
      dealt: exact?.dealt,
      prove: exact && (() => exact.prove(data, types, randomScalarsFor(step, 0, 0))),
      findNotFinite: async (inputs, scalars) => {
        // One rank alone has a part of the parameters.
        if (!shared.isWhole || exact) return undefined
        const { detectAnomaly } = await loadPart(
          'the search for the op that gave NaN',
          () => import('../../graph/compile/detect-anomaly.ts'),
        )
        try {
          await detectAnomaly(runtime, stepFunction, types, inputs, scalars, {
            checkInfinite: true,
          })
        } catch (error) {
          if (error instanceof TabringError && error.code === 'train.nan') return error.message
          throw error
        }
        return undefined
      },
      destroy,
    }
  } catch (error) {
    destroy()
    throw error
  }
}

/** A group of this rank alone, for what it does not share with the others. */
export const aloneIn = ({ epoch, env }: Pick<ProcessGroup, 'epoch' | 'env'>): ProcessGroup =>
  new ProcessGroup({ rank: 0, size: 1, epoch, links: new Map(), env })

/** Makes the task's model, and divides it over the ranks where the settings say so. */
async function shareModel(
  { config, task, data, runtime, bucketCapMb }: RankSetupOptions,
  replicas: ProcessGroup,
): Promise<SharedModel> {
  manualSeed(config.seed)
  const model = task.model(config, data)
  if (config.parallel === 'fsdp' && replicas.size > 1) {
    const { sharded } = await loadPart('sharding', () => import('./sharded-model.ts'))
    return sharded(model, replicas)
  }
  if (pipelinesOf(config.parallel)) {
    const { pipelined } = await loadPart('pipelines', () => import('./pipelined-model.ts'))
    return pipelined(task, model, replicas, config.parallel, runtime)
  }
  if (config.exact) return replicated(model, model, replicas)
  const ddp = new DistributedDataParallel(model, {
    processGroup: replicas,
    // Buckets of another size would give other bits.
    bucketCapMb: config.bucketCapMb ?? bucketCapMb,
    ...(config.bucketCapMb === undefined && {
      firstBucketMb: firstBucketBytesFor(bucketCapMb * 2 ** 20) / 2 ** 20,
    }),
  })
  await ddp.ready
  return replicated(ddp, ddp.module, ddp.processGroup)
}

/** Undefined for a run without `exact`. */
async function exactOf(
  { config, task, data, group, onEvent }: RankSetupOptions,
  { module }: SharedModel,
): Promise<ExactRun | undefined> {
  if (!config.exact) return undefined
  const { exactRun } = await loadPart('exact training', () => import('../exact/exact-run.ts'))
  const { rank } = group
  return exactRun(task, module, config, data.train.count, group, (samples, step) =>
    onEvent({ event: 'dealt', step, samples, rank }),
  )
}

/** Clips gradients by their norm, inside a step. */
async function clipTo(most: number | undefined) {
  if (most === undefined) return undefined
  const { clipGradNorm } = await loadPart('clipping', () => import('../../optim/clip.ts'))
  return (parameters: readonly Parameter[]): void => void clipGradNorm(parameters, most)
}

async function newScaler(): Promise<GradScaler> {
  const scaling = await loadPart('float16', () => import('../../optim/grad-scaler.ts'))
  return new scaling.GradScaler()
}
