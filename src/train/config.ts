import * as v from 'valibot'
import { stepsPerEpoch } from '../data/shares.ts'
import { TabringError } from '../util/errors.ts'

/** Learning rate when none is given, by model. */
export const defaultLearningRate = { mlp: 1e-3, cnn: 3e-3 } as const

const count = (minimum: number) => v.pipe(v.number(), v.safeInteger(), v.minValue(minimum))

/**
 * Everything that decides a run's numbers, the same on every rank: the room's maker sends it with `start`.
 *
 * `batchSize` is global; `lr` undefined means the model's default; `steps` undefined means whole epochs.
 */
export const trainConfigSchema = v.object({
  model: v.optional(v.picklist(['mlp', 'cnn']), 'mlp'),
  /** `digits`: made procedurally in the tab. Otherwise the URL of a folder with the four IDX files, relative to the page. */
  data: v.optional(v.pipe(v.string(), v.nonEmpty(), v.maxLength(1000)), 'digits'),
  epochs: v.optional(count(1), 3),
  steps: v.optional(count(1)),
  batchSize: v.optional(count(1), 64),
  optimizer: v.optional(v.picklist(['adamw', 'sgd']), 'adamw'),
  lr: v.optional(v.pipe(v.number(), v.finite(), v.minValue(0))),
  seed: v.optional(count(0), 0),
  /** Undefined means that the group's links are measured. */
  bucketCapMb: v.optional(v.pipe(v.number(), v.finite(), v.gtValue(0))),
  /** Parameter hashes of all ranks are compared every so many steps. */
  hashEvery: v.optional(count(1), 50),
  /** A checkpoint is saved after so many steps, and at each epoch's end; 0: at the epochs' ends alone. Undefined: none is saved. */
  checkpointEvery: v.optional(count(0)),
  /** `latest`, `best`, or the name of a file: the checkpoint to go on from. Undefined or empty: the run starts anew. */
  resume: v.optional(v.pipe(v.string(), v.maxLength(200))),
  /** Measure kernel variants on rank 0 instead of taking the fixed table. */
  tune: v.optional(v.boolean(), false),
})

export type TrainConfig = v.InferOutput<typeof trainConfigSchema>
export type TrainConfigInput = v.InferInput<typeof trainConfigSchema>

/** Returns the settings with defaults filled in. errors: `config.invalid`, naming the setting. */
export function parseTrainConfig(input: unknown): TrainConfig {
  const result = v.safeParse(trainConfigSchema, input)
  if (result.success) return result.output
  const issue = result.issues[0]
  throw new TabringError(
    'config.invalid',
    `settings: ${v.getDotPath(issue) ?? 'settings'}: expected ${issue.expected ?? issue.message}, got ${issue.received}. Correct it and start again.`,
  )
}

/** The number of a run's last step, over so many training samples. */
export const totalStepsOf = ({ steps, epochs, batchSize }: TrainConfig, samples: number): number =>
  steps ?? epochs * stepsPerEpoch(samples, batchSize)
