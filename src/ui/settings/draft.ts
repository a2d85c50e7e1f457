import { type TransportChoice, transportChoices } from '../../peer/room/messages.ts'
import type { ConfigKey, TrainConfig } from '../../trainer/settings/config.ts'
import { learningRateOf } from '../../trainer/settings/demo-meta.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import { defaultOf } from '../../trainer/settings/row.ts'
import { checkpointWords } from './checkpoint-words.ts'
import {
  choicesOf,
  type Draft,
  isOfTab,
  maxRanks,
  metaOfDraft,
  placeholderOf,
  type Setting,
  type SettingKey,
  settings,
} from './list.ts'

/** The settings of a demo when nothing was chosen, as texts; by default those of the first one. */
export function defaultDraftOf(experiments: Experiments, demo = experiments.first): Draft {
  const { has, defaultsOf } = experiments
  const defaults: Record<string, unknown> = defaultsOf(has(demo) ? demo : undefined)
  const meta = metaOfDraft(experiments, { demo })
  const texts = settings.map((setting) => [
    setting.key,
    setting.onPage?.(meta) ?? toText(defaults[setting.key] ?? defaultOf(setting)),
  ])
  return { ...Object.fromEntries(texts), demo }
}

function toText(value: unknown): string {
  return value === undefined ? '' : String(value)
}

/** The draft after a person has set a field. Another demo brings its own settings. */
export function withSetting(
  experiments: Experiments,
  draft: Draft,
  key: SettingKey,
  value: string,
): Draft {
  if (key !== 'demo') return { ...draft, [key]: value }
  const kept = settings
    .filter(({ outlivesDemo }) => outlivesDemo)
    .map(({ key }) => [key, draft[key]])
  return { ...defaultDraftOf(experiments, value), ...Object.fromEntries(kept) }
}

/** The draft that gives `config`; what a tab keeps to itself is `own`'s. */
export function draftOf(config: TrainConfig, own: Draft): Draft {
  const texts = settings
    .filter(({ key }) => !isOfTab(key))
    .map(({ key }) => [key, toText(config[key as ConfigKey])])
  return { ...own, ...Object.fromEntries(texts) }
}

/** The draft of a tab that has chosen nothing but its demo, and how it entered the room. */
export function resetDraft(
  experiments: Experiments,
  { demo }: Draft,
  transport: TransportChoice,
  ranks: number,
): Draft {
  const fresh = defaultDraftOf(experiments, experiments.has(demo) ? demo : undefined)
  return { ...fresh, transport, ranks: String(ranks) }
}

/** With how many ranks a draft's tab enters the room, 0 to watch; a wrong number counts as one. */
export function ranksOf({ ranks }: Draft): number {
  const count = Number(ranks)
  return /^\d$/.test(ranks) && count <= maxRanks ? count : 1
}

/** The links that a draft asks for; a wrong one counts as automatic. */
export const transportOf = (draft: Draft): TransportChoice =>
  transportChoices.find((choice) => choice === draft.transport) ?? 'auto'

/** A setting of a run in words, for those who only read it. */
export function describeSetting(
  experiments: Experiments,
  setting: Setting,
  config: TrainConfig,
): string {
  if (isOfTab(setting.key)) return ''
  const meta = experiments.metaOf(config.demo)
  const value = config[setting.key]
  if (setting.kind === 'switch') return value ? 'yes' : 'no'
  if (setting.key === 'lr') return String(learningRateOf(config, meta))
  if (value === undefined || (setting.key === 'maxStepsPerSec' && value === 0))
    return placeholderOf(setting, config, meta) ?? '–'
  const words = choicesOf(experiments, setting, config).find(([choice]) => choice === value)?.[1]
  if (words === undefined && setting.key === 'resume') return checkpointWords(String(value))
  return words ?? (setting.unit ? `${value} ${setting.unit}` : String(value))
}
