import type { TrainConfig } from '../../trainer/settings/config.ts'
import { learningRateOf } from '../../trainer/settings/demo-meta.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import { checkDraft } from './check.ts'
import { draftOf } from './draft.ts'
import { type Draft, type SettingKey, settings } from './list.ts'

/** Returns the value that a setting of a run gets from a text. errors: one line for a person, where it cannot have that. */
export function liveValue(
  experiments: Experiments,
  draft: Draft,
  config: TrainConfig,
  key: SettingKey,
  text: string,
): number {
  const { known, errors } = checkDraft(experiments, { ...draftOf(config, draft), [key]: text })
  const error = errors[key]
  if (error) throw new Error(`${settings.find((one) => one.key === key)!.label}: ${error}.`)
  if (key !== 'lr') return known.maxStepsPerSec ?? 0
  const { demo, model } = config
  return learningRateOf({ model, lr: known.lr }, experiments.metaOf(demo))
}
