import * as v from 'valibot'
import { stepsPerEpoch } from '../../data/shares.ts'
import type { SettingRow } from './row.ts'
import { rows } from './table.ts'

/** As `data`: a person gives the data to one rank, which sends it to the others. */
export const givenData = 'given'

/** The schemas of rows, by key. */
const schemasOf = <Rows extends Readonly<Record<string, SettingRow>>>(own: Rows) =>
  Object.fromEntries(Object.entries(own).map(([key, { schema }]) => [key, schema])) as {
    [Key in keyof Rows]: Rows[Key]['schema']
  }

/**
 * Everything that decides a run's numbers, the same on every rank: the room's maker sends it with `start`.
 *
 * Which models, data and settings a demo has is in its meta: `parseTrainConfig` of `experiments.ts` fills in and judges both.
 */
export const trainConfigSchema = v.object({
  ...schemasOf(rows),
  /** Those of an earlier run that is computed again: a JSON text, which `Changes` judges. */
  changes: v.optional(v.string()),
})

export type { LiveKey } from './changes.ts'
export type TrainConfig = v.InferOutput<typeof trainConfigSchema>
export type TrainConfigInput = Partial<v.InferInput<typeof trainConfigSchema>>

/** The number of a run's last step, over so many training samples. */
export const totalStepsOf = ({ steps, epochs, batchSize }: TrainConfig, samples: number): number =>
  steps ?? epochs * stepsPerEpoch(samples, batchSize)

/** Tells whether a rank receives the gradients of each other one, and not only their sums or parts of a model. */
export const seesEachRank = ({
  exact,
  parallel,
  strategy,
}: Pick<TrainConfig, 'exact' | 'parallel' | 'strategy'>): boolean =>
  !exact && parallel === 'dp' && strategy === 'ddp'

/** Tells whether ranks may save a run when they want to. Replicas that differ are no one run. */
export const canBeSaved = ({ saves, strategy }: Pick<TrainConfig, 'saves' | 'strategy'>): boolean =>
  saves !== 'none' && strategy !== 'alone'

/** Tells whether a run continues with other ranks: it was asked to, and each rank has the whole of one model. */
export const isElastic = ({
  elastic,
  parallel,
  strategy,
}: Pick<TrainConfig, 'elastic' | 'parallel' | 'strategy'>): boolean =>
  elastic && parallel === 'dp' && strategy === 'ddp'

export type ConfigKey = keyof typeof rows

/** The settings whose rows answer yes, in the table's order. */
export const keysWhere = (is: (row: SettingRow) => unknown): ConfigKey[] =>
  (Object.keys(rows) as ConfigKey[]).filter((key) => is(rows[key]))
