import * as v from 'valibot'
import { stepsPerEpoch } from '../../data/shares.ts'

const count = (minimum: number) => v.pipe(v.number(), v.safeInteger(), v.minValue(minimum))
const name = v.pipe(v.string(), v.nonEmpty(), v.maxLength(100))

/** Samples of a step, over all ranks: more than any demo's data has, and few enough that a step of small models fits a GPU. */
export const mostInBatch = 65_536

/** As `data`: a person gives the data to one rank, which sends it to the others. */
export const givenData = 'given'

/**
 * Everything that decides a run's numbers, the same on every rank: the room's maker sends it with `start`.
 *
 * `batchSize` is global; `lr` undefined means the model's default; `steps` undefined means whole epochs. Which models, data and settings a
 * demo has is in its meta: `parseTrainConfig` of `experiments.ts` fills in and judges both.
 */
export const trainConfigSchema = v.object({
  /** Which experiment: a folder under `demos`. */
  demo: name,
  model: name,
  /** A data set that the demo makes; `given`; or an address relative to the page, such as that of a folder with the four IDX files. */
  data: v.pipe(v.string(), v.nonEmpty(), v.maxLength(1000)),
  epochs: v.optional(count(1), 3),
  steps: v.optional(count(1)),
  batchSize: v.optional(v.pipe(count(1), v.maxValue(mostInBatch)), 64),
  optimizer: v.optional(v.picklist(['adamw', 'sgd']), 'adamw'),
  lr: v.optional(v.pipe(v.number(), v.finite(), v.minValue(0))),
  /** The norm of all gradients is scaled down to this at most. Undefined: nothing is clipped. */
  clipNorm: v.optional(v.pipe(v.number(), v.finite(), v.gtValue(0))),
  /** How the gradients of the ranks become one: all but the mean count each rank the same, and few of them cannot decide it. */
  aggregation: v.optional(v.picklist(['mean', 'clipped', 'trimmedMean', 'median']), 'mean'),
  /**
   * `strangers`: ranks whose gradients are far larger than those of the others are left out of a step. `auto`: `members`, unless the page that
   * starts the run has chosen otherwise.
   */
  trust: v.optional(v.picklist(['auto', 'members', 'strangers']), 'auto'),
  seed: v.optional(count(0), 0),
  /** `float16`: products under autocast, the loss scaled by a GradScaler. */
  precision: v.optional(v.picklist(['float32', 'float16']), 'float32'),
  /** `alone`: gradients are not exchanged; each rank trains a replica of its own from the same first parameters. */
  strategy: v.optional(v.picklist(['ddp', 'alone']), 'ddp'),
  /**
   * `dp`: each rank has the whole model. `fsdp`: parameters, gradients and optimizer state are divided over the ranks. `pp=N`: the layers are, in
   * pipelines of N stages; `pp=N,dp=M` also says how many pipelines.
   */
  parallel: v.optional(
    v.pipe(
      v.string(),
      v.check(
        (how) => how === 'dp' || how === 'fsdp' || pipelinesOf(how) !== undefined,
        'dp, fsdp, pp=N or pp=N,dp=M',
      ),
    ),
    'dp',
  ),
  /** Whether the run continues when a rank is lost, and admits newcomers, where it `isElastic`. */
  elastic: v.optional(v.boolean(), true),
  /** Whether the result is the same bits on any number of ranks: `ddp/exact`. */
  exact: v.optional(v.boolean(), false),
  /** With `exact`: into how many parts the batch falls; they decide the bits, not the ranks. */
  virtualWorkers: v.optional(v.pipe(count(1), v.maxValue(64)), 8),
  /** `own-slice`: each rank draws from its own contiguous part of the data, in the data's own order. */
  partition: v.optional(v.picklist(['shuffled', 'own-slice']), 'shuffled'),
  /** Undefined means that the group's links are measured. */
  bucketCapMb: v.optional(v.pipe(v.number(), v.finite(), v.gtValue(0))),
  /** Parameter hashes of all ranks are compared every so many steps. */
  hashEvery: v.optional(count(1), 50),
  /** Held-out samples are looked at after so many steps too, besides each epoch's end. */
  evaluateEvery: v.optional(count(1)),
  /** A checkpoint is saved after so many steps, and at each epoch's end; 0: at the epochs' ends alone. Undefined: none is saved. */
  checkpointEvery: v.optional(count(0)),
  /**
   * `asked`: any rank may save the run in its own place for checkpoints, as it goes on, in a pause and at the end; what cannot be written ends
   * nothing. `auto`: rank 0 also saves without being asked, every few seconds unless `checkpointEvery` says when, in each pause and at the end; with `exact` every rank.
   */
  saves: v.optional(v.picklist(['none', 'asked', 'auto']), 'none'),
  /** At most so many steps a second, so that people can follow; it changes no bits. Undefined or 0: as fast as they go. */
  maxStepsPerSec: v.optional(v.pipe(count(0), v.maxValue(1000))),
  /** `latest`, `best`, or the name of a file: the checkpoint to go on from. Undefined or empty: the run starts anew. */
  resume: v.optional(v.pipe(v.string(), v.maxLength(200))),
  /** Measure kernel variants on rank 0 instead of taking the fixed table. */
  tune: v.optional(v.boolean(), false),
})

export type TrainConfig = v.InferOutput<typeof trainConfigSchema>
export type TrainConfigInput = Partial<v.InferInput<typeof trainConfigSchema>>

/** The number of a run's last step, over so many training samples. */
export const totalStepsOf = ({ steps, epochs, batchSize }: TrainConfig, samples: number): number =>
  steps ?? epochs * stepsPerEpoch(samples, batchSize)

/** Whether a rank receives the gradients of each other one, and not only their sums or parts of a model. */
export const seesEachRank = ({
  exact,
  parallel,
  strategy,
}: Pick<TrainConfig, 'exact' | 'parallel' | 'strategy'>): boolean =>
  !exact && parallel === 'dp' && strategy === 'ddp'

/** Whether ranks may save a run when they want to. Replicas that differ are no one run. */
export const canBeSaved = ({ saves, strategy }: Pick<TrainConfig, 'saves' | 'strategy'>): boolean =>
  saves !== 'none' && strategy !== 'alone'

/** Whether a run continues with other ranks: it was asked to, and each rank has the whole of one model. */
export const isElastic = ({
  elastic,
  parallel,
  strategy,
}: Pick<TrainConfig, 'elastic' | 'parallel' | 'strategy'>): boolean =>
  elastic && parallel === 'dp' && strategy === 'ddp'

/** How many ranks `parallel` needs, in words, where it cannot have `ranks`: `4 ranks`, `a multiple of 2 ranks`. */
export function ranksNeeded(parallel: string, ranks: number): string | undefined {
  const pipelines = pipelinesOf(parallel)
  if (!pipelines) return undefined
  const { stages, replicas } = pipelines
  if (replicas) return stages * replicas === ranks ? undefined : `${stages * replicas} ranks`
  return ranks > 0 && ranks % stages === 0 ? undefined : `a multiple of ${stages} ranks`
}

/** The stages of each pipeline of a run, and how many pipelines: as many as the ranks allow where it is undefined. Undefined without pipelines. */
export function pipelinesOf(parallel: string): { stages: number; replicas?: number } | undefined {
  const [, stages, replicas] = /^pp=([2-9]|[1-9]\d)(?:,dp=([1-9]\d?))?$/.exec(parallel) ?? []
  if (!stages) return undefined
  return { stages: Number(stages), ...(replicas && { replicas: Number(replicas) }) }
}
